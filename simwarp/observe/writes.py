"""Records of writes to some bytes of an array, to find the lane and line that wrote a wrong value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.values import shortened
from simwarp.engine.events import Observer, WriteEvent
from simwarp.faults import Place


@shortened
@dataclass(frozen=True)
class Write:
    """One write by one lane to a watched address.

    Attributes
    ----------
    place : Place
        Kernel, block, warp, lane, thread, and the PTX and source lines.
    register : str
        The register that held the value.
    value : int
        The written bits, as an unsigned number.
    """

    place: Place
    register: str
    value: int


class WriteObserver(Observer):
    """Records every write that overlaps some bytes of an array, in the order of execution.

    Parameters
    ----------
    array : str
        The array's name, as given to `Device.allocate`.
    offset, size : int
        The watched bytes: ``size`` of them, ``offset`` after the array's start.

    Attributes
    ----------
    writes : list of Write

    Examples
    --------
    >>> observer = WriteObserver("c", offset=8, size=4)
    >>> observer.writes
    []
    """

    def __init__(self, array: str, offset: int, size: int) -> None:
        self.array, self.offset, self.size = array, offset, size
        self.writes: list[Write] = []

    def on_write(self, event: WriteEvent) -> None:
        """Record the writes that overlap the watched bytes."""
        allocations = event.chunk.launch.memory.allocations
        allocation = next((a for a in allocations if a.name == self.array), None)
        if allocation is None:
            return
        width = event.values.dtype.itemsize
        start, stop = allocation.base + self.offset, allocation.base + self.offset + self.size
        hit = (event.addresses < np.uint64(stop)) & (event.addresses + np.uint64(width) > np.uint64(start))
        for i in np.flatnonzero(hit):
            value = int(event.values[i : i + 1].view(f"u{width}")[0])
            self.writes.append(Write(event.chunk.place(int(event.lanes[i])), event.register, value))
