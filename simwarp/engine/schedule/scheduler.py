"""The default scheduler: which lanes execute next.

Each lane has its own program counter. The lanes at one step form a *group*; the group at the lowest step
runs. It merges with another group that it reaches, and a divergent branch splits it. Lanes that must wait for
others (``.sync``, barriers) are *parked* until these arrive.

Fairness: a looping group yields to the others after some rounds, soon if the loop polls memory, late if it
only computes, so that a lane can wait for another one. A loop with few warps left in it runs on a compact
copy of these warps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.engine.chunk import Chunk
from simwarp.engine.operations import CONTROL, DATA
from simwarp.engine.schedule.livelock import Progress
from simwarp.engine.schedule.missing_lanes import Attendance
from simwarp.engine.sync import grid_sync, waiting
from simwarp.engine.sync.barriers import Barriers, ClusterBarrier
from simwarp.faults import Deadlock, KernelFault, Livelock, Place, RunawayKernel
from simwarp.lanes import WARP_SIZE
from simwarp.program.program import Step
from simwarp.ptx.kinds import LOAD

if TYPE_CHECKING:
    from simwarp.compiled.run import Kernel
    from simwarp.engine.state import Launch, Mask

NO_OTHER = 1 << 62
"""A step number beyond every program."""
_TURN = 65536
"""Backward branches of one group before it yields to another group."""
_POLLING_TURN = 64
"""The same for a polling loop: one with volatile, relaxed, acquire or atomic accesses."""
_LOOK = 4096
"""Backward branches of one group between two looks whether the loop is endless."""
_LANES_PER_UNIT = 2048
"""Number of lanes whose work takes as long as the overhead of a step."""
_HOT = 16
"""Backward branches of one group between two looks whether to compile the kernel."""
_LOOK_AROUND = 4
"""Backward branches of one group between two checks whether it is sparse."""
_FEW = 4
"""A group is sparse if it has less than 1/4 of the lanes and at most 2/4 of the warps."""


@dataclass
class Group:
    """The lanes at one step; they execute it together.

    Attributes
    ----------
    mask : (warps, 32) bool
    turns : int
        How often the group yielded to others; the group with fewest turns runs first.
    loops : bool
        Whether the group has taken a backward branch.
    rounds : int
        Number of backward branches that it took.
    """

    mask: Mask
    turns: int = 0
    loops: bool = False
    rounds: int = 0


class LaunchEnded(Exception):  # noqa: N818 - control flow, not an error
    """Raised to end a launch after a reported fault, such as a deadlock."""


class Scheduler:
    """Runs the lanes of one chunk to the end of the kernel, the lowest step first."""

    def __init__(self, launch: Launch, chunk: Chunk, attendance: Attendance | None = None) -> None:
        self.launch, self.chunk = launch, chunk
        self.attendance = attendance or Attendance(chunk)
        self.ways_out = self.attendance.ways
        chunk.attendance = self.attendance
        self.steps = chunk.program.steps
        self.groups: dict[int, Group] = {chunk.program.start: Group(chunk.live)}
        self.parked: dict[int, Mask] = {}
        self.turns = self.loops = 0
        self.last_turn = NO_OTHER
        self.gave_way: Step | None = None
        """The backward branch at which a group last yielded, until `progress` examines it."""
        self.compiled: Kernel | None = launch.compiled
        self.entries: AbstractSet[int] = self.places()
        """The steps at which compiled code is entered."""
        if not chunk.is_part:
            self.progress = Progress()
            self.barriers = Barriers(chunk)
            self.cluster_barrier = ClusterBarrier(chunk)

    def run(self) -> None:
        """Execute until every lane has exited, or, in a part of a chunk, until all wait for lanes outside."""
        while self.groups:
            if self.gave_way is not None and not self.chunk.is_part:
                self.progress.look(self)
                self.gave_way = None
            chosen = self.choose()
            if chosen is None:
                return
            pc, group = chosen
            self.turns, self.loops = group.turns, group.rounds
            self.enter(group.mask)
            sparse = group.loops and self.chunk.count * _FEW < self.chunk.mask.size
            if not (sparse and self.focus(pc, group)):
                self.advance(pc)
            if not self.groups and self.parked and not self.chunk.is_part:
                self.stop(self.deadlock())

    def choose(self) -> tuple[int, Group] | None:
        """Remove and return the group of lanes that runs next; None if a part's share of turns is used up."""
        turns, pc = min((group.turns, pc) for pc, group in self.groups.items())
        return None if turns > self.last_turn else (pc, self.groups.pop(pc))

    def advance(self, pc: int) -> None:
        """Run the current group until it ends, splits, waits, or reaches or passes another group."""
        chunk, steps, observed = self.chunk, self.steps, bool(self.launch.on_step)
        limit, first, entries = self.limit(pc), pc, self.entries
        while pc < limit:
            if pc in entries and self.compiled is not None:
                ran, following = self.compiled.go(self, pc, pc - first)
                if following is None:
                    return
                if ran:
                    pc = first = following
                    limit = self.limit(pc)
            step = chunk.step = steps[pc]
            compute = step.compute
            if compute is not None and step.guard is None:
                chunk.executed += chunk.count
                compute(chunk)
                if observed:
                    self.notify(step, chunk.mask)
                pc += 1
                continue
            execute = DATA.get(step.kind) if compute is None else _compute
            if execute is not None:
                if step.guard is None:
                    chunk.executed += chunk.count
                    execute(chunk, step)
                    if observed:
                        self.notify(step, chunk.mask)
                else:
                    self.guarded(step, execute)
                pc += 1
                continue
            self.spend(pc + 1 - first)
            following = CONTROL[step.kind](self, pc, step)
            if following is None:
                return
            goes_on = following > pc or self.may_loop(step)
            entries = self.entries
            limit = self.limit(following) if goes_on else following
            pc = first = following
        self.spend(pc - first)
        self.put(pc, chunk.mask, loops=bool(self.loops))

    # ---- groups --------------------------------------------------------------------------------------

    def nobody_else(self) -> bool:
        """Whether the current group holds all live lanes."""
        return not self.groups and not self.parked

    def needed(self) -> int:
        """The registers that lanes of other groups may still read, as one bit per slot."""
        live, needed = self.chunk.program.live, 0
        for pc in (*self.groups, *self.parked):
            needed |= live[pc]
        return needed

    def enter(self, mask: Mask) -> None:
        """Make the lanes of ``mask`` the current group and the executing lanes."""
        alone = self.nobody_else()
        self.chunk.enter(mask, alone, 0 if alone else self.needed())

    def limit(self, pc: int) -> int:
        """The step before which the group at ``pc`` must stop, to merge or to yield."""
        if not self.groups:
            return NO_OTHER
        nearest = NO_OTHER
        for other, group in self.groups.items():
            if other == pc or (other < pc and group.turns <= self.turns):
                return pc
            if pc < other < nearest:
                nearest = other
        return nearest

    def put(self, pc: int, mask: Mask, loops: bool = False) -> None:
        """Add lanes to the group of lanes whose next step is ``pc``."""
        there = self.groups.get(pc)
        if there is None:
            self.groups[pc] = Group(mask, self.turns, loops, self.loops)
        else:
            there.mask, there.turns = there.mask | mask, max(there.turns, self.turns)
            there.loops |= loops
            there.rounds = max(there.rounds, self.loops)

    def park(self, pc: int, mask: Mask) -> None:
        """Make lanes wait at step ``pc``, until `unpark` releases them."""
        there = self.parked.get(pc)
        self.parked[pc] = mask if there is None else there | mask

    def unpark(self, pc: int, mask: Mask) -> Mask:
        """Release the lanes of ``mask`` that wait at a step; returns them."""
        released = self.parked[pc] & mask
        rest = self.parked[pc] & ~mask
        if rest.any():
            self.parked[pc] = rest
        else:
            del self.parked[pc]
        return released

    def may_loop(self, branch: Step) -> bool:
        """Count a backward branch; False when the group should yield, or run as a compact copy."""
        self.loops += 1
        if self.loops % _HOT == 0 and self.compiled is None:
            self.warm_up()
        if self.loops % _LOOK_AROUND == 0 and not branch.meets and self.is_sparse():
            return False
        ends_turn = self.loops % (_POLLING_TURN if branch.polls else _TURN) == 0
        if not ends_turn and (self.loops % _LOOK or self.chunk.is_part or self.chunk.order is not None):
            return True
        self.turns += ends_turn
        self.gave_way = branch
        if self.launch.journal is not None:
            self.launch.journal.go(self.chunk)
        return False

    def warm_up(self) -> None:
        """Compile the kernel, once the launch has run long enough."""
        self.compiled = self.launch.compiled = self.launch.compile(hot=True)
        self.entries = self.places()

    def places(self) -> AbstractSet[int]:
        """The steps at which compiled code is entered: all that can be, or those that pay."""
        if self.compiled is None:
            return frozenset()
        return self.compiled.every if self.launch.engine == "compiled" else self.compiled.paying

    def take_over(self, groups: Mapping[int, tuple[Mask, int, bool, int]]) -> None:
        """Replace the groups: their lanes, turns, whether they loop, and their rounds, by step."""
        self.groups = {pc: Group(*group) for pc, group in groups.items()}

    def can_run(self) -> Mask:
        """The lanes that do not wait for other lanes of their warp."""
        return self.chunk.live

    # ---- a few warps by themselves ---------------------------------------------------------------------

    def is_sparse(self) -> bool:
        """Whether few warps are left in the current group."""
        chunk = self.chunk
        if chunk.count * _FEW >= chunk.mask.size or chunk.warps < 2 * _FEW:
            return False
        if len(chunk.program.routines) > 1:  # a chunk with device functions is not split
            return False
        return int(np.count_nonzero(chunk.mask.any(axis=1))) * _FEW <= 2 * chunk.warps

    def focus(self, pc: int, group: Group) -> bool:
        """Run the warps of a looping group on a compact copy; False if the group is not sparse."""
        if not self.is_sparse():
            return False
        chunk = self.chunk
        warps = np.flatnonzero(group.mask.any(axis=1))
        self.put(pc, group.mask)
        part = chunk.part(warps)
        inner = Scheduler(self.launch, part, self.attendance)
        inner.last_turn = min(self.last_turn, self.turns)
        inner.groups = {at: Group(g.mask[warps], g.turns) for at, g in self.groups.items()}
        inner.parked = {at: mask[warps] for at, mask in self.parked.items()}
        inner.drop_empty()
        inner.run()
        chunk.absorb(part, warps, inner.needed())
        nothing = np.zeros((warps.size, WARP_SIZE), np.bool_)
        for group_here in self.groups.values():
            group_here.mask = _with(group_here.mask, warps, nothing)
        self.parked = {at: _with(mask, warps, nothing) for at, mask in self.parked.items()}
        self.drop_empty()
        self.gave_way = self.gave_way or inner.gave_way
        nowhere = np.zeros_like(chunk.live)
        for at, g in inner.groups.items():
            self.turns = g.turns
            self.put(at, _with(nowhere, warps, g.mask))
        for at, mask in inner.parked.items():
            self.park(at, _with(nowhere, warps, mask))
        self.settle()
        return True

    def drop_empty(self) -> None:
        """Remove groups and waiting sets whose mask has no lane left."""
        self.groups = {at: g for at, g in self.groups.items() if g.mask.any()}
        self.parked = {at: mask for at, mask in self.parked.items() if mask.any()}

    # ---- faults and observers --------------------------------------------------------------------------

    def deadlock(self) -> KernelFault:
        """The fault for a launch in which all live lanes wait for one another."""
        if self.chunk.register_pool is not None and (short := self.chunk.register_pool.shortage(self)):
            return short
        standing = self.standing(self.parked)
        places = tuple(place for _, place in standing)
        advice = "let all lanes that the mask or barrier names reach it"
        fault = Deadlock("every lane that is left waits for another", "", advice, places[0], waiting=places)
        fault.note_standing("wait here", standing)
        return fault

    def standing(self, lanes: Mapping[int, Mask]) -> list[tuple[int, Place]]:
        """The number of lanes at each step, and the location of the first of them."""
        return [
            (int(np.count_nonzero(mask)), self.chunk.place(int(mask.argmax()), self.steps[pc]))
            for pc, mask in sorted(lanes.items())
            if mask.any()
        ]

    def livelock(self, whole: bool = True) -> KernelFault:
        """The fault when lanes loop while the whole state, or all that leads out of the loops, repeats."""
        if self.chunk.register_pool is not None and (short := self.chunk.register_pool.shortage(self)):
            return short
        chunk, pc = self.chunk, self.polling_step()
        chunk.step = self.steps[pc]
        lanes = sum(int(np.count_nonzero(group.mask)) for group in self.groups.values())
        waiting = sum(int(np.count_nonzero(mask)) for mask in self.parked.values())
        what, repeat = "the state is the same as some iterations ago", "their registers and all memory repeat"
        advice = (
            "do what the loop waits for on every path: release the lock, set the flag, advance the counter"
        )
        if not whole:
            what = "nothing that could end it changes"
            repeat = "what changes, such as a counter or a clock, does not lead out of the loops"
            advice += "; a loop's counter must be able to pass its bound"
        in_loops = f"{lanes} {'lane is' if lanes == 1 else 'lanes are'} in loops"
        values = f"{in_loops}, {waiting} wait{'s' * (waiting == 1)} for others; {repeat}"
        fault = Livelock(f"an endless loop: {what}", values, advice)
        if grid_sync.polls(chunk, chunk.step):
            fault.what = "a grid sync that not all threads of the grid reach"
            fault.advice = "let every thread of every block reach it: no condition around it, no return ahead"
        self._add_mbarriers(fault)
        mask = min(self.groups.items(), key=lambda item: abs(item[0] - pc))[1].mask
        return chunk.placed(fault, mask)

    def _add_mbarriers(self, fault: RunawayKernel) -> None:
        """Add the barriers in shared memory that lanes in loops wait for."""
        if self.chunk.mbarriers is not None:
            fault.waiting = self.chunk.mbarriers.add_waits(self.chunk, fault)
            if fault.waiting:
                fault.advice = "let as many arrivals and bytes reach each mbarrier as it expects, " + (
                    "and wait for the parity of the phase that they count in"
                )

    def spend(self, steps: int) -> None:
        """Subtract steps from the launch's budget; after a fault, each step counts once per lane."""
        launch = self.launch
        launch.steps_left -= steps
        launch.spent += steps * (1 + self.chunk.mask.size // _LANES_PER_UNIT)
        if launch.units_left < NO_OTHER:
            launch.units_left -= steps * (1 + self.chunk.mask.size // _LANES_PER_UNIT)
        if launch.steps_left < 0 or launch.units_left < 0:
            what = f"more than {launch.instruction_budget} instructions executed"
            advice = "check how the loop ends"
            if launch.steps_left >= 0:
                what = "a launch runs too long after a fault, perhaps with an undefined loop count"
                advice = "correct the faults that were found before this one"
            still = f"{self.chunk.count} lanes are still running"
            fault = RunawayKernel(what, still, f"{advice}, or raise instruction_budget=")
            self._add_mbarriers(fault)
            self.stop(self.chunk.placed(fault, self.chunk.mask))

    def stop(self, fault: KernelFault) -> None:
        """Report a fault and end the launch, even if the check collects faults."""
        self.launch.found(fault)
        raise LaunchEnded

    def polling_step(self) -> int:
        """The first atomic operation or load of the loop that last yielded, or else its branch."""
        branch = self.gave_way
        if branch is None:
            return min(self.groups)
        loop = range(branch.target, branch.number + 1)
        reads = [pc for pc in loop if self.steps[pc].kind.polls]
        reads += [pc for pc in loop if self.steps[pc].kind is LOAD and not self.steps[pc].symbol]
        return (reads or [branch.number])[0]

    def executed(self, step: Step, mask: Mask) -> None:
        """Count the lanes that executed a step, and notify the observers."""
        self.chunk.executed += int(np.count_nonzero(mask))
        if self.launch.on_step:
            self.notify(step, mask)

    def notify(self, step: Step, mask: Mask) -> None:
        """Call ``on_step`` of the observers for the lanes that executed a step."""
        for observe in self.launch.on_step:
            observe(self.chunk, step, mask)

    # ---- data under a predicate ------------------------------------------------------------------------

    def guarded(self, step: Step, execute: Callable[[Chunk, Step], None]) -> None:
        """Execute a predicated data instruction in the lanes whose guard is true."""
        chunk = self.chunk
        whole, alone, needed, all_lanes = chunk.mask, chunk.alone, chunk.needed, chunk.count
        taken = self.taken(step)
        count = int(np.count_nonzero(taken))
        chunk.executed += count
        if count == all_lanes:
            execute(chunk, step)
        elif count:
            chunk.enter(taken, alone=False)
            execute(chunk, step)
            chunk.enter(whole, alone, needed)
        if self.launch.on_step:
            self.notify(step, taken)

    def taken(self, step: Step) -> Mask:
        """The executing lanes whose guard predicate for a step is true."""
        if step.guard is None:
            return self.chunk.mask
        return self.chunk.mask & step.guard(self.chunk)

    # ---- lanes that end, or wait for one another ---------------------------------------------------------

    def part(self, pc: int, ways: Mapping[int, Mask]) -> None:
        """Record lanes that leave the others for good at a branch, by branch target (see `exits`)."""
        if pc in self.ways_out:
            self.attendance.part(self.chunk, pc, ways)

    def go_on(self, pc: int, mask: Mask) -> int | None:
        """Continue the current group with these lanes at ``pc``; return ``pc``, or None for an empty mask."""
        if not mask.any():
            return None
        self.enter(mask)
        return pc

    def leave_at(self, pc: int, mask: Mask) -> None:
        """Put lanes into the group at a step; do nothing for an empty mask."""
        if mask.any():
            self.put(pc, mask)

    def leave(self, mask: Mask) -> None:
        """Mark lanes as exited; lanes that waited for them may continue."""
        if self.chunk.copies is not None and self.chunk.copies.in_flight:
            self.chunk.copies.leave(self.chunk, mask)
        if self.chunk.transfers is not None:
            self.chunk.transfers.leave(self.chunk, mask)
        if self.chunk.products is not None and self.chunk.products.in_flight:
            self.chunk.products.leave(self.chunk, mask)
        if self.chunk.register_pool is not None:
            self.chunk.register_pool.leave(self.chunk, mask)
        if self.chunk.launch.blocks_per_cluster > 1 and self.chunk.launch.races is not None:
            self.chunk.launch.races.leave(self.chunk, mask)
        self.chunk.live = self.chunk.live & ~mask
        self.settle()

    def settle(self) -> None:
        """Check the waiting lanes again, after lanes exited or a part was merged back."""
        if not self.parked:
            return
        for pc, mask in list(self.parked.items()):
            if self.steps[pc].kind.together in ("warp", "warpgroup"):
                del self.parked[pc]
                self.put(pc, mask)
        if not self.chunk.is_part:
            waiting.note_arrivals(self)
            waiting.open_barriers(self)
            self.cluster_barrier.settle()
            waiting.open_cluster_barrier(self)


def _compute(chunk: Chunk, step: Step) -> None:
    """Execute a step that computes registers from registers."""
    if step.compute is not None:
        step.compute(chunk)


def _with(mask: Mask, warps: Any, part: Mask) -> Mask:
    """A copy of a mask, with the lanes of some warps replaced."""
    mask = mask.copy()
    mask[warps] = part
    return mask
