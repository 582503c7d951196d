"""The protocol of a machine: several devices and a host, with streams, events, copies and tile routines.

`simwarp.Machine` implements it in NumPy, with a clock, `gpu.CudaMachine` on GPUs; the policies of `gpu.blas3`
and `gpu.outofcore` are written to it alone.
All work is asynchronous and runs in the order of its stream. The workers of a policy, one for each device,
are generators that yield the event they wait for: the machine resumes each when its event has happened, so
one policy runs on a simulated clock, where every interleaving can be tried, and on hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu.device import name_of
from reference.errors import DtypeError
from reference.values import not_an_array, shortened


class Memory(Protocol):
    """Device memory that tiles are parts of."""

    @property
    def device(self) -> int:
        """The number of the device that has the memory."""
        ...

    @property
    def nbytes(self) -> int:
        """The size of the memory in bytes."""
        ...


@not_an_array("copy it to a host matrix with copy_out of its machine")
@shortened
@dataclass(frozen=True)
class Tile:
    """A matrix in a device's memory, column after column."""

    memory: Memory
    offset: int  # bytes from the start of the memory to the first element
    rows: int
    columns: int
    stride: int  # elements from one column to the next
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """The tile's numbers of rows and columns."""
        return self.rows, self.columns

    @property
    def nbytes(self) -> int:
        """The bytes of the tile's elements, which a copy moves."""
        return self.rows * self.columns * self.dtype.itemsize


class Routine(Protocol):
    """A computation on tiles of one device; a tile that it updates is in both lists."""

    @property
    def name(self) -> str:
        """The routine's name in timelines and errors."""
        ...

    @property
    def operations(self) -> float:
        """The number of floating-point operations of the routine."""
        ...

    @property
    def reads(self) -> tuple[Tile, ...]:
        """The tiles that the routine reads."""
        ...

    @property
    def writes(self) -> tuple[Tile, ...]:
        """The tiles that the routine writes."""
        ...

    def compute(self, reads: Sequence[npt.NDArray[Any]], writes: Sequence[npt.NDArray[Any]]) -> None:
        """Compute on the host, from arrays of ``reads`` into arrays of ``writes``, column-major both.

        A simulated device calls it. A tile in both has two arrays: the written one holds the old values, too.
        """


class CpuRoutine(Protocol):
    """A computation of the host's cores on host arrays."""

    @property
    def name(self) -> str:
        """The routine's name in timelines and errors."""
        ...

    @property
    def operations(self) -> float:
        """The number of floating-point operations of the routine."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that it computes in."""
        ...

    @property
    def reads(self) -> tuple[npt.NDArray[Any], ...]:
        """The column-major parts of pinned arrays that it reads."""
        ...

    @property
    def writes(self) -> tuple[npt.NDArray[Any], ...]:
        """The column-major parts of pinned arrays that it writes."""
        ...

    def compute(self) -> None:
        """Compute; on a real machine in a thread of its own, so long work must release Python's lock."""


HOST = -1
"""The host's number, where operations of its cores stand beside those of devices."""


class Event(Protocol):
    """A point in a stream, reached when all work queued before it has ended."""

    @property
    def done(self) -> bool:
        """True if all work queued before the event has ended."""
        ...


class Stream(Protocol):
    """A queue of work of one device."""

    @property
    def device(self) -> int:
        """The number of the device that the stream is on."""
        ...


Worker = Iterator[Event]
"""The host's part of one device: yields the events that it waits for, and ends."""


class Machine(Protocol):
    """Several devices and the host that they belong to."""

    @property
    def devices(self) -> int:
        """The number of devices."""
        ...

    def budget(self, device: int) -> int:
        """The bytes of a device that can be allocated now."""
        ...

    def reaches(self, device: int, peer: int) -> bool:
        """True if a device can copy from a peer without the host."""
        ...

    def allocate(self, device: int, nbytes: int) -> Memory:
        """Allocate memory on a device; its contents are undefined."""
        ...

    def allocated(self, device: int) -> Sequence[Memory]:
        """The memory of a device that is not freed."""
        ...

    def free(self, memory: Memory) -> None:
        """Free memory; all work on it must have ended."""

    def pin(self, array: npt.NDArray[Any]) -> None:
        """Page-lock a host array, as asynchronous copies require."""

    def unpin(self, array: npt.NDArray[Any]) -> None:
        """Undo one `pin` of the array."""

    def pins(self, array: npt.NDArray[Any]) -> int:
        """The pins of an array that no `unpin` has undone."""
        ...

    def stream(self, device: int) -> Stream:
        """Create a stream on a device."""
        ...

    def copy_in(self, stream: Stream, source: npt.NDArray[Any], target: Tile) -> None:
        """Queue a copy of a host matrix, in a pinned array, to a tile of the stream's device."""

    def copy_out(self, stream: Stream, source: Tile, target: npt.NDArray[Any]) -> None:
        """Queue a copy of a tile of the stream's device to a host matrix in a pinned array."""

    def copy_peer(self, stream: Stream, source: Tile, target: Tile) -> None:
        """Queue a copy of a peer's tile to the stream's device, which must have a link to the peer."""

    def launch(self, stream: Stream, routine: Routine) -> None:
        """Queue a routine on tiles of the stream's device."""

    @property
    def has_cpu(self) -> bool:
        """True if the host's cores compute routines, too."""
        ...

    def compute(self, routine: CpuRoutine) -> Event:
        """Queue a routine of the host's cores behind their earlier ones; the event of its end.

        No stream waits for it, and it waits for no stream: workers do.
        """
        ...

    def record(self, stream: Stream) -> Event:
        """Record an event behind all work now in the stream."""
        ...

    def wait(self, stream: Stream, event: Event) -> None:
        """Hold back later work of the stream until an event, of any device, has happened."""

    def run(self, workers: Sequence[Worker]) -> None:
        """Run workers to their ends, then all queued work.

        After the first error, which is raised, no worker resumes and no queued work starts.
        """

    def seconds(self) -> float:
        """The machine's clock in seconds."""
        ...


def check_machine(given: Any, option: str = "device") -> None:
    """Raise DtypeError for an argument that is not a machine; the message has the machine to make."""
    if hasattr(given, "budget") and not isinstance(given, type):
        return
    ordinal = getattr(given, "ordinal", None)
    cuda = "gpu.CudaMachine() for GPUs" if ordinal is None else f"gpu.CudaMachine([{ordinal}])"
    raise DtypeError(
        f"{option} is {name_of(given)}\nit must be a machine: one device or several, and their host\n"
        f"pass {cuda}, or simwarp.Machine() to simulate one"
    )
