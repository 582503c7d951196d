"""Times queued work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Waits(Protocol):
    """A machine that can wait for all its work."""

    def run(self, workers: Sequence[Any]) -> None:
        """Run workers, and then all work that is queued."""


def seconds_of(machine: Waits, work: Callable[[], object], times: int) -> list[float]:
    """The times of some runs of queued work, after a first one that does not count."""
    seconds: list[float] = []
    for _ in range(times + 1):
        start = time.perf_counter()
        work()
        machine.run([])
        seconds.append(time.perf_counter() - start)
    return seconds[1:]
