"""Which lanes execute which step, and when.

Lanes have their own program counters, held as *groups*: the lanes that stand at one step. The group
at the lowest step runs; where it meets another group they merge, and a branch that lanes take
differently splits it. An operation that waits (``.sync``, barriers) parks the lanes that must wait
for others, until these arrive at the same step.

Fairness: a group that goes around a loop without an end in sight gives way to the others, soon if
it polls memory, late if it only computes, so that a lane can wait for another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.faults import Deadlock, RunawayKernel, Trap
from simwarp.lanes import mask_word
from simwarp.ptx.chunk import Chunk, Mask
from simwarp.ptx.program import Step

if TYPE_CHECKING:
    from simwarp.ptx.execute import Launch

_NO_OTHER = 1 << 62
_TURN = 65536
"""Backward branches of one group before another gets its turn."""
_POLLING_TURN = 64
"""The same for a loop that reads what others write: volatile, relaxed, acquire, atomic."""


@dataclass
class _Group:
    mask: Mask
    turns: int = 0
    waiting: bool = False


class Scheduler:
    """Takes the lanes of one chunk to the end of the kernel."""

    def __init__(self, launch: Launch, chunk: Chunk) -> None:
        self.launch, self.chunk = launch, chunk
        self.steps = chunk.program.steps
        self.groups: dict[int, _Group] = {}
        self.turns = self.loops = 0

    def run(self) -> None:
        """Execute until every lane has exited."""
        self.groups[0] = _Group(self.chunk.live)
        while self.groups:
            runnable = [(group.turns, pc) for pc, group in self.groups.items() if not group.waiting]
            if not runnable:
                raise self.deadlock()
            turns, pc = min(runnable)
            group = self.groups.pop(pc)
            self.turns, self.loops = turns, 0
            self.chunk.enter(group.mask, alone=not self.groups)
            self.advance(pc)

    def advance(self, pc: int) -> None:
        """Run the current group until it ends, splits, waits, or meets or passes another."""
        chunk, steps, launch = self.chunk, self.steps, self.launch
        watched = launch.steps_left is not None or bool(launch.on_fetch)
        limit = self.limit(pc)
        while pc < limit:
            step = chunk.step = steps[pc]
            if watched:
                self.watch(step)
            compute = step.compute
            if compute is not None and step.guard is None:
                chunk.executed += chunk.count
                compute(chunk)
                pc += 1
                continue
            execute = launch.data.get(step.row.kind)
            if execute is not None:
                if step.guard is None:
                    chunk.executed += chunk.count
                    execute(launch, chunk, step)
                else:
                    self.guarded(step, execute)
                pc += 1
                continue
            following = CONTROL[step.row.kind](self, pc, step)
            if following is None:
                return
            if following <= pc:
                limit = self.limit(following) if self.may_loop(step) else following
            else:
                limit = self.limit(following)
            pc = following
        self.put(pc, chunk.mask)

    # ---- groups --------------------------------------------------------------------------------------

    def limit(self, pc: int) -> int:
        """The step before which the group at ``pc`` must stop, to merge or to give way."""
        if not self.groups:
            return _NO_OTHER
        nearest = _NO_OTHER
        for other, group in self.groups.items():
            if other == pc or (other < pc and not group.waiting and group.turns <= self.turns):
                return pc
            if pc < other < nearest:
                nearest = other
        return nearest

    def put(self, pc: int, mask: Mask, waiting: bool = False) -> None:
        """Leave lanes at a step; lanes that already stand there join them."""
        there = self.groups.get(pc)
        if there is None:
            self.groups[pc] = _Group(mask, self.turns, waiting)
        else:
            there.mask = there.mask | mask
            there.turns = min(there.turns, self.turns)
            there.waiting = waiting

    def may_loop(self, branch: Step) -> bool:
        """Count a backward branch; False when it is time to let others run."""
        self.loops += 1
        if not self.groups or self.loops % (_POLLING_TURN if branch.polls else _TURN):
            return True
        self.turns += 1
        return False

    def deadlock(self) -> Deadlock:
        """The fault of lanes that all wait."""
        chunk = self.chunk
        lines: list[str] = []
        for pc, group in sorted(self.groups.items()):
            chunk.step = self.steps[pc]
            first = int(group.mask.argmax())
            lines.append(f"{np.count_nonzero(group.mask)} lanes wait, the first at {chunk.place(first)}")
        pc, group = min(self.groups.items())
        chunk.step = self.steps[pc]
        fault = Deadlock(
            "every lane that is left waits for another",
            "; ".join(lines),
            "let all lanes that the mask or barrier names reach the same instruction",
        )
        fault.place = chunk.place(int(group.mask.argmax()))
        return fault

    def watch(self, step: Step) -> None:
        """Tell the observers of a step, and count it against the launch's budget."""
        launch = self.launch
        for observe in launch.on_fetch:
            observe(self.chunk, step)
        if launch.steps_left is None:
            return
        if launch.steps_left == 0:
            fault = RunawayKernel(
                f"more than {launch.instruction_budget} instructions executed",
                f"{self.chunk.count} lanes are still running",
                "check how the loop ends, or raise instruction_budget=",
            )
            raise self.chunk.placed(fault, int(self.chunk.mask.argmax()))
        launch.steps_left -= 1

    # ---- data under a predicate ------------------------------------------------------------------------

    def guarded(self, step: Step, execute: Callable[[Launch, Chunk, Step], None]) -> None:
        """Execute a predicated instruction for the lanes whose predicate holds."""
        chunk = self.chunk
        whole, alone, all_lanes = chunk.mask, chunk.alone, chunk.count
        taken = self.taken(step)
        count = int(np.count_nonzero(taken))
        if count:
            chunk.executed += count
            chunk.enter(taken, alone and count == all_lanes)
            execute(self.launch, chunk, step)
            chunk.enter(whole, alone)

    def taken(self, step: Step) -> Mask:
        """The executing lanes whose guard holds."""
        if step.guard is None:
            return self.chunk.mask
        return self.chunk.mask & step.guard(self.chunk)

    # ---- control: each returns the next step of the current group, or None if there is no such group ---

    def branch(self, pc: int, step: Step) -> int | None:
        """Go to a label, those lanes whose guard holds."""
        chunk = self.chunk
        if step.guard is None:
            chunk.executed += chunk.count
            return step.target
        taken = self.taken(step)
        count = int(np.count_nonzero(taken))
        chunk.executed += count
        if count == 0:
            return pc + 1
        if count == chunk.count:
            return step.target
        rest = chunk.mask & ~taken
        if self.steps[step.target].row.kind == "exit":
            # Let them go now: lanes that only wait to end would keep the others from being alone.
            chunk.executed += count
            self.leave(taken)
            chunk.enter(rest, alone=not self.groups)
            return pc + 1
        if step.target <= pc:
            self.may_loop(step)
        self.put(step.target, taken)
        self.put(pc + 1, rest)
        return None

    def exit(self, pc: int, step: Step) -> int | None:
        """End the kernel for the lanes whose guard holds."""
        chunk = self.chunk
        taken = self.taken(step)
        chunk.executed += int(np.count_nonzero(taken))
        self.leave(taken)
        rest = chunk.mask & ~taken
        if not rest.any():
            return None
        chunk.enter(rest, alone=not self.groups)
        return pc + 1

    def leave(self, mask: Mask) -> None:
        """End these lanes."""
        self.chunk.live = self.chunk.live & ~mask
        for group in self.groups.values():
            group.waiting = False  # whoever waited for these lanes may go on

    def trap(self, pc: int, step: Step) -> int | None:
        """Stop the launch, if a lane's guard holds."""
        taken = self.taken(step)
        if not taken.any():
            return pc + 1
        fault = Trap("the kernel executed trap", "", "the kernel found an error; see its source line")
        raise self.chunk.placed(fault, int(taken.argmax()))

    def warp(self, pc: int, step: Step) -> int | None:
        """Compute across lanes, once all members that have not exited are here."""
        chunk, work = self.chunk, self.launch.warp if step.row.kind == "warp" else None
        if chunk.alone and step.guard is None:  # everybody is here
            chunk.executed += chunk.count
            if work is not None:
                work(chunk, step)
            return pc + 1
        taken = self.taken(step)
        whole = chunk.mask
        chunk.enter(taken, alone=False)
        ready = taken
        if step.sources:
            member_mask = np.broadcast_to(step.sources[-1](chunk), taken.shape)
            ready = taken & (member_mask & mask_word(chunk.live) & ~mask_word(taken) == 0)
        return self.go_on(pc, step, whole, taken, ready, work)

    def barrier(self, pc: int, step: Step) -> int | None:
        """Wait for every thread of the block that has not exited."""
        chunk = self.chunk
        if chunk.alone and step.guard is None:
            chunk.executed += chunk.count
            return pc + 1
        taken = self.taken(step)
        missing = (chunk.live & ~taken).reshape(chunk.blocks, -1).any(axis=1)
        here = np.repeat(~missing, chunk.warps_per_block).reshape(-1, 1)
        return self.go_on(pc, step, chunk.mask, taken, taken & here, None)

    def go_on(
        self,
        pc: int,
        step: Step,
        whole: Mask,
        taken: Mask,
        ready: Mask,
        work: Callable[[Chunk, Step], Any] | None,
    ) -> int | None:
        """Let the lanes that are complete pass a synchronising step, and park the others."""
        chunk = self.chunk
        late = taken & ~ready
        if late.any():
            self.put(pc, late, waiting=True)
        if ready.any():
            chunk.enter(ready, alone=False)
            chunk.executed += chunk.count
            if work is not None:
                work(chunk, step)
        passing = whole & ~late
        if not passing.any():
            return None
        chunk.enter(passing, alone=not self.groups)
        return pc + 1


CONTROL: dict[str, Callable[[Scheduler, int, Step], int | None]] = {
    "warp": Scheduler.warp,
    "warp barrier": Scheduler.warp,
    "branch": Scheduler.branch,
    "exit": Scheduler.exit,
    "trap": Scheduler.trap,
    "barrier": Scheduler.barrier,
}
"""What executes the others: each returns the next step of the group, or None if it is gone."""
