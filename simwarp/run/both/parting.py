"""The first instruction at which a thread has another result on the second device.

Both devices run the same instrumented PTX (see `simwarp.run.both.instrument`), which records what one warp
computes. Where the first result of a thread that differs comes from another lane or thread, the search goes
on there. Each step is a launch on either device.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simwarp.checks import KINDS
from simwarp.engine.events import Observer, WriteEvent
from simwarp.engine.places import Geometry
from simwarp.faults import KernelFault, Place
from simwarp.lanes import WARP_SIZE
from simwarp.observe.trace.model import block_number
from simwarp.places import Note
from simwarp.ptx.kinds import ATOMIC, LOAD
from simwarp.run.arguments import Argument
from simwarp.run.both.devices import Dump, Second, Words, answer
from simwarp.run.both.instrument import (
    BLOCK,
    FIRST,
    HEADER,
    MANY,
    NOBODY,
    THREAD,
    WARP,
    WRITER,
    Point,
    instrumented,
    points_of,
)
from simwarp.run.both.last_store import Stored, last_store
from simwarp.run.both.records import Lane, Parted, Window, differences_of
from simwarp.run.both.results import Parting
from simwarp.run.work import Work

LAUNCHES = 15
"""The most launches on the second device."""
_WINDOWS = (1 << 11, 1 << 16)
"""The records of each lane that the first launch of a warp keeps, and each later one."""
_CHECKS = dict.fromkeys(KINDS, "off") | {"registers": "report", "uninitialised": "report"}
"""Checks that tell undefined values; the kernel's faults are known."""


@dataclass(frozen=True)
class Found:
    """A difference: the launch on both devices, and the byte of an argument that shows it first."""

    work: Work
    other: Work  # on the second device; tests give it edited PTX
    chip: Second
    make: Callable[..., Any]
    position: int
    offset: int
    writer: Place | None  # on the simulator
    show: Callable[[str], object]


@dataclass(frozen=True)
class Thread:
    """A thread of a launch: the number of its block, its warp there, and its lane."""

    block: int
    warp: int
    lane: int


def find_parting(found: Found) -> Parting:
    """Where the two devices part."""
    search = _Search(found)
    try:
        return replace(search.parting(), launches=search.launches)
    except _TooLongError:
        note = f"{LAUNCHES} launches, the most, found none: the first records of each thread agree"
        return Parting("lost", Place(), note=note, launches=search.launches)


class _TooLongError(Exception):
    """The launches are used up."""


@dataclass
class _Traced:
    """What was recorded of a warp: windows of both devices, with the undefined records; and its lanes."""

    points: list[Point]
    differences: set[int]  # of addresses, see `Lane`
    windows: list[tuple[Window, Window, Any]] = field(default_factory=list[tuple[Window, Window, Any]])
    ended: bool = False
    _lanes: dict[int, tuple[Lane, int]] = field(default_factory=dict[int, tuple[Lane, int]])

    def lane(self, number: int) -> Lane:
        """A lane, read up to its first difference, or through all windows."""
        lane, read = self._lanes.get(number, (Lane(number, self.points, self.differences), 0))
        for one, other, undefined in self.windows[read:]:
            if lane.parted is None:
                whole = int(one.counts[number]), int(other.counts[number])
                lane.read(one.lane(number), other.lane(number), undefined[number], whole)
        self._lanes[number] = lane, len(self.windows)
        return lane


