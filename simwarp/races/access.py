"""An access of many lanes, and which allocations it goes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.races.shadow import Entries, Units, threads_of

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk
    from simwarp.memory import Allocation, Memory
    from simwarp.program.program import Step

Lanes = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]


class Access(NamedTuple):
    """What n lanes do to an allocation at one step.

    Attributes
    ----------
    lanes, threads, entries : (n,) int64
        The lanes numbered through the chunk; their threads in the launch; what they leave in a `Shadow`.
    offsets : (n,) uint64
        In the allocation.
    held : (n,) int, or None for all
        Which of the lanes that execute the step these are.
    kind : str
        "read", "write" or "atomic".
    past : int
        All accesses of these bytes before that time are ordered before this one.
    sure : bool
        Whether it is strong for everybody who may reach them.
    """

    chunk: Chunk
    step: Step
    time: int
    kind: str
    width: int
    lanes: Lanes
    threads: Lanes
    entries: Entries
    offsets: Addresses
    held: npt.NDArray[np.intp] | None
    past: int
    sure: bool

    def part(self, which: npt.NDArray[np.intp] | None, offsets: Addresses) -> Access:
        """Those of the accesses that go to one allocation, and their offsets there."""
        if which is None:
            return self._replace(offsets=offsets)
        return self._replace(
            lanes=self.lanes[which],
            threads=self.threads[which],
            entries=self.entries[which],
            offsets=offsets,
            held=which,
        )

    def rows(self, positions: npt.NDArray[np.intp] | None = None) -> Lanes:
        """The warps of some of the lanes, or of all, numbered through the whole chunk."""
        rows = (self.lanes if positions is None else self.lanes[positions]) // WARP_SIZE
        return self.chunk.warp[rows, 0] if self.chunk.is_part else rows

    def suspects(self, before: Entries) -> npt.NDArray[np.intp]:
        """Which of the earlier entries at its units are of other threads, and may not be ordered."""
        past = self.past << 32
        if int(before.max()) < past:
            return np.zeros(0, np.intp)
        others = threads_of(before) != threads_of(self.of_units(before))
        return np.flatnonzero(others & (before >= past)) if others.any() else np.zeros(0, np.intp)

    def of_units(self, units: Units) -> Entries:
        """The entries of the accesses, one for each unit."""
        return (
            self.entries
            if units.size == self.entries.size
            else np.tile(self.entries, units.size // self.entries.size)
        )


def held(
    memory: Memory, addresses: Addresses, width: int
) -> Iterator[tuple[Allocation, npt.NDArray[np.intp] | None, Addresses]]:
    """Allocations, which accesses they hold (None: all of them), and at which offsets.

    Accesses that are misaligned, or lie outside every allocation, are left out.

    Examples
    --------
    >>> from simwarp.memory import Memory
    >>> memory = Memory()
    >>> words = memory.allocate(8, "words")
    >>> at = np.array([words.base + 4, words.base + 8], np.uint64)
    >>> [(a.name, which.tolist(), offsets.tolist()) for a, which, offsets in held(memory, at, 4)]
    [('words', [0], [4])]
    """
    allocation = memory.find(int(addresses[0]))
    if allocation is not None:
        offsets = addresses - np.uint64(allocation.base)
        misaligned = int(np.bitwise_or.reduce(offsets)) & (width - 1)
        if not misaligned and int(offsets.max()) + width <= allocation.size:
            yield allocation, None, offsets
            return
    allocations = memory.allocations
    bases = np.array([a.base for a in allocations], np.uint64)
    which = np.searchsorted(bases, addresses, "right") - 1
    numbers: list[int] = np.unique(which[which >= 0]).tolist()
    for number in numbers:
        allocation = allocations[number]
        offsets = addresses - np.uint64(allocation.base)
        good = (which == number) & (offsets & np.uint64(width - 1) == 0)
        good &= offsets + np.uint64(width) <= allocation.size
        here = np.flatnonzero(good)
        if here.size:
            yield allocation, here, offsets[here]
