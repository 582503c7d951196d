"""Memory accesses of many lanes: their strength, and the allocations that they access."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.races.shadow import Entries, Units, threads_of

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk
    from simwarp.memory import Allocation, Memory
    from simwarp.program.program import Step
    from simwarp.ptx.rows import Form

Lanes = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]

WEAK, FOR_BLOCK, STRONG = range(3)
"""Strength of an access: weak, strong within a block (``.cta``), strong for all (PTX ISA 9.0, 8.4)."""


def strength(step: Step) -> int:
    """The strength of an instruction's accesses: `WEAK`, `FOR_BLOCK` or `STRONG`."""
    return _strength(step.kind.updates, step.form)


def is_volatile(step: Step) -> bool:
    """Whether an instruction's accesses are volatile: strong, and yet no atomic operation."""
    return "volatile" in step.form.modifiers


@cache
def _strength(updates: bool, form: Form) -> int:
    """The strength of accesses by an instruction of a form."""
    if not updates and not form.is_strong:
        return WEAK
    return FOR_BLOCK if form.has("cta") else STRONG


class Access(NamedTuple):
    """An access of n lanes to one allocation at one step.

    Attributes
    ----------
    kind : str
        "read", "write" or "atomic".
    width : int
        Bytes per lane.
    lanes, threads, entries : (n,) int64
        The lanes' numbers in the chunk, their threads' numbers in the launch, and their `Shadow` entries.
    offsets : (n,) uint64
        Offsets in the allocation.
    data : (n,) of that width, or None
        The values to write.
    past : int
        All accesses of these bytes before this time are ordered before this access.
    sure : bool
        Whether the access is strong for all threads that can access the bytes.
    """

    chunk: Chunk
    step: Step
    kind: str
    width: int
    lanes: Lanes
    threads: Lanes
    entries: Entries
    offsets: Addresses
    data: npt.NDArray[Any] | None
    time: int
    past: int
    sure: bool

    def part(self, which: npt.NDArray[np.intp] | None, offsets: Addresses) -> Access:
        """The accesses to one allocation, at these offsets in it."""
        if which is None:
            return self._replace(offsets=offsets)
        return self._replace(
            lanes=self.lanes[which],
            threads=self.threads[which],
            entries=self.entries[which],
            offsets=offsets,
            data=None if self.data is None else self.data[which],
        )

    def warps(self, positions: npt.NDArray[np.intp] | None = None) -> Lanes:
        """The warp of each lane, or of the lanes at some positions, numbered in the whole chunk."""
        warps = (self.lanes if positions is None else self.lanes[positions]) // WARP_SIZE
        return self.chunk.warp[warps, 0] if self.chunk.is_part else warps

    def suspects(self, before: Entries) -> npt.NDArray[np.intp]:
        """Indices of units whose earlier access is by another thread and may be unordered with this one."""
        past = self.past << 32
        if int(before.max()) < past:
            return np.zeros(0, np.intp)
        others = threads_of(before) != threads_of(self.of_units(before))
        return np.flatnonzero(others & (before >= past)) if others.any() else np.zeros(0, np.intp)

    def of_units(self, units: Units) -> Entries:
        """The shadow entries of the accesses: one per unit of memory, or one for all."""
        pieces = units.size // self.lanes.size
        return self.entries if pieces == 1 or self.entries.size == 1 else np.tile(self.entries, pieces)


def held(
    memory: Memory, addresses: Addresses, width: int
) -> Iterator[tuple[Allocation, npt.NDArray[np.intp] | None, Addresses]]:
    """Yield each allocation, the indices of the accesses to it (None: all), and their offsets in it.

    Accesses that are misaligned or outside every allocation are left out.
    """
    allocation = memory.find(int(addresses[0]))
    if allocation is not None:
        offsets = addresses - np.uint64(allocation.base)
        misaligned = int(np.bitwise_or.reduce(offsets)) & (width - 1)
        if not misaligned and int(offsets.max()) + width <= allocation.size:
            yield allocation, None, offsets
            return
    for allocation, here in memory.parts(addresses, width):
        offsets = addresses[here] - np.uint64(allocation.base)
        aligned = offsets & np.uint64(width - 1) == 0
        if aligned.any():
            yield allocation, here[aligned], offsets[aligned]
