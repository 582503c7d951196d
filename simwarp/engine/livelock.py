"""Does a launch still get anywhere? A state that comes back exactly as it was says no.

Lanes that spin are looked at when they give way to others. The state is compared with one taken earlier
(Brent, "An improved Monte Carlo factorization algorithm", 1980: earlier states are kept at powers of two),
so that a cycle of any length is found in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.memory import Memory

if TYPE_CHECKING:
    from simwarp.engine.chunk import Mask
    from simwarp.engine.schedule import Scheduler

_PATIENCE = 8
"""Looks before the first state is kept."""
_LONGEST_JOURNAL = 1 << 16
"""Bytes that may change between two states that are compared."""


@dataclass
class _State:
    """Where all lanes stand, and what they hold; registers are never changed in place."""

    groups: dict[int, tuple[Mask, int]]
    parked: dict[int, Mask]
    registers: list[Any]


class Journal:
    """What memory held before it was changed, since a certain moment."""

    def __init__(self) -> None:
        self.before: dict[tuple[int, int], int] = {}
        self._memories: dict[int, Memory] = {}
        self.full = False

    def note(self, memory: Memory, addresses: npt.NDArray[np.uint64], width: int) -> None:
        """Keep the bytes that are about to be overwritten."""
        if self.full:
            return
        memory = memory.whole
        self._memories[id(memory)] = memory
        for address in np.unique(addresses).tolist():
            for byte in range(address, address + width):
                self.before.setdefault((id(memory), byte), _byte(memory, byte))
        self.full = len(self.before) > _LONGEST_JOURNAL

    def is_as_before(self) -> bool:
        """Whether all that was changed has its old value again."""
        if self.full:
            return False
        return all(_byte(self._memories[which], at) == old for (which, at), old in self.before.items())


class Progress:
    """Compares the state of a chunk's scheduler with earlier ones."""

    def __init__(self) -> None:
        self._looks = 0
        self._kept: _State | None = None

    def look(self, scheduler: Scheduler) -> None:
        """Find a livelock; to be called when lanes that loop have given way to others."""
        self._looks += 1
        if self._looks < _PATIENCE:
            return
        launch, now = scheduler.launch, _state(scheduler)
        kept, journal = self._kept, launch.journal
        if kept and journal and journal.is_as_before() and _same(kept, now, scheduler):
            scheduler.stop(scheduler.livelock())
        if self._looks & (self._looks - 1) == 0:
            self._kept, launch.journal = now, Journal()


def _state(scheduler: Scheduler) -> _State:
    first = min(group.turns for group in scheduler.groups.values())
    groups = {pc: (group.mask, group.turns - first) for pc, group in scheduler.groups.items()}
    return _State(groups, dict(scheduler.parked), list(scheduler.chunk.registers))


def _same(a: _State, b: _State, scheduler: Scheduler) -> bool:
    """Whether two states are one, as far as lanes can still tell."""
    if a.groups.keys() != b.groups.keys() or a.parked.keys() != b.parked.keys():
        return False
    for pc, (mask, turns) in a.groups.items():
        if turns != b.groups[pc][1] or not np.array_equal(mask, b.groups[pc][0]):
            return False
    if not all(np.array_equal(mask, b.parked[pc]) for pc, mask in a.parked.items()):
        return False
    needed, live = scheduler.needed(), scheduler.chunk.live
    return all(
        _equal(x, y, live)
        for slot, (x, y) in enumerate(zip(a.registers, b.registers, strict=True))
        if needed >> slot & 1
    )


def _equal(x: Any, y: Any, live: Mask) -> bool:
    if x is y:
        return True
    return x is not None and y is not None and not bool(((x != y) & live).any())


def _byte(memory: Memory, address: int) -> int:
    found = memory.find(address)
    return -1 if found is None else int(found.bytes[address - found.base])
