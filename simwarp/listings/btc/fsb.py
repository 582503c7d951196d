"""The fixed-stride-bit format: a bit matrix in tiles with one row stride for every matrix size.

A tile is BH rows of BW bits, 8 × 128 for the bit tensor core: the fragments of every matrix are loaded with
``ldm = 128``. Figure 14 of the paper shows 4 × 8 bits in tiles of 2 × 4, each bit as its number in the 1D
general format:

    ===========  ===========
    0  1  2  3    4  5  6  7
    8  9 10 11   12 13 14 15
    ===========  ===========

    ===========  ===========
    16 17 18 19  20 21 22 23
    24 25 26 27  28 29 30 31
    ===========  ===========

Source: BTC (TPDS), section 5.1, figure 14.

>>> address = fsb_address(*np.indices((4, 8)), (4, 8), (2, 4))
>>> np.argsort(address.ravel()).tolist()[:16]
[0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]
"""

# The sizes keep the paper's names.
# ruff: noqa: N803, N806

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, ShapeError
from reference.types import Layout
from simwarp.listings.checks import check_choice

Bits: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint32]
Whole: TypeAlias = Any
"""An int, or an array of integers."""

BH, BW = 8, 128
"""The tile of the bit tensor core: 8 rows of 128 bits."""
TILE = BH, BW
WORD = 32


