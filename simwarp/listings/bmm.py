"""Listing 4: the product of two matrices of +1 and -1, each row of A with each row of B (BMM-32).

A lane holds a row of a 32 × 32 bit tile of A; the rows of B's tile come to it one after another, by
shuffle, and each is one exclusive or and one population count away from 32 terms of the product.

>>> A = GlobalArray.of("A", np.array([[0xA0000000]], np.uint32))  # one row, + - + -
>>> B = GlobalArray.of("B", np.array([[0x80000000]], np.uint32))  # one column, + - - -
>>> C = GlobalArray("C", (1, 1), np.int32)
>>> launch(BMM32_Arow_Brow, (1, 1), 32, A, B, C, 1, 1, 1, 4)
>>> C.numpy().tolist()
[[2]]

Source: BSTC (SC'19), section 5.1, listing 4; equation 2.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError, ShapeError
from reference.types import Layout, PackedBits
from simwarp.lanes import WARP_SIZE, popc, xor
from simwarp.listings.packing import Matrix, pack32, real_matrix
from simwarp.warp import GlobalArray, Warp, launch


def BMM32_Arow_Brow(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_height: int,
    A_width: int,
    B_width: int,
    n: int,
) -> None:
    """Listing 4, BMM by multiplying each A row with each B row.

    Parameters
    ----------
    A : (A_width, A_height), uint32
        Word i of every row.
    B : (A_width, B_width), uint32
        Word i of every column of the right operand, "row of B" to the listing.
    C : (A_height, B_width), int32
    A_width : int
        In words, ceil(n / 32).
    n : int
        The length of the dot products, without padding.

    Notes
    -----
    Other than in print: ``A_width`` counts words, not elements; the subscripts are
    ``Asub[i*A_height+laneid]`` and ``Bsub[i*B_width+laneid]``, products where the text we have shows
    sums; the loop runs while ``j < WARP_SIZE``, not ``j = WARP_SIZE``; ``__shfl`` takes a member mask
    today (``__shfl_sync``). The listing ends with the counts of differing bits: equation 2,
    ``n - 2 * popc(a ^ b)``, its parameter n, and the store are added. For sides that are no multiples
    of 32 loads and stores are guarded; along K both operands are padded with equal bits, and n is the
    true length. Nor does print say what a NaN is: `pack32_column` and `pack32_row` refuse it.

    Grid: (ceil(A_height / 32), ceil(B_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    row, column = bx * WARP_SIZE + laneid, by * WARP_SIZE + laneid
    zero = np.zeros(WARP_SIZE, np.uint32)
    Cm = [zero] * WARP_SIZE
    for i in range(A_width):
        with warp.where(row < A_height):
            r0 = warp.select(warp.load(A, i * A_height + row), zero)
        with warp.where(column < B_width):
            r1 = warp.select(warp.load(B, i * B_width + column), zero)
        for j in range(WARP_SIZE):
            r2 = warp.shfl(r1, j)  # broadcast a bit-row of B from lane j
            Cm[j] = Cm[j] + popc(xor(r0, r2))  # each lane: dot product with the row of B
    for j in range(WARP_SIZE):
        with warp.where((row < A_height) & (by * WARP_SIZE + j < B_width)):
            dot = np.int32(n) - 2 * Cm[j].astype(np.int32)
            warp.store(C, row * B_width + by * WARP_SIZE + j, dot)


def bmm32(
    a: npt.ArrayLike | PackedBits,
    b: npt.ArrayLike | PackedBits,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> npt.NDArray[np.int32]:
    """The ±1 product op(a) · op(b) of the signs of two matrices, by listings 1, 2 and 4.

    ``c[i, j] = K - 2 * popc(op(a)[i, :] xor op(b)[:, j])``, exact. Row-by-row needs the words of both
    operands to run along K, which are the paper's four optimal combinations:

    ======== ============ ============
    product  a's layout   b's layout
    ======== ============ ============
    A · B    column       row
    Aᵀ · B   row          row
    A · Bᵀ   column       column
    Aᵀ · Bᵀ  row          column
    ======== ============ ============

    Parameters
    ----------
    a : array_like of float64, float32, float16 or int8, or PackedBits; (M, K), or (K, M) if transpose_a
        PackedBits of 32-bit words in the layout above.
    b : likewise, (K, N), or (N, K) if transpose_b
        The first element sits at the same end of a word as in ``a``; matrices are packed "msb".
    transpose_a, transpose_b : bool

    Returns
    -------
    array of int32, (M, N)

    Raises
    ------
    ShapeError
        If an operand is not a matrix, has a dimension of 0, or the two K differ.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; names the first.
    FormatError
        For PackedBits in another layout, word size or bit order, or whose words do not fit them.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1, listing 4 and "Relaxing Assumption-(b)" and "-(c)"; equations
    1 and 2.

    Examples
    --------
    >>> bmm32([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    """
    layout_a: Layout = "row" if transpose_a else "column"
    layout_b: Layout = "column" if transpose_b else "row"
    a = _check_packed(a, "a", layout_a) if isinstance(a, PackedBits) else real_matrix(a, "a")
    b = _check_packed(b, "b", layout_b) if isinstance(b, PackedBits) else real_matrix(b, "b")
    (m, k), (k_of_b, n) = _op(a.shape, transpose_a), _op(b.shape, transpose_b)
    if k != k_of_b:
        raise ShapeError(
            f"a {a.shape} and b {b.shape} do not fit with transpose_a={transpose_a}, "
            f"transpose_b={transpose_b}: K is {k} in a and {k_of_b} in b; check the transpositions"
        )
    packed_a, packed_b = _packed(a, "a", layout_a), _packed(b, "b", layout_b)
    if packed_a.first != packed_b.first:
        raise FormatError(
            f"a has first={packed_a.first!r} and b has first={packed_b.first!r}: "
            "pack both alike (matrices are packed first='msb')"
        )
    A = GlobalArray.of("A", packed_a.words, read_only=True)
    B = GlobalArray.of("B", packed_b.words, read_only=True)
    C = GlobalArray("C", (m, n), np.int32)
    grid = -(-m // WARP_SIZE), -(-n // WARP_SIZE)
    launch(BMM32_Arow_Brow, grid, WARP_SIZE, A, B, C, m, -(-k // WARP_SIZE), n, k)
    return C.numpy()


def _op(shape: tuple[int, ...], transpose: bool) -> tuple[int, int]:
    rows, columns = shape
    return (columns, rows) if transpose else (rows, columns)


def _packed(operand: Matrix | PackedBits, name: str, layout: Layout) -> PackedBits:
    return operand if isinstance(operand, PackedBits) else pack32(operand, name, layout)


def _check_packed(packed: PackedBits, name: str, layout: Layout) -> PackedBits:
    """Raise unless the words of a packed operand run along K and fit their description."""
    if packed.layout != layout or packed.word != 32 or packed.first not in ("msb", "lsb"):
        raise FormatError(
            f"{name} is packed layout={packed.layout!r}, word={packed.word}, first={packed.first!r}, "
            f"but BMM-32 needs layout={layout!r}, word=32 here: pack it so, or check transpose_{name}"
        )
    if len(packed.shape) != 2 or min(packed.shape) < 1:
        raise ShapeError(f"{name} has shape {packed.shape}: give (rows, columns), each at least 1")
    on_host = isinstance(packed.words, np.ndarray)
    if not on_host:
        raise FormatError(f"{name} has words that are no NumPy array: copy them to the host first")
    words: npt.NDArray[Any] = packed.words
    length, across = _op(packed.shape, layout == "column")
    expected = (-(-length // WARP_SIZE), across)
    if words.dtype != np.uint32 or words.shape != expected:
        raise FormatError(
            f"{name} has words {words.dtype} {words.shape}, but a {packed.shape} matrix with "
            f"layout={layout!r}, word=32 needs uint32 {expected}: pack it again"
        )
    padding = -length % WARP_SIZE
    past_the_edge = (1 << padding) - 1
    if packed.first == "lsb":
        past_the_edge <<= WARP_SIZE - padding
    if np.any(words[-1] & np.uint32(past_the_edge)):
        raise FormatError(
            f"{name} has bits past the edge of its {packed.shape} that are not 0: clear them, or pack again"
        )
    return packed