@dataclass
class _Search:
    """The state of a search: the instrumented kernels, the warps that were traced, and the launches."""

    found: Found
    launches: int = 0
    writer: Thread | None = None  # on the second device
    traced: dict[tuple[int, int], _Traced] = field(default_factory=dict[tuple[int, int], _Traced])
    differences: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        work, other = self.found.work, self.found.other
        self.points = points_of(work.source, work.kernel.name)
        self.other_points = points_of(other.source, other.kernel.name)
        self.here, self.there = (_recording(one) for one in (work, other))
        self.geometry = Geometry(work.kernel.name, work.grid, work.block, work.source.files)
        self.warps = -(-math.prod(work.block) // WARP_SIZE)

    # ---- the search ------------------------------------------------------------------------------------

    def parting(self) -> Parting:
        """Trace the writers of the byte on both devices, the second device's first."""
        here = self._thread(self.found.writer)
        first = here or Thread(NOBODY, 0, 0)
        self.trace(first)
        there = self.writer
        for thread in dict.fromkeys(one for one in (there, here) if one is not None):
            parted = self.of_thread(thread)
            if parted is not None:
                return self.followed(thread, parted)
        return self.nothing(here, there)

    def nothing(self, here: Thread | None, there: Thread | None) -> Parting:
        """The result without a difference in the threads that wrote the byte."""
        if here is None and there is None:
            note = "no thread wrote the element by a store of its own: copies and surfaces are not followed"
        elif here is not None and there is not None and here != there:
            note = (
                f"{self._place(here, None)} writes it last on the simulator, {self._place(there, None)} "
                "on the other device, and both compute the same there: the order of threads decides"
            )
        else:
            note = (
                "its thread computes the same on both devices when registers are stored: ptxas then fuses or "
                "orders operations differently, or the difference comes and goes"
            )
        return Parting("lost", Place(), note=note)

    def of_thread(self, thread: Thread) -> Parted | None:
        """The first difference of a thread; None if there is none."""
        return self.trace(thread).lane(thread.lane).parted

    def followed(self, thread: Thread, parted: Parted) -> Parting:
        """Follow a difference to the lane or thread that it was read from, as far as that differs, too."""
        steps: list[Note] = []
        seen = {thread}
        note = ""
        while parted.what == "register" and self.launches < LAUNCHES:
            source, note = self._source(thread, parted)
            if source is None or source[0] in seen:
                break
            steps.append(Note("shown by", self._place(thread, parted.point)))
            thread, parted = source
            seen.add(thread)
            note = ""
        return self._part(thread, parted, tuple(steps), note)

    def _source(self, thread: Thread, parted: Parted) -> tuple[tuple[Thread, Parted] | None, str]:
        """The earlier difference that explains one, if there is any; else what is known of its value."""
        row = parted.point.row
        if row is None:
            return None, ""
        if row.kind.together == "warp":
            return self._in_warp(thread, parted), ""
        if row.kind not in (LOAD, ATOMIC) or ".param" in parted.point.instruction.opcode:
            return None, ""
        self.found.show("looking for the thread that wrote what it read")
        store = last_store(self.found.work, self.found.make, thread, parted.point, parted.iteration)
        if store is None:
            return None, ""
        other = Thread(store.block, store.warp, store.lane)
        place = self._place(other, None)
        note = f"it reads what {place} wrote at line {store.line}, alike on both devices"
        if other == thread:
            return None, note
        there = self.of_thread(other)
        if there is None or there.position > self._position(other, store):
            return None, note
        return (other, there), ""

    def _in_warp(self, thread: Thread, parted: Parted) -> tuple[Thread, Parted] | None:
        """An earlier difference in another lane, ahead of an instruction that exchanges values of lanes."""
        traced, number, earlier = self.traced[thread.block, thread.warp], parted.point.number, list[Parted]()
        for lane in map(traced.lane, range(WARP_SIZE)):
            times, one = lane.positions.get(number, []), lane.parted
            at = times[parted.iteration] if len(times) > parted.iteration else None
            if one is not None and one.point.number != number and (at is None or one.position < at):
                earlier.append(one)
        if not earlier:
            return None
        first = min(earlier, key=lambda one: one.position)
        return replace(thread, lane=first.lane), first

    def _position(self, thread: Thread, store: Stored) -> int:
        """The position of a store among the records of its thread; beyond all that were read if unknown."""
        lane = self.traced[thread.block, thread.warp].lane(thread.lane)
        for point in self.points:
            if (point.instruction.line, point.instruction.opcode) == (store.line, store.opcode):
                times = lane.positions.get(point.number, [])
                return times[store.ordinal] if store.ordinal < len(times) else lane.position
        return lane.position

    # ---- the result ------------------------------------------------------------------------------------

    def _part(self, thread: Thread, parted: Parted, steps: tuple[Note, ...], note: str) -> Parting:
        point, part = parted.point, parted.part
        if parted.what == "lost":
            note = "the thread's way depends on a clock, or on a value that is not defined"
        here, there = (" ".join(p[point.number].instruction.text.split()) for p in self._both())
        return Parting(
            parted.what,
            self._place(thread, point),
            "" if part is None else part.name if part.type else "",
            "" if part is None else part.type,
            parted.simulator,
            parted.other,
            parted.iteration,
            there if there != here else "",
            steps,
            note,
        )

    def _both(self) -> tuple[list[Point], list[Point]]:
        return self.points, self.other_points

    def _place(self, thread: Thread, point: Point | None) -> Place:
        """The place of a thread, at an instruction or anywhere."""
        number = (thread.block * self.warps + thread.warp) * WARP_SIZE + thread.lane
        place = self.geometry.place_at(number, (point or self.points[0]).instruction)
        if point is not None:
            return place
        return replace(place, kernel="", line=None, text="", source_file=None, source_line=None, callers=())

    def _thread(self, place: Place | None) -> Thread | None:
        if place is None or place.block is None or place.warp is None or place.lane is None:
            return None
        return Thread(block_number(place.block, self.found.work.grid), place.warp, place.lane)

    # ---- the launches ----------------------------------------------------------------------------------

    def trace(self, thread: Thread) -> _Traced:
        """The records of a thread's warp, until the thread's first difference or the end."""
        key = thread.block, thread.warp
        traced = self.traced.setdefault(key, _Traced(self.points, self.differences))
        first = sum(window.records.shape[1] for window, _, _ in traced.windows)
        while not traced.ended and traced.lane(thread.lane).parted is None:
            window = self._launch(key, first, _WINDOWS[min(first, 1)])
            traced.windows.append(window)
            first += window[0].records.shape[1]
            traced.ended = first >= max(int(one.counts.max()) for one in window[:2])
        return traced

    def _launch(self, key: tuple[int, int], first: int, many: int) -> tuple[Window, Window, Any]:
        """Run the instrumented kernel on both devices."""
        if self.launches >= LAUNCHES:
            raise _TooLongError
        self.launches += 1
        where = f"block {key[0]}, warp {key[1]}, from record {first} on"
        self.found.show(f"launch {self.launches} of at most {LAUNCHES}: {where}")
        words = np.zeros(HEADER + WARP_SIZE * many * 2, np.uint64)
        words[[FIRST, MANY, BLOCK, WARP]] = first, many, key[0], key[1]
        words[WRITER] = NOBODY
        dump = Dump(words, (self.found.position, self.found.offset))
        watcher = _Undefined()
        given: Any = {"checks": _CHECKS, "observers": [watcher], "stdout": io.StringIO()}
        device = self.found.make(**given, instruction_budget=None)  # the kernel itself ends
        try:
            here = answer(device, self.here, dump, watcher.begins)
        except KernelFault as fault:
            fault.note("while its registers were recorded", fault.place)
            raise
        there = self.found.chip.answer(self.there, dump)
        self.differences |= differences_of(here.addresses, there.addresses)
        self._note_writer(there.words)
        undefined = watcher.of(many)
        return Window.of(here.words, first, many), Window.of(there.words, first, many), undefined

    def _note_writer(self, words: Words) -> None:
        writer = int(words[WRITER])
        if writer != NOBODY:
            block, thread = writer >> THREAD, writer % (1 << THREAD)
            self.writer = Thread(block, thread // WARP_SIZE, thread % WARP_SIZE)


def _recording(work: Work) -> Work:
    """The launch of the kernel that records what a warp computes."""
    ptx = instrumented(work.source, work.kernel.name, math.prod(work.block))
    return replace(work, source=replace(work.source, ptx=ptx))


class _Undefined(Observer):
    """Notes the records whose values the simulator knows to be undefined."""

    def __init__(self) -> None:
        self._start = self._end = 0
        self._addresses: list[Any] = []

    def begins(self, arguments: list[Argument]) -> None:
        """Take the place of the buffer, the last argument."""
        buffer = arguments[-1].value
        self._start, self._end = buffer.pointer + 8 * HEADER, buffer.pointer + buffer.nbytes

    def on_write(self, event: WriteEvent) -> None:
        """Note the records that lanes with an undefined operand write."""
        lanes = event.chunk.undefined_now()
        if lanes is not None:
            at = event.addresses[lanes.reshape(-1)[event.lanes]]
            self._addresses.append(at[(at >= np.uint64(self._start)) & (at < np.uint64(self._end))])

    def of(self, many: int) -> Any:
        """The mask of undefined records: (32, many)."""
        mask = np.zeros(WARP_SIZE * many, np.bool_)
        for at in self._addresses:
            mask[((at - np.uint64(self._start)) // np.uint64(16)).astype(np.int64)] = True
        return mask.reshape(WARP_SIZE, many)
