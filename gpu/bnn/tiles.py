"""Filters in the tile order of a whole network's products, and the contribution of taps outside the image."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.bnn.weights import Bits, shape_of, signs_of
from reference.types.layers import Conv, Dense
from reference.types.network_values import Value

UNIT = 64
"""Channels of bits in a unit of a row."""
SHORTS = 4
"""Channels of integers in a unit of a row."""
FILTERS_OF_TILE = 32
PIECE = 128
"""Channels of bits in an FSB tile."""


def geometry_of(layer: Conv | Dense, given: Value) -> tuple[ConvShape, npt.NDArray[np.int8]]:
    """The geometry of one image, and the filters (R, S, C, O) of ±1, and 0 between groups."""
    if isinstance(layer, Dense):
        signs = signs_of(layer)[None, None]
        return conv_shape((1, 1, 1, *given.shape), signs.shape, padding="VALID"), signs
    signs = signs_of(layer).reshape(shape_of(layer))
    options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    return conv_shape((1, *given.shape), signs.shape, **options), signs


def units_of_bits(bits: Bits, shape: ConvShape) -> tuple[Any, Any]:
    """Filters in lane order, (tiles of 32, steps of k, pairs, lanes, 2, words), and their taps."""
    units = _filled(bits, UNIT, 4)
    words = np.packbits(units, axis=1, bitorder="little").reshape(-1, 2, 4, units.shape[-1])
    words = np.ascontiguousarray(np.moveaxis(words, 2, 3)).view("<u4")[..., 0]  # (units, words, filters)
    parts = words.reshape(-1, 4, 2, words.shape[-1] // FILTERS_OF_TILE, 2, 2, 8)
    return np.ascontiguousarray(parts.transpose(3, 0, 4, 6, 1, 5, 2)), _taps(shape, UNIT, len(words))


def units_of_shorts(filters: npt.NDArray[np.int8], shape: ConvShape) -> tuple[Any, Any]:
    """Like `units_of_bits` for int8 filters, of which a lane has two consecutive units; and their taps."""
    signs = _filled(filters.view(np.uint8), SHORTS, 8)
    parts = signs.reshape(-1, 4, 2, SHORTS, signs.shape[-1] // FILTERS_OF_TILE, 2, 2, 8)
    return np.ascontiguousarray(parts.transpose(4, 0, 5, 7, 1, 6, 2, 3)), _taps(shape, SHORTS, len(signs))


def words_of_bits(bits: Bits, word: int) -> Any:
    """Filters as words along their channels, (taps * words of a tap, filters), padded to 64 filters."""
    units = _filled(bits, word, 1, 2 * FILTERS_OF_TILE)  # (words, bits, filters)
    words = np.packbits(units, axis=1, bitorder="little")
    return np.ascontiguousarray(np.moveaxis(words, 1, 2)).view(f"<u{word // 8}")[..., 0]


def words_of_shorts(filters: npt.NDArray[np.int8], shape: ConvShape) -> Any:
    """The same of int8 filters: four channels in a word."""
    units = _filled(filters.view(np.uint8), SHORTS, 1)
    return np.ascontiguousarray(np.moveaxis(units, 1, 2)).view("<u4")[..., 0]


def tiles_of_bits(bits: Bits) -> Any:
    """Filters in FSB tiles of 8 × 128 bits, (groups of 32, an even number of pieces, 4, 8, 4 words)."""
    units = _filled(bits, PIECE, 2)  # (pieces, bits, filters)
    words = np.packbits(units, axis=1, bitorder="little").reshape(len(units), -1, 4, units.shape[-1])
    words = np.ascontiguousarray(np.moveaxis(words, 2, 3)).view("<u4")[..., 0]  # (pieces, words, filters)
    parts = words.reshape(len(units), 4, -1, 4, 8)
    return np.ascontiguousarray(parts.transpose(2, 0, 3, 4, 1))


def taps_of_window(shape: ConvShape) -> npt.NDArray[np.uint32]:
    """The position of each tap in a window, in pixels, with its row and column."""
    return _taps(replace(shape, channels=1), 1, shape.filter_height * shape.filter_width)


def taps_of_pieces(shape: ConvShape) -> npt.NDArray[np.uint32]:
    """The same for each piece of 128 channels of each tap, with the piece's number; padding is outside."""
    of_pixel = -(-shape.channels // PIECE)
    window = taps_of_window(shape)
    taps = np.repeat(window, of_pixel, axis=0)
    taps[:, 3] = np.tile(np.arange(of_pixel), len(window))
    outside = np.array([[0, 2**31, 0, 0]], np.uint32)
    return np.concatenate([taps, outside]) if len(taps) % 2 else taps


def _filled(filters: Bits, unit: int, units: int, tile: int = FILTERS_OF_TILE) -> Bits:
    """Filters (R, S, C, O) zero-padded to whole units and tiles: (units, elements of a unit, filters)."""
    taps, (channels, outputs) = prod(filters.shape[:2]), filters.shape[2:]
    of_tap = -(-channels // unit)
    columns = -(-outputs // tile) * tile
    filled = np.zeros((taps, of_tap * unit, columns), np.uint8)
    filled[:, :channels, :outputs] = filters.reshape(taps, channels, outputs)
    lines = filled.reshape(taps * of_tap, unit, columns)
    return np.pad(lines, ((0, -len(lines) % units), (0, 0), (0, 0)))


def _taps(shape: ConvShape, unit: int, count: int) -> npt.NDArray[np.uint32]:
    """The position of each unit in a window, with its row and column; padding units are outside."""
    of_pixel = -(-shape.channels // unit)
    r, s, c = np.indices((shape.filter_height, shape.filter_width, of_pixel)).reshape(3, -1)
    rows, columns = r * shape.dilation_h, s * shape.dilation_w
    taps = np.zeros((count, 4), np.uint32)
    taps[:, 1] = 2**31
    offsets = (rows * shape.width + columns) * of_pixel + c
    taps[: len(r), :3] = np.stack([offsets, rows, columns], axis=1).astype(np.uint32)
    return taps


def border_of(bits: Bits, shape: ConvShape) -> dict[str, npt.NDArray[Any]]:
    """The addend of each sum that corrects for taps outside the image, for each set of taps inside.

    Rows of the output with the same taps inside share a part of the table, and columns likewise.
    """
    of_tap = shape.channels - 2 * bits.sum(axis=2, dtype=np.int32)  # (R, S, O)
    rows, of_row = _inside(
        *(shape.out_height, shape.stride_h, shape.pad_top, shape.height),
        *(shape.filter_height, shape.dilation_h),
    )
    columns, of_column = _inside(
        *(shape.out_width, shape.stride_w, shape.pad_left, shape.width),
        *(shape.filter_width, shape.dilation_w),
    )
    wide = -(-shape.filters // UNIT) * UNIT
    table = np.zeros((len(rows), len(columns), wide), np.int32)
    table[..., : shape.filters] = np.einsum("pr,qs,rso->pqo", rows, columns, of_tap, optimize=True)
    return {
        "border": table,
        "border_rows": (of_row * len(columns) * wide).astype(np.uint32),
        "border_columns": (of_column * wide).astype(np.uint32),
    }


def _inside(
    outputs: int, stride: int, pad: int, size: int, taps: int, gap: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The distinct sets of taps inside the image, and the set of each output."""
    at = np.arange(outputs)[:, None] * stride + np.arange(taps) * gap - pad
    sets, which = np.unique((at >= 0) & (at < size), axis=0, return_inverse=True)
    return sets.astype(np.int32), which.reshape(-1)
