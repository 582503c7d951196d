"""The ±1 convolution on Hopper's warpgroups, the method of ``gpu.bconv2d(scheme="wgmma")``.

It is the product of `wgmma_bmm` with windows as lines of A. Along k lie chunks of 128 channels: taps one
after another, and in each its pieces of channels. The matrix of windows is never built: a stage's chunks are
gathered from the images, and what lies outside is zeros, which count nothing. The dot product is

    C taps - 2 ones(filter's taps inside) - 2 ones(window) + 4 popc(window & filter)

whose first two terms are one vector of addends for all windows that have the same taps inside.

Source: PTX ISA 9.0, section 9.7.15.5.1; BSTC (SC'19), section 5.2 (taps outside are excluded).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from reference.types import PackedTensor
from simwarp.lanes import LANE, brev, popc
from simwarp.listings.bconv import ConvOptions
from simwarp.listings.btc.tiles import most_significant_first
from simwarp.listings.conv_operands import ConvLayerParam, ConvOperand, conv_operands, packed_channels
from simwarp.listings.fused import Fused, fuse
from simwarp.listings.wgmma import (
    CHUNK,
    COLUMN,
    COLUMNS,
    PRODUCT_BYTES,
    ROW,
    ROWS,
    SPAN,
    Bytes,
    multiply_add,
    operand_of,
    swizzled_stage,
    tile_words,
)

Integers = npt.NDArray[np.int64]

_BEYOND = 2**40
"""No count is as large."""


class Windows(NamedTuple):
    """The window of each pixel of the output, (pixels, taps)."""

    # the pixel that a tap reads, counted row by row over all images; arbitrary outside the image
    pixel: Integers
    inside: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, p: ConvLayerParam) -> Windows:
        """The input pixels that each output pixel of a convolution reads."""
        image, row, column, r, s = np.ogrid[
            : p.batch, : p.out_height, : p.out_width, : p.filter_height, : p.filter_width
        ]
        h = row * p.stride_vertical - p.pad_h + r * p.dilation_vertical
        v = column * p.stride_horizontal - p.pad_w + s * p.dilation_horizontal
        inside = (h >= 0) & (h < p.in_height) & (v >= 0) & (v < p.in_width) & (image >= 0)
        pixel = np.where(inside, (image * p.in_height + h) * p.in_width + v, 0)
        taps = p.filter_height * p.filter_width
        return cls(pixel.reshape(-1, taps), inside.reshape(-1, taps))


def wgmma_bconv(x: ConvOperand, w: ConvOperand, **options: Unpack[ConvOptions]) -> Any:
    """The ±1 cross-correlation of the signs of images and filters, on warpgroups.

    Parameters, returns and errors are those of `btc_bconv1`; bits are packed ``first="lsb"``.

    Examples
    --------
    >>> wgmma_bconv(np.ones((1, 3, 3, 5)), np.ones((3, 3, 5, 1)))[0, :, :, 0]  # 4, 6 or 9 taps, 5 channels
    array([[20, 30, 20],
           [30, 45, 30],
           [20, 30, 20]], dtype=int32)
    """
    geometry = options.get("stride", 1), options.get("padding", "SAME"), options.get("dilation", 1)
    x, w = most_significant_first(x), most_significant_first(w)
    ready = conv_operands(x, w, *geometry, 32)
    p, words = ready.p, ready.input.numpy()
    images = _chunks(brev(words if isinstance(x, PackedTensor) else packed_channels(words)))
    filters = _chunks(brev(np.moveaxis(ready.bitfilter.numpy(), 3, 0)))
    windows = Windows.of(p)
    addends = _addends(images, filters, windows, p.in_channels)
    lines = filters.reshape(p.out_channels, -1, CHUNK)
    fused = fuse(options.get("thresholds"), options.get("flip"), p.out_channels)
    rows, columns = (_rounded(n, tile) for n, tile in zip(addends.shape, (ROWS, COLUMNS), strict=True))
    limits, flip_words = _rules(fused, addends, (rows, columns))
    counts, made = np.zeros((rows, columns), np.int32), np.zeros((columns // 32, rows), np.uint32)
    for row in range(0, rows, ROWS):
        for column in range(0, columns, COLUMNS):
            sums = _tile(images, windows, row, lines[column : column + COLUMNS])
            if fused is None:
                counts[row + ROW, column + COLUMN] = sums
                continue
            first = column // 32
            words_of_tile, places = tile_words(
                sums - limits[row + ROW, column + COLUMN], flip_words[first : first + COLUMNS // 32]
            )
            made[first + LANE % 4, row + places] = words_of_tile
    shape = p.batch, p.out_height, p.out_width
    if fused is None:
        dots = addends + 4 * counts[: len(addends), : p.out_channels].astype(np.int64)
        return dots.astype(np.int32).reshape(*shape, -1)
    bits = np.ascontiguousarray(made[: -(-p.out_channels // 32), : len(addends)].T)
    return PackedTensor(bits.reshape(*shape, -1), (*shape, p.out_channels), "NHWC", 32, "lsb")


def _addends(images: Bytes, filters: Bytes, windows: Windows, channels: int) -> Integers:
    """The terms of each dot product besides the common bits' count, (pixels, filters)."""
    ones = np.where(windows.inside, _ones(images)[windows.pixel], 0).sum(axis=1)
    # each kind of window has the same taps inside the image
    kinds, kind = np.unique(windows.inside, axis=0, return_inverse=True)
    taps = kinds.astype(np.int64)
    of_kinds = (
        channels * taps.sum(axis=1)[:, np.newaxis] - 2 * taps @ _ones(filters).reshape(-1, taps.shape[1]).T
    )
    return of_kinds[kind.reshape(-1)] - 2 * ones[:, np.newaxis]