def fsb_address(
    row: Whole, column: Whole, shape: tuple[int, int], tile: tuple[int, int] = TILE, order: Layout = "row"
) -> Whole:
    """The address of element (row, column) in FSB format, in bits from the start; row and column broadcast.

    With tiles of (BH, BW), ``tiles_down = ceil(H / BH)`` and ``tiles_across = ceil(W / BW)`` it is

        (row // BH * tiles_across + column // BW) * BH * BW + row % BH * BW + column % BW   order "row"
        (column // BW * tiles_down + row // BH) * BH * BW + column % BW * BH + row % BH     order "column"

    A matrix in column order equals its transpose in row order, with the tile transposed. A side below 1, or
    an element outside the matrix, raises ShapeError.

    Source: BTC (TPDS), section 5.1, figure 14, which writes widths first: its "4 × 2" is BH = 2, BW = 4.

    >>> fsb_address(1, 128, (8, 256)), fsb_address(128, 1, (256, 8), (128, 8), "column")
    (1152, 1152)
    """
    H, W, tile_height, tile_width = _sides(shape, tile)
    if np.any((row < 0) | (row >= H) | (column < 0) | (column >= W)):
        raise ShapeError(
            f"row {row}, column {column} is outside a matrix of shape {shape}\n"
            f"rows go from 0 to {H - 1}, columns from 0 to {W - 1}\ngive an element of the matrix"
        )
    check_choice("order", order, get_args(Layout))
    if order == "column":
        return _address(column, row, tile_width, tile_height, -(-H // tile_height))
    return _address(row, column, tile_height, tile_width, -(-W // tile_width))


def to_fsb(bits: npt.ArrayLike, tile: tuple[int, int] = TILE, order: Layout = "row") -> Words:
    """Convert a bit matrix (H, W), of bool or of 0 and 1 as uint8, to FSB format: `fsb_words` uint32 words.

    The element with `fsb_address` a is bit ``a % 32``, counted from the least significant, of word
    ``a // 32``. Both sides are padded to whole tiles with 0, as section 6.2 requires; section 5.1 pads only
    rows, to a multiple of BW bits. Anything but a bit matrix raises ShapeError or DtypeError.

    Source: BTC (TPDS), section 5.1, figure 14; section 6.2.

    >>> [hex(word) for word in to_fsb(np.eye(4, 8, dtype=np.uint8), (2, 4))]
    ['0x840021']
    >>> to_fsb(np.ones((9, 129), np.uint8)).shape
    (128,)
    """
    matrix: npt.NDArray[Any] = np.asarray(bits)
    if matrix.dtype.type not in (np.bool_, np.uint8):
        raise DtypeError(f"bits have elements of {matrix.dtype}\nonly 0 and 1 are bits\ngive bool or uint8")
    if matrix.ndim != 2 or np.any(matrix > 1):
        raise ShapeError(f"bits of shape {matrix.shape}\na matrix of 0 and 1 is needed\ngive (H, W), 0 or 1")
    H, W = matrix.shape
    flat = np.zeros(fsb_words((H, W), tile) * WORD, np.uint8)
    flat[fsb_address(*_grid(H, W), (H, W), tile, order)] = matrix
    return np.packbits(flat, bitorder="little").view("<u4").astype(np.uint32)


def from_fsb(
    words: Words, shape: tuple[int, int], tile: tuple[int, int] = TILE, order: Layout = "row"
) -> Bits:
    """Convert words in FSB format to a bit matrix, uint8 (H, W): the inverse of `to_fsb`.

    Words of another type or number than the matrix needs raise FormatError. Source: BTC (TPDS), section 5.1,
    figure 14.

    >>> from_fsb(to_fsb([[True, False, True]]), (1, 3)).tolist()
    [[1, 0, 1]]
    """
    expected = fsb_words(shape, tile)
    if words.dtype != np.uint32 or words.shape != (expected,):
        raise FormatError(
            f"words {words.dtype} {words.shape} for a bit matrix {shape} in tiles of {tile}\n"
            f"uint32 ({expected},) is needed\ncheck shape and tile, or convert the matrix with to_fsb"
        )
    flat = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")
    H, W = shape
    return flat[fsb_address(*_grid(H, W), shape, tile, order)]


def rows_to_fsb(rows: Words) -> Words:
    """Rearrange packed rows, uint32 (…, H, words), tile by tile: `to_fsb` for a batch of packed matrices.

    In the result, (…, H // 8, words // 4, 8, 4), word k of row h is at ``[h // 8, k // 4, h % 8, k % 4]``.
    Rows that are not whole tiles, 8 rows of 4 words, raise ShapeError. Source: BTC (TPDS), sections 5.1 and
    5.3.

    >>> rows_to_fsb(np.arange(64, dtype=np.uint32).reshape(8, 8))[0, :, 1].tolist()
    [[8, 9, 10, 11], [12, 13, 14, 15]]
    """
    *leading, H, words = rows.shape
    if H % BH or words % (BW // WORD):
        raise ShapeError(
            f"{H} rows of {words} words\na tile has {BH} rows of {BW // WORD} words\npad them to whole tiles"
        )
    tiles = rows.reshape(*leading, H // BH, BH, words * WORD // BW, BW // WORD)
    return np.ascontiguousarray(tiles.swapaxes(-3, -2))


def fsb_words(shape: tuple[int, int], tile: tuple[int, int] = TILE) -> int:
    """The 32-bit words, with padding, of a bit matrix in FSB format; ShapeError for a side below 1.

    >>> fsb_words((8, 128)), fsb_words((9, 128)), fsb_words((4, 8), (2, 4))
    (32, 64, 1)
    """
    H, W, tile_height, tile_width = _sides(shape, tile)
    elements = -(-H // tile_height) * -(-W // tile_width) * tile_height * tile_width
    return -(-elements // WORD)


def _address(major: Whole, minor: Whole, tile_major: int, tile_minor: int, tiles_along: int) -> Whole:
    """The address, in bits, of an element: ``minor`` is contiguous, with ``tiles_along`` tiles along it."""
    number = major // tile_major * tiles_along + minor // tile_minor
    return number * (tile_major * tile_minor) + major % tile_major * tile_minor + minor % tile_minor


def _grid(H: int, W: int) -> tuple[Whole, Whole]:
    return np.arange(H)[:, None], np.arange(W)


def _sides(shape: tuple[int, int], tile: tuple[int, int]) -> tuple[int, int, int, int]:
    if len(shape) != 2 or len(tile) != 2 or min(*shape, *tile) < 1:
        raise ShapeError(
            f"a bit matrix of shape {shape} in tiles of {tile}\n"
            "shape and tile must each be two sizes of at least 1\n"
            "give (H, W) and (BH, BW)"
        )
    return (*shape, *tile)
