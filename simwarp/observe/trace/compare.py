"""The first difference of two recordings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from reference.errors import SchemeError
from reference.values import shortened
from simwarp.faults import Place
from simwarp.observe.trace.alignment import By, align, identities
from simwarp.observe.trace.model import (
    SPACES,
    Integers,
    Key,
    Recording,
    TracedInstruction,
    TraceError,
    Written,
    lanes_of,
    lengths,
)
from simwarp.observe.trace.recorder import Trace
from simwarp.observe.trace.text import with_bits

What: TypeAlias = Literal["launch", "warp", "path", "mask", "register", "address"]
_LAYOUT = ("space", "width", "item")
"""The columns that must be equal before the data of two rows can be compared."""


@shortened
@dataclass(frozen=True)
class Difference:
    """The first difference of a warp in two recordings.

    Attributes
    ----------
    what : str
        "launch": different launches; "warp": a warp that one recording lacks; "path": different
        instructions, accesses or faults, or an early end; "mask": different lanes; "register" or "address":
        different values.
    launch : int
    number : int
        The steps that the warp executed before the difference, in the first recording; in the second one if
        only that continues.
    place, other : Place
        Kernel, block, warp, lane and lines in the first and in the second recording.
    register, type : str
        The register that holds the values, and the PTX type with which the instruction writes it.
    first, second : int or None
        The two bit patterns, addresses or masks.
    lanes : int
        The mask of the lanes that differ.
    values, advice : str
        The second and third line of the message.

    Examples
    --------
    >>> from simwarp.faults import Place
    >>> print(Difference("mask", 0, 7, Place("mm"), Place("mm"), values="first lanes 0x1, second lanes 0x3"))
    the mask differs in step 7: kernel mm
    first lanes 0x1, second lanes 0x3
    """

    what: What
    launch: int
    number: int
    place: Place
    other: Place
    register: str = ""
    type: str = ""
    first: int | None = None
    second: int | None = None
    lanes: int = 0
    values: str = ""
    advice: str = ""

    def __str__(self) -> str:
        subject = f"register {self.register}" if self.what == "register" else f"the {self.what}"
        when = "" if self.what in ("launch", "warp") else f" in step {self.number}"
        first = f"{subject} differs{when}"
        first += f" of launch {self.launch}" if self.launch else ""
        return "\n".join(line for line in (f"{first}: {self.place}", self.values, self.advice) if line)

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object, with its message."""
        return {**asdict(self), "message": str(self)}


def compare(a: Trace | Recording, b: Trace | Recording, by: By = "ptx") -> Difference | None:
    """The first difference of two recordings, or None.

    It is the difference with the fewest steps before it in its warp, in the first launch that differs.

    Parameters
    ----------
    a, b : Trace or Recording
    by : {"ptx", "source", "lane"}
        How to match steps. "ptx", for equal PTX: the n-th steps of a warp. "source", for different PTX of one
        source: the n-th steps of a source line; where a line compiled to different instructions, only its
        writes to memory are compared. "lane", for different schedules: the n-th steps of each lane.

    Raises
    ------
    TraceError
        If the two were recorded with different arguments of `Trace`.
    SchemeError
        For an unknown ``by``.

    Examples
    --------
    >>> import simwarp
    >>> from simwarp.observe.trace import Trace
    >>> PTX = '''.version 9.0
    ... .target sm_90
    ... .visible .entry k() { .reg .b32 %r<4>;
    ...     mov.u32 %r1, %laneid;
    ...     and.b32 %r2, %r1, MASK;
    ...     mul.lo.u32 %r3, %r2, 10; ret; }'''
    >>> def traced(mask):
    ...     trace = Trace()
    ...     device = simwarp.Device(observers=[trace])
    ...     device.load(PTX.replace("MASK", mask)).kernel("k")((1, 1, 1), (32, 1, 1))
    ...     return trace
    >>> print(compare(traced("7"), traced("15")))
    register %r2 differs in step 1: kernel k, block (0, 0, 0), warp 0, lane 8, line 5 `and.b32 %r2, %r1, 7;`
    first 0x00000000 (0; as f32 0.0), second 0x00000008 (8; as f32 1.1e-44); in 16 of 32 lanes
    the second executed line 5 `and.b32 %r2, %r1, 15;`
    >>> compare(traced("7"), traced("7")) is None
    True
    """
    return min(differences(a, b, by), key=lambda one: (one.launch, one.number), default=None)


