"""Memory for the tiles of one device, within a budget: a heap, or the driver's allocations.

What is still allocated when a call ends is freed by `gpu.cleanup`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gpu.blas3.heap import Heap
from gpu.machine import Machine, Memory, Tile


class Pool(Protocol):
    """A device's memory from which tiles are allocated."""

    def allocate(self, shape: tuple[int, int]) -> Tile | None:
        """A tile without values; None if there is no room."""
        ...

    def free(self, tile: Tile) -> None:
        """Return a tile; all work on it must have ended."""


class HeapPool:
    """Tiles in one allocation, all as large as the largest, so that every gap fits a tile."""

    def __init__(
        self, machine: Machine, device: int, nbytes: int, segment: int, dtype: np.dtype[Any]
    ) -> None:
        self._dtype, self._segment = dtype, segment
        self._memory = machine.allocate(device, nbytes)
        self._heap = Heap(nbytes)

    def allocate(self, shape: tuple[int, int]) -> Tile | None:
        """Allocate a tile from the heap; None if it does not fit."""
        offset = self._heap.allocate(self._segment)
        if offset is None:
            return None
        return Tile(self._memory, offset, *shape, shape[0], self._dtype)

    def free(self, tile: Tile) -> None:
        """Return a tile's memory to the heap."""
        self._heap.free(tile.offset)


class NativePool:
    """A pool that asks the machine for a new allocation for each tile."""

    def __init__(
        self, machine: Machine, device: int, nbytes: int, segment: int, dtype: np.dtype[Any]
    ) -> None:
        self._machine, self._device, self._dtype = machine, device, dtype
        self._left, self._segment = nbytes, segment
        self._live: dict[int, Memory] = {}

    def allocate(self, shape: tuple[int, int]) -> Tile | None:
        """Allocate a tile from the machine; None if it does not fit."""
        if self._segment > self._left:
            return None
        memory = self._machine.allocate(self._device, self._segment)
        self._left -= self._segment
        self._live[id(memory)] = memory
        return Tile(memory, 0, *shape, shape[0], self._dtype)

    def free(self, tile: Tile) -> None:
        """Return a tile's memory to the machine."""
        self._machine.free(self._live.pop(id(tile.memory)))
        self._left += self._segment
