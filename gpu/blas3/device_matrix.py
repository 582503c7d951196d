"""Matrices that lie on a device: tiles of a machine's memory, and other libraries' arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda_machine import DEFAULT_LOCK, default_machine
from gpu.cuda_views import view_of
from gpu.device import is_array, is_foreign
from gpu.host_memory import overlap
from gpu.machine import Machine, Memory, Tile
from reference.errors import DtypeError, FreedMemoryError, ShapeError


@dataclass(frozen=True, eq=False)
class DeviceMatrix:
    """A matrix in the memory of one of the machine's devices.

    Attributes
    ----------
    memory : Memory
    offset : int
        Bytes from the start of the memory to the first element.
    shape, strides : (int, int)
        Strides in bytes, as of NumPy's arrays.
    dtype : numpy.dtype
    given : object
        The caller's matrix, which keeps the memory.
    is_writeable : bool
    """

    memory: Memory
    offset: int
    shape: tuple[int, int]
    strides: tuple[int, int]
    dtype: np.dtype[Any]
    given: object
    is_writeable: bool = True

    @property
    def ndim(self) -> int:
        """The number of dimensions, always 2."""
        return 2

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.shape[0] * self.shape[1]

    @property
    def T(self) -> DeviceMatrix:  # noqa: N802 - NumPy's name
        """The transpose, in the same memory."""
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])

    def part(self, rows: tuple[int, int], columns: tuple[int, int]) -> Tile:
        """A part of a column-major matrix, as a tile."""
        count, across = rows[1] - rows[0], self.strides[1]
        offset = self.offset + rows[0] * self.itemsize + columns[0] * across
        stride = max(across // self.itemsize, count)  # of one column it may be anything
        return Tile(self.memory, offset, count, columns[1] - columns[0], stride, self.dtype)

    def outline(self) -> npt.NDArray[Any]:
        """An array of the same addresses, for `overlap` alone: nobody can read it."""
        address = getattr(self.memory, "address", 1 << 20) + self.offset
        described = {"shape": self.shape, "strides": self.strides, "typestr": self.dtype.str, "version": 3}
        outline: Any = type("Outline", (), {"__array_interface__": described | {"data": (address, True)}})()
        return np.asarray(outline)


def is_on_device(given: object) -> bool:
    """Whether an operand is a tile of any machine, or an array on a GPU."""
    return _is_tile(given) or is_array(given) or is_foreign(given)


def _is_tile(given: object) -> bool:
    """Whether an object is a `gpu.machine.Tile`, or a simulated machine's."""
    return all(hasattr(given, name) for name in ("memory", "offset", "rows", "columns", "stride"))


def device_matrix(given: Any, device: Machine | None) -> DeviceMatrix:
    """A matrix on a device of a machine; by default of all GPUs.

    Raises DtypeError, ShapeError, FreedMemoryError or LaunchError for what is not such a matrix.
    """
    if _is_tile(given):
        return _of_tile(given, device)
    if device is not None and not hasattr(device, "borrow"):
        raise DtypeError(
            f"an array on a GPU is given to a {type(device).__name__}\nonly gpu.CudaMachine computes there\n"
            "copy it to the host, or pass a gpu.machine.Tile of the machine"
        )
    view, dtype = view_of(given)
    shape = tuple(int(size) for size in view.shape)
    if len(shape) != 2:
        raise ShapeError(f"a device array has shape {shape}\na matrix is needed\nreshape it")
    steps = (shape[1], 1) if view.strides is None else view.strides
    down, across = (int(step) * dtype.itemsize for step in steps)
    rows, columns = shape
    nbytes = max((rows - 1) * down + (columns - 1) * across, 0) + dtype.itemsize
    memory = _borrowed(int(view.ptr), nbytes, device) if rows and columns else _Nowhere()
    return DeviceMatrix(memory, 0, (rows, columns), (down, across), dtype, given, not view.readonly)


@dataclass(frozen=True)
class _Nowhere:
    """The memory of a matrix without elements."""

    device: int = 0
    nbytes: int = 0


def _of_tile(tile: Tile, device: Machine | None) -> DeviceMatrix:
    """A tile that the caller has made, in memory of the machine."""
    if device is None:
        raise DtypeError(
            "a tile is given without a machine\nits memory is of a device of one\npass its machine as device="
        )
    number, shape = tile.memory.device, (tile.rows, tile.columns)
    if not 0 <= number < device.devices or all(one is not tile.memory for one in device.allocated(number)):
        raise FreedMemoryError(
            f"a tile of {shape} in {tile.memory!r}",
            "the memory is freed, or of another machine",
            "allocate it with allocate() of the machine that is passed as device=",
        )
    item, end = tile.dtype.itemsize, tile.offset + (tile.columns - 1) * tile.stride * tile.dtype.itemsize
    if tile.offset < 0 or tile.stride < tile.rows or end + tile.rows * item > tile.memory.nbytes:
        raise ShapeError(
            f"a tile of {shape} at byte {tile.offset}, columns {tile.stride} elements apart\n"
            f"its memory has {tile.memory.nbytes} bytes, a column {tile.rows} elements\n"
            "put it into its memory, with columns that do not overlap"
        )
    return DeviceMatrix(tile.memory, tile.offset, shape, (item, tile.stride * item), tile.dtype, tile)


def _borrowed(address: int, nbytes: int, device: Any) -> Memory:
    """The memory of another library's array."""
    if device is not None:
        return device.borrow(address, nbytes)
    with DEFAULT_LOCK:
        return default_machine().borrow(address, nbytes)


def share(x: npt.NDArray[Any] | DeviceMatrix, y: npt.NDArray[Any] | DeviceMatrix) -> bool:
    """Whether two matrices have an element in common."""
    if isinstance(x, DeviceMatrix) and isinstance(y, DeviceMatrix):
        is_one_space = x.memory is y.memory or hasattr(x.memory, "address")
        same = x.memory.device == y.memory.device and is_one_space
        return same and bool(x.size and y.size) and overlap(x.outline(), [y.outline()])
    if isinstance(x, DeviceMatrix) or isinstance(y, DeviceMatrix):
        return False
    return overlap(x, [y])
