"""Streams and events of a simulated device, whose work is done as soon as it is queued."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reference.errors import DtypeError, LaunchError

if TYPE_CHECKING:
    from simwarp.device.state import Device
    from simwarp.races import Footprint


class Stream:
    """A queue of work; simulated work is done as soon as it is queued.

    ``unfinished`` has the last launches, if a dependent launch may overlap them.
    """

    def __init__(self) -> None:
        self.unfinished: tuple[Footprint, ...] = ()

    def synchronize(self) -> None:
        """Wait for the queued work, which is already done."""
        self.unfinished = ()


class InStream:
    """A wrapper of a device that launches plans in one of its streams."""

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def launch(self, plan: Any, arrays: Sequence[Any]) -> None:
        """Launch a plan in the stream."""
        self._device.launch(plan, arrays, self._stream)

    def launch_all(self, chain: Any, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch the plans of a chain in the stream, in order."""
        for plan, given in zip(chain.plans, arrays, strict=True):
            self.launch(plan, given)


def no_stream_of(device: Device, given: Any) -> DtypeError | LaunchError:
    """The error for a value that is not a stream of a simulated device."""
    if isinstance(given, Stream):
        return LaunchError(
            f"stream= is a stream of another device\nthe call is for {device.name}\n"
            "make the stream with stream() of the operands' device, or leave it out"
        )
    return DtypeError(
        f"stream= is a {type(given).__name__}\n{device.name} has streams of its own only\n"
        "make the stream with stream() of the device, or leave it out"
    )


class Event:
    """A point in a stream, with the time of the host's clock."""

    def __init__(self) -> None:
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Record the time, after the work queued so far."""
        self._time = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Make the stream wait for the event, which has already happened."""

    def synchronize(self) -> None:
        """Wait until the event has happened, which it already has."""

    def seconds_since(self, earlier: Event) -> float:
        """The seconds from an earlier event to this one."""
        return self._time - earlier._time
