"""Data races: two unordered accesses of the same bytes by two threads, at least one of them a write.

The executor runs the accesses of a launch in some order. Two of them race if nothing in the program orders
them: no barrier, no fence with a flag, no lock. A GPU may then execute them in the other order. Two strong
accesses (atomic, volatile, relaxed …) do not race.

Source: PTX ISA 9.0, chapter 8 (memory consistency model), section 8.7.1 (conflict and data races).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.ptx.kinds import ATOMIC, REDUCTION, STORE
from simwarp.races.access import (
    FOR_BLOCK,
    STRONG,
    WEAK,
    Access,
    Lanes,
    held,
    is_volatile,
    strength,
)
from simwarp.races.last_two import remember_readers, remember_writers
from simwarp.races.release_acquire import StrongAccess
from simwarp.races.report import Conflict, in_flight, race
from simwarp.races.shadow import THREAD, Entries, Shadow, Units
from simwarp.races.stale_reads import StaleReads, source_of
from simwarp.races.synchronisation import Synchronisation

if TYPE_CHECKING:
    from simwarp.engine.events import Agent, Chunk, Launch, OrderedAccess
    from simwarp.faults import KernelFault
    from simwarp.memory import Allocation
    from simwarp.places import Place
    from simwarp.program.program import Step


_FEW_SHADOWS = 256
"""Shadows that are not searched for those of freed allocations."""


class _Issued(NamedTuple):
    """An asynchronous access, split into one part per allocation.

    Attributes
    ----------
    threads : array
        The threads that issue it, numbered in the launch.
    parts : list of (Access, Lanes, Shadow, Units)
        With the lanes in their warps, or the one lane that all are.
    """

    threads: Lanes
    parts: list[tuple[Access, Lanes, Shadow, Units]]

    @property
    def valid(self) -> bool:
        """Whether no shadow's units have become narrower since the parts were computed."""
        return all(units.size * s.unit == one.offsets.size * one.width for one, _, s, units in self.parts)


