"""Matrices on a device: tiles of a machine's memory, and other libraries' arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpu.device_tensor import DeviceTensor, check_memory, is_on_gpu, tensor_of
from gpu.machine import Machine, Tile
from reference.errors import DtypeError, ShapeError


@dataclass(frozen=True, eq=False)
class DeviceMatrix(DeviceTensor):
    """A matrix in the memory of one of the machine's devices."""

    shape: tuple[int, int]

    @property
    def T(self) -> DeviceMatrix:  # noqa: N802 - NumPy's name
        """The transpose, in the same memory."""
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])

    def part(self, rows: tuple[int, int], columns: tuple[int, int]) -> Tile:
        """A part of a column-major matrix, as a tile."""
        count, across = rows[1] - rows[0], self.strides[1]
        offset = self.offset + rows[0] * self.itemsize + columns[0] * across
        stride = max(across // self.itemsize, count)  # a matrix of one column may have any stride
        return Tile(self.memory, offset, count, columns[1] - columns[0], stride, self.dtype)


def is_on_device(given: object) -> bool:
    """Whether an operand is a tile of a machine, or an array on a GPU."""
    return _is_tile(given) or is_on_gpu(given)


def _is_tile(given: object) -> bool:
    """Whether an object is a `gpu.machine.Tile`, or a simulated machine's."""
    return all(hasattr(given, name) for name in ("memory", "offset", "rows", "columns", "stride"))


def device_matrix(given: Any, device: Machine | None) -> DeviceMatrix:
    """A matrix on a device of ``device``, by default of a machine of all GPUs.

    Raises DtypeError, ShapeError, FreedMemoryError or LaunchError for any other value.
    """
    if _is_tile(given):
        return _of_tile(given, device)
    found = tensor_of(given, device)
    if found.ndim != 2:
        raise ShapeError(f"a device array has shape {found.shape}\na matrix is needed\nreshape it")
    return DeviceMatrix(**vars(found))


def _of_tile(tile: Tile, device: Machine | None) -> DeviceMatrix:
    """A tile that the caller has made, in memory of the machine."""
    if device is None:
        raise DtypeError(
            "a tile is given without a machine\nits memory is of a device of one\npass its machine as device="
        )
    shape, item = (tile.rows, tile.columns), tile.dtype.itemsize
    end = tile.offset + ((tile.columns - 1) * tile.stride + tile.rows) * item
    check_memory(tile, f"a tile of {shape}", end, device)
    if tile.stride < tile.rows:
        raise ShapeError(
            f"a tile of {shape}, columns {tile.stride} elements apart\n"
            f"a column has {tile.rows} elements\nput its columns so that they do not overlap"
        )
    return DeviceMatrix(tile.memory, shape, tile.dtype, tile.offset, (item, tile.stride * item), tile)
