"""Memory of GPUs, and the places of tiles in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu.machine import Tile
from reference.errors import DtypeError, FreedMemoryError, LaunchError, ShapeError, TileBoundsError


class CudaMemory:
    """Device memory of a GPU, from `CudaMachine.allocate`."""

    def __init__(self, machine: object, device: int, nbytes: int, address: int) -> None:
        self.machine, self.device, self.nbytes, self.address = machine, device, nbytes, address
        self.freed = False

    def tile(
        self, rows: int, columns: int, dtype: npt.DTypeLike, offset: int = 0, stride: int | None = None
    ) -> Tile:
        """A tile of this memory; ``offset`` is in bytes, ``stride`` in elements, by default ``rows``."""
        return Tile(self, offset, rows, columns, rows if stride is None else stride, np.dtype(dtype))

    def __repr__(self) -> str:
        return f"CudaMemory(device={self.device}, nbytes={self.nbytes})"


class Place(NamedTuple):
    """Columns in memory: the first byte, and the bytes from one column to the next."""

    address: int
    pitch: int


def describe(tile: Tile) -> str:
    """Describe a tile in words, for error messages."""
    return f"tile {tile.rows} × {tile.columns} {tile.dtype} at byte {tile.offset} of {tile.memory!r}"


def place_of(tile: Tile, machine: object, device: int | None, what: str) -> Place:
    """The place of a tile that lies in memory of a machine, and of one of its devices unless None."""
    memory = tile.memory
    item = tile.dtype.itemsize
    end = tile.offset + ((tile.columns - 1) * tile.stride + tile.rows) * item
    if (
        not isinstance(memory, CudaMemory)
        or memory.freed
        or memory.machine is not machine
        or (device is not None and memory.device != device)
        or tile.rows < 1
        or tile.columns < 1
        or tile.offset < 0
        or end > memory.nbytes
        or tile.offset % item
        or tile.stride < tile.rows
    ):
        raise _refusal(tile, machine, device, what, end)
    return Place(memory.address + tile.offset, tile.stride * item)


def _refusal(tile: Tile, machine: object, device: int | None, what: str, end: int) -> Exception:
    """The error for a tile that `place_of` refuses."""
    memory: Any = tile.memory
    if not isinstance(memory, CudaMemory) or (memory.machine is not machine and not memory.freed):
        return DtypeError(
            f"{what} is {describe(tile)}\nthe memory is not of this machine\n"
            "allocate it with allocate() of this machine"
        )
    if memory.freed:
        return FreedMemoryError(
            f"{what} is {describe(tile)}",
            "the memory is freed",
            "free memory when all work on it is queued and done",
        )
    if device is not None and memory.device != device:
        return LaunchError(
            f"{what} is {describe(tile)}\nthe stream is of device {device}\n"
            "queue work in streams of the device that has its tiles"
        )
    if tile.rows < 1 or tile.columns < 1:
        return ShapeError(
            f"{what} is {describe(tile)}\na tile has at least one row and one column\nleave out the operation"
        )
    return TileBoundsError(
        f"{what} is {describe(tile)}",
        f"its bytes {tile.offset} to {end} of {memory.nbytes}, columns {tile.stride} elements apart",
        f"put it into its memory: offset a multiple of {tile.dtype.itemsize}, stride at least {tile.rows}",
    )


def matrix_of(matrix: npt.NDArray[Any], tile: Tile, what: str) -> Place:
    """The place of a host matrix that has a tile's shape and dtype, and whose columns are contiguous."""
    if not isinstance(matrix, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DtypeError(
            f"{what} is a {type(matrix).__name__}\nhost memory is given as NumPy arrays\ngive a numpy.ndarray"
        )
    if matrix.shape != (tile.rows, tile.columns) or matrix.dtype != tile.dtype:
        raise ShapeError(
            f"{what} is a {matrix.dtype} array of shape {matrix.shape}\n"
            f"the tile has shape {(tile.rows, tile.columns)} and dtype {tile.dtype}\n"
            "give a matrix and a tile of one shape and dtype"
        )
    item = tile.dtype.itemsize
    down, across = matrix.strides
    if (tile.rows > 1 and down != item) or (tile.columns > 1 and across < tile.rows * item):
        raise ShapeError(
            f"{what} has strides {matrix.strides} in bytes\n"
            f"a copy moves whole columns: strides ({item}, at least {tile.rows * item})\n"
            "give a column-major matrix, such as a slice of an array with order='F'"
        )
    address: int = matrix.__array_interface__["data"][0]
    return Place(address, across if tile.columns > 1 else tile.rows * item)