class Races(Synchronisation):
    """The race detector of one launch, an `OrderListener` of `simwarp.engine.events`."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self._strict = launch.checks.strict("races")
        self._shadows: dict[Allocation, Shadow] = {}
        """Allocation in global memory → its shadow."""
        self._most_shadows = _FEW_SHADOWS
        """More shadows than this are searched for those of freed allocations."""
        self._agents: dict[int, Agent] = {}
        """Time of an asynchronous access → who performs it."""
        self._stale = StaleReads(self._steps, self._place_of)
        self.noted: object | None = None
        """Reads that compiled code has noted, and that are not in the shadows yet."""

    # ---- compiled code ------------------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether compiled code may record clean accesses in the shadows."""
        return type(self) is Races and not self._strict

    def shadow_of(self, allocation: Allocation, private: bool) -> Shadow | None:
        """The shadow of an allocation, if it has one yet; ``private``: it is the chunk's shared memory."""
        return (self._shared_shadows if private else self._shadows).get(allocation)

    def past(self, private: bool) -> int:
        """A time before which all accesses are ordered before all next ones; see `Order.past`."""
        return self.order.past(private and self.launch.blocks_per_cluster == 1)

    def barriers(self, warps: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The times of the last barriers of the warps' blocks, and of all lanes of the warps."""
        return self.order.barrier[warps], self.order.within_warps.whole(warps)

    @property
    def is_simple(self) -> bool:
        """Whether barriers are all that has ordered warps so far; see `Order.is_simple`."""
        return self.order.is_simple

    def passed(self, chunk: Chunk, time: int) -> None:
        """Record that all blocks of a chunk passed a barrier at a time."""
        live = np.any(chunk.live, axis=1)
        self.order.pass_whole(chunk.warp[live, 0], live, time)

    def met(self, warps: npt.NDArray[np.intp], times: npt.NDArray[np.int64]) -> None:
        """Record when all lanes of warps last met."""
        self.order.within_warps.set_whole(warps, times)

    @property
    def time(self) -> int:
        """The time of the next access."""
        return self._time

    def record(self, steps: Iterable[Step]) -> None:
        """Count weak accesses of some steps, one after another, that are in the shadows."""
        self._steps += steps
        self._time = len(self._steps) + 1
        while self._time >= self._strengths.size:
            self._strengths = np.concatenate([self._strengths, np.zeros_like(self._strengths)])

    # ---- accesses -----------------------------------------------------------------------------------

    def enter(self, chunk: Chunk) -> None:
        """Start with a new chunk, after the previous one has ended."""
        super().enter(chunk)
        self._shared_shadows: dict[Allocation, Shadow] = {}

    def access(self, access: OrderedAccess) -> None:
        """Check and record an access of some lanes: a read after it executed, a write or update before."""
        if access.lanes.size:
            if self._lifetimes is not None and access.memory is access.chunk.shared:
                self._lifetimes.visit(access, self._time)
            for one, shadow in self._accesses(access):
                units = shadow.units(one.offsets, one.width)
                if one.kind == "read":
                    self._read(one, one, shadow, units)
                else:
                    self._write(one, one, shadow, units)
                self._signal(one, shadow)

    def issue(self, access: OrderedAccess, agent: Agent, phase: int | None = None) -> int:
        """Check an asynchronous access as one of its issuing lanes, and record it as the agent's."""
        time = self._time
        entry = self.order.entry_of(agent, time)
        issued = self._issued(access)
        self._agents[time], self._issuers[time] = agent, issued.threads
        if phase is not None:
            self._counted_in[time] = phase
        if self._lifetimes is not None and access.memory is access.chunk.shared:
            self._lifetimes.visit(access, time, ends=False)
        past = self._past(access)
        for part, lanes, shadow, units in issued.parts:
            one = part._replace(time=time, past=past)
            recorded = one._replace(entries=entry + lanes)
            if one.kind == "read":
                # the accesses are unordered, so the check of fences has nothing to add
                self._read(one, recorded, shadow, units)
                self.proxies.check(one, shadow, units, self._steps)
            else:
                self._write(one, recorded, shadow, units)
        return time

    def _read(self, access: Access, recorded: Access, shadow: Shadow, units: Units) -> None:
        """Compare a read with earlier writes, then record it."""
        source = source_of(access.step)
        if source and self._stale.read(access, shadow, units, source):
            return
        self._compare_writes(access, shadow, units)
        remember_readers(self.order, recorded, shadow, units)
        if strength(access.step) != WEAK:
            shadow.observe(units, access.time)

    def _write(self, access: Access, recorded: Access, shadow: Shadow, units: Units) -> None:
        """Compare a write with earlier writes and reads, then record it."""
        if access.step.call is None:
            self._stale.write(access, shadow, units)
        elif shadow.constant is not None:  # a free must also be ordered behind loads by ld.global.nc
            self._compare(access, shadow, units, shadow.constant.take(units), "read")
        old = self._compare_writes(access, shadow, units)
        if shadow.written_also is not None and shadow.last_also >= access.past:
            self._compare(access, shadow, units, shadow.written_also.take(units), "write")
        if shadow.last_read >= access.past:
            for read in shadow.readers():
                self._compare(access, shadow, units, read.take(units), "read")
        if access.step.kind is ATOMIC and (shadow.observed is not None or not access.sure):
            shadow.observe(units, access.time)
        if access.sure:
            shadow.update(units, recorded.of_units(units), access.time)
        else:
            missed = remember_writers(self.order, recorded, shadow, units, old)
            if missed.size:
                self._compare_with_itself(access, shadow, units, missed)

    # ---- inside -------------------------------------------------------------------------------------

    def _issued(self, access: OrderedAccess) -> _Issued:
        """The parts of an asynchronous access at a new time; a repeated access reuses its parts."""
        issued: _Issued | None = None if access.kept is None else access.kept.get("races")
        if issued is not None and issued.valid:
            self._tick(access.step)
            return issued
        first = np.flatnonzero(np.diff(access.lanes, prepend=-1))  # the first access of each run of one lane
        parts: list[tuple[Access, Lanes, Shadow, Units]] = []
        for one, shadow in self._accesses(access):
            lanes = one.threads % WARP_SIZE
            lanes = lanes[:1] if (lanes == lanes[0]).all() else lanes
            parts.append((one, lanes, shadow, shadow.units(one.offsets, one.width)))
        issued = _Issued(access.chunk.thread.reshape(-1)[access.lanes[first]], parts)
        if access.kept is not None:
            access.kept["races"] = issued
        return issued

    def _past(self, access: OrderedAccess) -> int:
        """A time before which all accesses are ordered before this access."""
        return self.order.past(access.memory is access.chunk.shared and self.launch.blocks_per_cluster == 1)

    def _accesses(self, access: OrderedAccess) -> Iterator[tuple[Access, Shadow]]:
        """Yield the accesses to each allocation, without out-of-bounds, misaligned and read-only ones."""
        chunk, step, kind, memory, lanes, addresses, width, data, _ = access
        time, how = self._tick(step), strength(step)
        threads = chunk.thread.reshape(-1)
        every = lanes.size == threads.size and not lanes[0] and lanes[-1] == lanes.size - 1
        if not every or chunk.order is not None:  # one lane may issue as many units as there are lanes
            threads = threads.take(lanes)
        private = memory is chunk.shared and self.launch.blocks_per_cluster == 1
        sure = how == STRONG or (private and how == FOR_BLOCK)
        sure = sure and not (self._strict and is_volatile(step))
        past, entries = self.order.past(private), threads + (time << 32)
        whole = Access(chunk, step, kind, width, lanes, threads, entries, addresses, data, time, past, sure)
        shadows = self._shared_shadows if memory is chunk.shared else self._shadows
        for allocation, which, offsets in held(memory, addresses, width):
            if kind != "read" and allocation.read_only:
                continue
            if allocation not in shadows:
                shadows[allocation] = Shadow(allocation, width)
                if len(self._shadows) > self._most_shadows:
                    self._forget_freed()
            yield whole.part(which, offsets), shadows[allocation]

    def _forget_freed(self) -> None:
        """Forget the shadows of freed allocations, whose addresses are not used again."""
        for allocation in [one for one in self._shadows if one.freed]:
            del self._shadows[allocation]
        self._most_shadows = 2 * len(self._shadows) + _FEW_SHADOWS

    def _place_of(self, access: Access, lane: int, entry: int) -> Place:
        """The location of an entry, for a report of a lane's access."""
        time, thread = entry >> 32, entry & THREAD
        if time in self._agents:
            thread = self.proxies.writer(time, thread, int(access.threads[lane]))
        return access.chunk.place_of(thread, self._steps[time - 1])

    def _signal(self, access: Access, shadow: Shadow) -> None:
        """Publish and acquire clocks for a strong access, which may use a flag or lock."""
        how = strength(access.step)
        if how == WEAK or not self._filter.signals:
            return
        form = access.step.form
        strong = StrongAccess(
            self.order,
            shadow,
            access.time,
            reads=access.step.kind not in (STORE, REDUCTION),
            writes=access.kind != "read",
            replaces=access.kind == "write",
            acquires=form.has("acquire") or form.has("acq_rel"),
            releases=form.has("release") or form.has("acq_rel"),
            wide=how == STRONG,
        )
        strong.exchange(access.warps(), access.offsets.view(np.int64))

    def _compare_writes(self, access: Access, shadow: Shadow, units: Units) -> Entries | None:
        """Compare an access with the last writes, except a strong access with strong writes.

        Returns the entries of the last weak writes; None if all are ordered before the access.
        """
        old = shadow.written.take(units) if shadow.last_write >= access.past else None
        if old is not None:
            self._compare(access, shadow, units, old, "write")
        if shadow.updated is not None and not access.sure and shadow.last_update >= access.past:
            self._compare(access, shadow, units, shadow.updated.take(units), "write")
        return old

    def _compare(self, access: Access, shadow: Shadow, units: Units, before: Entries, earlier: str) -> None:
        """Report races of an access with earlier accesses, given as one entry per unit.

        Two writes of the same bits do not race.
        """
        suspects = access.suspects(before)
        if not suspects.size:
            return
        lanes, before = suspects % access.lanes.size, before[suspects]
        racing = ~self.order.ordered(access.warps(lanes), access.threads[lanes], before)
        if racing.any():
            strong = self._both_strong(access, access.threads[lanes], before)
            if self._strict:
                self._note_volatile(access, shadow, lanes, before, earlier, racing & strong)
            racing &= ~strong
        if racing.any():
            racing &= ~self._initialised.seen(access.threads[lanes], before, self._steps)
        if earlier == "write" and shadow.observed is not None and racing.any():
            racing &= ~self._was_observed(shadow.observed.take(units[suspects]), before)
        if earlier == "write" and access.data is not None and racing.any():
            differ = shadow.held(units[suspects]) != shadow.pieces(access.data)[suspects]
            if self._strict and (equal := racing & ~differ).any():
                self._report(access, shadow, lanes[equal], before[equal], earlier, "equal")
            racing &= differ
        if racing.any():
            self._report(access, shadow, lanes[racing], before[racing], earlier)

    def _note_volatile(
        self,
        access: Access,
        shadow: Shadow,
        lanes: Lanes,
        before: Entries,
        earlier: str,
        strong: npt.NDArray[np.bool_],
    ) -> None:
        """Note pairs of strong, unordered accesses of which one is volatile."""
        if strong.any() and not is_volatile(access.step):
            times, of = np.unique(before >> 32, return_inverse=True)
            strong &= np.array([is_volatile(self._steps[int(time) - 1]) for time in times.tolist()])[of]
        if strong.any():
            self._report(access, shadow, lanes[strong], before[strong], earlier, "volatile")

    def _was_observed(self, observed: npt.NDArray[np.int64], before: Entries) -> npt.NDArray[np.bool_]:
        """Whether earlier strong writes are ordered because a strong read observed them.

        The reader is not recorded; it is assumed to be ordered before the later access.
        """
        times = before >> 32
        return (self._strengths[times] != WEAK) & (observed > times)

    def _both_strong(self, access: Access, threads: Lanes, before: Entries) -> npt.NDArray[np.bool_]:
        """Whether both accesses are strong with a scope that includes the other thread."""
        how = np.minimum(self._strengths[before >> 32], strength(access.step))
        per_block = access.chunk.warps_per_block * WARP_SIZE
        one_block = (before & THREAD) // per_block == threads // per_block
        return (how == STRONG) | ((how == FOR_BLOCK) & one_block)

    def _compare_with_itself(
        self, access: Access, shadow: Shadow, units: Units, missed: npt.NDArray[np.intp]
    ) -> None:
        """Report lanes that write different bits to one unit by the same instruction."""
        there = units[missed]
        together = np.flatnonzero(np.isin(units, there))
        together = together[np.argsort(units[together], kind="stable")]
        last = together[np.searchsorted(units[together], there, "right") - 1]
        before, lanes = access.of_units(units)[last], missed % access.lanes.size
        racing = ~self._both_strong(access, access.threads[lanes], before)
        if access.data is not None:
            pieces = shadow.pieces(access.data)
            differ = pieces[missed] != pieces[last]
            if self._strict and (equal := racing & ~differ).any():
                self._report(access, shadow, lanes[equal], before[equal], access.kind, "equal")
            racing &= differ
        if racing.any():
            self._report(access, shadow, lanes[racing], before[racing], access.kind)

    def _report(
        self, access: Access, shadow: Shadow, lanes: Lanes, before: Entries, earlier: str, note: str = ""
    ) -> None:
        """Report races, one per earlier instruction; with a reason, report them as notes."""
        times, first, counts = np.unique(before >> 32, return_index=True, return_counts=True)
        by_step: dict[int, list[int]] = {}
        for time, at, count in zip(times.tolist(), first.tolist(), counts.tolist(), strict=True):
            found = by_step.setdefault(self._steps[int(time) - 1].number, [time, at, 0])
            found[2] += count
        for time, at, count in by_step.values():
            step, lane = self._steps[time - 1], int(lanes[at])
            agent, other = self._agents.get(time), int(before[at] & THREAD)
            conflict = Conflict(
                allocation=shadow.allocation,
                offset=int(access.offsets[lane]),
                earlier=_kind(step, earlier),
                later=access.kind,
                thread=int(access.threads[lane]),
                other=other if agent is None else self.proxies.writer(time, other, int(access.threads[lane])),
                step=step,
                both_strong=bool(min(strength(step), strength(access.step))),
                count=count,
                note=note,
            )
            if agent is None:
                fault: KernelFault = race(access.chunk, conflict, access.width)
            else:
                warp = int(access.warps()[lane])
                phases = self.proxies.phases.get(time), self.proxies.waited.get((warp, agent[1]))
                fault = in_flight(access.chunk, conflict, access.width, agent, phases)
            if access.chunk.mbarriers is not None:
                address = None if agent is None else agent[1]
                access.chunk.mbarriers.note_unheeded(access.chunk, fault, int(access.lanes[lane]), address)
            access.chunk.found(fault, int(access.lanes[lane]))


def _kind(step: Step, kind: str) -> str:
    """The kind of a step's access; "atomic" for reads and writes of atomic operations."""
    return "atomic" if step.kind.updates else kind
