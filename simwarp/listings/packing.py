"""Listings 1 and 2: a warp binarizes a 32 × 32 tile and packs it into 32 words, one per lane.

Listing 1 turns a column of bits, one per lane, into a word by a vote; listing 2 lets every lane
collect its own word, bit by bit. In both the first element ends up in the most significant bit.

>>> A = GlobalArray.of("A", np.array([[1.0, -1.0, 1.0, -1.0]]))
>>> column, row = GlobalArray("column", (1, 1), np.uint32), GlobalArray("row", (1, 4), np.uint32)
>>> launch(PackTo32Col, (1, 1), 32, A, column, 1, 4)
>>> launch(PackTo32Row, (1, 1), 32, A, row, 1, 4)
>>> hex(column.numpy()[0, 0]), [hex(word) for word in row.numpy()[0]]
('0xa0000000', ['0x80000000', '0x0', '0x80000000', '0x0'])

Source: BSTC (SC'19), section 5.1, listings 1 and 2, figure 4.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, NotANumberError, ShapeError
from reference.types import Layout, PackedBits, Word
from simwarp.lanes import WARP_SIZE, brev
from simwarp.warp import GlobalArray, Warp, launch

Matrix: TypeAlias = npt.NDArray[Any]

_REAL = (np.float64, np.float32, np.float16, np.int8)


def PackTo32Col(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Listing 1, binarize into column-major format: lane i ends up with row i's word of the tile.

    Parameters
    ----------
    A : (A_height, A_width), real
    B : (ceil(A_width / 32), A_height), uint32

    Notes
    -----
    Other than in print: ``__ballot`` takes a member mask today (``__ballot_sync``), and loads and the
    store are guarded, so that the sides need not be multiples of 32; bits past the edge are 0. There
    is no rule for a NaN, which would become 0: `pack32_column` refuses it.

    Grid: (ceil(A_height / 32), ceil(A_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    row, column = bx * WARP_SIZE + laneid, by * WARP_SIZE + laneid
    Bval = np.zeros(WARP_SIZE, np.uint32)
    for i in range(WARP_SIZE):
        with warp.where((bx * WARP_SIZE + i < A_height) & (column < A_width)):
            f0 = warp.load(A, (bx * WARP_SIZE + i) * A_width + column)
            positive = warp.select(f0 >= 0, False)
        r0 = brev(warp.ballot(positive))  # rotate anticlockwise
        with warp.where(laneid == i):
            Bval = warp.select(r0, Bval)
    with warp.where(row < A_height):
        warp.store(B, by * A_height + row, Bval)


def PackTo32Row(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Listing 2, binarize into row-major format: lane i ends up with column i's word of the tile.

    Parameters
    ----------
    A : (A_height, A_width), real
    B : (ceil(A_height / 32), A_width), uint32

    Notes
    -----
    Other than in print: the store goes to ``bx*A_width + by*WARP_SIZE + laneid``, products where the
    text we have shows sums, and it and the loads are guarded as in `PackTo32Col`. No rule for a NaN
    either.

    Grid: (ceil(A_height / 32), ceil(A_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    column = by * WARP_SIZE + laneid
    Bval = np.zeros(WARP_SIZE, np.uint32)
    for i in range(WARP_SIZE):
        with warp.where((bx * WARP_SIZE + i < A_height) & (column < A_width)):
            f0 = warp.load(A, (bx * WARP_SIZE + i) * A_width + column)
            positive = warp.select(f0 >= 0, False)
        Bval = (Bval << 1) | positive
    with warp.where(column < A_width):
        warp.store(B, bx * A_width + column, Bval)


def pack32_column(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 32 elements of a row per word, by listing 1 (BSTC column-major-32).

    ``words[c // 32, r]`` holds the sign of element (r, c) in bit ``31 - c % 32``: 1 where it is >= 0
    (-0.0 too), else 0. Bits past the edge are 0. Nothing is cast before the comparison.

    Parameters
    ----------
    matrix : array_like of float64, float32, float16 or int8, (rows, columns)

    Returns
    -------
    PackedBits
        ``words`` uint32, (ceil(columns / 32), rows); ``layout="column"``, ``first="msb"``.

    Raises
    ------
    ShapeError
        If it is not a matrix or has a dimension of 0.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; names the first.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1, listing 1 and figure 4; equation 1.

    Examples
    --------
    >>> packed = pack32_column([[1.0, -1.0, -0.0, -2.0], [-1.0, -1.0, -1.0, 3.0]])
    >>> [hex(word) for word in packed.words[0]]
    ['0xa0000000', '0x10000000']
    """
    return pack32(real_matrix(matrix, "matrix"), "matrix", "column")


def pack32_row(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 32 elements of a column per word, by listing 2 (BSTC row-major-32).

    ``words[r // 32, c]`` holds the sign of element (r, c) in bit ``31 - r % 32``. Parameters, errors
    and the rest as in `pack32_column`.

    Parameters
    ----------
    matrix : array_like of float64, float32, float16 or int8, (rows, columns)

    Returns
    -------
    PackedBits
        ``words`` uint32, (ceil(rows / 32), columns); ``layout="row"``, ``first="msb"``.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError
        As `pack32_column`.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1, listing 2 and figure 4; equation 1.

    Examples
    --------
    >>> packed = pack32_row([[1.0, -1.0, -0.0, -2.0], [-1.0, -1.0, -1.0, 3.0]])
    >>> [hex(word) for word in packed.words[0]]
    ['0x80000000', '0x0', '0x80000000', '0x40000000']
    """
    return pack32(real_matrix(matrix, "matrix"), "matrix", "row")


def real_matrix(x: npt.ArrayLike, name: str) -> Matrix:
    """``x`` as a matrix of an accepted element type, without a cast; errors call it ``name``."""
    try:
        matrix = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"{name} is not a matrix: {error}; give every row the same length") from error
    if matrix.dtype.type not in _REAL:
        raise DtypeError(
            f"{name} has elements of {matrix.dtype}: give float64, float32, float16 or int8, "
            "whose signs are what is packed"
        )
    if matrix.ndim != 2 or matrix.size == 0:
        raise ShapeError(f"{name} has shape {matrix.shape}: give (rows, columns), each at least 1")
    return matrix


def pack32(matrix: Matrix, name: str, layout: Layout) -> PackedBits:
    """Launch listing 1 (column) or 2 (row) on what `real_matrix` let through."""
    kernel = PackTo32Col if layout == "column" else PackTo32Row
    return launch_packing(kernel, (WARP_SIZE, WARP_SIZE), matrix, name, layout, 32)


def launch_packing(
    kernel: Callable[..., None], tile: tuple[int, int], matrix: Matrix, name: str, layout: Layout, word: Word
) -> PackedBits:
    """Launch a packing kernel with a warp per ``tile`` of (rows, columns) of the matrix."""
    missing = np.isnan(matrix)
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise NotANumberError(
            f"{name}[{row}, {column}] is NaN, which is neither >= 0 nor < 0: replace it first, "
            f"for instance with np.nan_to_num({name})"
        )
    height, width = matrix.shape
    grid = -(-height // tile[0]), -(-width // tile[1])
    shape = (-(-width // word), height) if layout == "column" else (-(-height // word), width)
    A = GlobalArray.of("A", matrix, read_only=True)
    B = GlobalArray("B", shape, np.uint32 if word == 32 else np.uint64)
    launch(kernel, grid, WARP_SIZE, A, B, height, width)
    return PackedBits(B.numpy(), (height, width), layout, word, first="msb")