def _rules(
    fused: Fused | None, addends: Integers, shape: tuple[int, int]
) -> tuple[Integers, npt.NDArray[np.uint32]]:
    """The least count that reaches each threshold (unreachable past the edge), and the flips as words."""
    limits, flips = np.full(shape, _BEYOND), np.zeros(shape[1], np.uint8)
    if fused is not None:
        filters = addends.shape[1]
        reached = fused.thresholds.numpy().astype(np.int64) - addends
        limits[: len(addends), :filters] = reached + 3 >> 2
        flips[:filters] = fused.flip.numpy()
    return limits, np.packbits(flips, bitorder="little").view(np.uint32)


def gathered(images: Bytes, windows: Windows, row: int, first: int) -> Bytes:
    """One step of a tile's windows, from chunk ``first`` on, as (ROWS, SPAN) bytes; 0 outside."""
    pieces, taps = images.shape[1], windows.inside.shape[1]
    tap, piece = np.divmod(first + np.arange(SPAN // CHUNK), pieces)
    pixel = row + np.arange(ROWS)[:, np.newaxis]
    real = (tap < taps) & (pixel < len(windows.inside))
    at = np.minimum(pixel, len(windows.inside) - 1), np.minimum(tap, taps - 1)
    chunks = images[windows.pixel[at], piece]
    return np.where((real & windows.inside[at])[..., np.newaxis], chunks, np.uint8(0)).reshape(ROWS, SPAN)


def _tile(images: Bytes, windows: Windows, row: int, lines: Bytes) -> npt.NDArray[np.int32]:
    """The int32 sums of one tile of the output, in the order of the warpgroup's accumulator registers."""
    sums = np.zeros(ROW.shape, np.int32)
    for first in range(0, lines.shape[1], SPAN // CHUNK):
        boxes = np.zeros((COLUMNS, SPAN // CHUNK, CHUNK), np.uint8)  # bytes outside the image stay 0
        part = lines[:, first : first + SPAN // CHUNK]
        boxes[: len(part), : part.shape[1]] = part
        a = swizzled_stage(gathered(images, windows, row, first))
        b = swizzled_stage(boxes.reshape(COLUMNS, SPAN))
        for product in range(SPAN // PRODUCT_BYTES):
            multiply_add(sums, operand_of(a, product), operand_of(b, product))
    return sums


def _chunks(words: npt.NDArray[np.uint32]) -> Bytes:
    """Words of channels (last axis) as chunks of 128 channels: (all other axes, pieces, CHUNK).

    >>> _chunks(np.arange(10, dtype=np.uint32).reshape(2, 1, 1, 5)).shape
    (2, 2, 16)
    """
    whole = np.pad(words, [(0, 0)] * (words.ndim - 1) + [(0, -words.shape[-1] % 4)])
    return np.ascontiguousarray(whole).view(np.uint8).reshape(-1, whole.shape[-1] // 4, CHUNK)


def _ones(chunks: Bytes) -> Integers:
    """The number of one bits of each pixel, or of each tap of each filter."""
    return popc(chunks.view(np.uint32)).sum(axis=(1, 2), dtype=np.int64)


def _rounded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
