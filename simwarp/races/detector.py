"""Data races: two accesses of the same bytes by two threads, one of them a write, that nothing orders.

The executor runs the accesses of a launch one after the other. A race is found where nothing in the program
puts the later of two after the earlier: no barrier, no fence with a flag, no lock; another run, or a GPU,
may do them the other way round. Two strong accesses (atomic, volatile, relaxed …) do not race.

Source: PTX ISA 9.0, chapter 8 (memory consistency model), section 8.7.1 (conflict and data races).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE, mask_word
from simwarp.races.access import Access, Addresses, Lanes, held
from simwarp.races.last_two import remember_readers, remember_writers
from simwarp.races.order import Order
from simwarp.races.release_acquire import Strong, exchange
from simwarp.races.report import Conflict, race
from simwarp.races.shadow import THREAD, Entries, Shadow, Units
from simwarp.races.static_filter import RaceFilter
from simwarp.races.strong import FOR_BLOCK, STRONG, WEAK, strength
from simwarp.races.vector_clocks import Publication, Signal

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.engine.launch import Launch
    from simwarp.memory import Allocation, Memory
    from simwarp.program.program import Step

_SPACES = ("global", "shared")


class Races:
    """Watches the accesses of one launch for races.

    Parameters
    ----------
    launch : Launch

    Attributes
    ----------
    watched : set of int
        The numbers of the loads to tell `read` of; it may grow. Stores and atomic operations always count.

    Examples
    --------
    Lane 0 writes what the others read, with nothing between:

    >>> import simwarp
    >>> kernel = simwarp.Device().load('''.version 9.0 .target sm_90 .address_size 64
    ... .entry k() { .shared .b32 cell; .reg .b32 %r<2>; .reg .pred %p;
    ...     mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0;
    ...     @%p st.shared.u32 [cell], 7;
    ...     ld.shared.u32 %r1, [cell];
    ...     ret; }''').kernel("k")
    >>> try:
    ...     kernel((1, 1, 1), (32, 1, 1))
    ... except simwarp.faults.Race as race:
    ...     print(race.space, race.earlier, race.other.lane, race.later, race.place.lane)
    shared write 0 read 1
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._filter = RaceFilter.of(launch)
        self.watched = self._filter.watched(launch)
        self._time = 1
        self._steps: list[Step] = []
        """The step of each time, from 1 on."""
        self._strengths = np.zeros(1024, np.uint8)
        """Its strength, by time."""
        self._shadows: dict[Allocation, Shadow] = {}
        """Of global memory."""

    # ---- accesses -----------------------------------------------------------------------------------

    def enter(self, chunk: Chunk) -> None:
        """A chunk begins; the one before it has ended."""
        self.order = Order(chunk, self._filter.signals)
        self._shared_shadows: dict[Allocation, Shadow] = {}
        self._arrivals: dict[int, list[Publication]] = {}
        self._cluster_arrivals = np.zeros(chunk.live.shape, np.int64)
        self._cluster_signals: dict[tuple[int, int], Signal] = {}

    def read(
        self, chunk: Chunk, step: Step, memory: Memory, lanes: Lanes, addresses: Addresses, width: int
    ) -> None:
        """Lanes have read.

        Parameters
        ----------
        chunk : Chunk
            Or a part of it.
        step : Step
            The load, one of `watched`.
        memory : Memory
            Global memory, or the shared memory of the chunk.
        lanes : (n,) int64
            Numbered through ``chunk``.
        addresses : (n,) uint64
            In ``memory``; those that lie outside every allocation are left out.
        width : int
            Bytes of each, 1 to 16.

        Raises
        ------
        Race
            Unless `Launch.found` does not.
        """
        for access, shadow in self._accesses(chunk, step, memory, lanes, addresses, width, "read"):
            units = shadow.units(access.offsets, width)
            self._compare_writes(access, shadow, units, None)
            remember_readers(self.order, access, shadow, units)
            if strength(step) != WEAK:
                shadow.observe(units, access.time)
            self._signal(access, shadow)

    def write(
        self,
        chunk: Chunk,
        step: Step,
        memory: Memory,
        lanes: Lanes,
        addresses: Addresses,
        data: npt.NDArray[Any],
    ) -> None:
        """Lanes are about to write: ``data`` (n,), items of 1 to 16 bytes. The rest as in `read`."""
        width = data.dtype.itemsize
        for access, shadow in self._accesses(chunk, step, memory, lanes, addresses, width, "write"):
            mine = data if access.held is None else data[access.held]
            self._overwrite(access, shadow, shadow.units(access.offsets, width), mine)

    def atomic(
        self, chunk: Chunk, step: Step, memory: Memory, lanes: Lanes, addresses: Addresses, width: int
    ) -> None:
        """Lanes are about to read and write, each in one piece. The rest as in `read`."""
        if memory.space not in _SPACES:
            return
        for access, shadow in self._accesses(chunk, step, memory, lanes, addresses, width, "atomic"):
            self._overwrite(access, shadow, shadow.units(access.offsets, width), None)

    def _overwrite(self, access: Access, shadow: Shadow, units: Units, data: npt.NDArray[Any] | None) -> None:
        old = self._compare_writes(access, shadow, units, data)
        if shadow.written_also is not None and shadow.last_also >= access.past:
            self._compare(access, shadow, units, shadow.written_also.take(units), "write", data)
        if shadow.last_read >= access.past:
            for read in shadow.readers():
                self._compare(access, shadow, units, read.take(units), "read")
        if access.step.kind == "atomic" and (shadow.observed is not None or not access.sure):
            shadow.observe(units, access.time)
        if access.sure:
            shadow.update(units, access.of_units(units), access.time)
        else:
            missed = remember_writers(self.order, access, shadow, units, old)
            if missed.size:
                self._compare_with_itself(access, shadow, units, missed, data)
        self._signal(access, shadow)

    # ---- barriers and fences ------------------------------------------------------------------------

    def block_barrier(
        self, chunk: Chunk, mask: Mask, whole: bool, arrived: Mask | None = None, mixed: bool = False
    ) -> None:
        """Lanes pass one barrier of each of their blocks that is complete.

        Parameters
        ----------
        mask : (warps, 32) bool
            The lanes that waited.
        whole : bool
            Whether every live thread of these blocks is among them.
        arrived : (warps, 32) bool, optional
            Those who came with ``bar.arrive``.
        mixed : bool
            Whether they waited at different instructions.
        """
        if mixed:
            self.watched |= self._filter.loads
        rows = _rows(chunk, mask)
        if whole:
            self.order.pass_whole(rows, np.any(chunk.live, axis=1), self._time)
            return
        came: list[tuple[int, Publication]] = []
        for row in _rows(chunk, arrived).tolist() if arrived is not None else ():
            came += [(row, past) for past in self._arrivals.pop(row, [self.order.now(row, self._time)])]
        self.order.pass_some(rows, came, self._time)

    def block_arrive(self, chunk: Chunk, mask: Mask) -> None:
        """Lanes execute ``bar.arrive``: what they do from now on is not ordered by that barrier."""
        for row in _rows(chunk, mask).tolist():
            self._arrivals.setdefault(row, []).append(self.order.now(row, self._time))

    def warp_barrier(self, chunk: Chunk, mask: Mask, members: Any) -> None:
        """Lanes pass ``bar.warp.sync``, each with its own word of members (broadcast to (warps, 32))."""
        here = np.flatnonzero(mask.any(axis=1))
        words = np.broadcast_to(np.asarray(members).astype(np.uint32), mask.shape)[here]
        groups = np.where(mask[here], words & mask_word(mask[here]), np.uint32(0))
        rows = chunk.warp[here, 0]
        self.order.warps.meet(rows, groups, mask_word(chunk.live[here])[:, 0], self._time)

    def fence(self, chunk: Chunk, mask: Mask, scope: str) -> None:
        """Lanes execute a fence of scope "cta", "cluster", "gpu" or "sys"."""
        self.order.fence(_rows(chunk, mask), scope != "cta", self._time)

    def cluster_arrive(self, chunk: Chunk, mask: Mask) -> None:
        """Lanes arrive at the barrier of their cluster."""
        for row, signal in self._cluster(chunk, mask, arrives=True):
            self.order.publish(signal, row, self.order.now(row, self._time), wide=True)

    def cluster_wait(self, chunk: Chunk, mask: Mask) -> None:
        """Lanes pass the barrier of their cluster."""
        for row, signal in self._cluster(chunk, mask, arrives=False):
            self.order.hear(row, signal)

    def _cluster(self, chunk: Chunk, mask: Mask, arrives: bool) -> Iterator[tuple[int, Signal]]:
        """Each warp, and what stands for the barrier of its cluster, which is another one each time."""
        times, signals = self._cluster_arrivals, self._cluster_signals
        here = np.flatnonzero(mask.any(axis=1))
        rows = chunk.warp[here, 0]
        times[rows] += mask[here] & arrives
        per_cluster = chunk.warps_per_block * self.launch.blocks_per_cluster
        for row, time in zip(rows.tolist(), np.where(mask[here], times[rows], 0).max(axis=1), strict=True):
            cluster = row // per_cluster
            signals.pop((cluster, int(time) - 2), None)
            yield row, signals.setdefault((cluster, int(time)), Signal())

    # ---- inside -------------------------------------------------------------------------------------

    def _accesses(
        self,
        chunk: Chunk,
        step: Step,
        memory: Memory,
        lanes: Lanes,
        addresses: Addresses,
        width: int,
        kind: str,
    ) -> Iterator[tuple[Access, Shadow]]:
        """The accesses by allocation, without those that are bad."""
        if not lanes.size:
            return
        time, how = self._tick(step), strength(step)
        threads = chunk.thread.reshape(-1)
        if lanes.size < threads.size or chunk.order is not None:
            threads = threads.take(lanes)
        private = memory is chunk.shared and self.launch.blocks_per_cluster == 1
        sure = how == STRONG or (private and how == FOR_BLOCK)
        past, entries = self.order.past(private), threads + (time << 32)
        whole = Access(chunk, step, time, kind, width, lanes, threads, entries, addresses, None, past, sure)
        shadows = self._shared_shadows if memory is chunk.shared else self._shadows
        for allocation, which, offsets in held(memory, addresses, width):
            if kind != "read" and allocation.read_only:
                continue
            if allocation not in shadows:
                shadows[allocation] = Shadow(allocation, width)
            yield whole.part(which, offsets), shadows[allocation]

    def _tick(self, step: Step) -> int:
        """The time of an access."""
        time = self._time
        if time >= self._strengths.size:
            self._strengths = np.concatenate([self._strengths, np.zeros_like(self._strengths)])
        self._strengths[time] = strength(step)
        self._steps.append(step)
        self._time += 1
        return time

    def _signal(self, access: Access, shadow: Shadow) -> None:
        how = strength(access.step)
        if how == WEAK or not self._filter.signals:
            return
        form = access.step.form
        what = Strong(
            reads=access.step.kind != "store" and access.step.kind != "reduction",
            writes=access.kind != "read",
            replaces=access.kind == "write",
            acquires=form.has("acquire") or form.has("acq_rel"),
            releases=form.has("release") or form.has("acq_rel"),
            wide=how == STRONG,
        )
        exchange(self.order, shadow, what, access.rows(), access.offsets.view(np.int64), access.time)

    def _compare_writes(
        self, access: Access, shadow: Shadow, units: Units, data: npt.NDArray[Any] | None
    ) -> Entries | None:
        """Compare with the last writes; of two strong accesses there is nothing to compare.

        Returns the entries of the last weak writes, or None if all are ordered before.
        """
        old = shadow.written.take(units) if shadow.last_write >= access.past else None
        if old is not None:
            self._compare(access, shadow, units, old, "write", data)
        if shadow.updated is not None and not access.sure and shadow.last_update >= access.past:
            self._compare(access, shadow, units, shadow.updated.take(units), "write", data)
        return old

    def _compare(
        self,
        access: Access,
        shadow: Shadow,
        units: Units,
        before: Entries,
        earlier: str,
        data: npt.NDArray[Any] | None = None,
    ) -> None:
        """Find races of the lanes that access units with those that have entries there.

        A lane that writes the very bits that another one wrote does no harm.
        """
        suspects = access.suspects(before)
        if not suspects.size:
            return
        lanes, before = suspects % access.lanes.size, before[suspects]
        racing = ~self.order.ordered(access.rows(lanes), access.threads[lanes], before)
        if racing.any():
            racing &= ~self._both_strong(access, access.threads[lanes], before)
        if earlier == "write" and shadow.observed is not None and racing.any():
            racing &= ~self._was_observed(shadow.observed.take(units[suspects]), before)
        if data is not None and racing.any():
            racing &= shadow.held(units[suspects]) != shadow.pieces(data)[suspects]
        if racing.any():
            self._report(access, shadow, lanes[racing], before[racing], earlier)

    def _was_observed(self, observed: npt.NDArray[np.int64], before: Entries) -> npt.NDArray[np.bool_]:
        """Whether writes are strong and a strong read saw them: they come before what its thread does next.

        Who read it is not known; this takes it for somebody who comes before the later access.
        """
        times = before >> 32
        return (self._strengths[times] != WEAK) & (observed > times)

    def _both_strong(self, access: Access, threads: Lanes, before: Entries) -> npt.NDArray[np.bool_]:
        how = np.minimum(self._strengths[before >> 32], strength(access.step))
        per_block = access.chunk.warps_per_block * WARP_SIZE
        one_block = (before & THREAD) // per_block == threads // per_block
        return (how == STRONG) | ((how == FOR_BLOCK) & one_block)

    def _compare_with_itself(
        self,
        access: Access,
        shadow: Shadow,
        units: Units,
        missed: npt.NDArray[np.intp],
        data: npt.NDArray[Any] | None,
    ) -> None:
        """Find lanes that write different bits to one place with one instruction; the last one's stay."""
        there = units[missed]
        together = np.flatnonzero(np.isin(units, there))
        together = together[np.argsort(units[together], kind="stable")]
        last = together[np.searchsorted(units[together], there, "right") - 1]
        before, lanes = access.of_units(units)[last], missed % access.lanes.size
        racing = ~self._both_strong(access, access.threads[lanes], before)
        if data is not None:
            pieces = shadow.pieces(data)
            racing &= pieces[missed] != pieces[last]
        if racing.any():
            self._report(access, shadow, lanes[racing], before[racing], access.kind)

    def _report(self, access: Access, shadow: Shadow, lanes: Lanes, before: Entries, earlier: str) -> None:
        """Tell of races; those with one earlier instruction together."""
        times, first, counts = np.unique(before >> 32, return_index=True, return_counts=True)
        by_step: dict[int, list[int]] = {}
        for time, at, count in zip(times.tolist(), first.tolist(), counts.tolist(), strict=True):
            found = by_step.setdefault(self._steps[int(time) - 1].number, [time, at, 0])
            found[2] += count
        for time, at, count in by_step.values():
            step, lane = self._steps[time - 1], int(lanes[at])
            conflict = Conflict(
                allocation=shadow.allocation,
                offset=int(access.offsets[lane]),
                earlier=_kind(step, earlier),
                later=access.kind,
                thread=int(access.threads[lane]),
                other=int(before[at] & THREAD),
                step=step,
                both_strong=bool(min(strength(step), strength(access.step))),
                count=count,
            )
            access.chunk.found(race(access.chunk, conflict, access.width), int(access.lanes[lane]))


def _kind(step: Step, kind: str) -> str:
    return "atomic" if step.kind in ("atomic", "reduction") else kind


def _rows(chunk: Chunk, mask: Mask) -> npt.NDArray[np.intp]:
    """The warps of lanes, numbered through the whole chunk."""
    here = mask.any(axis=1)
    return chunk.warp[:, 0][here]
