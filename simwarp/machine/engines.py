"""Engines: a device's multiprocessors, or one direction of a link; each runs one operation at a time."""

from __future__ import annotations

import heapq

from simwarp.machine.operations import Operation


class Engine:
    """Runs operations one at a time, in the order in which they become ready."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.running: Operation | None = None
        self._ready: list[tuple[float, float, int, Operation]] = []
        self._count = 0

    def add(self, operation: Operation, now: float, tie: float) -> None:
        """Add an operation that is ready; ``tie`` orders operations that became ready at the same time."""
        heapq.heappush(self._ready, (now, tie, self._count, operation))
        self._count += 1

    def take(self) -> Operation | None:
        """Remove and return the next operation; None if the engine is busy or no operation is ready."""
        if self.running is not None or not self._ready:
            return None
        return heapq.heappop(self._ready)[3]

    def clear(self) -> None:
        """Drop the operations that wait for the engine."""
        self._ready.clear()
