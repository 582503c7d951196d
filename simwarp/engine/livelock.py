"""Livelocks: a launch whose state repeats exactly.

When looping lanes yield to others, the state is compared with an earlier one. Earlier states are kept at
powers of two (Brent, "An improved Monte Carlo factorization algorithm", 1980), so that a cycle of any length
is found in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.memory import Memory

if TYPE_CHECKING:
    from simwarp.engine.chunk import Mask
    from simwarp.engine.schedule import Scheduler

_PATIENCE = 8
"""Calls of `Progress.look` before the first state is kept."""
_LONGEST_JOURNAL = 1 << 16
"""Most bytes that may change between two states to compare."""


_State = tuple[dict[int, tuple[int, bytes]], dict[int, bytes], list[Any]]
"""Step → turns and lanes of its group; step → waiting lanes; and the registers, never changed in place."""


class Journal:
    """The old values of all bytes of memory changed since the journal began.

    Attributes
    ----------
    full : bool
        Whether too many bytes changed.
    timed : bool
        Whether a counter such as ``%clock`` was read: the loop may wait for time to pass.
    """

    def __init__(self) -> None:
        self.before: dict[tuple[int, int], int] = {}
        self._memories: dict[int, Memory] = {}
        self.full = self.timed = False

    def note(self, memory: Memory, addresses: npt.NDArray[np.uint64], width: int) -> None:
        """Record the values of bytes about to be overwritten."""
        if self.full:
            return
        memory = memory.whole
        self._memories[id(memory)] = memory
        for address in np.unique(addresses).tolist():
            for byte in range(address, address + width):
                self.before.setdefault((id(memory), byte), _byte(memory, byte))
        self.full = len(self.before) > _LONGEST_JOURNAL

    def is_as_before(self) -> bool:
        """Whether all changed bytes have their old values again; False if that is not known."""
        if self.full or self.timed:
            return False
        return all(_byte(self._memories[which], at) == old for (which, at), old in self.before.items())


class Progress:
    """Compares the state of a chunk's scheduler with earlier states."""

    def __init__(self) -> None:
        self._looks = 0
        self._kept: _State | None = None

    def look(self, scheduler: Scheduler) -> None:
        """Report a livelock; called when looping lanes have yielded to others."""
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
    """The current state of a scheduler's lanes and registers."""
    first = min(group.turns for group in scheduler.groups.values())
    groups = {pc: (group.turns - first, group.mask.tobytes()) for pc, group in scheduler.groups.items()}
    parked = {pc: mask.tobytes() for pc, mask in scheduler.parked.items()}
    return groups, parked, list(scheduler.chunk.registers)


def _same(a: _State, b: _State, scheduler: Scheduler) -> bool:
    """Whether two states agree in every value that lanes may still read."""
    needed, live = scheduler.needed(), scheduler.chunk.live
    return a[:2] == b[:2] and all(
        _equal(x, y, live) for slot, (x, y) in enumerate(zip(a[2], b[2], strict=True)) if needed >> slot & 1
    )


def _equal(x: Any, y: Any, live: Mask) -> bool:
    if x is y:
        return True
    return x is not None and y is not None and not bool(((x != y) & live).any())


def _byte(memory: Memory, address: int) -> int:
    found = memory.find(address)
    return -1 if found is None else int(found.bytes[address - found.base])