def differences(a: Trace | Recording, b: Trace | Recording, by: By = "ptx") -> Iterator[Difference]:
    """The first difference of each warp that differs, in the order of launch, block and warp.

    Parameters and errors are those of `compare`.

    Examples
    --------
    >>> from simwarp.observe.trace import Trace
    >>> list(differences(Trace(), Trace()))
    []
    """
    if by not in get_args(By):
        raise SchemeError(f"traces compared by {by!r}\nchoose by='ptx', by='source' or by='lane'")
    first, second = (one.recording() if isinstance(one, Trace) else one for one in (a, b))
    if first.selection != second.selection:
        names = [name for name, value in first.selection.items() if value != second.selection.get(name)]
        raise TraceError(
            f"the traces were recorded with different {', '.join(names) or 'arguments'}\n"
            f"first {first.selection}, second {second.selection}\n"
            "record both with the same arguments of Trace"
        )
    return _Comparison(first, second, by).differences()


class _Comparison:
    """Compares the rows of two recordings; rows that should agree have the same identity."""

    def __init__(self, a: Recording, b: Recording, by: By) -> None:
        self.a, self.b = a, b
        self.by: By = by
        self.identity_a, self.identity_b = identities(a, b, by)

    def differences(self) -> Iterator[Difference]:
        sizes = [
            [(x.grid, x.block, x.kernel if self.by != "source" else "") for x in r.launches]
            for r in (self.a, self.b)
        ]
        count = next((i for i, (x, y) in enumerate(zip_longest(*sizes)) if x != y), len(sizes[0]))
        for key in sorted(self.a.warps.keys() | self.b.warps.keys()):
            found = self.of_warp(key) if key[0] < count else None
            if found is not None:
                yield found
        if count < max(map(len, sizes)):
            yield self.of_launch(count)

    def of_launch(self, number: int) -> Difference:
        """The difference between two launches with a number; or of a launch that only one recording has."""
        texts, places = list[str](), list[Place]()
        for launches in (self.a.launches, self.b.launches):
            launch = launches[number] if number < len(launches) else None
            texts.append(f"grid {launch.grid} of blocks {launch.block}" if launch else "no such launch")
            places.append(Place(kernel=launch.kernel) if launch else Place())
        values = f"first {texts[0]} of {places[0].kernel}, second {texts[1]} of {places[1].kernel}"
        advice = "record the same launches; with by='source' their kernels may have other names"
        return Difference("launch", number, 0, places[0], places[1], values=values, advice=advice)

    def of_warp(self, key: Key) -> Difference | None:
        """The first difference between the two recordings of one warp; None if they agree."""
        a, b = self.a.rows_of(key), self.b.rows_of(key)
        if not a.size or not b.size:
            which = "first" if not a.size else "second"
            places = _place(self.a, key, None, None), _place(self.b, key, None, None)
            return Difference("warp", key[0], 0, *places, values=f"the {which} has no step of this warp")
        if self.by == "source":
            a, b = a[self.identity_a[a] >= 0], b[self.identity_b[b] >= 0]
        found = self.of_rows(key, a, b)
        if self.by != "lane" or found is None:
            return found
        every = [self.of_rows(key, _with_lane(self.a, a, n), _with_lane(self.b, b, n), n) for n in range(32)]
        return min((one for one in every if one is not None), key=lambda one: one.number, default=None)

    def of_rows(self, key: Key, a: Integers, b: Integers, lane: int | None = None) -> Difference | None:
        """The first difference between rows of a warp in both recordings, or between one lane of them."""
        first, second, rest, other_rest = align(self.by, self.identity_a[a], self.identity_b[b])
        first, second = a[first], b[second]
        at = self.first_unlike(first, second, lane)
        extra = None if other_rest is None else int(b[other_rest])
        if at < first.size and (extra is None or int(second[at]) < extra):
            return self.between(key, int(first[at]), int(second[at]), lane)
        if extra is not None and (rest is None or at < first.size):
            return self.between(key, None, extra, lane)
        return None if rest is None else self.between(key, int(a[rest]), None, lane)

    def first_unlike(self, first: Integers, second: Integers, lane: int | None) -> int:
        """The index of the first differing pair of rows; the number of pairs if all are equal."""
        a, b = self.a.rows[first], self.b.rows[second]
        unlike = self.identity_a[first] != self.identity_b[second]
        for name in (*_LAYOUT, *(["mask"] if lane is None else [])):
            unlike |= a[name] != b[name]
        count = int(unlike.argmax()) if unlike.any() else unlike.size
        other = self.a.words(first[:count], lane) != self.b.words(second[:count], lane)
        if other.any():
            sizes = lengths(a) if lane is None else a["item"]
            return int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), int(other.argmax()), "right"))
        return count

    def between(self, key: Key, i: int | None, k: int | None, lane: int | None) -> Difference:
        """The difference of two matched rows, or of an unmatched row, where the other index is None."""
        a, b = self.a, self.b
        number = b.steps_before(key, k or 0) if i is None else a.steps_before(key, i)
        whole = Difference("path", key[0], number, _place(a, key, i, lane), _place(b, key, k, lane))
        if i is None or k is None or not self.same_event(i, k):
            values = f"first: {_event(a, i)}; second: {_event(b, k)}"
            return replace(whole, values=values, advice=self.other_by(same_code=a.codes == b.codes))
        masks = int(a.rows["mask"][i]), int(b.rows["mask"][k])
        if lane is None and masks[0] != masks[1]:
            values = f"first lanes {masks[0]:#010x}, second lanes {masks[1]:#010x}"
            whole = replace(whole, values=values, advice=self.other_by(same_code=True))
            return _at_lanes(whole, "mask", lanes_of(masks[0] ^ masks[1]), *masks)
        lanes = lanes_of(masks[0]) if lane is None else [lane]
        one, other = a.instruction(i), b.instruction(k)
        place = f"--launch {key[0]} --block {key[1]} --warp {key[2]}"
        advice = f"see the steps before it: simwarp trace show FILE {place}"
        if one is not None and other is not None and one.text != other.text:
            advice = f"the second executed line {other.line} `{other.text}`"
        for first, second in zip(_values(a, i, one), _values(b, k, one), strict=True):
            held = [
                dict(zip(lanes_of(mask), written.words.tolist(), strict=True))
                for mask, written in zip(masks, (first, second), strict=True)
            ]
            differ = [n for n in lanes if held[0][n] != held[1][n]]
            if differ:
                bits = [words[differ[0]] for words in held]
                shown = [with_bits(word, first.type) if first.name else f"{word:#x}" for word in bits]
                values = f"first {shown[0]}, second {shown[1]}; in {len(differ)} of {len(lanes)} lanes"
                whole = replace(whole, register=first.name, type=first.type, values=values, advice=advice)
                return _at_lanes(whole, "register" if first.name else "address", differ, *bits)
        raise ValueError("the rows are alike")

    def same_event(self, i: int, k: int) -> bool:
        """True if two rows have the same instruction or access, so that their data can be compared."""
        same = all(self.a.rows[name][i] == self.b.rows[name][k] for name in _LAYOUT)
        return same and bool(self.identity_a[i] == self.identity_b[k])

    def other_by(self, same_code: bool) -> str:
        """Advice to compare by another key where paths differ; "" if none helps."""
        if self.by == "ptx" and same_code:
            return "to compare traces of different schedules, use by='lane'"
        return "" if self.by == "source" or same_code else "to compare different PTX, use by='source'"


