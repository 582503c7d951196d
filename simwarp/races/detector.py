"""Data races: two unordered accesses of the same bytes by two threads, at least one of them a write.

The executor runs the accesses of a launch in some order. Two of them race if nothing in the program orders
them: no barrier, no fence with a flag, no lock. A GPU may then execute them in the other order. Two strong
accesses (atomic, volatile, relaxed …) do not race.

Source: PTX ISA 9.0, chapter 8 (memory consistency model), section 8.7.1 (conflict and data races).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE, mask_word
from simwarp.races.access import (
    FOR_BLOCK,
    REDUCTIONS,
    STRONG,
    WEAK,
    Access,
    Lanes,
    held,
    is_volatile,
    strength,
)
from simwarp.races.last_two import remember_readers, remember_writers
from simwarp.races.lifetimes import Lifetimes
from simwarp.races.mbarrier_inits import InitialisedBarriers
from simwarp.races.order import Order
from simwarp.races.proxies import Proxies
from simwarp.races.release_acquire import StrongAccess
from simwarp.races.report import Conflict, in_flight, race
from simwarp.races.shadow import THREAD, Entries, Shadow, Units
from simwarp.races.stale_reads import StaleReads, source_of
from simwarp.races.static_filter import RaceFilter
from simwarp.races.vector_clocks import Publication, Signal

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.engine.events import Agent, OrderedAccess
    from simwarp.engine.launch import Launch
    from simwarp.faults import KernelFault
    from simwarp.memory import Allocation
    from simwarp.places import Place
    from simwarp.program.program import Step


class _Issued(NamedTuple):
    """An asynchronous access in parts, one per allocation.

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
        """Whether the units of all shadows are still as wide."""
        return all(units.size * s.unit == one.offsets.size * one.width for one, _, s, units in self.parts)


