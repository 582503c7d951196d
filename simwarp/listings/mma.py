"""The ±1 product by ``mma.sync`` m16n8k256, the method of ``gpu.bmm(scheme="skinny")`` and ``"mma"``.

A warp multiplies 16 lines by 8, 256 bits of k. The listings show which words the lanes of a warp hold, and
two ways to bring them there.

>>> ROW[:, 5].tolist(), COLUMN[:, 5].tolist()  # of the four sums of lane 5
([1, 1, 9, 9], [2, 3, 2, 3])

Source: PTX ISA 9.0, section 9.7.14.5; docs/gpu.md.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError
from reference.types import PackedBits
from simwarp.lanes import LANE, WARP_SIZE, popc
from simwarp.listings.fused import ProductOptions, fuse
from simwarp.listings.operands import Operand
from simwarp.listings.wgmma import line_words

ROWS, COLUMNS, PIECE = 16, 8, 4
"""Lines of A and of B in a product; words of a piece, 128 bits of k: a product takes two of them."""
WARPS = 4
"""Warps of a block of the skinny product, which share k."""
BLOCK, STEP = (128, 128), 8
"""The tile of a block of the other product; pieces of a line in a stage."""

Words = npt.NDArray[np.uint32]
Sums = npt.NDArray[np.int32]

_LANE = LANE.astype(np.int64)
_REGISTER = np.arange(4)[:, np.newaxis]
ROW = _LANE // 4 + 8 * (_REGISTER // 2)
"""The row of the product in each of the four sums of each lane: (4, 32)."""
COLUMN = 2 * (_LANE % 4) + _REGISTER % 2
"""And the column."""


def multiply_add(sums: Sums, a: Words, b: Words) -> None:
    """``mma.sync.m16n8k256.and.popc``: add popc(row & column) to each register's sum.

    Registers are axis -2, lanes axis -1: four sums, four words of A, two of B. Register i of A is word
    ``l % 4`` of line ``l // 4 + 8 * (i % 2)``, of piece ``i // 2``; that of B of line ``l // 4``, of piece i.
    """
    lines_a = np.moveaxis(a.reshape(*a.shape[:-2], 2, 2, 8, PIECE), -4, -2).reshape(*a.shape[:-2], ROWS, -1)
    lines_b = np.moveaxis(b.reshape(*b.shape[:-2], 2, 8, PIECE), -3, -2).reshape(*b.shape[:-2], COLUMNS, -1)
    counts = popc(lines_a[..., :, np.newaxis, :] & lines_b[..., np.newaxis, :, :]).sum(axis=-1)
    sums += counts[..., ROW, COLUMN].astype(np.int32)


# --------------------------------------------------------------------------------------------------
# Few lines of one operand
# --------------------------------------------------------------------------------------------------


def skinny_bmm(a: Operand, b: Operand, **options: Unpack[ProductOptions]) -> Any:
    """The ±1 product op(a) · op(b) if op(a) has at most 16 rows, or op(b) at most 16 columns.

    A block takes 16 of the many lines, and all of the few. Its warps share k; their sums meet in shared
    memory. Parameters, returns and errors are those of `btc_bmm1`; bits are packed ``first="lsb"``.

    Raises
    ------
    SchemeError
        For more than 16 rows and more than 16 columns.

    Notes
    -----
    A lane brings a piece of its lines, where the product wants a word: the four lanes of a line have four
    pieces that follow one another, and the product's two pieces are made of two words of each. So k comes in
    another order, the same for both operands, and each lane reads 16 bytes at a time.

    Examples
    --------
    >>> skinny_bmm([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    """
    rows, columns, k = line_words(a, b, options)
    m, n = len(rows), len(columns)
    if min(m, n) > ROWS:
        raise SchemeError(
            f"a product of {m} rows and {n} columns\none of them must be at most {ROWS}\ncall mma_bmm"
        )
    swapped = m > ROWS
    many, few = (rows, columns) if swapped else (columns, rows)
    width = COLUMNS if len(few) <= COLUMNS else 2 * COLUMNS
    counts = _shared_sums(many, few, width)  # (blocks, 16, width)
    ones = popc(many).sum(axis=1)[_clamped(counts.shape[0] * ROWS, len(many))].reshape(-1, ROWS, 1)
    ones = ones + popc(few).sum(axis=1)[_clamped(width, len(few))]
    dots = k + 4 * counts - 2 * ones.astype(np.int64)
    c = dots.reshape(-1, width)[: len(many), : len(few)].astype(np.int32)
    return _answer(c if swapped else np.ascontiguousarray(c.T), options)


def _shared_sums(many: Words, few: Words, width: int) -> npt.NDArray[np.int64]:
    """The sums of all blocks: each warp's products, then the warps' sums from shared memory."""
    blocks, pieces = -(-len(many) // ROWS), -(-many.shape[1] // PIECE)
    first_line = ROWS * np.arange(blocks)[:, np.newaxis] + _LANE // 4
    shared = np.zeros((WARPS, width // COLUMNS, blocks, 4, WARP_SIZE), np.int32)
    for warp in range(WARPS):
        for first in range(4 * warp, pieces, 4 * WARPS):
            piece = first + _LANE % 4
            upper, lower = (_pieces(many, first_line + down, piece) for down in (0, 8))
            for tile, sums in enumerate(shared[warp]):
                column = _pieces(few, COLUMNS * tile + _LANE // 4, piece)
                for x, y in ((0, 1), (2, 3)):
                    words = [upper[..., x], lower[..., x], upper[..., y], lower[..., y]]
                    multiply_add(sums, np.stack(words, axis=-2), np.stack([column[..., x], column[..., y]]))
    in_registers = shared.sum(axis=0, dtype=np.int64)
    tiles = np.zeros((blocks, ROWS, width), np.int64)
    for tile, sums in enumerate(in_registers):
        tiles[:, ROW, COLUMNS * tile + COLUMN] = sums
    return tiles


def _pieces(lines: Words, line: npt.NDArray[np.int64], piece: npt.NDArray[np.int64]) -> Words:
    """A 16-byte piece of lines in each lane: the last line's past the edge, and zeros past k."""
    word = PIECE * piece[:, np.newaxis] + np.arange(PIECE)
    rows = np.minimum(line, len(lines) - 1)[..., np.newaxis]
    return np.where(word < lines.shape[1], lines[rows, np.minimum(word, lines.shape[1] - 1)], np.uint32(0))


def _clamped(count: int, lines: int) -> npt.NDArray[np.int64]:
    return np.minimum(np.arange(count), lines - 1)


def _answer(dots: Sums, options: ProductOptions) -> Any:
    """The dot products; with thresholds their bits, 32 columns packed into a word."""
    m, n = dots.shape
    fused = fuse(options.get("thresholds"), options.get("flip"), n)
    if fused is None:
        return dots
    bits = np.pad((dots >= fused.thresholds.numpy()) ^ fused.flip.numpy(), ((0, 0), (0, -n % WARP_SIZE)))
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
    return PackedBits(np.ascontiguousarray(words.T), (m, n), "column", 32, "lsb")


# --------------------------------------------------------------------------------------------------
# Many lines of both
# --------------------------------------------------------------------------------------------------


def mma_bmm(a: Operand, b: Operand, **options: Unpack[ProductOptions]) -> Any:
    """The ±1 product op(a) · op(b), a block's lines through a ring of stages in shared memory.

    Parameters, returns and errors are those of `btc_bmm1`; bits are packed ``first="lsb"``.

    Notes
    -----
    A stage holds 8 pieces of each line of the block. Piece p of line r lies at place ``p ^ r % 8``:
    ``ldmatrix`` takes one piece of eight lines at once, and so finds them in different banks. Words past
    an edge, or past k, are zeros.

    Examples
    --------
    >>> mma_bmm([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    >>> mma_bmm([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]], thresholds=[-1]).words
    array([[1]], dtype=uint32)
    """
    rows, columns, k = line_words(a, b, options)
    m, n = len(rows), len(columns)
    ones = popc(rows).sum(axis=1)[:, np.newaxis] + popc(columns).sum(axis=1)
    counts = np.zeros((-(-m // BLOCK[0]) * BLOCK[0], -(-n // BLOCK[1]) * BLOCK[1]), np.int64)
    for row in range(0, m, BLOCK[0]):
        for column in range(0, n, BLOCK[1]):
            tile = counts[row : row + BLOCK[0], column : column + BLOCK[1]]
            for first in range(0, -(-rows.shape[1] // PIECE), STEP):
                stage_a = stage_of(rows, row, BLOCK[0], first)
                stage_b = stage_of(columns, column, BLOCK[1], first)
                _multiply_stage(tile, stage_a, stage_b)
    dots = (k + 4 * counts[:m, :n] - 2 * ones.astype(np.int64)).astype(np.int32)
    return _answer(dots, options)


def stage_of(lines: Words, first_line: int, count: int, first_piece: int) -> Words:
    """A stage in shared memory, (lines, pieces, words): piece p of line r at index p ^ r % 8."""
    part = lines[first_line : first_line + count, PIECE * first_piece : PIECE * (first_piece + STEP)]
    filled = np.zeros((count, STEP, PIECE), np.uint32)
    filled.reshape(count, -1)[: len(part), : part.shape[1]] = part
    line, piece = np.ogrid[:count, :STEP]
    placed = np.empty_like(filled)
    placed[line, piece ^ line % 8] = filled
    return placed


def fragment(stage: Words, lines: npt.NDArray[np.int64], piece: int) -> Words:
    """``ldmatrix`` of one piece of eight lines per tile: lane l gets word l % 4 of line l // 4, (…, 32)."""
    line = lines[..., np.newaxis] + _LANE // 4
    return stage[line, piece ^ line % 8, _LANE % 4]


def _multiply_stage(tile: npt.NDArray[np.int64], stage_a: Words, stage_b: Words) -> None:
    """Add the products of a stage, for all warps of the block at once."""
    # the first row of each tile; a warp has four of the tiles
    down = np.arange(0, BLOCK[0], ROWS)[:, np.newaxis]
    across = np.arange(0, BLOCK[1], COLUMNS)
    sums = np.zeros((down.size, across.size, 4, WARP_SIZE), np.int32)
    for piece in range(0, STEP, 2):
        a = [fragment(stage_a, down + 8 * (i % 2), piece + i // 2) for i in range(4)]
        b = [fragment(stage_b, across, piece + i) for i in range(2)]
        multiply_add(sums, np.stack(a, axis=-2), np.stack(b, axis=-2))
    tile[(down[..., np.newaxis, np.newaxis] + ROW), across[:, np.newaxis, np.newaxis] + COLUMN] += sums
