"""Detection of endless loops: the whole state repeats, or all that decides whether lanes leave their loops.

When looping lanes yield to others, the state is compared with an earlier one. Earlier states are kept at
powers of two (Brent, "An improved Monte Carlo factorization algorithm", 1980), so that a cycle of any length
is found in the end.

If the whole state repeats, it will go on to: that is a livelock. A counter, an accumulator or a clock changes
all the time, but may not matter. Then each lane must stand where it stood, in a loop whose slice
(`simwarp.program.loops`) has the same registers. No byte that a load of a slice read may have changed
meanwhile, nor been written by a step whose data are not part of the slice; a lane's local memory, which
it alone writes, must be as before. By induction over all later steps none of the lanes leaves its loop,
whatever the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.engine.memory.journal import Journal
from simwarp.program.loops import Loop, loop_at

if TYPE_CHECKING:
    from simwarp.engine.components import Journal as Changes
    from simwarp.engine.state import Chunk, Mask, Scheduler
    from simwarp.memory import Memory

_PATIENCE = 8
"""Calls of `Progress.look` before the first state is kept."""
_NO_WAY_OUT = 64
"""Calls before a loop that nothing leaves is reported though its addresses change, perhaps out of bounds."""


class _State(NamedTuple):
    """A state: the turns of each group, the lanes of groups and waiting lanes by step; and the registers.

    The arrays are never changed in place.
    """

    turns: dict[int, int]
    groups: dict[int, Mask]
    parked: dict[int, Mask]
    registers: list[Any]
    activations: npt.NDArray[np.int64] | None


class Progress:
    """Compares the state of a chunk's scheduler with earlier states."""

    def __init__(self) -> None:
        self._looks = 0
        self._kept: _State | None = None
        self._followed: frozenset[int] = frozenset()
        """The steps that wrote to memory that slices read, whose data are therefore part of the slices."""

    def look(self, scheduler: Scheduler) -> None:
        """Report an endless loop; called when looping lanes have yielded to others."""
        self._looks += 1
        if self._looks < _PATIENCE:
            return
        launch, now = scheduler.launch, _state(scheduler)
        kept, journal = self._kept, launch.journal
        if kept is not None and journal is not None:
            if _same(kept, now, scheduler) and journal.is_as_before():
                scheduler.stop(scheduler.livelock())
            if self._is_endless(kept, now, journal, scheduler):
                scheduler.stop(scheduler.livelock(whole=False))
        if kept is None or self._looks & (self._looks - 1) == 0:
            loops = [self._loop(scheduler, pc) for pc in (*now.groups, *now.parked)]
            loads = frozenset[int]().union(*(loop.loads for loop in loops if loop is not None))
            self._kept, launch.journal = now, Journal(scheduler.chunk.live, loads)

    def _loop(self, scheduler: Scheduler, pc: int) -> Loop | None:
        return loop_at(scheduler.chunk.program, pc, self._followed)

    def _is_endless(self, kept: _State, now: _State, journal: Changes, scheduler: Scheduler) -> bool:
        """Whether no lane can ever leave its loop, and no waiting lane can continue."""
        if journal.full or _in_flight(scheduler.chunk):
            return False
        can_run = scheduler.can_run()
        for pc, mask in now.groups.items():
            here, loop = mask & can_run, self._loop(scheduler, pc)
            if not here.any():
                continue
            if loop is None or not _stood(kept.groups, pc, here) or not journal.went[here].all():
                return False
            if not self._stays(loop, here, kept, now, journal):
                return False
        for pc, mask in now.parked.items():
            loop = self._loop(scheduler, pc)
            if not _stood(kept.parked, pc, mask):
                return False
            if loop is not None and not self._stays(loop, mask, kept, now, journal):
                return False
        # blocks of other workers may write the words that the loops read
        others = scheduler.launch.workers > 1
        return self._reads_the_same(journal, scheduler.chunk.local) and not (others and journal.reads)

    def _stays(self, loop: Loop, lanes: Mask, kept: _State, now: _State, journal: Changes) -> bool:
        """Whether lanes stay in a loop: its slice reads the same values as before, or it has no exit."""
        if not loop.leaves and self._looks >= _NO_WAY_OUT:
            return True
        if not loop.is_known or not loop.loads <= journal.loads:
            return False
        if not _equal(kept.activations, now.activations, lanes):
            return False
        pairs = enumerate(zip(kept.registers, now.registers, strict=True))
        return all(_equal(x, y, lanes) for slot, (x, y) in pairs if loop.registers >> slot & 1)

    def _reads_the_same(self, journal: Changes, private: Memory) -> bool:
        """Whether the memory that a loop's slice reads is unchanged; adds the writing steps to the slice."""
        writers, changed = journal.writers_of_reads(private)
        if changed or -1 in writers:
            return False
        if not writers <= self._followed:
            self._followed |= writers
            self._kept = None
            return False
        return True


def _state(scheduler: Scheduler) -> _State:
    """The current state of a scheduler's lanes and registers."""
    first = min(group.turns for group in scheduler.groups.values())
    return _State(
        {pc: group.turns - first for pc, group in scheduler.groups.items()},
        {pc: group.mask.copy() for pc, group in scheduler.groups.items()},
        {pc: mask.copy() for pc, mask in scheduler.parked.items()},
        list(scheduler.chunk.registers),
        scheduler.chunk.activations.current,
    )


def _in_flight(chunk: Chunk) -> bool:
    """Whether an asynchronous operation may still write memory or complete a barrier."""
    agents = chunk.copies, chunk.products, chunk.transfers
    return any(agent is not None and agent.in_flight for agent in agents)


def _same(a: _State, b: _State, scheduler: Scheduler) -> bool:
    """Whether two states are equal in every value that lanes may still read."""
    needed, live = scheduler.needed(), scheduler.chunk.live
    if a.turns != b.turns or not (_same_masks(a.groups, b.groups) and _same_masks(a.parked, b.parked)):
        return False
    pairs = enumerate(zip(a.registers, b.registers, strict=True))
    return all(_equal(x, y, live) for slot, (x, y) in pairs if needed >> slot & 1)


def _same_masks(a: Mapping[int, Mask], b: Mapping[int, Mask]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(mask, b[pc]) for pc, mask in a.items())


def _stood(before: Mapping[int, Mask], pc: int, lanes: Mask) -> bool:
    """Whether all of ``lanes`` were at step ``pc`` in an earlier state, given the masks by step."""
    return pc in before and not bool((lanes & ~before[pc]).any())


def _equal(x: Any, y: Any, lanes: Mask) -> bool:
    if x is y:
        return True
    return x is not None and y is not None and not bool(((x != y) & lanes).any())