def _with_lane(recording: Recording, rows: Integers, lane: int) -> Integers:
    """The indices of the rows whose mask contains a lane."""
    return rows[recording.rows["mask"][rows] >> np.uint32(lane) & np.uint32(1) == 1]


def _place(recording: Recording, key: Key, i: int | None, lane: int | None) -> Place:
    """The location of a warp's row; for None, the location of the warp itself."""
    launch, block, warp = key
    place = Place(recording.launches[launch].kernel, recording.block_of(launch, block), warp, lane)
    it = None if i is None else recording.instruction(i)
    if it is None:
        return place
    source = {"source_file": it.source_file, "source_line": it.source_line} if it.source_file else {}
    return replace(place, line=it.line, text=it.text, **source)


def _at_lanes(whole: Difference, what: What, lanes: list[int], first: int, second: int) -> Difference:
    """A difference of values in some lanes, located at the first of them."""
    place, other = (replace(one, lane=lanes[0]) for one in (whole.place, whole.other))
    mask = sum(1 << lane for lane in lanes)
    return replace(whole, what=what, place=place, other=other, first=first, second=second, lanes=mask)


def _values(recording: Recording, i: int, instruction: TracedInstruction | None) -> list[Written]:
    """The data of a row: its registers, with the layout of ``instruction``, or its addresses."""
    if recording.kind(i) == "step" and instruction is not None:
        return recording.written(i, instruction)
    return [Written("", "b64", recording.row_data(i).view("<u8"))]


def _event(recording: Recording, i: int | None) -> str:
    """Describe a row for a message; "nothing more" for None."""
    if i is None:
        return "nothing more"
    it, kind = recording.instruction(i), recording.kind(i)
    if it is None:
        fault = recording.message(i).partition("\n")[0]
        return f"fault, {fault}" if fault else "a barrier passed"
    where = f"line {it.line} `{it.text}`"
    if kind == "step":
        return where
    row = recording.rows[i]
    return f"{kind} of {int(row['width'])} bytes of {SPACES[int(row['space'])]} memory, {where}"
