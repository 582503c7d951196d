"""Who wrote this address? The bridge from a wrong element back to the lane that made it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simwarp.faults import Place
from simwarp.observe.events import Observer, WriteEvent


@dataclass(frozen=True)
class Write:
    """One write: where in the launch, from which register, and the bits.

    Attributes
    ----------
    place : Place
        Kernel, block, warp, lane, thread and both lines.
    register : str
    value : int
        The bits, as an unsigned number.
    """

    place: Place
    register: str
    value: int


class WriteObserver(Observer):
    """Remembers every write that covers some bytes of interest, the last one last.

    Parameters
    ----------
    address : int
        The first byte of interest.
    size : int
        Bytes of interest.

    Attributes
    ----------
    writes : list of Write

    Examples
    --------
    >>> observer = WriteObserver(0x7F0000000000, 4)
    >>> observer.writes
    []
    """

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.writes: list[Write] = []

    def on_write(self, event: WriteEvent) -> None:
        """Keep the writes that touch the bytes of interest."""
        width = event.values.dtype.itemsize
        first, end = event.addresses, event.addresses + np.uint64(width)
        hit = (first < np.uint64(self.address + self.size)) & (end > np.uint64(self.address))
        for i in np.flatnonzero(hit):
            value = int(event.values[i : i + 1].view(f"u{width}")[0])
            self.writes.append(Write(event.chunk.place(int(event.lanes[i])), event.register, value))
