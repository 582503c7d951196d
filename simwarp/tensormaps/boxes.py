"""The bytes that a copy through a tensor map reads and writes (PTX ISA 9.0, sections 5.5.3 to 5.5.7).

A box is rows of its innermost dimension. In shared memory they follow one another; with a swizzle at
distances of its span, even if they are shorter. The units of a copy are as wide as alignment on both sides
and the edges of the tensor allow, so that one copy is a few operations on arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference.devices.tensor_map import TensorMap
from reference.errors import ShapeError
from reference.values import shortened

_Numbers = npt.NDArray[np.int64]
_Outside = npt.NDArray[np.bool_]
_WIDEST = 16
_OFFSETS = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}
"""Rank of an im2col map → the first im2col offset that an instruction may not have."""


@shortened
@dataclass(frozen=True)
class Units:
    """The units of one copy, in the order of the tile; arrays are (n,)."""

    width: int  # bytes per unit
    addresses: npt.NDArray[np.uint64]  # addresses of units in global memory; arbitrary outside the tensor
    offsets: npt.NDArray[np.uint64]  # offsets of units in the tile, before its swizzle
    inside: npt.NDArray[np.bool_]  # whether each unit is in the tensor


def tile_bytes(tensor: TensorMap) -> tuple[int, int]:
    """The bytes that one copy moves, and the bytes that its tile spans in shared memory."""
    rows, width = math.prod(_rows_shape(tensor)), _row_bytes(tensor)
    return rows * width, (rows - 1) * _pitch(tensor) + width


def check_coordinates(
    tensor: TensorMap, coordinates: Sequence[int], offsets: Sequence[int] = (), stores: bool = False
) -> None:
    """Raise ShapeError for coordinates or im2col offsets that an instruction must not have.

    PTX ISA, section 9.7.9.27.1.
    """
    if len(coordinates) != tensor.rank:
        raise ShapeError(
            f"{len(coordinates)} coordinates, a tensor map of {tensor.rank} dimensions\n"
            "the instruction must have the map's dimensions\nuse the map that belongs to the instruction"
        )
    if not tensor.interleave and coordinates[0] * tensor.itemsize % _WIDEST:
        raise ShapeError(
            f"a box that begins at element {coordinates[0]} of a row of {tensor.data_type}\n"
            f"the innermost coordinate must lie at a multiple of {_WIDEST} bytes\n"
            "begin the box at such an element, and skip the first ones in the kernel"
        )
    if stores and min(coordinates) < 0:
        raise ShapeError(
            f"a store at the coordinates {tuple(coordinates)}\ncoordinates of a store must not be negative\n"
            "begin the box inside the tensor; only its end may leave it"
        )
    box = tensor.im2col
    if box is None:
        return
    if tensor.interleave:
        raise ShapeError(
            f"an im2col copy of a tensor with an interleave of {tensor.interleave} bytes\n"
            "no document gives its order in shared memory; it is not simulated\n"
            "use a map without an interleave"
        )
    most = _OFFSETS[tensor.rank]
    if any(not 0 <= offset < most for offset in offsets):
        raise ShapeError(
            f"im2col offsets {tuple(offsets)}\nexpected 0 to {most - 1} for {tensor.rank} dimensions\n"
            "add the rest to the coordinates"
        )
    if stores and (min(box.lower) < 0 or max(box.upper) > 0):
        raise ShapeError(
            f"a store to the box from {box.lower} to {box.upper}\n"
            "a store must stay within the image: lower corners of 0 or more, upper ones of 0 or less\n"
            "make a second map for stores"
        )
    last = [n - 1 + high for n, high in zip(tensor.shape[1:-1], box.upper, strict=True)]
    if any(not low <= at <= end for low, at, end in zip(box.lower, coordinates[1:-1], last, strict=True)):
        raise ShapeError(
            f"im2col coordinates {tuple(coordinates[1:-1])} outside the box\n"
            f"its pixels are {box.lower} to {tuple(last)}\n"
            "begin at one of them, and add the filter's position as im2col offsets"
        )


def units_of(
    tensor: TensorMap,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    width: int = 0,
    stores: bool = False,
) -> Units:
    """The units of the copy at coordinates, innermost first, of ``width`` bytes or as wide as possible.

    A store or reduction counts what follows a row of the tensor as inside, up to a multiple of 16 bytes.
    Below, of a row of 6 floats, a box of 4 that begins at the fifth: two inside, two outside.

    >>> tensor = TensorMap("float32", 4096, (6,), (), (4,), (1,))
    >>> units = units_of(tensor, (4,))
    >>> units.width, units.addresses.tolist(), units.inside.tolist()
    (8, [4112, 4120], [True, False])
    >>> units_of(tensor, (4,), stores=True).inside.tolist()
    [True]
    """
    if tensor.interleave:
        first, row_inside = _slices(tensor, coordinates)
        begin, end = 0, tensor.interleave
        start = 0
    else:
        first, row_inside = (
            _pixels(tensor, coordinates, offsets) if tensor.im2col else _rows(tensor, coordinates)
        )
        start = coordinates[0] * tensor.itemsize
        end = tensor.shape[0] * tensor.itemsize
        if stores:
            end = -(-end // _WIDEST) * _WIDEST
        begin, end = -start, end - start
    row, pitch = _row_bytes(tensor), _pitch(tensor)
    width = width or _widest(start, row, end)
    along = np.arange(0, row, width)
    inside = row_inside[:, None] & ((along >= begin) & (along < end))
    addresses = tensor.address + start + first[:, None] + along
    places = np.arange(first.size)[:, None] * pitch + along
    return Units(
        width,
        addresses.reshape(-1).astype(np.uint64),
        places.reshape(-1).astype(np.uint64),
        inside.reshape(-1),
    )


def _widest(start: int, row: int, end: int) -> int:
    """The widest unit to which all rows are aligned and which the tensor's edge does not cut."""
    edges = start | row | (end if 0 < end < row else 0)
    return min(_WIDEST, edges & -edges) if edges else _WIDEST


