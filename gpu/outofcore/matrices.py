"""A piece of a tensor as matrices, the unit that a machine copies.

A copy moves columns of contiguous elements that are equally far apart. So neighbouring axes are merged where
they can be; the last one left is the rows, the one before the columns, and others are loops. A piece of
images is one matrix, except that one of some channels and some rows is a matrix for each image.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from gpu.device_tensor import DeviceTensor
from gpu.machine import Memory, Tile
from gpu.outofcore.pieces import Piece
from gpu.outofcore.problem import Layout

Array = npt.NDArray[Any]


def view_of(array: Array, piece: Piece, layout: Layout) -> Array:
    """The elements of a piece, of four dimensions."""
    first, channels = _slice(piece.first), _slice(piece.channels)
    rows = slice(None) if piece.rows is None else _slice(piece.rows)
    return array[first, channels, rows] if layout == "NCHW" else array[first, rows, :, channels]


def matrices_of(view: Array) -> Iterator[Array]:
    """Column-major matrices that share a view's memory and together have its elements in C order.

    >>> image = np.arange(24).reshape(2, 3, 4)
    >>> [matrix.shape for matrix in matrices_of(image[:, :2])]
    [(8, 2)]
    """
    if view.flags.c_contiguous:  # most pieces: one column
        yield view.reshape(-1)[:, None]
        return
    *loops, (columns, apart), (rows, item) = _merged(view)
    shape, strides = (rows, columns), (item, apart)
    starts = as_strided(view, [size for size, _ in loops], [stride for _, stride in loops])
    for index in np.ndindex(starts.shape):
        yield as_strided(starts[(*index, None)], shape, strides)


def packed(
    memory: Memory, start: int, matrices: Iterable[Array], dtype: np.dtype[Any]
) -> Iterator[tuple[Array, Tile]]:
    """Matrices and their tiles in a device's memory, one behind another from byte ``start`` on.

    Outlines of device tensors have no dtype of 16 bits that NumPy lacks: so it is given.
    """
    for matrix in matrices:
        rows, columns = matrix.shape
        yield matrix, Tile(memory, start, rows, columns, rows, dtype)
        start += matrix.nbytes


def tiles_of(x: DeviceTensor, outline: Array, view: Array) -> Iterator[Tile]:
    """A part of a device tensor as tiles; ``view`` is the same part of ``outline``."""
    start = x.offset - _address(outline)
    for matrix in matrices_of(view):
        rows, columns = matrix.shape
        stride = matrix.strides[1] // x.itemsize if columns > 1 else rows
        yield Tile(x.memory, start + _address(matrix), rows, columns, stride, x.dtype)


def planes_of(x: DeviceTensor, outline: Array, view: Array) -> Iterator[Tile]:
    """Tiles whose columns are the planes of images in NCHW: one tile, or one for each image."""
    images, channels, rows, columns = view.shape
    apart = view.strides[1 if channels > 1 else 0]
    step = images if images == 1 or view.strides[0] == channels * apart else 1
    for first in range(0, images, step):
        offset = x.offset + _address(view[first:]) - _address(outline)
        pixels = rows * columns
        yield Tile(x.memory, offset, pixels, step * channels, max(apart // x.itemsize, pixels), x.dtype)


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def _merged(view: Array) -> list[tuple[int, int]]:
    """Merge axes that are contiguous with one another; return sizes and strides of at least two axes."""
    merged: list[tuple[int, int]] = []
    for size, stride in reversed([*zip(view.shape, view.strides, strict=True), (1, view.itemsize)]):
        if merged and (size == 1 or stride == merged[0][0] * merged[0][1]):
            merged[0] = size * merged[0][0], merged[0][1]
        else:
            merged.insert(0, (size, stride))
    return merged if len(merged) > 1 else [(1, merged[0][0] * merged[0][1]), *merged]


def _slice(of: range) -> slice:
    return slice(of.start, of.stop)
