"""The events that order accesses: barriers, fences, arrivals, waits, and the ends of asynchronous accesses.

They move the vector clocks of `simwarp.races.order`. The race detector is built on them, as it compares each
access with what they have ordered.

Source: PTX ISA 9.0, 8.10 (causality order), 9.7.13 (barriers, fences, mbarriers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE, mask_word
from simwarp.races.access import Lanes, strength
from simwarp.races.lifetimes import Lifetimes
from simwarp.races.mbarrier_inits import InitialisedBarriers
from simwarp.races.order import Order
from simwarp.races.proxies import Proxies
from simwarp.races.shadow import THREAD, Entries
from simwarp.races.static_filter import RaceFilter
from simwarp.races.vector_clocks import Publication, Signal

if TYPE_CHECKING:
    from simwarp.engine.events import Agent, Chunk, Launch, Mask
    from simwarp.program.program import Step


class Synchronisation:
    """The methods of an `OrderListener` (`simwarp.engine.events`) for events that order accesses."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._filter = RaceFilter.of(launch)
        self.watched = self._filter.watched(launch)
        self._time = 1
        self._steps: list[Step] = []
        """The step that accessed memory at each time, from time 1."""
        self._strengths = np.zeros(1024, np.uint8)
        """The strength of the access at each time."""
        self._issuers: dict[int, Lanes] = {}
        self._counted_in: dict[int, int] = {}
        """See `Proxies`."""

    def enter(self, chunk: Chunk) -> None:
        """Start with a new chunk, after the previous one has ended."""
        self.order = Order(chunk, self._filter.signals, self._time)
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

    def _tick(self, step: Step) -> int:
        """The time of a new access by a step."""
        time = self._time
        if time >= self._strengths.size:
            self._strengths = np.concatenate([self._strengths, np.zeros_like(self._strengths)])
        self._strengths[time] = strength(step)
        self._steps.append(step)
        self._time += 1
        return time

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
        """The time of an event that is not a memory access, such as a wait, for `follows`."""
        return self._tick(step)

    def follows(
        self, warps: npt.NDArray[np.intp], others: npt.NDArray[np.intp], times: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether events of warps ``others`` at ``times`` are ordered before the next events of ``warps``."""
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
        """Lanes arrive at an mbarrier; forget the clocks of the phase before the previous one."""
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
        """Record arrivals and copies of a phase, if the program may pass its wait before it is complete."""
        if self._program.unheeded_tests.passed:
            self._ends.pop((phase[0], phase[1] - 2), None)
            self._ends.setdefault(phase, []).append(entries)

    def mbarrier_settled(self, chunk: Chunk, lanes: Lanes, phase: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """For each lane, whether all arrivals and copies of a phase are ordered before its next accesses."""
        entries = np.concatenate([np.zeros(0, np.int64), *self._ends.get(phase, ())])
        threads, warps = chunk.thread.reshape(-1)[lanes], chunk.warp[lanes // WARP_SIZE, 0]
        before, asking = np.tile(entries, lanes.size), np.repeat(threads, entries.size)
        ordered = self.order.ordered(np.repeat(warps, entries.size), asking, before)
        ordered |= before & THREAD == asking
        return ordered.reshape(lanes.size, -1).all(axis=1)

    def _release(self, warp: int, signal: Signal, relaxed: bool, wide: bool) -> None:
        """Publish a warp's clock at a barrier; a relaxed arrival publishes what its last fences saw."""
        if not relaxed:
            self.order.publish(signal, warp, self.order.now(warp, self._time), wide)
            return
        for publication, for_all in self.order.at_fence(warp, wide):
            self.order.publish(signal, warp, publication, for_all)

    def leave(self, chunk: Chunk, mask: Mask) -> None:
        """Record that lanes exit the kernel."""
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
        """Record that lanes execute ``fence.proxy.async``, which orders normal and asynchronous accesses."""
        # whoever published to the barrier before this fence did not publish the fence
        time = self._tick(chunk.step)
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


def _warps_of(chunk: Chunk, lanes: Lanes) -> list[int]:
    """The warps of lanes, each once, as indices in the whole chunk."""
    return np.unique(chunk.warp[lanes // WARP_SIZE, 0]).tolist()


def _warps(chunk: Chunk, mask: Mask) -> npt.NDArray[np.intp]:
    """The warps with lanes in a mask, numbered in the whole chunk."""
    return chunk.warp[:, 0][mask.any(axis=1)]
