"""Packing with 64-bit words: a warp binarizes 64 elements of 32 lines into 32 words, one per lane.

By column the vote is taken twice and its two words become one; by row a lane collects 64 bits. In both
the first element ends up in the most significant bit.

>>> A = GlobalArray.of("A", np.array([[1.0, -1.0, 1.0, -1.0]]))
>>> column, row = GlobalArray("column", (1, 1), np.uint64), GlobalArray("row", (1, 4), np.uint64)
>>> from simwarp.warp import launch
>>> launch(PackTo64Col, (1, 1), 32, A, column, 1, 4)
>>> launch(PackTo64Row, (1, 1), 32, A, row, 1, 4)
>>> hex(column.numpy()[0, 0]), hex(row.numpy()[0, 2])
('0xa000000000000000', '0x8000000000000000')

Source: BSTC (SC'19), section 4 "Bit-Packing", section 5.1 ("The 64-bit versions are analogous"), figure 4.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.types import Layout, PackedBits
from simwarp.lanes import WARP_SIZE, brev
from simwarp.listings.packing import Matrix, launch_packing, real_matrix
from simwarp.warp import GlobalArray, Warp

WORD = 64


def mov_b64(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``mov.b64 d, {low, high}``: two 32-bit words as one of 64 bits (section 4's embedded PTX).

    Examples
    --------
    >>> hex(mov_b64(np.uint32(1), np.uint32(2)))
    '0x200000001'
    """
    return np.bitwise_or(low, np.left_shift(high, 32, dtype=np.uint64))


def PackTo64Col(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Binarize into column-major-64 format: lane i ends up with row i's word of a 32 × 64 tile.

    Parameters
    ----------
    A : (A_height, A_width), real
    B : (ceil(A_width / 64), A_height), uint64

    Notes
    -----
    Listing 1 with section 4's second vote: "low" is the vote on the first 32 columns, and reversing
    the whole puts them on top. Other than in print: as in `simwarp.listings.PackTo32Col`.

    Grid: (ceil(A_height / 32), ceil(A_width / 64)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    row, column = bx * WARP_SIZE + laneid, by * WORD + laneid
    Bval = np.zeros(WARP_SIZE, np.uint64)
    for i in range(WARP_SIZE):
        r = [np.zeros(WARP_SIZE, np.uint32)] * 2
        for half in (0, 1):
            at = column + half * WARP_SIZE
            with warp.where((bx * WARP_SIZE + i < A_height) & (at < A_width)):
                f0 = warp.load(A, (bx * WARP_SIZE + i) * A_width + at)
                positive = warp.select(f0 >= 0, False)
            r[half] = warp.ballot(positive)
        l0 = brev(mov_b64(r[0], r[1]))  # low, high
        with warp.where(laneid == i):
            Bval = warp.select(l0, Bval)
    with warp.where(row < A_height):
        warp.store(B, by * A_height + row, Bval)


def PackTo64Row(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Binarize into row-major-64 format: lane i ends up with column i's word of a 64 × 32 tile.

    Parameters
    ----------
    A : (A_height, A_width), real
    B : (ceil(A_height / 64), A_width), uint64

    Notes
    -----
    Listing 2 with 64 iterations. Other than in print: as in `simwarp.listings.PackTo32Row`.

    Grid: (ceil(A_height / 64), ceil(A_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    column = by * WARP_SIZE + laneid
    Bval = np.zeros(WARP_SIZE, np.uint64)
    for i in range(WORD):
        with warp.where((bx * WORD + i < A_height) & (column < A_width)):
            f0 = warp.load(A, (bx * WORD + i) * A_width + column)
            positive = warp.select(f0 >= 0, False)
        Bval = (Bval << 1) | positive
    with warp.where(column < A_width):
        warp.store(B, bx * A_width + column, Bval)


def pack64_column(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 64 elements of a row per word (BSTC column-major-64).

    ``words[c // 64, r]`` holds the sign of element (r, c) in bit ``63 - c % 64``: 1 where it is >= 0
    (-0.0 too), else 0. Bits past the edge are 0. Nothing is cast before the comparison.

    Parameters
    ----------
    matrix : array_like of float64, float32, float16 or int8, (rows, columns)

    Returns
    -------
    PackedBits
        ``words`` uint64, (ceil(columns / 64), rows); ``layout="column"``, ``first="msb"``.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError
        As `pack32_column`.

    Notes
    -----
    Source: BSTC (SC'19), section 4 "Bit-Packing" and figure 4; equation 1.

    Examples
    --------
    >>> hex(pack64_column([[1.0, -1.0, -0.0, -2.0]]).words[0, 0])
    '0xa000000000000000'
    """
    return pack64(real_matrix(matrix, "matrix"), "matrix", "column")


def pack64_row(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 64 elements of a column per word (BSTC row-major-64).

    ``words[r // 64, c]`` holds the sign of element (r, c) in bit ``63 - r % 64``. Parameters, errors
    and the rest as in `pack64_column`.

    Parameters
    ----------
    matrix : array_like of float64, float32, float16 or int8, (rows, columns)

    Returns
    -------
    PackedBits
        ``words`` uint64, (ceil(rows / 64), columns); ``layout="row"``, ``first="msb"``.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError
        As `pack32_column`.

    Notes
    -----
    Source: BSTC (SC'19), section 4 "Bit-Packing" and figure 4; equation 1.

    Examples
    --------
    >>> [hex(word) for word in pack64_row([[1.0, -1.0], [-2.0, 3.0]]).words[0]]
    ['0x8000000000000000', '0x4000000000000000']
    """
    return pack64(real_matrix(matrix, "matrix"), "matrix", "row")


def pack64(matrix: Matrix, name: str, layout: Layout) -> PackedBits:
    """Launch the kernel of a layout on what `real_matrix` let through."""
    if layout == "column":
        return launch_packing(PackTo64Col, (WARP_SIZE, WORD), matrix, name, layout, 64)
    return launch_packing(PackTo64Row, (WORD, WARP_SIZE), matrix, name, layout, 64)
