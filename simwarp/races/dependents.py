"""Dependent launches, which overlap the previous launch until they wait for it.

A launch with ``dependent=True`` may start once every block of the launch before has executed
``griddepcontrol.launch_dependents`` or exited. What that launch wrote, before or after, is visible behind
``griddepcontrol.wait`` only. An access before the wait to bytes that the other launch wrote, or a write to
bytes that it read, is a `DependentAccess`. So is a load of constant memory (``ld.global.nc``) anywhere: the
compiler of PTX may move it before the wait.

Source: PTX ISA 9.0, 9.7.13.13; CUDA Programming Guide, programmatic dependent launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import DependentAccess, Place
from simwarp.lanes import WARP_SIZE
from simwarp.races.access import WEAK, Lanes, held, strength
from simwarp.races.detector import Races
from simwarp.races.shadow import THREAD, Shadow, Units
from simwarp.races.stale_reads import CONSTANTS, source_of

if TYPE_CHECKING:
    from simwarp.engine.events import Agent, Chunk, Launch, Mask, OrderedAccess
    from simwarp.memory import Allocation
    from simwarp.program.program import Step

_ADVICE = (
    "wait first: cudaGridDependencySynchronize() (griddepcontrol.wait) in this thread, or in another one "
    "and a barrier behind it"
)
_ADVICE_OF_CONSTANTS = (
    "load it by ld.global: in CUDA give no pointer of a kernel that waits __restrict__, so that the compiler "
    "does not take what it only reads for constant"
)
_DOES = {"read": "read", "write": "write", "atomic": "atomic update"}


class Footprint:
    """The global memory that a launch read and wrote, and the bytes that its writes replaced.

    Attributes
    ----------
    shadows : dict of Allocation to Shadow
        The entries of the last read and write of each unit, whose time is a number in ``steps``.
    before : dict of Allocation to array
        The bytes of each allocation before the launch's first write to it.
    """

    def __init__(self, launch: Launch) -> None:
        self._geometry = launch.geometry
        self._steps: dict[int, Step] = {}
        self.shadows: dict[Allocation, Shadow] = {}
        self.before: dict[Allocation, npt.NDArray[np.uint8]] = {}

    def note(self, access: OrderedAccess, threads: Lanes, allocation: Allocation, offsets: Any) -> None:
        """Record an access of some threads to an allocation; a write is recorded before it executes."""
        shadow = self.shadows.get(allocation)
        if shadow is None:
            shadow = self.shadows[allocation] = Shadow(allocation, access.width)
        units = shadow.units(offsets, access.width)
        time = access.step.number % (1 << 30) + 1  # loads by copies have step numbers below 0
        self._steps[time] = access.step
        entries = np.tile(threads + (time << 32), units.size // threads.size)
        if access.kind != "write":
            shadow.readers()[0][units] = entries
        if access.kind != "read":
            if allocation not in self.before:
                self.before[allocation] = allocation.view(np.dtype(np.uint8)).copy()
            shadow.write(units, entries, time)

    def place(self, entry: int) -> Place:
        """The location (thread and source line) of an access, from its entry in the shadow memory."""
        return self._geometry.place(entry & THREAD, self._steps[entry >> 32])


class Dependents(Races):
    """The race detector of a launch that may overlap earlier or later launches.

    Parameters
    ----------
    before : tuple of Footprint
        The launches that this one overlaps, the last one first.
    """

    def __init__(self, launch: Launch, before: tuple[Footprint, ...] = ()) -> None:
        super().__init__(launch)
        self._before, self._racing, program = before, self.watched, launch.program
        steps = [*program.steps, *(step.source for step in program.steps if step.source is not None)]
        loads = {step.number for step in steps if step.kind.loads and step.base is not None}
        self.watched = loads | self._racing
        self._footprint = Footprint(launch) if program.launches_dependents else None
        self._hides = launch.schedule == "lowest pc" or (launch.schedule == "random" and launch.seed % 2 == 0)
        self._hidden: list[tuple[npt.NDArray[Any], Units, npt.NDArray[Any]]] = []
        self._left_open = not program.waits_for_grids
        """Whether a launch after this one may find those before it still running."""

    @property
    def unfinished(self) -> tuple[Footprint, ...]:
        """The footprints of the launches that may still run when a dependent launch after this one starts."""
        own = () if self._footprint is None else (self._footprint,)
        return own + (self._before if self._left_open else ())

    def enter(self, chunk: Chunk) -> None:
        """Start with a new chunk: none of its lanes has waited."""
        self._waited = np.zeros((chunk.warps, WARP_SIZE), np.bool_)
        self._flags: set[int] = set()
        self._waited_phases: set[tuple[int, int]] = set()
        self.show()
        if self._hides:
            self._hide()
        super().enter(chunk)

    # ---- memory as it was ------------------------------------------------------------------------------

    def _hide(self) -> None:
        """Restore the bytes that earlier launches replaced, as if those wrote at the latest moment."""
        for footprint in self._before:
            for allocation, before in footprint.before.items():
                if not allocation.freed:
                    shadow = footprint.shadows[allocation]
                    unit = np.dtype(f"u{shadow.unit}")
                    view, units = allocation.view(unit), shadow.numbers(np.flatnonzero(shadow.written))
                    self._hidden.append((view, units, view[units]))
                    view[units] = before.view(unit)[units]

    def show(self) -> None:
        """Make the earlier launches' writes visible, at the first wait of a chunk or at its end."""
        while self._hidden:
            view, units, written = self._hidden.pop()
            view[units] = written

    # ---- accesses --------------------------------------------------------------------------------------

    def access(self, access: OrderedAccess) -> None:
        """Check an access for races with the launches before, and record it."""
        if access.lanes.size:
            if access.memory is not access.chunk.shared:
                self._look(access)
            if self._before and strength(access.step) != WEAK:
                self._pass_flag(access)
        if access.kind != "read" or access.step.number in self._racing:
            super().access(access)

    def issue(self, access: OrderedAccess, agent: Agent, phase: int | None = None) -> int:
        """Check and record an asynchronous access, when lanes begin it."""
        if access.memory is not access.chunk.shared:
            self._look(access)
        return super().issue(access, agent, phase)

    def _look(self, access: OrderedAccess) -> None:
        """Check an access to global memory, and record it."""
        threads = access.chunk.thread.reshape(-1)[access.lanes]
        early = ~self._waited[self._at(access)] | (source_of(access.step) == CONSTANTS)
        for allocation, which, offsets in held(access.memory, access.addresses, access.width):
            if access.kind != "read" and allocation.read_only:
                continue
            some = slice(None) if which is None else which
            for footprint in self._before if early.any() else ():
                if allocation in footprint.shadows:
                    self._find(access, footprint, allocation, (access.lanes[some], early[some], offsets))
            if self._footprint is not None:
                self._footprint.note(access, threads[some], allocation, offsets)

    def _find(
        self,
        access: OrderedAccess,
        footprint: Footprint,
        allocation: Allocation,
        part: tuple[Lanes, npt.NDArray[np.bool_], Any],
    ) -> None:
        """Report lanes that, before ``griddepcontrol.wait``, conflict with another launch's accesses."""
        (lanes, early, offsets), shadow = part, footprint.shadows[allocation]
        units = shadow.units(offsets, access.width)
        written = entries = shadow.written.take(units)
        if access.kind != "read" and shadow.read is not None:
            entries = np.where(written != 0, written, shadow.read.take(units))
        bad = np.flatnonzero((entries != 0) & np.tile(early, units.size // early.size))
        if not bad.size:
            return
        first = int(bad[0]) % lanes.size
        other, offset = footprint.place(int(entries[bad[0]])), int(offsets[first])
        earlier = "write" if written[bad[0]] else "read"
        did = "wrote" if earlier == "write" else "read"
        size = f"{access.width} byte{'s' * (access.width > 1)}"
        constants = source_of(access.step) == CONSTANTS
        how = "as constant memory" if constants else "without waiting for it"
        fault = DependentAccess(
            f"{_DOES[access.kind]} of {size} that the launch before {did}, {how}",
            f"byte {offset} of {allocation.name}",
            _ADVICE_OF_CONSTANTS if constants else _ADVICE,
            earlier=earlier,
            later=access.kind,
            other=other,
            address=allocation.base + offset,
            width=access.width,
            space="global",
            allocation=allocation.name,
            offset=offset,
            count=int(np.unique(lanes[bad % lanes.size]).size),
        )
        fault.note(f"{'written' if earlier == 'write' else 'read'} here, in the launch before, by", other)
        fault.name_element(allocation.element(offset, access.width))
        access.chunk.found(fault, int(lanes[first]))

    # ---- who has waited --------------------------------------------------------------------------------

    def _at(self, access: OrderedAccess) -> tuple[Lanes, Lanes]:
        """The lanes of an access as indices of warps in the whole chunk, and of lanes in these."""
        return self._in_chunk(access.chunk, access.lanes)

    def _in_chunk(self, chunk: Chunk, lanes: Lanes) -> tuple[Lanes, Lanes]:
        return chunk.warp[lanes // WARP_SIZE, 0], lanes % WARP_SIZE

    def grid_control(self, chunk: Chunk, mask: Mask, waits: bool) -> None:
        """Lanes wait for the grids before, or allow dependent ones to start."""
        warps = chunk.warp[:, 0]
        if waits:
            self._waited[warps] |= mask
            self.show()
        elif self._before and (mask & ~self._waited[warps]).any():
            self._left_open = True

    def _pass(self, chunk: Chunk, mask: Mask, came: Mask, warps_together: int) -> None:
        """Lanes of ``mask`` inherit the grid waits of lanes that arrived at the same barrier."""
        warps = chunk.warp[:, 0]
        waited, groups = self._waited[warps], warps // warps_together
        having = np.unique(groups[(waited & came).any(axis=1)])
        self._waited[warps] = waited | (mask & np.isin(groups, having)[:, None])

    def _pass_flag(self, access: OrderedAccess) -> None:
        """Let readers of an address by strong accesses inherit the grid waits of its writer."""
        at, addresses = self._at(access), access.addresses
        if access.kind != "write" and self._flags:
            self._waited[at] |= np.isin(addresses, np.array(list(self._flags), np.uint64))
        if access.kind != "read":
            self._flags.update(addresses[self._waited[at]].tolist())

    def block_barrier(
        self, chunk: Chunk, mask: Mask, whole: bool, arrived: Mask | None = None, mixed: bool = False
    ) -> None:
        """Lanes pass a barrier of their block."""
        if mixed:
            self._racing = self._racing | self._filter.loads
        if self._before:
            self._pass(chunk, mask, mask if arrived is None else mask | arrived, chunk.warps_per_block)
        super().block_barrier(chunk, mask, whole, arrived, mixed)

    def warp_barrier(self, chunk: Chunk, mask: Mask, members: Any) -> None:
        """Lanes pass ``bar.warp.sync``; the lanes of one warp count as one group."""
        if self._before:
            self._pass(chunk, mask, mask, 1)
        super().warp_barrier(chunk, mask, members)

    def cluster_wait(self, chunk: Chunk, mask: Mask) -> None:
        """Lanes pass ``barrier.cluster.wait``, the barrier of their cluster."""
        if self._before:
            together = chunk.warps_per_block * self.launch.blocks_per_cluster
            self._pass(chunk, mask, np.ones_like(mask), together)
        super().cluster_wait(chunk, mask)

    def mbarrier_arrive(
        self, chunk: Chunk, lanes: Lanes, phase: tuple[int, int], relaxed: bool, wide: bool
    ) -> None:
        """Lanes arrive at an mbarrier in shared memory."""
        if self._before and not relaxed and self._waited[self._in_chunk(chunk, lanes)].any():
            self._waited_phases.add(phase)
        super().mbarrier_arrive(chunk, lanes, phase, relaxed, wide)

    def mbarrier_wait(
        self, chunk: Chunk, lanes: Lanes, phase: tuple[int, int], relaxed: bool, wide: bool
    ) -> None:
        """Lanes find a phase of a barrier in shared memory complete."""
        if phase in self._waited_phases and not relaxed:
            self._waited[self._in_chunk(chunk, lanes)] = True
        super().mbarrier_wait(chunk, lanes, phase, relaxed, wide)
