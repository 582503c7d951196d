"""The simulated clock: events, executed in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from simwarp.machine.links import Flow

_Entry = tuple[float, int, Callable[[], None], "Flow | None", int]


class Clock:
    """Simulated time, ``now`` in seconds, and a heap of later events.

    >>> clock = Clock()
    >>> clock.at(2.5, lambda: print("at", clock.now))
    >>> clock.advance()
    at 2.5
    >>> clock.next() is None
    True
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[_Entry] = []
        self._count = 0

    def at(self, seconds: float, act: Callable[[], None], flow: Flow | None = None) -> None:
        """Call ``act`` at a time; for a flow, only if the flow's rate has not changed by then."""
        heapq.heappush(self._heap, (seconds, self._count, act, flow, flow.version if flow else 0))
        self._count += 1

    def next(self) -> float | None:
        """The time of the next event; None if there is none."""
        while self._heap:
            seconds, _, _, flow, version = self._heap[0]
            if flow is None or flow.version == version:
                return seconds
            heapq.heappop(self._heap)
        return None

    def advance(self) -> None:
        """Go to the time of the next event, and run all events of that time."""
        moment = self.next()
        if moment is None:
            return
        self.now = moment
        while self.next() == moment:
            heapq.heappop(self._heap)[2]()
