"""The stack schedule, of GPUs before Volta: one program counter and a reconvergence stack per warp.

At a divergent branch the warp executes one side up to the step where the sides reconverge
(`simwarp.program.postdominators`), then the other, then continues with both. The side at the highest step
goes first, unlike in the default schedule. Warps do not wait for one another, except at barriers.

Lanes that wait for lanes of a side that has not run would wait forever. Since Volta they may (PTX ISA 9.0,
section 3.1); here such a kernel is rejected with `NeedsIndependentProgress`.

Sources: Levinthal and Porter, "Chap: a SIMD graphics processor" (SIGGRAPH 1984); Fung, Sham, Yuan and
Aamodt, "Dynamic warp formation and scheduling" (MICRO 2007), section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.engine.schedule.scheduler import NO_OTHER, Group, Scheduler
from simwarp.faults import Deadlock, KernelFault, Livelock, NeedsIndependentProgress
from simwarp.ptx.kinds import BARRIER

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk
    from simwarp.engine.state import Launch, Mask

_KERNEL = -1
"""The activation of the kernel itself, see `simwarp.engine.schedule.calls`."""

Warps = npt.NDArray[np.bool_]
"""(warps,) bool: a subset of the warps."""


class Stacks:
    """A reconvergence stack per warp; an entry has lanes, and the step where they join the entry below.

    The first entry, ``lanes`` (warps, 32), meets none: ``nowhere`` is a step that no lane reaches.
    """

    def __init__(self, lanes: Mask, nowhere: int) -> None:
        self._warps = np.arange(len(lanes))
        self._height = np.ones(len(lanes), np.int64)
        self._lanes = np.stack([np.zeros_like(lanes), lanes])  # below the first entry there are no lanes
        self._meets_at = np.full((2, len(lanes)), nowhere)
        self._meets_in = np.full((2, len(lanes)), _KERNEL)

    @property
    def top(self) -> Mask:
        """(warps, 32): the lanes of the top entries; some of these lanes may have exited."""
        return self._lanes[self._height, self._warps]

    @property
    def meets_at(self) -> npt.NDArray[np.int64]:
        """(warps,): the step where the top entry joins the entry below."""
        return self._meets_at[self._height, self._warps]

    @property
    def meets_in(self) -> npt.NDArray[np.int64]:
        """(warps,): the activation in which the top entry joins the entry below; -1 for the kernel itself."""
        return self._meets_in[self._height, self._warps]

    @property
    def used(self) -> Warps:
        """(warps,): whether the reconvergence stack of each warp has an entry."""
        return self._height > 0

    def push(
        self, warps: Warps, lanes: Mask, meets_at: npt.NDArray[np.int64], meets_in: npt.NDArray[np.int64]
    ) -> None:
        """Push an entry with these lanes in some of the warps."""
        if int(self._height.max()) + 1 == len(self._lanes):
            self._lanes, self._meets_at, self._meets_in = (
                np.concatenate([entries, np.zeros_like(entries)])
                for entries in (self._lanes, self._meets_at, self._meets_in)
            )
        self._height = self._height + warps
        at = self._height[warps], self._warps[warps]
        self._lanes[at], self._meets_at[at] = lanes[warps], meets_at[warps]
        self._meets_in[at] = meets_in[warps]

    def pop(self, warps: Warps) -> None:
        """Pop the top entry of some of the warps."""
        self._height = self._height - warps


class StackScheduler(Scheduler):
    """Runs the lanes of one chunk to the end of the kernel, each warp with one program counter."""

    def __init__(self, launch: Launch, chunk: Chunk) -> None:
        super().__init__(launch, chunk)
        self.meets = chunk.program.reconvergence
        self.stacks = Stacks(chunk.live, nowhere=len(self.steps))
        self._inside = np.full(chunk.warps, _KERNEL)
        """The activation that the lanes of each warp's top entry were in when the turn began."""
        self._stops: list[int] = []
        """The steps where warps of the current group reconverge."""
        self._others: dict[int, int] = {}
        """Step → turns of the groups that other warps can run."""

    # ---- the next group --------------------------------------------------------------------------------

    def choose(self) -> tuple[int, Group] | None:
        """Of the warps that can run, those at the lowest step."""
        self._update()
        top = self.stacks.top & self.chunk.live
        self._decline_vain_waits(top)
        ready = self.can_run()
        can_run = {pc: lanes for pc, group in self.groups.items() if (lanes := group.mask & ready).any()}
        if not can_run:
            self.stop(self.deadlock())
        turns, pc = min((self.groups[pc].turns, pc) for pc in can_run)
        group, chosen = self.groups.pop(pc), can_run.pop(pc)
        self._inside = self._activations(chosen)
        meeting = chosen.any(axis=1) & (self.stacks.meets_in == self._inside)
        self._stops = np.unique(self.stacks.meets_at[meeting]).tolist()
        self._others = {other: self.groups[other].turns for other in can_run}
        if (rest := group.mask & ~chosen).any():
            self.groups[pc] = Group(rest, turns, group.loops, group.rounds)
        for other in self.groups.keys() - can_run.keys():  # groups that cannot run get no higher priority
            self.groups[other].turns = max(self.groups[other].turns, turns)
        return pc, Group(chosen, turns, group.loops, group.rounds)

    def limit(self, pc: int) -> int:
        """The step before which the group at ``pc`` must stop, to reconverge or to yield."""
        nearest = min((stop for stop in self._stops if stop >= pc), default=NO_OTHER)
        for other, turns in self._others.items():
            if other == pc or (other < pc and turns <= self.turns):
                return pc
            if pc < other < nearest:
                nearest = other
        return nearest

    def is_sparse(self) -> bool:
        """Return False: a compact copy of the chunk cannot have reconvergence stacks."""
        return False

    def can_run(self) -> Mask:
        """The lanes of the top entries, in warps without a waiting lane in that entry."""
        top = self.stacks.top & self.chunk.live
        return top & ~self._waiting(top)[:, None]

    def _waiting(self, lanes: Mask) -> Warps:
        """(warps,): whether any of these lanes waits, parked at a step."""
        waiting = np.zeros(len(lanes), np.bool_)
        for mask in self.parked.values():
            waiting |= (mask & lanes).any(axis=1)
        return waiting

    # ---- the stacks ------------------------------------------------------------------------------------

    def _update(self) -> None:
        """Update the stacks after a turn: lanes diverged, reached their reconvergence point, or exited."""
        while True:
            top = self.stacks.top & self.chunk.live
            sides = {pc: lanes for pc, group in self.groups.items() if (lanes := group.mask & top).any()}
            here = {pc: lanes.any(axis=1) for pc, lanes in sides.items()}
            parted = np.add.reduce([*here.values(), np.zeros(len(top), np.int64)]) > 1
            if parted.any():
                self._part(parted, sides)
                continue
            done = self.stacks.used & ~top.any(axis=1)
            back = self._activations(top) == self.stacks.meets_in
            for pc, warps in here.items():
                done |= warps & (self.stacks.meets_at == pc) & back
            done &= ~self._waiting(top)
            if not done.any():
                return
            self.stacks.pop(done)

    def _part(self, parted: Warps, sides: dict[int, Mask]) -> None:
        """Push an entry per side, for the warps whose top lanes the current step sent to different steps."""
        meets_at, meets_in = self._meeting(parted)
        # The top entry is dropped if it would end where its own sides meet.
        same = (self.stacks.meets_at == meets_at) & (self.stacks.meets_in == meets_in)
        self.stacks.pop(parted & same)
        for pc, lanes in sorted(sides.items()):
            there = (meets_at == pc) & (meets_in == self._activations(lanes))
            self.stacks.push(parted & lanes.any(axis=1) & ~there, lanes, meets_at, meets_in)

    def _meeting(self, parted: Warps) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For each warp, the step and the activation where the sides of the current branch reconverge.

        Sides that return from a function separately meet after its call.
        """
        nowhere, meets_in = len(self.steps), self._inside
        meets_at = np.full(meets_in.shape, self.meets[self.chunk.step.number])
        if meets_at[0] != nowhere:
            return meets_at, meets_in
        meets_in, first = meets_in.copy(), (self.stacks.top & self.chunk.live).argmax(axis=1)
        for warp in np.flatnonzero(parted & (meets_in != _KERNEL)).tolist():
            activation = self.chunk.activations.under_way[int(meets_in[warp])]
            meets_at[warp] = activation.goes_on_at
            meets_in[warp] = activation.caller[warp, first[warp]]
        return meets_at, meets_in

    def _activations(self, lanes: Mask) -> npt.NDArray[np.int64]:
        """(warps,): the activation of these lanes, which is the same in all lanes of a warp."""
        current = self.chunk.activations.current
        if current is None:
            return np.full(len(lanes), _KERNEL)
        return np.where(lanes, current, _KERNEL).max(axis=1)

    # ---- waits without an end --------------------------------------------------------------------------

    def _decline_vain_waits(self, top: Mask) -> None:
        """Stop the launch if lanes wait for lanes of their own warp that cannot run before them."""
        if not self.parked:
            return
        moving = np.logical_or.reduce([np.zeros_like(top), *(group.mask for group in self.groups.values())])
        for pc, mask in self.parked.items():
            vain = mask & top & moving.any(axis=1, keepdims=True)
            if self.steps[pc].kind is BARRIER:
                vain = vain & (self.barriers.expects == 0)
            if vain.any() and self.steps[pc].kind.together not in ("", "cluster"):
                warps = vain.any(axis=1, keepdims=True)
                awaited = {at: group.mask & warps for at, group in self.groups.items()}
                self.stop(self._needs_progress({pc: vain}, awaited))

    def stop(self, fault: KernelFault) -> None:
        """End the launch with a fault; `NeedsIndependentProgress` if lanes below a stack's top cause it."""
        if isinstance(fault, Deadlock | Livelock):
            top = self.stacks.top
            ready = top & ~self._waiting(top)[:, None]
            held_up = {pc: group.mask & ~ready for pc, group in self.groups.items()}
            warps = np.logical_or.reduce([np.zeros_like(top), *held_up.values()]).any(axis=1, keepdims=True)
            if warps.any():
                waiting = {pc: mask & warps for pc, mask in self.parked.items()}
                if isinstance(fault, Livelock):
                    looping = [group.mask & ready & warps for group in self.groups.values()]
                    waiting[self.polling_step()] = np.logical_or.reduce(looping)
                fault = self._needs_progress(waiting, held_up)
        super().stop(fault)

    def _needs_progress(self, waiting: dict[int, Mask], awaited: dict[int, Mask]) -> NeedsIndependentProgress:
        """The fault of lanes that wait for lanes of their warp which the stack cannot run before them."""
        waiting_at, awaited_at = self.standing(waiting), self.standing(awaited)
        waiting_places, awaited_places = (tuple(at for _, at in some) for some in (waiting_at, awaited_at))
        fault = NeedsIndependentProgress(
            "lanes wait for lanes of their warp that can only run after them",
            "",
            "let the lanes of a warp reconverge before they wait for one another, "
            'or use schedule="lowest pc"',
            waiting_places[0],
            waiting=waiting_places,
            awaited=awaited_places,
        )
        fault.note_standing("wait here", waiting_at)
        fault.note_standing("may not run yet", awaited_at)
        if self.chunk.mbarriers is not None:
            self.chunk.mbarriers.add_waits(self.chunk, fault)
        return fault
