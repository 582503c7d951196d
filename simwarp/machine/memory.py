"""Memory of simulated devices, and tiles in it.

Bytes start as poison, 0xFF, which is a NaN in every floating-point format and −1 in every signed integer.
They are poisoned a page at a time, when a tile first touches the page, so that a memory may be larger than
that of the computer.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError
from reference.values import not_an_array, shortened
from simwarp.machine.accesses import Accesses
from simwarp.machine.faults import FreedMemoryError, TileBoundsError
from simwarp.machine.footprints import Footprint, footprint
from simwarp.machine.order import Order

POISON = 0xFF
_PAGE = 1 << 16
_LARGE = 1 << 20
_NORESERVE = 0x4000 if sys.platform == "linux" else 0


class TileLike(Protocol):
    """A matrix in a device's memory, column after column: the tile of any host program."""

    @property
    def memory(self) -> Any:
        """The device memory that holds the tile, from `Machine.allocate`."""
        ...

    @property
    def offset(self) -> int:
        """Bytes from the start of the memory to the first element."""
        ...

    @property
    def rows(self) -> int:
        """The number of rows of the tile."""
        ...

    @property
    def columns(self) -> int:
        """The number of columns of the tile."""
        ...

    @property
    def stride(self) -> int:
        """Elements from the start of one column to the start of the next."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tile's elements."""
        ...


@not_an_array("copy it to a host matrix with copy_out of its machine")
@shortened
@dataclass(frozen=True)
class Tile:
    """A matrix in a device's memory, column after column.

    Attributes
    ----------
    memory : DeviceMemory
    offset : int
        Bytes from the start of the memory to the first element.
    rows, columns : int
    stride : int
        Elements from one column to the next.
    dtype : numpy.dtype
    """

    memory: DeviceMemory
    offset: int
    rows: int
    columns: int
    stride: int
    dtype: np.dtype[Any]


