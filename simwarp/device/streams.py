"""Streams and events of a simulated device, whose work is done as soon as it is queued."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simwarp.races import Footprint


class Stream:
    """A queue of work; simulated work is done as soon as it is queued.

    Attributes
    ----------
    unfinished : tuple of Footprint
        The last launches, if a dependent launch may overlap them.
    """

    def __init__(self) -> None:
        self.unfinished: tuple[Footprint, ...] = ()

    def synchronize(self) -> None:
        """Wait for the queued work, which is already done."""
        self.unfinished = ()


class Event:
    """A point in a stream, with the time of the host's clock."""

    def __init__(self) -> None:
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Record the time, after the work queued so far."""
        self._time = time.perf_counter()

    def synchronize(self) -> None:
        """Wait until the event has happened, which it already has."""

    def seconds_since(self, earlier: Event) -> float:
        """The seconds from an earlier event to this one."""
        return self._time - earlier._time
