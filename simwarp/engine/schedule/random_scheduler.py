"""The random schedule: any group of lanes may run next, for any number of steps.

A kernel's result must not depend on the schedule, except as its barriers, fences and atomics order it. Each
turn picks some of the warps at a step and runs them for a random number of steps. Where lanes may exchange
values without a barrier, by volatile or relaxed accesses, it may leave some lanes of a warp behind, as chips
since Volta may. The lanes of one instruction that write the same address do so in random order, and so do the
chunks of a launch. A seed always gives the same schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from simwarp.engine.dice import Dice
from simwarp.engine.schedule.scheduler import Group, Scheduler

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk
    from simwarp.engine.state import Launch, Mask
    from simwarp.program.program import Step

T = TypeVar("T")

_PATIENCE = 256
"""Long turns in loops, in all, before the schedule stops being random."""


def shuffled(launch: Launch, chunks: Sequence[T]) -> Iterator[T]:
    """The chunks of a launch in an order drawn from its seed."""
    order = Dice(launch.seed, _chunk_key(launch, -1)).order(len(chunks))
    return (chunks[int(i)] for i in order)


def _chunk_key(launch: Launch, first_block: int) -> int:
    """A random key for each chunk of each launch of a device; block -1 is for the launch itself."""
    return launch.number << 32 | first_block + 1


class RandomScheduler(Scheduler):
    """Runs the lanes of one chunk to the end of the kernel, in an order drawn from the launch's seed.

    Every group gets a turn in the end, so that lanes may wait for others. After very long loops the default
    schedule takes over, which detects livelocks.
    """

    def __init__(self, launch: Launch, chunk: Chunk) -> None:
        super().__init__(launch, chunk)
        self._dice = Dice(launch.seed, _chunk_key(launch, int(chunk.block[0, 0])))
        self._long_turns = 0
        self._splits = chunk.program.has_volatile_accesses
        chunk.order = self._dice.order

    @property
    def _random(self) -> bool:
        return self.chunk.order is not None

    def choose(self) -> tuple[int, Group] | None:
        """Pick a random step where lanes are, and a random subset of the warps there."""
        if not self._random:
            return super().choose()
        steps = sorted(self.groups)
        pc = steps[self._dice.below(len(steps))]
        group = self.groups.pop(pc)
        chosen = self._some_warps(group.mask)
        rest = group.mask & ~chosen
        if rest.any():
            self.groups[pc] = Group(rest, group.turns, group.loops, group.rounds)
        return pc, Group(chosen, group.turns, group.loops, group.rounds)

    def _some_warps(self, mask: Mask) -> Mask:
        """A mask with a random subset of its warps."""
        warps = np.flatnonzero(mask.any(axis=1))
        chosen = np.zeros_like(mask)
        warps = warps[self._dice.some(warps.size)]
        chosen[warps] = mask[warps]
        if self._splits and self._dice.below(2):
            self._leave_behind(chosen)
        return chosen

    def _leave_behind(self, chosen: Mask) -> None:
        """Remove random lanes of converged warps from a mask."""
        live = self.chunk.live
        whole = chosen.any(axis=1) & (chosen == live).all(axis=1)
        for warp in np.flatnonzero(whole).tolist():
            lanes = np.flatnonzero(chosen[warp])
            chosen[warp, lanes[~self._dice.some(lanes.size)]] = False

    def limit(self, pc: int) -> int:
        """The step before which the turn ends, drawn again at every jump."""
        return pc + self._dice.length() if self._random else super().limit(pc)

    def may_loop(self, branch: Step) -> bool:
        """Count a backward branch; after `_PATIENCE` long turns the schedule stops being random."""
        goes_on = super().may_loop(branch)
        if not self._random:
            return goes_on
        # A repeated state does not prove a livelock here: the next choice may differ.
        self.gave_way = None
        if not goes_on:
            self._long_turns += 1 if branch.polls else _PATIENCE
        if self._long_turns >= _PATIENCE:
            self.chunk.order = None
        return True

    def is_sparse(self) -> bool:
        """Return False: the warps of a compact copy would run in order."""
        return False
