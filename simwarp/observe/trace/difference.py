"""The first thing in which a warp of two recordings differs, in words.

Two lanes are given another number:

>>> import simwarp
>>> from simwarp.observe.trace import Trace
>>> def recorded(number):
...     trace = Trace()
...     ptx = ".version 9.0 .target sm_90 .entry k() { .reg .b32 %r; mov.u32 %r, NUMBER; ret; }"
...     kernel = simwarp.Device(observers=[trace]).load(ptx.replace("NUMBER", number)).kernel("k")
...     kernel((1, 1, 1), (2, 1, 1))
...     return trace.recording()
>>> difference = between(recorded("3"), recorded("4"), (0, 0, 0), 0, 0, "ptx")
>>> difference.what, difference.register, difference.first, difference.second, difference.lanes
('register', '%r', 3, 4, 3)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from simwarp.faults import Place
from simwarp.observe.trace.alignment import By
from simwarp.observe.trace.record import lanes_of
from simwarp.observe.trace.recording import Recording
from simwarp.observe.trace.rows import KINDS, SPACES
from simwarp.observe.trace.values import spelled

What: TypeAlias = Literal["launch", "warp", "path", "mask", "register", "address"]
Key: TypeAlias = "tuple[int, int, int]"
"""The numbers of a launch, a block and a warp."""

_STEP, _FAULT = KINDS.index("step"), KINDS.index("fault")


@dataclass(frozen=True)
class Difference:
    """The first thing in which a warp of two recordings differs.

    Attributes
    ----------
    what : str
        "launch": other launches; "warp": a warp that one of them lacks; "path": another instruction, access
        or fault, or an end; "mask": other lanes; "register" or "address": another value.
    launch : int
    number : int
        How many steps the warp had executed before: in the first recording, or, if only the second one
        goes on, in that.
    place, other : Place
        In the first and in the second recording: kernel, block, warp, lane and lines.
    register, type : str
        What holds the values, and the PTX type in which the instruction writes it.
    first, second : int or None
        The bits of both values, the addresses, or the masks.
    lanes : int
        A mask: where they differ.
    values, advice : str
        The second and third line of the message.
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
        """The same as plain data, with its message."""
        return {**asdict(self), "message": str(self)}


def between(
    a: Recording,
    b: Recording,
    key: Key,
    i: int | None,
    k: int | None,
    by: By,
    lane: int | None = None,
    *,
    other_instruction: bool = False,
) -> Difference:
    """The difference of two rows that answer each other and are not alike, or of one without an answer.

    Parameters
    ----------
    a, b : Recording
    key : (launch, block, warp)
    i, k : int or None
        The rows of the two recordings; None where the warp does nothing more.
    by : str
    lane : int, optional
        The only lane that counts.
    other_instruction : bool
        Whether they are of instructions that are not the same.
    """
    number = a.steps_before(key, i) if i is not None else b.steps_before(key, k or 0)
    whole = Difference("path", key[0], number, row_place(a, key, i), row_place(b, key, k))
    whole = whole if lane is None else _in_lane(whole, lane)
    if i is None or k is None or other_instruction or not _comparable(a, b, i, k):
        advice = _other_way(by, same_code=a.codes == b.codes)
        return replace(whole, values=f"first: {_does(a, i)}; second: {_does(b, k)}", advice=advice)
    masks = int(a.rows["mask"][i]), int(b.rows["mask"][k])
    if lane is None and masks[0] != masks[1]:
        return _masks(replace(whole, advice=_other_way(by, same_code=True)), *masks)
    whole = replace(whole, advice=_advice(a, b, key, i, k))
    return _values(whole, a, b, i, k, lanes_of(masks[0]) if lane is None else [lane])


def _other_way(by: By, same_code: bool) -> str:
    """What to compare by instead, where paths differ."""
    if by == "ptx" and same_code:
        return "lanes that run in another order, or apart, are compared with by='lane'"
    return "" if by == "source" or same_code else "kernels from other PTX are compared with by='source'"


def warp_place(recording: Recording, key: Key) -> Place:
    """The place of a warp."""
    launch, block, warp = key
    return Place(recording.launches[launch].kernel, recording.block_of(launch, block), warp)


def row_place(recording: Recording, key: Key, i: int | None) -> Place:
    """The place of a row: with its line, if it has one."""
    place = warp_place(recording, key)
    it = None if i is None else recording.instruction(i)
    if it is None:
        return place
    source = {"source_file": it.source_file, "source_line": it.source_line} if it.source_file else {}
    return replace(place, line=it.line, text=it.text, **source)


def _comparable(a: Recording, b: Recording, i: int, k: int) -> bool:
    return all(a.rows[name][i] == b.rows[name][k] for name in ("kind", "space", "width", "item"))


def _masks(whole: Difference, first: int, second: int) -> Difference:
    lanes = first ^ second
    values = f"first lanes {first:#010x}, second lanes {second:#010x}"
    whole = _in_lane(whole, lanes_of(lanes)[0])
    return replace(whole, what="mask", first=first, second=second, lanes=lanes, values=values)


def _values(whole: Difference, a: Recording, b: Recording, i: int, k: int, lanes: list[int]) -> Difference:
    """The first register, and the first of the lanes, that differ between two rows."""
    it = a.instruction(i)
    registers, layout = (("", "b64"),), np.dtype([("word0", "<u8")])
    if a.rows["kind"][i] == _STEP and it is not None:
        registers, layout = it.registers, it.layout
    lane = lanes[0] if len(lanes) == 1 else None
    words_a, words_b = (r.words(np.array([row]), lane).view(layout) for r, row in ((a, i), (b, k)))
    for (name, kind), field in zip(registers, layout.names or (), strict=True):
        differ = np.flatnonzero(words_a[field] != words_b[field])
        if differ.size:
            first, second = int(words_a[field][differ[0]]), int(words_b[field][differ[0]])
            shown = [spelled(bits, kind) if name else f"{bits:#x}" for bits in (first, second)]
            whole = _in_lane(whole, lanes[int(differ[0])])
            return replace(
                whole,
                what="register" if name else "address",
                register=name,
                type=kind,
                first=first,
                second=second,
                lanes=sum(1 << lanes[n] for n in differ.tolist()),
                values=f"first {shown[0]}, second {shown[1]}; in {differ.size} of {len(lanes)} lanes",
            )
    raise ValueError("the rows are alike")


def _in_lane(whole: Difference, lane: int) -> Difference:
    return replace(whole, place=replace(whole.place, lane=lane), other=replace(whole.other, lane=lane))


def _does(recording: Recording, i: int | None) -> str:
    """What a row says that a warp did."""
    if i is None:
        return "nothing more"
    row, it = recording.rows[i], recording.instruction(i)
    kind = KINDS[int(row["kind"])]
    if it is None:
        fault = recording.faults[int(row["step"])].partition("\n")[0] if kind == "fault" else ""
        return f"fault, {fault}" if fault else "a barrier passed"
    where = f"line {it.line} `{it.text}`"
    if kind == "step":
        return where
    return f"{kind} of {int(row['width'])} bytes of {SPACES[int(row['space'])]} memory, {where}"


def _advice(a: Recording, b: Recording, key: Key, i: int, k: int) -> str:
    """Where to look on."""
    one, other = a.instruction(i), b.instruction(k)
    if one is not None and other is not None and one.text != other.text:
        return f"the second executed line {other.line} `{other.text}`"
    return f"see what led there: simwarp trace show FILE --launch {key[0]} --block {key[1]} --warp {key[2]}"
