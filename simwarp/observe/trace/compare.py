"""Where two recordings first differ.

Examples
--------
One instruction is other than in the first kernel: the step that it is, and what came of it.

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
...     simwarp.Device(observers=[trace]).load(PTX.replace("MASK", mask)).kernel("k")((1, 1, 1), (32, 1, 1))
...     return trace
>>> print(compare(traced("7"), traced("15")))
register %r2 differs in step 1: kernel k, block (0, 0, 0), warp 0, lane 8, line 5 `and.b32 %r2, %r1, 7;`
first 0x00000000 (0; as f32 0.0), second 0x00000008 (8; as f32 1.1e-44); in 16 of 32 lanes
the second executed line 5 `and.b32 %r2, %r1, 15;`
>>> compare(traced("7"), traced("7")) is None
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np

from reference.errors import SchemeError
from simwarp.faults import Place
from simwarp.observe.trace.alignment import By, Integers, align, identities
from simwarp.observe.trace.difference import Difference, Key, between, warp_place
from simwarp.observe.trace.recorder import Trace
from simwarp.observe.trace.recording import Recording
from simwarp.observe.trace.rows import lengths
from simwarp.observe.trace.selection import TraceError


def compare(a: Trace | Recording, b: Trace | Recording, by: By = "ptx") -> Difference | None:
    """The first difference between two recordings, or None.

    That is the one with the fewest steps before it in its own warp, in the first launch that differs: what
    came of it elsewhere has more.

    Parameters
    ----------
    a, b : Trace or Recording
    by : {"ptx", "source", "lane"}
        What answers the n-th step of a warp. "ptx", for the same PTX: the n-th step. "source", for other
        PTX: the n-th step of the same source line; where a line became other instructions, only what these
        write to memory is compared. "lane", for other schedules: lanes are compared by themselves, in
        whatever company they executed a step.

    Raises
    ------
    TraceError
        If they did not take in the same.
    SchemeError
        For another ``by``.
    """
    found = differences(a, b, by)
    return min(found, key=lambda one: (one.launch, one.number), default=None)


def differences(a: Trace | Recording, b: Trace | Recording, by: By = "ptx") -> Iterator[Difference]:
    """The first difference of each warp that has one, by launch, block and warp; see `compare`."""
    if by not in get_args(By):
        raise SchemeError(f"traces compared by {by!r}\nchoose by='ptx', by='source' or by='lane'")
    first, second = (one.recording() if isinstance(one, Trace) else one for one in (a, b))
    if first.selection != second.selection:
        names = [name for name, value in first.selection.items() if value != second.selection.get(name)]
        raise TraceError(
            f"the traces did not take in the same: they differ in {', '.join(names) or 'what they name'}\n"
            f"first {first.selection}, second {second.selection}\n"
            "record both with the same arguments of Trace"
        )
    return _Comparison(first, second, by).differences()


class _Comparison:
    def __init__(self, a: Recording, b: Recording, by: By) -> None:
        self.a, self.b = a, b
        self.by: By = by
        self.identity_a, self.identity_b = identities(a, b, by)

    def differences(self) -> Iterator[Difference]:
        count = self.same_launches()
        for key in sorted(self.a.warps.keys() | self.b.warps.keys()):
            found = self.of_warp(key) if key[0] < count else None
            if found is not None:
                yield found
        if count < max(len(self.a.launches), len(self.b.launches)):
            yield self.other_launch(count)

    def same_launches(self) -> int:
        """How many launches the recordings have in common."""
        count = 0
        for one, other in zip(self.a.launches, self.b.launches, strict=False):
            same_size = (one.grid, one.block) == (other.grid, other.block)
            if not same_size or (self.by != "source" and one.kernel != other.kernel):
                break
            count += 1
        return count

    def other_launch(self, number: int) -> Difference:
        """The difference of launches that are not the same."""
        texts, places = list[str](), list[Place]()
        for launches in (self.a.launches, self.b.launches):
            launch = launches[number] if number < len(launches) else None
            texts.append(f"grid {launch.grid} of blocks {launch.block}" if launch else "no such launch")
            places.append(Place(kernel=launch.kernel) if launch else Place())
        values = f"first {texts[0]} of {places[0].kernel}, second {texts[1]} of {places[1].kernel}"
        advice = "record the same launches; with by='source' their kernels may have other names"
        return Difference("launch", number, 0, places[0], places[1], values=values, advice=advice)

    def of_warp(self, key: Key) -> Difference | None:
        """The first difference of a warp."""
        a, b = self.a.rows_of(key), self.b.rows_of(key)
        if not a.size or not b.size:
            which = "first" if not a.size else "second"
            places = warp_place(self.a, key), warp_place(self.b, key)
            return Difference("warp", key[0], 0, *places, values=f"the {which} has no step of this warp")
        if self.by == "source":
            a, b = a[self.identity_a[a] >= 0], b[self.identity_b[b] >= 0]
        if self.by != "lane" or self.of_rows(key, a, b) is None:
            return self.of_rows(key, a, b)
        every = [self.of_rows(key, _with_lane(self.a, a, n), _with_lane(self.b, b, n), n) for n in range(32)]
        return min((one for one in every if one is not None), key=lambda one: one.number, default=None)

    def of_rows(self, key: Key, a: Integers, b: Integers, lane: int | None = None) -> Difference | None:
        """The first difference of some rows of a warp; of one lane, if it is given."""
        keys = (self.identity_a[a], self.a.rows["kind"][a]), (self.identity_b[b], self.b.rows["kind"][b])
        first, second, rest, other_rest = align(self.by, *keys)
        first, second = a[first], b[second]
        at = self.first_unlike(first, second, lane)
        i = k = None
        extra = None if other_rest is None else int(b[other_rest])
        if at < first.size and (extra is None or int(second[at]) < extra):
            i, k = int(first[at]), int(second[at])
        elif extra is not None and (rest is None or at < first.size):
            k = extra
        elif rest is not None:
            i = int(a[rest])
        else:
            return None
        other = i is not None and k is not None and bool(self.identity_a[i] != self.identity_b[k])
        return between(self.a, self.b, key, i, k, self.by, lane, other_instruction=other)

    def first_unlike(self, first: Integers, second: Integers, lane: int | None) -> int:
        """Which pair of rows is the first that differs; as many as there are if none does."""
        a, b = self.a.rows[first], self.b.rows[second]
        unlike = self.identity_a[first] != self.identity_b[second]
        for name in ("kind", "space", "width", "item", *(["mask"] if lane is None else [])):
            unlike |= a[name] != b[name]
        count = int(unlike.argmax()) if unlike.any() else unlike.size
        words_a, words_b = self.a.words(first[:count], lane), self.b.words(second[:count], lane)
        other = words_a != words_b
        if other.any():
            sizes = lengths(a) if lane is None else a["item"]
            return int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), int(other.argmax()), "right"))
        return count


def _with_lane(recording: Recording, rows: Integers, lane: int) -> Integers:
    """Those of the rows that a lane takes part in."""
    return rows[recording.rows["mask"][rows] >> np.uint32(lane) & np.uint32(1) == 1]