@not_an_array("copy a tile of it to a host matrix with copy_out of its machine")
class DeviceMemory:
    """Memory of a device, from `Machine.allocate`.

    Attributes
    ----------
    device, nbytes, number : int
        The device, the size, and the number of the allocation in its machine.
    freed : bool
    accesses : Accesses

    Examples
    --------
    >>> import simwarp
    >>> memory = simwarp.Machine().allocate(0, 1024)
    >>> memory.device, memory.nbytes, memory.tile(8, 16, np.float64).stride
    (0, 1024, 8)
    """

    def __init__(self, device: int, nbytes: int, number: int, order: Order) -> None:
        self.device, self.nbytes, self.number = device, nbytes, number
        self.freed = False
        self.accesses = Accesses(order, max(256, nbytes // 256))
        self._bytes: npt.NDArray[np.uint8] | None = None
        self._fresh = np.ones(0, np.bool_)
        self._written: npt.NDArray[np.uint8] | None = None

    def tile(
        self, rows: int, columns: int, dtype: npt.DTypeLike, offset: int = 0, stride: int | None = None
    ) -> Tile:
        """A tile of this memory; ``offset`` in bytes, ``stride`` in elements, by default ``rows``."""
        return Tile(self, offset, rows, columns, rows if stride is None else stride, np.dtype(dtype))

    def view(self, tile: TileLike) -> npt.NDArray[Any]:
        """The elements of a tile of this memory, as a NumPy view."""
        if self._bytes is None:
            self._bytes = _reserve(self.nbytes)
            self._fresh = np.ones(-(-self.nbytes // _PAGE), np.bool_)
        self._poison_fresh_pages(tile)
        return _view(self._bytes, tile, tile.dtype)

    def mark_written(self, tile: TileLike) -> None:
        """Record that a queued operation writes the bytes of a tile."""
        if self._written is None:
            self._written = _reserve(self.nbytes)
        _view(self._written, tile, np.dtype((np.void, tile.dtype.itemsize)))[...] = (
            b"\1" * tile.dtype.itemsize
        )

    def is_written(self, tile: TileLike) -> bool:
        """True if queued or finished operations write every byte of a tile."""
        if self._written is None:
            return False
        item = tile.dtype.itemsize
        bytes_of = np.ndarray(
            (item, tile.rows, tile.columns),
            np.uint8,
            self._written,
            tile.offset,
            (1, item, item * tile.stride),
        )
        return bool(bytes_of.all())

    def release(self) -> None:
        """Release the host bytes that back this memory, once it is freed."""
        self.freed, self._bytes, self._written = True, None, None

    def _poison_fresh_pages(self, tile: TileLike) -> None:
        last = tile.offset + ((tile.columns - 1) * tile.stride + tile.rows) * tile.dtype.itemsize - 1
        first = tile.offset // _PAGE
        fresh = self._fresh[first : last // _PAGE + 1]
        if fresh.any():
            assert self._bytes is not None
            for page in first + np.flatnonzero(fresh):
                self._bytes[page * _PAGE : (page + 1) * _PAGE] = POISON
            fresh[:] = False

    def __str__(self) -> str:
        return f"memory {self.number} of device {self.device}"

    def __repr__(self) -> str:
        return f"DeviceMemory(device={self.device}, nbytes={self.nbytes}, number={self.number})"


def _reserve(nbytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes, which take no memory until they are touched, if the system allows."""
    if nbytes < _LARGE or not _NORESERVE:
        return np.zeros(nbytes, np.uint8)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)


def _view(of: npt.NDArray[np.uint8], tile: TileLike, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    item = dtype.itemsize
    return np.ndarray((tile.rows, tile.columns), dtype, of, tile.offset, (item, item * tile.stride))


def poison(array: npt.NDArray[Any]) -> None:
    """Fill an array with poison."""
    array[...] = np.frombuffer(bytes([POISON]) * array.dtype.itemsize, array.dtype)[0]


def checked(tile: TileLike, machine_has: Callable[[DeviceMemory], bool], what: str) -> DeviceMemory:
    """Check a tile, and return its memory; ``what`` names the tile in messages."""
    memory = getattr(tile, "memory", None)
    if not isinstance(memory, DeviceMemory):
        raise DtypeError(
            f"{what} is a {type(tile).__name__} whose memory is a {type(memory).__name__}\n"
            "a tile is in memory of this machine\nallocate the memory with Machine.allocate"
        )
    if memory.freed:
        raise FreedMemoryError(
            f"{what} is {describe(tile)}",
            "the memory is freed",
            "free memory when all work on it is queued and done",
        )
    if not machine_has(memory):
        raise DtypeError(
            f"{what} is {describe(tile)}\nthe memory is of another machine\n"
            "allocate it with allocate() of this machine"
        )
    if tile.rows < 1 or tile.columns < 1:
        raise ShapeError(
            f"{what} is {describe(tile)}\na tile has at least one row and one column\nleave out the operation"
        )
    item = tile.dtype.itemsize
    end = tile.offset + ((tile.columns - 1) * tile.stride + tile.rows) * item
    if tile.offset < 0 or end > memory.nbytes or tile.offset % item or tile.stride < tile.rows:
        raise TileBoundsError(
            f"{what} is {describe(tile)}",
            f"its bytes {tile.offset} to {end} of {memory.nbytes}, columns {tile.stride} elements apart",
            f"keep it in its memory, its offset a multiple of {item}, its stride at least its rows",
        )
    return memory


def footprint_of(tile: TileLike) -> Footprint:
    """The footprint of a tile: its bytes, column by column, in its memory."""
    item = tile.dtype.itemsize
    return footprint(tile.offset, tile.rows * item, tile.stride * item, tile.columns)


def describe(tile: TileLike) -> str:
    """The text for a tile in messages: shape, dtype, byte offset and memory."""
    return f"tile {tile.rows} × {tile.columns} {tile.dtype} at byte {tile.offset} of {tile.memory}"
