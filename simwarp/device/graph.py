"""Graphs: launches that are captured instead of executed, and later launched together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reference.errors import CaptureError

if TYPE_CHECKING:
    from simwarp.device.state import Device
    from simwarp.device.streams import Stream


class Graph:
    """Captured launches; the graph keeps their arrays alive.

    >>> import numpy as np
    >>> import simwarp
    >>> device = simwarp.Device()
    >>> kernel = device.load('''
    ... .version 9.0
    ... .target sm_90
    ... .address_size 64
    ... .visible .entry count(.param .u64 x) {
    ...     .reg .b64 %a;
    ...     ld.param.u64 %a, [x];
    ...     red.global.add.u32 [%a], 1;
    ...     ret; }
    ... ''').kernel("count")
    >>> x = device.upload(np.zeros(1, np.uint32))
    >>> with device.capture() as graph:
    ...     kernel(1, 32, x)
    ...     kernel(1, 64, x)
    >>> graph.launch()
    >>> graph.launch()
    >>> x.download()
    array([192], dtype=uint32)
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._launches: list[Callable[[Stream | None], None]] = []
        self._kept: list[object] = []
        self._ended = False

    def add(self, launch: Callable[[Stream | None], None], stream: Stream | None) -> None:
        """Add a launch; CaptureError if it names a stream."""
        if stream is not None:
            refuse(self._device, "a launch in a stream")
        self._launches.append(launch)

    def keep(self, arrays: Iterable[object]) -> None:
        """Keep arrays alive that launches use only through tensor maps."""
        self._kept.extend(arrays)

    def launch(self, stream: Stream | None = None) -> None:
        """Execute all captured launches, in their order, with the same arguments."""
        if not self._ended:
            raise CaptureError(
                "launch of a graph whose capture has not ended\n"
                "its launches are known behind the with block\nlaunch it there"
            )
        if self._device.capturing is not None:
            self._device.capturing.add(self.launch, stream)
            return
        queue = stream or self._device.default_stream
        queue.unfinished = ()  # a graph begins after all launches before it
        for launch in self._launches:
            launch(stream)
        queue.unfinished = ()

    def end(self) -> None:
        """End the capture of launches."""
        self._ended = True


@contextmanager
def capture(device: Device) -> Generator[Graph]:
    """Capture the launches of a ``with`` block on a device."""
    refuse(device, "a capture")
    device.capturing = graph = Graph(device)
    try:
        yield graph
        graph.end()
    finally:
        device.capturing = None


def refuse(device: Device, what: str) -> None:
    """Raise `CaptureError` if launches on a device are captured."""
    if device.capturing is not None:
        raise CaptureError(
            f"{what} in a capture\nonly launches are captured, in one stream\ndo it outside the with block"
        )
