"""Asynchronous copies from global to shared memory (PTX ISA 9.7.9.25.3): when they execute, and their checks.

A copy happens at a moment between its issue and the end of a wait for its group: as late as possible under
the schedule "lowest pc", at once under "stack", at random under "random". While it is in flight nothing may
touch the bytes that it writes, and nothing may write the bytes that it reads. The race detector sees its
accesses twice, at the issue and at the wait, so that another thread must be ordered before the one or after
the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.dice import Dice
from simwarp.engine.events import Agent, OrderedAccess, StageEvent
from simwarp.engine.memory.accesses import announce_store, places, read_memory
from simwarp.faults import CopyInFlight
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask
    from simwarp.memory import Memory
    from simwarp.program.program import Step

_Lanes = npt.NDArray[np.int64]
_Addresses = npt.NDArray[np.uint64]
_Some = npt.NDArray[np.bool_]

_UNIT = 4
"""The size and alignment of the smallest copy, in bytes."""
_ADVICE = "wait for the copy's group, then let the threads meet at a barrier"


@dataclass
class _Copy:
    """The copies that some lanes issued at one step.

    Attributes
    ----------
    lanes, threads : (n,) int
        Numbered through the whole chunk, and through the launch.
    sources, targets : (n,) uint64
        Addresses in global memory, and in the chunk's shared memory.
    counts : (n,) int64
        The bytes that are read; the rest of ``size`` bytes becomes zero.
    groups : (n,) int64
        How many groups the thread had committed.
    pending, in_flight : (n,) bool
        Which copies have yet to happen, and which have not been waited for.
    """

    step: Step
    size: int
    lanes: _Lanes
    threads: _Lanes
    sources: _Addresses
    targets: _Addresses
    counts: _Lanes
    groups: _Lanes
    pending: _Some
    in_flight: _Some


class AsyncCopies:
    """The asynchronous copies of a chunk that no wait has ended yet."""

    def __init__(self, chunk: Chunk) -> None:
        launch = chunk.launch
        self._shared = chunk.shared
        self._copies: dict[int, _Copy] = {}
        """By number, from 1 on."""
        self._issued = 0
        self._commits = np.zeros(chunk.mask.size, np.int64)
        """How many groups each lane committed."""
        self._arrivals: dict[int, list[tuple[_Lanes, int]]] = {}
        """By the address of an mbarrier: lanes that arrive when their copies up to a number have ended."""
        self._signalled: list[tuple[_Lanes, _Lanes, int, int]] = []
        """Copies that ended so, which their threads may still wait for: lanes, groups, address and time."""
        self._writers = np.zeros(max(1, -(-chunk.shared_stride * chunk.blocks // _UNIT)), np.int32)
        """For each unit of shared memory, the number of the copy in flight that writes it, or 0."""
        self._latest = launch.schedule != "stack"
        self._dice = Dice(launch.seed, chunk.blocks) if launch.schedule == "random" else None

    @property
    def in_flight(self) -> bool:
        """Whether some ``cp.async`` copies have been issued and not yet waited for."""
        return bool(self._copies)

    # ---- copies and groups ---------------------------------------------------------------------------

    def issue(self, chunk: Chunk, step: Step, size: int, counts: Any, sources: Any) -> None:
        """Issue the ``cp.async`` copies of the executing lanes."""
        for place in places(chunk, step, size):
            lanes, targets = np.flatnonzero(chunk.mask), _of_lanes(chunk, place.address)
            self.check(chunk, place.memory, lanes, targets, size, "write")
            copy = _Copy(
                step,
                size,
                _whole_lanes(chunk, lanes),
                chunk.thread.reshape(-1)[lanes],
                _of_lanes(chunk, sources),
                targets,
                _of_lanes(chunk, counts),
                self._commits[_whole_lanes(chunk, lanes)],
                *(np.ones(lanes.size, np.bool_) for _ in range(2)),
            )
            data, _ = self._read(chunk, copy, np.arange(lanes.size))
            announce_store(chunk, step, place, targets, data)
            self._notify(chunk, copy, np.ones(lanes.size, np.bool_), "issued")
            self._issued += 1
            self._copies[self._issued] = copy
            self._writers[self._units(targets, size).reshape(-1)] = self._issued
            if not self._latest:
                self._happen(chunk, copy, copy.pending)
        self._some_happen(chunk)

    def commit(self, chunk: Chunk) -> None:
        """Close the current copy group (``cp.async.commit_group``) of each executing lane."""
        self._commits[_whole_lanes(chunk, np.flatnonzero(chunk.mask))] += 1
        self._some_happen(chunk)

    def wait(self, chunk: Chunk, pending: int | None) -> None:
        """End all groups of the executing lanes except the latest ``pending``; None: all copies."""
        self._some_happen(chunk)
        lanes = _whole_lanes(chunk, np.flatnonzero(chunk.mask))
        limits = np.full(self._commits.size, -1)
        limits[lanes] = self._commits[lanes] + (1 if pending is None else -pending)
        for number, copy in list(self._copies.items()):
            ended = copy.in_flight & (copy.groups < limits[copy.lanes])
            if ended.any():
                self._end(chunk, number, copy, ended)
        if self._signalled and chunk.launch.races is not None:
            for of, groups, address, time in self._signalled:
                waited = _lanes_in(chunk, of[groups < limits[of]])
                chunk.launch.races.retire(chunk, waited, ("cp.async", address), time)

    # ---- arrivals at an mbarrier -----------------------------------------------------------------------

    def arrive(self, chunk: Chunk, step: Step) -> None:
        """Make the executing lanes arrive at an mbarrier when their copies so far have ended."""
        mbarriers = chunk.mbarriers
        assert mbarriers is not None
        for place in places(chunk, step, 8):
            lanes = _whole_lanes(chunk, np.flatnonzero(chunk.mask))
            addresses = _of_lanes(chunk, place.address)
            for address in np.unique(addresses).tolist():
                mine = lanes[addresses == address]
                if mbarriers.expect_late(chunk, address, 0 if step.form.has("noinc") else mine.size):
                    self._arrivals.setdefault(address, []).append((mine, self._issued))
                    if not self._latest:
                        self.deliver(chunk, address)
        self._some_happen(chunk)

    def deliver(self, chunk: Chunk, address: int) -> None:
        """Complete the copies that will arrive at an mbarrier, since a thread tests its phase."""
        for lanes, issued in self._arrivals.pop(address, []):
            time = 0
            for number, copy in list(self._copies.items()):
                ended = copy.in_flight & np.isin(copy.lanes, lanes)
                if number <= issued and ended.any():
                    time = self._end(chunk, number, copy, ended, ("cp.async", address))
                    self._signalled.append((copy.lanes[ended], copy.groups[ended], address, time))
            assert chunk.mbarriers is not None
            chunk.mbarriers.arrive_late(chunk, address, lanes.size, time)

    def leave(self, chunk: Chunk, mask: Mask) -> None:
        """Report threads that exit with copies in flight, except copies that an mbarrier counts."""
        exiting = np.zeros(self._commits.size, np.bool_)
        exiting[_whole_lanes(chunk, np.flatnonzero(mask))] = True
        for number, copy in list(self._copies.items()):
            left = copy.in_flight & exiting[copy.lanes]
            if left.any():
                left = left & ~self._signalling(number)[copy.lanes]
            if left.any():
                lane = int(_lanes_in(chunk, copy.lanes[left][:1])[0])
                fault = _left(chunk, copy, left, "a thread exits before its asynchronous copies have ended")
                self._end(chunk, number, copy, left)
                chunk.found(fault, lane)

    def finish(self, chunk: Chunk) -> None:
        """Report copies counted by an mbarrier that no thread has waited for: the chunk has ended."""
        for copy in self._copies.values():
            fault = _left(chunk, copy, copy.in_flight, "blocks exit without a wait for asynchronous copies")
            fault.place = fault.copy
            chunk.launch.found(fault)

    def _signalling(self, number: int) -> _Some:
        """The lanes whose copy with this number arrives at an mbarrier when it completes."""
        lanes = np.zeros(self._commits.size, np.bool_)
        for arrivals in self._arrivals.values():
            for arriving, issued in arrivals:
                lanes[arriving] |= number <= issued
        return lanes

    # ---- the check -----------------------------------------------------------------------------------

    def check(
        self, chunk: Chunk, memory: Memory, lanes: _Lanes, addresses: _Addresses, width: int, verb: str
    ) -> None:
        """Report an access to bytes that a copy in flight writes, or a write to bytes that one reads."""
        if memory is self._shared:
            touched = self._writers.take(self._units(addresses, width)).max(axis=1)
            if touched.any():
                copy = self._copies[int(touched.max())]
                hit = touched == touched.max()
                self._report(chunk, copy, copy.targets, (lanes[hit], addresses[hit]), width, verb, "write")
        elif verb != "read":
            for copy in self._copies.values():
                if copy.step.source is not None and copy.step.source.number in chunk.launch.watched_loads:
                    sources = copy.sources[copy.in_flight & (copy.counts > 0)]
                    hit = np.isin(_words(addresses, width), _words(sources, copy.size)).any(axis=1)
                    if hit.any():
                        self._report(
                            chunk, copy, copy.sources, (lanes[hit], addresses[hit]), width, verb, "read"
                        )

    def _report(
        self,
        chunk: Chunk,
        copy: _Copy,
        copied: _Addresses,
        accesses: tuple[_Lanes, _Addresses],
        width: int,
        verb: str,
        does: str,
    ) -> None:
        """Report accesses, by lane and address, to bytes that a copy reads or writes."""
        lanes, addresses = accesses
        words = _words(addresses[:1], width)
        owner = int((np.isin(_words(copied, copy.size), words).any(axis=1) & copy.in_flight).argmax())
        other = chunk.place_of(int(copy.threads[owner]), copy.step)
        space = "shared" if does == "write" else "global"
        fault = CopyInFlight(
            f"{verb} of {width} byte{'s' * (width > 1)} of {space} memory that an asynchronous copy "
            f"may {does} at that moment",
            f"no wait for group {copy.groups[owner]} of its thread has ended",
            _ADVICE,
        )
        fault.note("copied here by", other)
        fault.copy, fault.address, fault.width, fault.space = other, int(addresses[0]), width, space
        if does == "write":
            fault.address = fault.offset = fault.address % chunk.shared_stride
            fault.values = f"{chunk.program.shared_place(fault.offset)}; {fault.values}"
            fault.name_element(chunk.shared_element(fault.offset, width))
        if chunk.mbarriers is not None:
            chunk.mbarriers.note_unheeded(chunk, fault, int(lanes[0]))
        fault.count = lanes.size
        chunk.found(fault, int(lanes[0]))

    def _units(self, addresses: _Addresses, width: int) -> npt.NDArray[np.int64]:
        """(n, units): the units of shared memory that accesses touch; the last unit for those outside."""
        return np.minimum(_words(addresses, width), self._writers.size - 1).astype(np.int64)

    def _notify(self, chunk: Chunk, copy: _Copy, which: _Some, moment: str) -> None:
        """Notify the observers of some copies, by block and group."""
        if not chunk.launch.on_stage:
            return
        stride = np.uint64(chunk.shared_stride)
        windows = (copy.targets // stride).astype(np.int64)
        for window, group in sorted(
            set(zip(windows[which].tolist(), copy.groups[which].tolist(), strict=True))
        ):
            here = which & (windows == window) & (copy.groups == group)
            block, at = int(chunk.block_numbers[window]), copy.targets[here] % stride
            event = StageEvent(chunk, copy.step, moment, f"group {group}", block, at, copy.size)
            for observe in chunk.launch.on_stage:
                observe(event)

    # ---- moments -------------------------------------------------------------------------------------

    def _some_happen(self, chunk: Chunk) -> None:
        """Execute a random part of the pending copies, under the random schedule."""
        if self._dice is not None:
            for copy in self._copies.values():
                if copy.pending.any() and self._dice.below(2):
                    self._happen(chunk, copy, copy.pending & self._dice.some(copy.lanes.size))

    def _end(self, chunk: Chunk, number: int, copy: _Copy, ended: _Some, agent: Agent | None = None) -> int:
        """Complete the copies of some lanes, executing those still pending; return the time, for an agent."""
        which = np.flatnonzero(ended)
        time = self._order(chunk, copy, which, agent)
        self._happen(chunk, copy, copy.pending & ended)
        units = self._units(copy.targets[which], copy.size).reshape(-1)
        self._writers[units[self._writers[units] == number]] = 0
        self._notify(chunk, copy, ended, "filled")
        copy.in_flight = copy.in_flight & ~ended
        if not copy.in_flight.any():
            del self._copies[number]
        return time

    def _order(self, chunk: Chunk, copy: _Copy, which: npt.NDArray[np.intp], agent: Agent | None) -> int:
        """Report the copies' accesses to the race detector at the wait, or for an mbarrier as an agent's."""
        races, time = chunk.launch.races, 0
        if races is None:
            return time
        waiting, chunk.step = chunk.step, copy.step
        lanes = _lanes_in(chunk, copy.lanes[which])
        data, _ = self._read(chunk, copy, which)
        source, reads = copy.step.source, copy.counts[which] == copy.size
        if source is not None and source.number in chunk.launch.watched_loads and reads.any():
            memory, at = chunk.launch.reach[source.number], copy.sources[which][reads]
            races.access(OrderedAccess(chunk, source, "read", memory, lanes[reads], at, copy.size))
        write = OrderedAccess(
            chunk, copy.step, "write", self._shared, lanes, copy.targets[which], copy.size, data
        )
        if agent is None:
            races.access(write)
        else:
            time = races.issue(write, agent)
        chunk.step = waiting
        return time

    def _happen(self, chunk: Chunk, copy: _Copy, which: _Some) -> None:
        """Move the bytes of the pending copies of ``copy`` that the mask ``which`` selects."""
        now = np.flatnonzero(which)
        if not now.size:
            return
        data, unwritten = self._read(chunk, copy, now)
        targets, launch = copy.targets[now], chunk.launch
        if launch.journal is not None:
            launch.journal.note(self._shared, targets, copy.size)
        if launch.lent.cells:
            launch.lent.forget(self._shared, targets, copy.size)
        self._shared.write(targets, data)
        if unwritten is not None:
            self._shared.forget(targets, unwritten)
        copy.pending = copy.pending & ~which

    def _read(self, chunk: Chunk, copy: _Copy, which: npt.NDArray[np.intp]) -> tuple[Any, Any]:
        """The data of some copies, filled up with zeros, and their unwritten bits byte by byte, or None."""
        assert copy.step.source is not None
        memory, unit = chunk.launch.reach[copy.step.source.number], np.dtype(f"V{copy.size}")
        sources, counts = copy.sources[which], copy.counts[which]
        if (counts == copy.size).all() and (data := memory.peek(sources, unit)) is not None:
            return data, None
        data = np.zeros((which.size, copy.size), np.uint8)
        unwritten = np.zeros_like(data)
        for width, offset, read in _pieces(counts > 0, counts, copy.size):
            at = sources[read] + np.uint64(offset)
            piece = np.s_[read, offset : offset + width]
            data[piece] = memory.read(at, np.dtype(f"V{width}")).view(np.uint8).reshape(-1, width)
            unwritten[piece] = memory.unwritten_bits(at, width)
        return data.view(unit)[:, 0], unwritten if unwritten.any() else None


def copy(chunk: Chunk, step: Step) -> None:
    """Execute an asynchronous copy: its addresses are checked now."""
    assert step.source is not None
    assert step.source.base is not None
    size = int(step.sources[0](chunk))
    counts, sources = _counts(chunk, step, size), step.source.base(chunk)
    for width, offset, lanes in _pieces(chunk.mask, counts, size):
        _executed_by(chunk, lanes, _check_source(step.source, width, np.add(sources, np.uint64(offset))))
    assert chunk.copies is not None
    chunk.copies.issue(chunk, step, size, counts, sources)


def group(chunk: Chunk, step: Step) -> None:
    """Execute ``cp.async.commit_group``, ``wait_group``, ``wait_all`` or ``cp.async.mbarrier.arrive``."""
    copies = chunk.copies
    assert copies is not None
    if step.base is not None:
        copies.arrive(chunk, step)
    elif step.form.opcode.endswith("commit_group"):
        copies.commit(chunk)
    else:
        copies.wait(chunk, int(step.sources[0](chunk)) if step.sources else None)


def _left(chunk: Chunk, copy: _Copy, left: _Some, what: str) -> CopyInFlight:
    """The `CopyInFlight` fault of copies unfinished at the kernel's end, at the first one's issuer."""
    count, place = int(np.count_nonzero(left)), chunk.place_of(int(copy.threads[left][0]), copy.step)
    fault = CopyInFlight(what, "", "wait for all copies before the end of the kernel")
    fault.note("the first one was issued here by", place)
    fault.copy, fault.count = place, count
    return fault


def _counts(chunk: Chunk, step: Step, size: int) -> npt.NDArray[np.int64]:
    """(warps, 32): the bytes that each lane reads; more than it copies are a fault."""
    if len(step.sources) < 2 or (step.form.has("L2::cache_hint") and len(step.sources) < 3):
        return np.full(chunk.mask.shape, size)
    given = np.broadcast_to(step.sources[1](chunk), chunk.mask.shape)
    if given.dtype == np.bool_:
        return np.where(given, 0, size)
    counts = given.astype(np.int64)
    over = chunk.mask & (counts > size)
    if over.any():
        fault = CopyInFlight(
            f"an asynchronous copy of {size} bytes that reads more",
            f"{counts[over][0]} bytes to read",
            "read at most as many bytes as are copied",
        )
        chunk.found(fault, over)
    return np.minimum(counts, size)


def _pieces(mask: Mask, counts: npt.NDArray[np.int64], size: int) -> Iterator[tuple[int, int, Mask]]:
    """The accesses to check: (width, offset, lanes), whole for full copies, byte by byte for shorter ones."""
    whole = mask & (counts == size)
    if whole.any():
        yield size, 0, whole
    for byte in range(size):
        lanes = mask & ~whole & (counts > byte)
        if not lanes.any():
            return
        yield 1, byte, lanes


def _check_source(source: Step, width: int, address: Any) -> Callable[[Chunk], None]:
    """A function that checks a read and notifies observers of it; unwritten bytes are not faults."""

    def read(chunk: Chunk) -> None:
        elements = max(1, width // 8)
        read_memory(chunk, source, np.dtype(f"u{width // elements}"), elements, address)
        chunk.loaded = None

    return read


def _executed_by(chunk: Chunk, lanes: Mask, execute: Callable[[Chunk], None]) -> None:
    """Run ``execute`` with only ``lanes`` as the executing lanes, then restore the mask."""
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    if lanes is not mask:
        chunk.enter(lanes, alone=False)
    execute(chunk)
    chunk.enter(mask, alone, needed)


def _of_lanes(chunk: Chunk, value: Any) -> npt.NDArray[Any]:
    """(n,): the elements of a (warps, 32) value that belong to the executing lanes."""
    return np.broadcast_to(value, chunk.mask.shape)[chunk.mask]


def _whole_lanes(chunk: Chunk, lanes: _Lanes) -> _Lanes:
    """Convert lane numbers of a part of a chunk to lane numbers of the whole chunk."""
    return chunk.warp[lanes // WARP_SIZE, 0] * WARP_SIZE + lanes % WARP_SIZE


def _lanes_in(chunk: Chunk, lanes: _Lanes) -> _Lanes:
    """Convert lane numbers of the whole chunk to lane numbers of this part of it."""
    return np.searchsorted(chunk.warp[:, 0], lanes // WARP_SIZE) * WARP_SIZE + lanes % WARP_SIZE


def _words(addresses: _Addresses, width: int) -> npt.NDArray[np.uint64]:
    """(n, units): the units that hold bytes of accesses."""
    units = np.arange(max(1, width // _UNIT), dtype=np.uint64)
    return (addresses >> np.uint64(_UNIT.bit_length() - 1))[:, None] + units