def _row_bytes(tensor: TensorMap) -> int:
    """The bytes of one row of a tensor map's box in shared memory."""
    return tensor.interleave or tensor.inner * tensor.itemsize


def _pitch(tensor: TensorMap) -> int:
    """The bytes from one row of the tile to the next in shared memory."""
    return tensor.interleave or tensor.swizzle or tensor.inner * tensor.itemsize


def _counts(tensor: TensorMap) -> tuple[int, ...]:
    """The elements that a tiled copy takes in each dimension."""
    return tuple(-(-n // step) for n, step in zip(tensor.box, tensor.element_strides, strict=True))


def _rows_shape(tensor: TensorMap) -> tuple[int, ...]:
    """The rows of a tile in each dimension, outermost first."""
    if tensor.im2col is not None:
        return (tensor.im2col.pixels,)
    counts = _counts(tensor)
    if tensor.interleave:
        return counts[-1], counts[0], *counts[-2:0:-1]
    return counts[:0:-1]


def _lines(tensor: TensorMap, coordinates: Sequence[int], dimension: int) -> tuple[_Numbers, _Outside]:
    """The offsets in memory of a box's elements in one dimension, and whether they are in the tensor."""
    step = tensor.element_strides[dimension]
    at = coordinates[dimension] + np.arange(_counts(tensor)[dimension], dtype=np.int64) * step
    return at * tensor.steps[1][dimension], (at >= 0) & (at < tensor.shape[dimension])


def _crossed(lines: Sequence[tuple[_Numbers, _Outside]]) -> tuple[_Numbers, _Outside]:
    """For each row of a box, its offset and whether it is inside, from the lines of each dimension."""
    offset, inside = np.zeros(1, np.int64), np.ones(1, np.bool_)
    for more, within in lines:
        offset = np.add.outer(offset, more).reshape(-1)
        inside = np.logical_and.outer(inside, within).reshape(-1)
    return offset, inside


def _rows(tensor: TensorMap, coordinates: Sequence[int]) -> tuple[_Numbers, _Outside]:
    """Offset and inside of each row of a tiled box."""
    return _crossed([_lines(tensor, coordinates, k) for k in range(tensor.rank - 1, 0, -1)])


def _slices(tensor: TensorMap, coordinates: Sequence[int]) -> tuple[_Numbers, _Outside]:
    """Offset and inside of each slice of an interleaved box: images, slices, then the spatial dimensions."""
    order = (tensor.rank - 1, 0, *range(tensor.rank - 2, 0, -1))
    return _crossed([_lines(tensor, coordinates, k) for k in order])


def _pixels(
    tensor: TensorMap, coordinates: Sequence[int], offsets: Sequence[int]
) -> tuple[_Numbers, _Outside]:
    """Offset and inside of each pixel of an im2col copy: along W first, then H and D, then the next image.

    A dimension that passes its last pixel goes on at its first one.
    """
    box = tensor.im2col
    assert box is not None
    left = np.arange(box.pixels, dtype=np.int64)
    offset, inside = np.zeros_like(left), np.ones(left.size, np.bool_)
    for i, (low, high) in enumerate(zip(box.lower, box.upper, strict=True), 1):
        begin, step, last = coordinates[i], tensor.element_strides[i], tensor.shape[i] - 1 + high
        head, whole = (last - begin) // step + 1, (last - low) // step + 1
        beyond = left - head
        at = np.where(beyond < 0, begin + left * step, low + beyond % whole * step)
        left = np.where(beyond < 0, 0, 1 + beyond // whole)
        at = at + (offsets[i - 1] if offsets else 0)
        offset = offset + at * tensor.steps[1][i]
        inside &= (at >= 0) & (at < tensor.shape[i])
    image = coordinates[-1] + left
    return offset + image * tensor.steps[1][-1], inside & (image >= 0) & (image < tensor.shape[-1])
