"""The ±1 product on Hopper's warpgroups, tile by tile, the method of `gpu.bmm(scheme="wgmma")`.

A warpgroup multiplies 64 lines of A by 128 of B, 1024 bits of k in a step. The listing shows where bits lie:
the swizzled stage in shared memory, the product's operands in it, the accumulators in registers, and how the
lanes of a quad make words of the sums' bits.

>>> stage = swizzled_stage(np.arange(8 * SPAN, dtype=np.uint16).reshape(8, SPAN) // CHUNK)
>>> stage[1, ::CHUNK].tolist()  # chunk 8 of the tile is the second of row 1
[9, 8, 11, 10, 13, 12, 15, 14]

Source: PTX ISA 9.0, sections 5.5.7 and 9.7.15.5.1; docs/gpu.md.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from reference.types import PackedBits
from simwarp.lanes import LANE, WARP_SIZE, brev, popc, shfl
from simwarp.listings.btc.tiles import most_significant_first
from simwarp.listings.fused import ProductOptions, fuse
from simwarp.listings.operands import Operand, row_by_row

ROWS, COLUMNS, SPAN, CHUNK = 64, 128, 128, 16
"""Lines of A and of B in a tile; bytes of a line in a step, and of what the swizzle moves at once."""
PRODUCT_BYTES = 32
"""Bytes of a line in one product: k = 256."""

Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int32]

_LANE = LANE.astype(np.int64)
_WARP = np.arange(ROWS // 16)[:, np.newaxis, np.newaxis]
_REGISTER = np.arange(COLUMNS // 2)[:, np.newaxis]
ROW = 16 * _WARP + _LANE // 4 + 8 * (_REGISTER // 2 % 2)
"""The row of the tile in each register of each lane of each warp: (4, 64, 32)."""
COLUMN = 8 * (_REGISTER // 4) + 2 * (_LANE % 4) + _REGISTER % 2 + 0 * _WARP
"""And the column."""


def swizzled_stage(lines: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One step of a tile's lines, (lines, SPAN), in shared memory: chunk c of row r at index c ^ r % 8."""
    row, chunk = np.ogrid[: len(lines), : SPAN // CHUNK]
    placed = np.empty_like(lines).reshape(len(lines), -1, CHUNK)
    placed[row, chunk ^ row % 8] = lines.reshape(placed.shape)
    return placed.reshape(lines.shape)


def operand_of(stage: npt.NDArray[Any], product: int) -> npt.NDArray[Any]:
    """The bytes of a product's operand in a stage, (lines, PRODUCT_BYTES): two chunks of each line."""
    row, chunk = np.ogrid[: len(stage), : PRODUCT_BYTES // CHUNK]
    chunks = stage.reshape(len(stage), -1, CHUNK)
    return chunks[row, (chunk + product * PRODUCT_BYTES // CHUNK) ^ row % 8].reshape(len(stage), -1)


def multiply_add(sums: Sums, a: Bytes, b: Bytes) -> None:
    """``wgmma.mma_async.m64n128k256``: add popc(a & b) of each register's row and column."""
    wide_a, wide_b = a.view(np.uint64), b.view(np.uint64)
    counts = np.bitwise_count(wide_a[:, np.newaxis] & wide_b).sum(axis=2, dtype=np.int32)
    sums += counts[ROW, COLUMN]


def words_of_quad(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Exchange four words of partial bits, (4, …, 32), in quads of lanes: lane q gets all bits of word q."""
    low, up = (exchanged(words[i], words[i + 1], 1) for i in (0, 2))
    return exchanged(low, up, 2)


def exchanged(low: npt.NDArray[Any], up: npt.NDArray[Any], bit: int) -> npt.NDArray[np.uint32]:
    """Exchange words between lanes whose numbers differ in ``bit``: that bit decides what a lane keeps."""
    upper = np.bitwise_and(LANE, bit) > 0
    kept: npt.NDArray[np.uint32] = np.where(upper, up, low)
    given: npt.NDArray[np.uint32] = np.where(upper, low, up)
    return kept | shfl(given, bit, mode="bfly").value


def tile_words(
    margins: Sums, flips: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The words that lanes store, (2, 4, 32): for a lane's row, and the row 8 below; and these rows.

    A bit is 1 where its margin is not negative; ``flips`` has the inverted columns of each word.
    """
    ones = (margins >= 0).astype(np.uint32).reshape(len(_WARP), COLUMNS // 8, 2, 2, WARP_SIZE)
    pair = 2 * (LANE % 4)
    made = list[npt.NDArray[np.uint32]]()
    for half in range(2):
        words = np.zeros((COLUMNS // 32, len(_WARP), WARP_SIZE), np.uint32)
        for j in range(COLUMNS // 8):
            for i in range(2):
                words[j // 4] |= ones[:, j, half, i] << np.uint32(j % 4 * 8 + i) << pair
        made.append(words_of_quad(words) ^ flips[LANE % 4])
    rows = np.stack([16 * _WARP[:, 0] + _LANE // 4 + 8 * half for half in range(2)])
    return np.stack(made), rows


def wgmma_bmm(a: Operand, b: Operand, **options: Unpack[ProductOptions]) -> Any:
    """The ±1 product op(a) · op(b) of the signs of two matrices, on warpgroups.

    Parameters, returns and errors are those of `btc_bmm1`; bits are packed ``first="lsb"``.

    Notes
    -----
    ``dot = k - 2 ones(row) - 2 ones(column) + 4 popc(row & column)``. Against a threshold t the sums need no
    product: with u the least integer that is not below (t - k) / 2, dot >= t where
    ``2 popc(row & column) - ones(row) - ones(column) >= u``.

    Examples
    --------
    >>> wgmma_bmm([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    >>> wgmma_bmm([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]], thresholds=[-1]).words
    array([[1]], dtype=uint32)
    """
    rows, columns, k = line_words(a, b, options)
    m, n = len(rows), len(columns)
    rows, columns = _lines(rows), _lines(columns)
    of_rows, of_columns = (popc(x.view(np.uint32)).sum(axis=1).astype(np.int32) for x in (rows, columns))
    fused = fuse(options.get("thresholds"), options.get("flip"), n)
    c = np.zeros((len(rows), len(columns)), np.int32)
    words = np.zeros((len(columns) // 32, len(rows)), np.uint32)
    limits = np.full(len(columns), k + 1, np.int64)
    flips = np.zeros(len(columns), np.uint8)
    if fused is not None:
        reached = np.clip(fused.thresholds.numpy().astype(np.int64), -k, k + 1)
        limits[:n] = (reached - k + 1 >> 1) + of_columns[:n]
        flips[:n] = fused.flip.numpy()
    flip_words = np.packbits(flips, bitorder="little").view(np.uint32)
    for row in range(0, len(rows), ROWS):
        for column in range(0, len(columns), COLUMNS):
            sums = _tile(rows[row : row + ROWS], columns[column : column + COLUMNS])
            of_row = of_rows[row + ROW]
            if fused is None:
                c[row + ROW, column + COLUMN] = k - 2 * of_row - 2 * of_columns[column + COLUMN] + 4 * sums
                continue
            margins = 2 * sums - of_row - limits[column + COLUMN]
            first = column // 32
            made, places = tile_words(margins, flip_words[first : first + COLUMNS // 32])
            words[first + LANE % 4, row + places] = made
    if fused is None:
        return c[:m, :n].copy()
    return PackedBits(words[: -(-n // 32), :m].copy(), (m, n), "column", 32, "lsb")


def line_words(
    a: Operand, b: Operand, options: ProductOptions
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], int]:
    """The rows of op(a) and the columns of op(b), a word for 32 bits of k, the first bit lowest; and k."""
    transposes = options.get("transpose_a", False), options.get("transpose_b", False)
    ready = row_by_row(most_significant_first(a), most_significant_first(b), *transposes, 32)
    return brev(ready.A.numpy().T), brev(ready.B.numpy().T), ready.k


def _lines(words: npt.NDArray[np.uint32]) -> Bytes:
    """Lines of words as bytes, padded with zeros to whole tiles and steps, as a copy fills them."""
    around = (0, -len(words) % COLUMNS), (0, -words.shape[1] % (SPAN // 4))
    return np.ascontiguousarray(np.pad(words, around)).view(np.uint8)


def _tile(rows: Bytes, columns: Bytes) -> Sums:
    """The sums of a tile in registers: every step through a swizzled stage, in four products."""
    sums = np.zeros(ROW.shape, np.int32)
    for at in range(0, rows.shape[1], SPAN):
        a, b = (swizzled_stage(np.ascontiguousarray(x[:, at : at + SPAN])) for x in (rows, columns))
        for product in range(SPAN // PRODUCT_BYTES):
            multiply_add(sums, operand_of(a, product), operand_of(b, product))
    return sums
