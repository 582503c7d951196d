"""Listing 3 and the four approaches: bit-rows or bit-columns of A times bit-rows or bit-columns of B.

Row by row needs no vote (`simwarp.listings.bmm.BMM32_Arow_Brow`). A column must first be cropped from the
tile, one bit per lane, and rotated into a word by op (H).

>>> A = GlobalArray.of("A", np.array([[0xA0000000]], np.uint32))  # column-major: one row, + - + -
>>> B = GlobalArray.of("B", np.array([[1 << 31, 0, 0, 0]], np.uint32))  # and one column, + - - -
>>> C = GlobalArray("C", (1, 1), np.int32)
>>> from simwarp.warp import launch
>>> launch(BMM32_Arow_Bcol, (1, 1), 32, A, B, C, 1, 1, 1, 4)
>>> C.numpy().tolist()
[[2]]

Source: BSTC (SC'19), section 5.1, listings 3 and 4, "Relaxing Assumption-(a)" and "-(b)".
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

import itertools
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError, SchemeError
from reference.types import Layout, PackedBits
from simwarp.lanes import WARP_SIZE, brev, popc, xor
from simwarp.listings.bmm import BMM32_Arow_Brow
from simwarp.listings.checks import check_choice
from simwarp.listings.costs import counted
from simwarp.listings.fused import launched
from simwarp.listings.operands import Operand, operands
from simwarp.listings.packing import lines_of
from simwarp.warp import GlobalArray, Warp

Approach: TypeAlias = Literal["row-by-row", "row-by-column", "column-by-row", "column-by-column"]


def BMM32_Arow_Bcol(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_height: int,
    A_width: int,
    B_width: int,
    n: int,
    transpose: bool = False,
) -> None:
    """Listing 3: multiply each row of A with each column of B.

    Parameters
    ----------
    A : (A_width, A_height), uint32
        Word i of every row of op(A).
    B : (ceil(B_width / 32), n), uint32
        Word ``by`` of every row of op(B).
    C : (A_height, B_width), int32
    A_width : int
        In words, ceil(n / 32).
    n : int
        The length of the dot products, without padding.
    transpose : bool
        Transpose each tile of A first: see `BMM32_Acol_Bcol`, which has the layout of A.

    Notes
    -----
    The text of listing 3 that we have shows listing 4's body; line 10 is written from section 5.1's
    "fetching a bit-column of BSTC in register B, rotating anticlockwise by 90° via op-(H)". The rest is as
    in `simwarp.listings.BMM32_Arow_Brow`.

    Grid: (ceil(A_height / 32), ceil(B_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _z) = warp.lane, warp.block
    row = bx * WARP_SIZE + laneid
    Cm = [np.zeros(WARP_SIZE, np.uint32)] * WARP_SIZE
    for i in range(A_width):
        if transpose:
            r0 = transposed(warp, _fetch(warp, A, bx * n, i * WARP_SIZE + laneid, n))
        else:
            r0 = _fetch(warp, A, i * A_height, row, A_height)
        r1 = _fetch(warp, B, by * n, i * WARP_SIZE + laneid, n)
        for j in range(WARP_SIZE):
            r2 = crop(warp, r1, j)
            Cm[j] = Cm[j] + popc(xor(r0, r2))
    for j in range(min(WARP_SIZE, B_width - by * WARP_SIZE)):
        with warp.where(row < A_height):
            warp.store(C, row * B_width + by * WARP_SIZE + j, np.int32(n) - 2 * Cm[j].astype(np.int32))


def BMM32_Acol_Brow(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_height: int,
    A_width: int,
    B_width: int,
    n: int,
) -> None:
    """Multiply each column of A with each row of B: listing 3 with A and B exchanged.

    Parameters
    ----------
    A : (ceil(A_height / 32), n), uint32
        Word ``bx`` of every column of op(A).
    B : (A_width, B_width), uint32
        Word i of every column of op(B).
    C, A_height, A_width, B_width, n
        As of `BMM32_Arow_Bcol`.

    Notes
    -----
    The paper names this approach and prints no listing. Each lane has a row of B's tile and computes a
    column of C, so stores are consecutive.

    Grid: (ceil(A_height / 32), ceil(B_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _z) = warp.lane, warp.block
    column = by * WARP_SIZE + laneid
    Cm = [np.zeros(WARP_SIZE, np.uint32)] * WARP_SIZE
    for i in range(A_width):
        r0 = _fetch(warp, A, bx * n, i * WARP_SIZE + laneid, n)
        r1 = _fetch(warp, B, i * B_width, column, B_width)
        for j in range(WARP_SIZE):
            r2 = crop(warp, r0, j)
            Cm[j] = Cm[j] + popc(xor(r1, r2))
    for j in range(min(WARP_SIZE, A_height - bx * WARP_SIZE)):
        with warp.where(column < B_width):
            dot = np.int32(n) - 2 * Cm[j].astype(np.int32)
            warp.store(C, (bx * WARP_SIZE + j) * B_width + column, dot)


@lines_of(BMM32_Arow_Bcol)
def BMM32_Acol_Bcol(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_height: int,
    A_width: int,
    B_width: int,
    n: int,
) -> None:
    """Multiply each column of A with each column of B: transpose A's tile, then listing 3.

    Parameters
    ----------
    A : (ceil(A_height / 32), n), uint32
        As of `BMM32_Acol_Brow`.
    warp, B, C, A_height, A_width, B_width, n
        As of `BMM32_Arow_Bcol`.

    Notes
    -----
    The paper names this approach and prints no listing. It takes 64 votes per step, where the two
    approaches with one column take 32 and row by row none: 56K, 28K and 20K cycles in the paper.

    Grid: (ceil(A_height / 32), ceil(B_width / 32)), blocks of one warp.
    """
    BMM32_Arow_Bcol(warp, A, B, C, A_height, A_width, B_width, n, transpose=True)


def transposed(warp: Warp, r: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Transpose a tile: lane j receives bit-column j as a word."""
    result = np.zeros(WARP_SIZE, np.uint32)
    for j in range(WARP_SIZE):
        column = crop(warp, r, j)
        with warp.where(warp.lane == j):
            result = warp.select(column, result)
    return result


def crop(warp: Warp, r: npt.NDArray[np.uint32], j: int) -> npt.NDArray[np.uint32]:
    """Rotate bit-column j of a tile into a word (op H): j counts from the top bit, lane 0 has the top bit."""
    return brev(warp.ballot(((r >> (WARP_SIZE - 1 - j)) & 1) != 0))


def _fetch(
    warp: Warp, array: GlobalArray, start: int, position: npt.NDArray[np.uint32], extent: int
) -> npt.NDArray[np.uint32]:
    """Load the word at each lane's position in a line; 0 past the end of the line."""
    with warp.where(position < extent):
        return warp.select(warp.load(array, start + position), np.uint32(0))


KERNELS = {
    "row-by-row": BMM32_Arow_Brow,
    "row-by-column": BMM32_Arow_Bcol,
    "column-by-row": BMM32_Acol_Brow,
    "column-by-column": BMM32_Acol_Bcol,
}
"""From approach to kernel."""


def product_of(approach: Approach, layout_a: Layout, layout_b: Layout) -> tuple[bool, bool]:
    """Two booleans: an approach on these layouts multiplies Aᵀ instead of A, and Bᵀ instead of B.

    A lane's word is part of a row of the matrix in column-major format, and part of a column in row-major
    format. So the rows of A's tile are rows of A if A is column-major; if it is row-major, the columns of
    the tile are. For B, whose columns the product needs, it is the other way round.

    Parameters
    ----------
    approach : str
    layout_a, layout_b : "column" or "row"

    Raises
    ------
    SchemeError
        For an unknown approach or layout.

    Examples
    --------
    >>> product_of("row-by-column", "column", "column")
    (False, False)
    >>> product_of("row-by-row", "row", "row")
    (True, False)
    """
    check_choice("approach", approach, tuple(KERNELS))
    check_choice("layout_a", layout_a, get_args(Layout))
    check_choice("layout_b", layout_b, get_args(Layout))
    side_a, _, side_b = approach.partition("-by-")
    return side_a == layout_a, side_b != layout_b


def bmm(
    a: Operand,
    b: Operand,
    *,
    approach: Approach = "row-by-row",
    layout_a: Layout | None = None,
    layout_b: Layout | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> npt.NDArray[np.int32]:
    """The ±1 product op(a) · op(b) by one of the four approaches, on 32-bit words of either layout.

    An approach on a pair of layouts computes one product of the packed matrices:

    ================ ======== ======== =========
    approach         layout_a layout_b product
    ================ ======== ======== =========
    row-by-row       column   row      A · B (*)
    row-by-row       row      row      Aᵀ · B (*)
    row-by-row       column   column   A · Bᵀ (*)
    row-by-row       row      column   Aᵀ · Bᵀ (*)
    row-by-column    column   column   A · B
    row-by-column    row      column   Aᵀ · B
    row-by-column    column   row      A · Bᵀ
    row-by-column    row      row      Aᵀ · Bᵀ
    column-by-row    row      row      A · B
    column-by-row    column   row      Aᵀ · B
    column-by-row    row      column   A · Bᵀ
    column-by-row    column   column   Aᵀ · Bᵀ
    column-by-column row      column   A · B
    column-by-column column   column   Aᵀ · B
    column-by-column row      row      A · Bᵀ
    column-by-column column   row      Aᵀ · Bᵀ
    ================ ======== ======== =========

    (*) the paper's four optimal combinations: only row-by-row needs no vote.

    Parameters
    ----------
    a : array_like of float64, float32, float16 or int8, or PackedBits; (M, K), or (K, M) if transpose_a
        PackedBits have 32-bit words and ``first="msb"``.
    b : likewise, (K, N), or (N, K) if transpose_b
    approach : {"row-by-row", "row-by-column", "column-by-row", "column-by-column"}
        Which lines of A's bit tiles are multiplied with which lines of B's.
    layout_a, layout_b : {"column", "row"}, optional
        How to pack; default: the layout of `PackedBits`, else the one with which the approach computes
        op(a) · op(b).
    transpose_a, transpose_b : bool

    Returns
    -------
    array of int32, (M, N)

    Raises
    ------
    SchemeError
        If the approach computes another product on these layouts, or for an unknown approach or layout.
    ShapeError, DtypeError, NotANumberError, FormatError
        As `bmm32`; FormatError also for PackedBits in another layout than the requested one, or with
        ``first="lsb"`` (which row-by-row accepts if both operands have it).

    Notes
    -----
    Section 5.1 introduces listing 3 with "B is row-major" and listing 4 with "if B is column-major"; in
    the words of figure 4 and of the section's own four compositions it is the other way round.

    Source: BSTC (SC'19), section 5.1, listings 3 and 4, "Relaxing Assumption-(a)" and "-(b)".

    Examples
    --------
    >>> a, b = [[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]]
    >>> bmm(a, b, approach="column-by-row", layout_a="row", layout_b="row")
    array([[-1]], dtype=int32)
    """
    asked = bool(transpose_a), bool(transpose_b)
    serving = _serving(approach, asked)
    layouts = (
        layout_a or (a.layout if isinstance(a, PackedBits) else serving[0]),
        layout_b or (b.layout if isinstance(b, PackedBits) else serving[1]),
    )
    given = product_of(approach, *layouts)
    if given != asked:
        raise SchemeError(
            f"{approach} with layout_a={layouts[0]!r}, layout_b={layouts[1]!r} computes {_formula(given)}, "
            f"not {_formula(asked)}\n"
            f"it computes {_formula(asked)} with layout_a={serving[0]!r}, layout_b={serving[1]!r}\n"
            "use these layouts, or another approach"
        )
    ready = operands(a, b, layouts, asked, 32)
    if ready.first != "msb" and approach != "row-by-row":
        raise FormatError(
            f"a and b have first={ready.first!r}\n{approach} crops columns from the most significant bit on\n"
            "pack them with first='msb'"
        )
    return launched(KERNELS[approach], WARP_SIZE, ready, 32)


def approach_costs(approach: Approach, m: int, n: int, k: int) -> dict[str, int]:
    """Count the votes, shuffles, loads and stores of all warps in an (m, k) by (k, n) product.

    The paper gives 20K cycles for row by row on a P100, 28K with one column and 56K with two, and explains
    them by the votes. A warp's operation counts once; what it computes within lanes is not counted.

    Parameters
    ----------
    approach : {"row-by-row", "row-by-column", "column-by-row", "column-by-column"}
    m, n, k : int
        At least 1.

    Returns
    -------
    dict of str to int
        Of "votes", "shuffles", "loads" and "stores".

    Raises
    ------
    SchemeError
        For an unknown approach.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1, "Relaxing Assumption-(a)".

    Examples
    --------
    >>> approach_costs("row-by-row", 32, 32, 64)
    {'votes': 0, 'shuffles': 64, 'loads': 4, 'stores': 32}
    >>> approach_costs("column-by-column", 32, 32, 64)["votes"]
    128
    """
    layouts = _serving(approach, (False, False))
    ready = operands(np.ones((m, k), np.int8), np.ones((k, n), np.int8), layouts, (False, False), 32)
    kernel, costs = counted(KERNELS[approach])
    launched(kernel, WARP_SIZE, ready, 32)
    return {name: costs.operations[name] for name in ("votes", "shuffles", "loads", "stores")}


def _serving(approach: Approach, asked: tuple[bool, bool]) -> tuple[Layout, Layout]:
    """The layouts of A and B with which an approach computes the product with these transposes."""
    pairs = itertools.product(get_args(Layout), repeat=2)
    return next((a, b) for a, b in pairs if product_of(approach, a, b) == asked)


def _formula(transposes: tuple[bool, bool]) -> str:
    return " · ".join(name + "ᵀ" * transpose for name, transpose in zip("AB", transposes, strict=True))
