"""Which lanes execute which step, and when.

Lanes have their own program counters, held as *groups*: the lanes that stand at one step. The group
at the lowest step runs; where it meets another group they merge, and a branch that lanes take
differently splits it. Lanes that must wait for others (``.sync``, barriers) are *parked* until these
arrive.

Fairness: a group that goes around a loop without an end in sight gives way to the others, soon if
it polls memory, late if it only computes, so that a lane can wait for another one. A loop that few
warps are left in runs on a compact copy of these warps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.faults import Deadlock, RunawayKernel
from simwarp.lanes import WARP_SIZE
from simwarp.ptx import branches, meetings
from simwarp.ptx.accesses import DATA
from simwarp.ptx.barriers import Barriers, ClusterBarrier
from simwarp.ptx.chunk import Chunk, Mask
from simwarp.ptx.program import Step

if TYPE_CHECKING:
    from simwarp.ptx.execute import Launch

_NO_OTHER = 1 << 62
_TURN = 65536
"""Backward branches of one group before another gets its turn."""
_POLLING_TURN = 64
"""The same for a loop that reads what others write: volatile, relaxed, acquire, atomic."""
_LOOK_AROUND = 4
"""Backward branches of one group before it is asked whether few warps are left in it."""
_FEW = 4
"""A group is worth a compact copy if it has less than one of so many lanes, and of half as many warps."""


@dataclass
class _Group:
    mask: Mask
    turns: int = 0
    loops: bool = False
    rounds: int = 0


class Scheduler:
    """Takes the lanes of one chunk to the end of the kernel."""

    def __init__(self, launch: Launch, chunk: Chunk) -> None:
        self.launch, self.chunk = launch, chunk
        self.steps = chunk.program.steps
        self.groups: dict[int, _Group] = {chunk.program.start: _Group(chunk.live)}
        self.parked: dict[int, Mask] = {}
        self.turns = self.loops = 0
        self.last_turn = _NO_OTHER
        if not chunk.is_part:
            self.barriers = Barriers(chunk)
            self.cluster_barrier = ClusterBarrier(chunk)

    def run(self) -> None:
        """Execute until every lane has exited, or, of a part, until it needs the others."""
        while self.groups:
            turns, pc = min((group.turns, pc) for pc, group in self.groups.items())
            if turns > self.last_turn:
                return
            group = self.groups.pop(pc)
            self.turns, self.loops = turns, group.rounds
            self.enter(group.mask)
            sparse = group.loops and self.chunk.count * _FEW < self.chunk.mask.size
            if not (sparse and self.focus(pc, group)):
                self.advance(pc)
            if not self.groups and self.parked and not self.chunk.is_part:
                raise self.deadlock()

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
            execute = DATA.get(step.kind) if compute is None else _compute
            if execute is not None:
                if step.guard is None:
                    chunk.executed += chunk.count
                    execute(chunk, step)
                else:
                    self.guarded(step, execute)
                pc += 1
                continue
            following = CONTROL[step.kind](self, pc, step)
            if following is None:
                return
            if following <= pc:
                limit = self.limit(following) if self.may_loop(step) else following
            else:
                limit = self.limit(following)
            pc = following
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
            return _NO_OTHER
        nearest = _NO_OTHER
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
            self.groups[pc] = _Group(mask, self.turns, loops, self.loops)
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
        if not self.groups and self.last_turn == _NO_OTHER:
            return True
        if self.loops % (_POLLING_TURN if branch.polls else _TURN):
            return True
        self.turns += 1
        return False

    # ---- a few warps by themselves ---------------------------------------------------------------------

    def is_sparse(self) -> bool:
        """Whether few warps are left in the current group."""
        chunk = self.chunk
        if chunk.count * _FEW >= chunk.mask.size or chunk.warps < 2 * _FEW:
            return False
        if len(chunk.program.routines) > 1:  # what is under way in functions stays together
            return False
        return int(np.count_nonzero(chunk.mask.any(axis=1))) * _FEW <= 2 * chunk.warps

    def focus(self, pc: int, group: _Group) -> bool:
        """Run the warps of a looping group by themselves; False if they are too many for that."""
        if not self.is_sparse():
            return False
        chunk = self.chunk
        rows = np.flatnonzero(group.mask.any(axis=1))
        self.put(pc, group.mask)
        part = chunk.part(rows)
        inner = Scheduler(self.launch, part)
        inner.last_turn = min(self.last_turn, self.turns)
        inner.groups = {at: _Group(g.mask[rows], g.turns) for at, g in self.groups.items()}
        inner.parked = {at: mask[rows] for at, mask in self.parked.items()}
        inner.drop_empty()
        inner.run()
        chunk.absorb(part, rows, inner.needed())
        for group_here in self.groups.values():
            group_here.mask = _without(group_here.mask, rows)
        self.parked = {at: _without(mask, rows) for at, mask in self.parked.items()}
        self.drop_empty()
        for at, g in inner.groups.items():
            self.turns = g.turns
            self.put(at, _spread(g.mask, rows, chunk.warps))
        for at, mask in inner.parked.items():
            self.park(at, _spread(mask, rows, chunk.warps))
        self.settle()
        return True

    def drop_empty(self) -> None:
        """Forget groups without lanes."""
        self.groups = {at: g for at, g in self.groups.items() if g.mask.any()}
        self.parked = {at: mask for at, mask in self.parked.items() if mask.any()}

    # ---- faults and observers --------------------------------------------------------------------------

    def deadlock(self) -> Deadlock:
        """The fault of lanes that all wait."""
        chunk = self.chunk
        lines: list[str] = []
        for pc, mask in sorted(self.parked.items()):
            chunk.step = self.steps[pc]
            lines.append(
                f"{np.count_nonzero(mask)} lanes wait, the first at {chunk.place(int(mask.argmax()))}"
            )
        pc, mask = min(self.parked.items())
        chunk.step = self.steps[pc]
        fault = Deadlock(
            "every lane that is left waits for another",
            "; ".join(lines),
            "let all lanes that the mask or barrier names reach it",
        )
        fault.place = chunk.place(int(mask.argmax()))
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

    def guarded(self, step: Step, execute: Callable[[Chunk, Step], None]) -> None:
        """Execute a predicated instruction for the lanes whose predicate holds."""
        chunk = self.chunk
        whole, alone, needed, all_lanes = chunk.mask, chunk.alone, chunk.needed, chunk.count
        taken = self.taken(step)
        count = int(np.count_nonzero(taken))
        if count:
            chunk.executed += count
            if count == all_lanes:
                execute(chunk, step)
                return
            chunk.enter(taken, alone=False)
            execute(chunk, step)
            chunk.enter(whole, alone, needed)

    def taken(self, step: Step) -> Mask:
        """The executing lanes whose guard holds."""
        if step.guard is None:
            return self.chunk.mask
        return self.chunk.mask & step.guard(self.chunk)

    # ---- lanes that end, or wait for one another ---------------------------------------------------------

    def leave(self, mask: Mask) -> None:
        """End these lanes; whoever waited for them may go on."""
        self.chunk.live = self.chunk.live & ~mask
        self.settle()

    def settle(self) -> None:
        """Look again at those who wait: lanes have exited, or came back from a part."""
        if not self.parked:
            return
        for pc, mask in list(self.parked.items()):
            if self.steps[pc].kind in ("warp", "warp barrier"):
                del self.parked[pc]
                self.put(pc, mask)
        if not self.chunk.is_part:
            meetings.note_arrivals(self)
            meetings.open_barriers(self)
            self.cluster_barrier.settle()
            meetings.open_cluster_barrier(self)


def _compute(chunk: Chunk, step: Step) -> None:
    if step.compute is not None:
        step.compute(chunk)


def _without(mask: Mask, rows: Any) -> Mask:
    mask = mask.copy()
    mask[rows] = False
    return mask


def _spread(mask: Mask, rows: Any, warps: int) -> Mask:
    whole = np.zeros((warps, WARP_SIZE), np.bool_)
    whole[rows] = mask
    return whole


CONTROL: dict[str, Callable[[Scheduler, int, Step], int | None]] = {
    "warp": meetings.warp,
    "warp barrier": meetings.warp,
    "branch": branches.branch,
    "indexed branch": branches.indexed_branch,
    "call": branches.call,
    "return": branches.come_back,
    "exit": branches.exit_,
    "trap": branches.trap,
    "barrier": meetings.barrier,
    "cluster barrier": meetings.cluster,
    "fence": branches.fence,
}
"""What executes the other kinds: each returns the next step of the group, or None if it is gone."""