class Races:
    """The race detector of one launch, an `OrderListener` of `simwarp.engine.events`."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._filter = RaceFilter.of(launch)
        self._strict = launch.checks.strict("races")
        self.watched = self._filter.watched(launch)
        self._time = 1
        self._steps: list[Step] = []
        """The step that accessed memory at each time, from time 1."""
        self._strengths = np.zeros(1024, np.uint8)
        """The strength of the access at each time."""
        self._shadows: dict[Allocation, Shadow] = {}
        """Allocation in global memory → its shadow."""
        self._agents: dict[int, Agent] = {}
        """Time of an asynchronous access → who performs it."""
        self._issuers: dict[int, Lanes] = {}
        self._counted_in: dict[int, int] = {}
        """See `Proxies`."""
        self._stale = StaleReads(self._steps, self._place_of)

    # ---- accesses -----------------------------------------------------------------------------------

    def enter(self, chunk: Chunk) -> None:
        """Start with a new chunk, after the previous one has ended."""
        self.order = Order(chunk, self._filter.signals, self._time)
        self._shared_shadows: dict[Allocation, Shadow] = {}
        self._arrivals: dict[int, list[Publication]] = {}
        self._cluster_arrivals = np.zeros(chunk.live.shape, np.int64)
        self._cluster_signals: dict[tuple[int, int], Signal] = {}
        self._phases: dict[tuple[int, int], Signal] = {}
        """By address and number, the phases of barriers in shared memory."""
        self._ends: dict[tuple[int, int], list[Entries]] = {}
        """Phase → the `Shadow` entries of the arrivals and copies that it counts."""
        self._program = chunk.program
        self.proxies = Proxies(chunk, self.order, self._issuers, self._counted_in)
        self._lifetimes = Lifetimes(chunk, self.order) if self.launch.blocks_per_cluster > 1 else None
        self._initialised = InitialisedBarriers()
        self._shared_stride = chunk.shared_stride

    def access(self, access: OrderedAccess) -> None:
        """Record an access of some lanes: a read that happened, or a write or update about to happen."""
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
        """Compare an asynchronous access as one of the issuing lanes, and record it as one of the agent."""
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
                self.proxies.check(one, shadow, units, self._steps)
                self._read(one, recorded, shadow, units)
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
        elif shadow.constant is not None:  # a free is ordered behind such loads, too
            self._compare(access, shadow, units, shadow.constant.take(units), "read")
        old = self._compare_writes(access, shadow, units)
        if shadow.written_also is not None and shadow.last_also >= access.past:
            self._compare(access, shadow, units, shadow.written_also.take(units), "write")
        if shadow.last_read >= access.past:
            for read in shadow.readers():
                self._compare(access, shadow, units, read.take(units), "read")
        if access.step.kind == "atomic" and (shadow.observed is not None or not access.sure):
            shadow.observe(units, access.time)
        if access.sure:
            shadow.update(units, recorded.of_units(units), access.time)
        else:
            missed = remember_writers(self.order, recorded, shadow, units, old)
            if missed.size:
                self._compare_with_itself(access, shadow, units, missed)

    # ---- barriers and fences ------------------------------------------------------------------------

    def block_barrier(
        self, chunk: Chunk, mask: Mask, whole: bool, arrived: Mask | None = None, mixed: bool = False
    ) -> None:
        """Record that lanes pass a barrier of their block."""
        if mixed:
            self.watched |= self._filter.loads
        warps = _warps(chunk, mask)
        if whole:
            self.order.pass_whole(warps, np.any(chunk.live, axis=1), self._time)
            return
        came: list[tuple[int, Publication]] = []
        for warp in _warps(chunk, arrived).tolist() if arrived is not None else ():
            came += [(warp, past) for past in self._arrivals.pop(warp, [self.order.now(warp, self._time)])]
        self.order.pass_some(warps, came, self._time)

    def block_arrive(self, chunk: Chunk, mask: Mask) -> None:
        """Record that lanes execute ``bar.arrive``, which does not order their later accesses."""
        for warp in _warps(chunk, mask).tolist():
            self._arrivals.setdefault(warp, []).append(self.order.now(warp, self._time))

    def moment(self, step: Step) -> int:
        """The time of an event that accesses nothing."""
        return self._tick(step)

    def follows(
        self, warps: npt.NDArray[np.intp], others: npt.NDArray[np.intp], times: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether events of other warps of the chunk are ordered before what warps do next."""
        of_launch = np.array([[self.order.launch_warp(int(one)) for one in some] for some in (warps, others)])
        threads, earlier = of_launch.reshape(2, -1) * WARP_SIZE
        return self.order.ordered(warps, threads, earlier + (times << 32))

    def warp_barrier(self, chunk: Chunk, mask: Mask, members: Any) -> None:
        """Record that lanes pass ``bar.warp.sync``, each with its own member mask."""
        here = np.flatnonzero(mask.any(axis=1))
        words = np.broadcast_to(np.asarray(members).astype(np.uint32), mask.shape)[here]
        groups = np.where(mask[here], words & mask_word(mask[here]), np.uint32(0))
        live = mask_word(chunk.live[here])[:, 0]
        self.order.within_warps.meet(chunk.warp[here, 0], groups, live, self._time)

    def fence(self, chunk: Chunk, mask: Mask, scope: str) -> None:
        """Record that lanes execute a fence of scope "cta", "cluster", "gpu" or "sys", or "mbarrier_init"."""
        if scope == "mbarrier_init":
            self._initialised.fence(map(self.order.launch_warp, _warps(chunk, mask).tolist()), self._time)
        else:
            self.order.fence(_warps(chunk, mask), scope != "cta", self._time)

    def cluster_arrive(self, chunk: Chunk, mask: Mask, relaxed: bool) -> None:
        """Record that lanes arrive at the barrier of their cluster."""
        for warp, phase, signal in self._cluster(chunk, mask, arrives=True):
            self._release(warp, signal, relaxed, wide=True)
            if relaxed:
                self._initialised.publish(phase, self.order.launch_warp(warp))
            if self._lifetimes is not None:
                self._lifetimes.come(phase, warp, self._time)

    def cluster_wait(self, chunk: Chunk, mask: Mask) -> None:
        """Record that lanes pass the barrier of their cluster."""
        for warp, phase, signal in self._cluster(chunk, mask, arrives=False):
            self.order.acquire(warp, signal)
            self._initialised.acquire(phase, self.order.launch_warp(warp))
            if self._lifetimes is not None:
                self._lifetimes.meet(phase, warp)

    def mbarrier_arrive(
        self, chunk: Chunk, lanes: Lanes, phase: tuple[int, int], relaxed: bool, wide: bool
    ) -> None:
        """Lanes arrive at a barrier in shared memory; the clocks of its last phase but one are dropped."""
        address, number = phase
        self._phases.pop((address, number - 2), None)
        signal = self._phases.setdefault(phase, Signal())
        self._ends_in(phase, chunk.thread.reshape(-1)[lanes] + (self._time - 1 << 32))
        for warp in _warps_of(chunk, lanes):
            self._release(warp, signal, relaxed, wide)
            if self._lifetimes is not None:
                self._lifetimes.come(phase, warp, self._time)

    def mbarrier_wait(
        self, chunk: Chunk, lanes: Lanes, phase: tuple[int, int], relaxed: bool, wide: bool
    ) -> None:
        """Lanes find a phase of a barrier in shared memory complete."""
        address, number = phase
        for warp in _warps_of(chunk, lanes):
            self.proxies.waited[warp, address] = number
            if self._lifetimes is not None:
                self._lifetimes.meet(phase, warp)
            if (signal := self._phases.get(phase)) is None:
                continue
            if relaxed:
                self.order.read(warp, "mbarrier", np.array([address], np.int64), signal, wide)
            else:
                self.order.acquire(warp, signal, wide)

    def _ends_in(self, phase: tuple[int, int], entries: Entries) -> None:
        """Record arrivals and copies that a phase counts, where the program may pass a wait without a yes."""
        if self._program.unheeded_tests.passed:
            self._ends.pop((phase[0], phase[1] - 2), None)
            self._ends.setdefault(phase, []).append(entries)

    def mbarrier_settled(self, chunk: Chunk, lanes: Lanes, phase: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Whether all that a phase counts is ordered before the next accesses of each lane."""
        entries = np.concatenate([np.zeros(0, np.int64), *self._ends.get(phase, ())])
        threads, warps = chunk.thread.reshape(-1)[lanes], chunk.warp[lanes // WARP_SIZE, 0]
        before, asking = np.tile(entries, lanes.size), np.repeat(threads, entries.size)
        ordered = self.order.ordered(np.repeat(warps, entries.size), asking, before)
        ordered |= before & THREAD == asking
        return ordered.reshape(lanes.size, -1).all(axis=1)

    def _release(self, warp: int, signal: Signal, relaxed: bool, wide: bool) -> None:
        """Publish a warp's clock at a barrier; by a relaxed arrival that of its last fences."""
        if not relaxed:
            self.order.publish(signal, warp, self.order.now(warp, self._time), wide)
            return
        for publication, for_all in self.order.at_fence(warp, wide):
            self.order.publish(signal, warp, publication, for_all)

    def leave(self, chunk: Chunk, mask: Mask) -> None:
        """Record that lanes exit."""
        if self._lifetimes is not None:
            self._lifetimes.leave(chunk, mask)

    # ---- asynchronous accesses ----------------------------------------------------------------------

    def retire(self, chunk: Chunk, lanes: Lanes, agent: Agent, time: int) -> None:
        """Record that lanes have waited for an agent's accesses up to a time."""
        self.order.learn(_warps_of(chunk, lanes), self.order.done(agent, time))

    def complete(self, agent: Agent, time: int, phase: tuple[int, int]) -> None:
        """Record that an agent's accesses up to a time end within a phase of a barrier in shared memory."""
        block = phase[0] // self._shared_stride
        self._ends_in(phase, np.array([self.order.entry_of(agent, time)]))
        self.order.publish_done(self._phases.setdefault(phase, Signal()), agent, time, block)

    def proxy_fence(self, chunk: Chunk, mask: Mask) -> None:
        """Record that lanes execute ``fence.proxy.async``."""
        time = self._tick(chunk.step)  # who published before it, published no fence
        for warp in np.flatnonzero(mask.any(axis=1)).tolist():
            whole = not (chunk.live[warp] & ~mask[warp]).any()
            lanes = np.flatnonzero(mask[warp])
            self.order.proxy_fence(int(chunk.warp[warp, 0]), lanes, whole, time)

    def grid_control(self, chunk: Chunk, mask: Mask, waits: bool) -> None:
        """Ignore ``griddepcontrol``, which orders nothing within a launch; see `simwarp.races.dependents`."""

    def _cluster(
        self, chunk: Chunk, mask: Mask, arrives: bool
    ) -> Iterator[tuple[int, tuple[int, int], Signal]]:
        """Yield each warp, the phase of its cluster's barrier, and that phase's signal."""
        phases, signals = self._cluster_arrivals, self._cluster_signals
        here = np.flatnonzero(mask.any(axis=1))
        warps = chunk.warp[here, 0]
        phases[warps] += mask[here] & arrives
        per_cluster = chunk.warps_per_block * self.launch.blocks_per_cluster
        last = np.where(mask[here], phases[warps], 0).max(axis=1)
        for warp, phase in zip(warps.tolist(), last.tolist(), strict=True):
            cluster = ~(warp // per_cluster)  # beside the addresses of barriers in shared memory
            signals.pop((cluster, phase - 2), None)
            yield warp, (cluster, phase), signals.setdefault((cluster, phase), Signal())

    # ---- inside -------------------------------------------------------------------------------------

    def _issued(self, access: OrderedAccess) -> _Issued:
        """The parts of an asynchronous access, at the next time; those of one that comes again are kept."""
        issued: _Issued | None = None if access.kept is None else access.kept.get("races")
        if issued is not None and issued.valid:
            self._tick(access.step)
            return issued
        first = np.flatnonzero(np.diff(access.lanes, prepend=-1))  # of each run of one lane
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
        """A time before which all accesses are ordered before this one."""
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
            yield whole.part(which, offsets), shadows[allocation]

    def _place_of(self, access: Access, lane: int, entry: int) -> Place:
        """The place of an entry, beside which a lane of an access is reported."""
        time, thread = entry >> 32, entry & THREAD
        if time in self._agents:
            thread = self.proxies.writer(time, thread, int(access.threads[lane]))
        return access.chunk.place_of(thread, self._steps[time - 1])

    def _tick(self, step: Step) -> int:
        """The time of a new access by a step."""
        time = self._time
        if time >= self._strengths.size:
            self._strengths = np.concatenate([self._strengths, np.zeros_like(self._strengths)])
        self._strengths[time] = strength(step)
        self._steps.append(step)
        self._time += 1
        return time

    def _signal(self, access: Access, shadow: Shadow) -> None:
        """Let a strong access publish and acquire the clocks of flags and locks."""
        how = strength(access.step)
        if how == WEAK or not self._filter.signals:
            return
        form = access.step.form
        strong = StrongAccess(
            self.order,
            shadow,
            access.time,
            reads=access.step.kind != "store" and access.step.kind != "reduction",
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
        """Note pairs of strong accesses that nothing orders, one of them volatile."""
        if strong.any() and not is_volatile(access.step):
            times, of = np.unique(before >> 32, return_inverse=True)
            strong &= np.array([is_volatile(self._steps[int(time) - 1]) for time in times.tolist()])[of]
        if strong.any():
            self._report(access, shadow, lanes[strong], before[strong], earlier, "volatile")

    def _was_observed(self, observed: npt.NDArray[np.int64], before: Entries) -> npt.NDArray[np.bool_]:
        """Whether earlier writes are strong and were read by a strong read, which orders them.

        The reader is not recorded; it is assumed to be ordered before the later access.
        """
        times = before >> 32
        return (self._strengths[times] != WEAK) & (observed > times)

    def _both_strong(self, access: Access, threads: Lanes, before: Entries) -> npt.NDArray[np.bool_]:
        """Whether both accesses are strong for each other's thread."""
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
        """Report races, one per earlier instruction; with the reason of a note, as notes."""
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
    return "atomic" if step.kind in REDUCTIONS else kind


def _warps_of(chunk: Chunk, lanes: Lanes) -> list[int]:
    """The warps of lanes, each once, as indices in the whole chunk."""
    return np.unique(chunk.warp[lanes // WARP_SIZE, 0]).tolist()


def _warps(chunk: Chunk, mask: Mask) -> npt.NDArray[np.intp]:
    """The warps with lanes in a mask, numbered in the whole chunk."""
    return chunk.warp[:, 0][mask.any(axis=1)]
