"""The scheduler: the lanes that execute each step, and their order.

Lanes have their own program counters, held as *groups*: the lanes that stand at one step. The group
at the lowest step runs; where it meets another group they merge, and a branch that lanes take
differently splits it. Lanes that must wait for others (``.sync``, barriers) are *parked* until these
arrive.

Fairness: a group that goes around a loop without an end in sight gives way to the others, soon if
it polls memory, late if it only computes, so that a lane can wait for another one. A loop that few
warps are left in runs on a compact copy of these warps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.engine import branches, sync, tensor_core
from simwarp.engine.accesses import DATA
from simwarp.engine.barriers import Barriers, ClusterBarrier
from simwarp.engine.chunk import Chunk, Mask
from simwarp.engine.livelock import Progress
from simwarp.engine.missing_lanes import Attendance
from simwarp.faults import Deadlock, KernelFault, Livelock, Place, RunawayKernel
from simwarp.lanes import WARP_SIZE
from simwarp.program.program import Step

if TYPE_CHECKING:
    from simwarp.engine.launch import Launch

NO_OTHER = 1 << 62
_TURN = 65536
"""Backward branches of one group before another gets its turn."""
_POLLING_TURN = 64
"""The same for a loop that reads what others write: volatile, relaxed, acquire, atomic."""
_LANES_PER_UNIT = 2048
"""Lanes that cost as much time as a step itself."""
_LOOK_AROUND = 4
"""Backward branches of one group before its warps are counted."""
_FEW = 4
"""A group is worth a compact copy if it has less than one of so many lanes, and of half as many warps."""


@dataclass
class Group:
    """The lanes that stand at one step.

    Attributes
    ----------
    mask : (warps, 32) bool
    turns : int
        How often they gave way to others; the group with fewest runs first.
    loops : bool
        Whether they came around a loop.
    rounds : int
        Backward branches that they took.
    """

    mask: Mask
    turns: int = 0
    loops: bool = False
    rounds: int = 0


class LaunchEnded(Exception):  # noqa: N818 - control flow, not an error
    """A reported fault, such as a deadlock, ended the launch."""


class Scheduler:
    """Takes the lanes of one chunk to the end of the kernel."""

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
        """The backward branch that last ended a turn, until `progress` examines it."""
        if not chunk.is_part:
            self.progress = Progress()
            self.barriers = Barriers(chunk)
            self.cluster_barrier = ClusterBarrier(chunk)

    def run(self) -> None:
        """Execute until every lane has exited, or, of a part, until it needs the others."""
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
        """Take the group that runs next out of the others; None when a part has had its last turn."""
        turns, pc = min((group.turns, pc) for pc, group in self.groups.items())
        return None if turns > self.last_turn else (pc, self.groups.pop(pc))

    def advance(self, pc: int) -> None:
        """Run the current group until it ends, splits, waits, or meets or passes another."""
        chunk, steps, observed = self.chunk, self.steps, bool(self.launch.on_step)
        limit, first = self.limit(pc), pc
        while pc < limit:
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
            if following <= pc:
                limit = self.limit(following) if self.may_loop(step) else following
            else:
                limit = self.limit(following)
            pc = first = following
        self.spend(pc - first)
        self.put(pc, chunk.mask, loops=bool(self.loops))

    # ---- groups --------------------------------------------------------------------------------------

    def nobody_else(self) -> bool:
        """Whether the current group is all that is live."""
        return not self.groups and not self.parked

    def needed(self) -> int:
        """The registers, one bit for each slot, that lanes of other groups may still read."""
        live, needed = self.chunk.program.live, 0
        for pc in (*self.groups, *self.parked):
            needed |= live[pc]
        return needed

    def enter(self, mask: Mask) -> None:
        """Let the lanes of the current group execute."""
        alone = self.nobody_else()
        self.chunk.enter(mask, alone, 0 if alone else self.needed())

    def limit(self, pc: int) -> int:
        """The step before which the group at ``pc`` must stop, to merge or to give way."""
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
        """Leave lanes at a step; lanes that already stand there join them."""
        there = self.groups.get(pc)
        if there is None:
            self.groups[pc] = Group(mask, self.turns, loops, self.loops)
        else:
            there.mask, there.turns = there.mask | mask, max(there.turns, self.turns)
            there.loops |= loops
            there.rounds = max(there.rounds, self.loops)

    def park(self, pc: int, mask: Mask) -> None:
        """Let lanes wait at a step."""
        there = self.parked.get(pc)
        self.parked[pc] = mask if there is None else there | mask

    def unpark(self, pc: int, mask: Mask) -> Mask:
        """Those of the lanes that wait at a step; they do not wait any more."""
        found = self.parked[pc] & mask
        rest = self.parked[pc] & ~mask
        if rest.any():
            self.parked[pc] = rest
        else:
            del self.parked[pc]
        return found

    def may_loop(self, branch: Step) -> bool:
        """Count a backward branch; False when it is time to let others run, or to look around."""
        self.loops += 1
        if self.loops % _LOOK_AROUND == 0 and not branch.meets and self.is_sparse():
            return False
        if self.loops % (_POLLING_TURN if branch.polls else _TURN):
            return True
        self.turns += 1
        self.gave_way = branch
        return False

    # ---- a few warps by themselves ---------------------------------------------------------------------

    def is_sparse(self) -> bool:
        """Whether few warps are left in the current group."""
        chunk = self.chunk
        if chunk.count * _FEW >= chunk.mask.size or chunk.warps < 2 * _FEW:
            return False
        if len(chunk.program.routines) > 1:  # activations are not split
            return False
        return int(np.count_nonzero(chunk.mask.any(axis=1))) * _FEW <= 2 * chunk.warps

    def focus(self, pc: int, group: Group) -> bool:
        """Run the warps of a looping group by themselves; False if they are too many for that."""
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
        """Forget groups without lanes."""
        self.groups = {at: g for at, g in self.groups.items() if g.mask.any()}
        self.parked = {at: mask for at, mask in self.parked.items() if mask.any()}

    # ---- faults and observers --------------------------------------------------------------------------

    def deadlock(self) -> KernelFault:
        """The fault of lanes that all wait."""
        values, places = self.standing(self.parked, "lanes wait")
        advice = "let all lanes that the mask or barrier names reach it"
        return Deadlock(
            "every lane that is left waits for another", values, advice, places[0], waiting=places
        )

    def standing(self, lanes: Mapping[int, Mask], what: str = "lanes") -> tuple[str, tuple[Place, ...]]:
        """The numbers of lanes by step, as text; and the place of the first lane of each step."""
        words, places = list[str](), list[Place]()
        for pc, mask in sorted(lanes.items()):
            if mask.any():
                places.append(self.chunk.place(int(mask.argmax()), self.steps[pc]))
                words.append(f"{np.count_nonzero(mask)} {what}, the first at {places[-1]}")
        return "; ".join(words), tuple(places)

    def livelock(self) -> KernelFault:
        """The fault of lanes that loop while registers and memory return to an earlier state."""
        chunk, pc = self.chunk, self.polling_step()
        chunk.step = self.steps[pc]
        lanes = sum(int(np.count_nonzero(group.mask)) for group in self.groups.values())
        waiting = sum(int(np.count_nonzero(mask)) for mask in self.parked.values())
        fault = Livelock(
            "a loop without an end: everything is as it was some rounds ago",
            f"{lanes} lanes are in loops, {waiting} wait for others; their registers and all memory repeat",
            "let what the loop waits for happen on every path: a lock released, a flag set, a counter moved",
        )
        mask = min(self.groups.items(), key=lambda item: abs(item[0] - pc))[1].mask
        return chunk.placed(fault, mask)

    def spend(self, steps: int) -> None:
        """Count steps against the launch's budget; after a fault, weighted by their lanes."""
        launch = self.launch
        launch.steps_left -= steps
        if launch.units_left < NO_OTHER:
            launch.units_left -= steps * (1 + self.chunk.mask.size // _LANES_PER_UNIT)
        if launch.steps_left < 0 or launch.units_left < 0:
            what = f"more than {launch.instruction_budget} instructions executed"
            advice = "check how the loop ends"
            if launch.steps_left >= 0:
                what = "a launch that goes on too long behind a fault, perhaps with an undefined value"
                advice = "correct the faults that were found before this one"
            still = f"{self.chunk.count} lanes are still running"
            fault = RunawayKernel(what, still, f"{advice}, or raise instruction_budget=")
            self.stop(self.chunk.placed(fault, self.chunk.mask))

    def stop(self, fault: KernelFault) -> None:
        """Find a fault that ends the launch, even if it is only reported."""
        self.launch.found(fault)
        raise LaunchEnded

    def polling_step(self) -> int:
        """The first load or atomic operation of the loop that last gave way, or else its branch."""
        branch = self.gave_way
        if branch is None:
            return min(self.groups)
        loop = range(branch.target, branch.number + 1)
        reads = [pc for pc in loop if self.steps[pc].kind == "atomic"]
        reads += [pc for pc in loop if self.steps[pc].kind == "load" and not self.steps[pc].symbol]
        return (reads or [branch.number])[0]

    def executed(self, step: Step, mask: Mask) -> None:
        """Count a step that lanes executed, and notify the observers."""
        self.chunk.executed += int(np.count_nonzero(mask))
        if self.launch.on_step:
            self.notify(step, mask)

    def notify(self, step: Step, mask: Mask) -> None:
        """Notify the observers of a step that lanes executed."""
        for observe in self.launch.on_step:
            observe(self.chunk, step, mask)

    # ---- data under a predicate ------------------------------------------------------------------------

    def guarded(self, step: Step, execute: Callable[[Chunk, Step], None]) -> None:
        """Execute a predicated instruction for the lanes whose predicate holds."""
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
        """The executing lanes whose guard holds."""
        if step.guard is None:
            return self.chunk.mask
        return self.chunk.mask & step.guard(self.chunk)

    # ---- lanes that end, or wait for one another ---------------------------------------------------------

    def part(self, pc: int, ways: Mapping[int, Mask]) -> None:
        """Lanes go different ways from a step: note those that leave for good (`simwarp.program.exits`)."""
        if pc in self.ways_out:
            self.attendance.part(self.chunk, pc, ways)

    def leave(self, mask: Mask) -> None:
        """End these lanes; those that waited for them may go on."""
        self.chunk.live = self.chunk.live & ~mask
        self.settle()

    def settle(self) -> None:
        """Check the waiting lanes again: lanes have exited, or came back from a part."""
        if not self.parked:
            return
        for pc, mask in list(self.parked.items()):
            if self.steps[pc].kind in TOGETHER:
                del self.parked[pc]
                self.put(pc, mask)
        if not self.chunk.is_part:
            sync.note_arrivals(self)
            sync.open_barriers(self)
            self.cluster_barrier.settle()
            sync.open_cluster_barrier(self)


def _compute(chunk: Chunk, step: Step) -> None:
    if step.compute is not None:
        step.compute(chunk)


def _with(mask: Mask, warps: Any, part: Mask) -> Mask:
    mask = mask.copy()
    mask[warps] = part
    return mask


TOGETHER = frozenset(("warp", "warp barrier", *tensor_core.EXECUTE))
"""The kinds at which the lanes of one warp wait for each other."""

CONTROL: dict[str, Callable[[Scheduler, int, Step], int | None]] = {
    "warp": sync.warp,
    "warp barrier": sync.warp,
    "branch": branches.branch,
    "indexed branch": branches.indexed_branch,
    "call": branches.call,
    "return": branches.come_back,
    "exit": branches.exit_,
    "trap": branches.trap,
    "barrier": sync.barrier,
    "cluster barrier": sync.cluster,
    "fence": branches.fence,
    **dict.fromkeys(tensor_core.EXECUTE, tensor_core.whole_warp),
}
"""By the other kinds: each returns the next step of the group, or None if it is gone."""
