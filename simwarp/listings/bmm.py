"""Listings 4 and 5: ±1 matrix product, each row of A with each row of B.

A lane holds a row of a 32 × 32 bit tile of A. A shuffle broadcasts the rows of B's tile one after another,
and one exclusive or and one population count add 32 terms of the product (BMM-32). With 64-bit words a lane
has two rows of a 64 × 64 bit tile of A, 32 apart, with two 16-bit counters in one register (BMM-64).

>>> A = GlobalArray.of("A", np.array([[0xA0000000]], np.uint32))  # one row, + - + -
>>> B = GlobalArray.of("B", np.array([[0x80000000]], np.uint32))  # one column, + - - -
>>> C = GlobalArray("C", (1, 1), np.int32)
>>> from simwarp.warp import launch
>>> launch(BMM32_Arow_Brow, (1, 1), 32, A, B, C, 1, 1, 1, 4)
>>> C.numpy().tolist()
[[2]]

Source: BSTC (SC'19), section 5.1, listings 4 and 5; section 6.2, listing 7; equation 2.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE, popc, xor
from simwarp.listings.fused import Fused, ProductOptions, run
from simwarp.listings.operands import Operand
from simwarp.listings.packing import WORD
from simwarp.warp import GlobalArray, Warp

BMM64_LARGEST_K = 2**16 - 1
"""The longest dot product that BMM-64's counters hold, 65535.

A counter holds ``popc(a ^ b)``, which is at most K: padding is equal in both operands. 16 unsigned bits hold
0 … 2¹⁶ - 1, so up to that K neither counter overflows. At K = 2¹⁶ the lower counter of a row in which no two
signs agree carries into the upper one, and both are wrong. (Read as a signed ``short``, as in the authors'
code, a counter is wrong from 2¹⁵ on.)
"""


def BMM32_Arow_Brow(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_height: int,
    A_width: int,
    B_width: int,
    n: int,
    fused: Fused | None = None,
) -> None:
    """Listing 4: multiply each row of A with each row of B; with the thresholds of listing 7, BMM-32B.

    Parameters
    ----------
    A : (A_width, A_height), uint32
        Word i of every row.
    B : (A_width, B_width), uint32
        Word i of every column of the right operand, which the listing calls a row of B.
    C : (A_height, B_width), int32; if fused (ceil(B_width / 32), A_height), uint32
    A_width : int
        In words, ceil(n / 32).
    n : int
        The length of the dot products, without padding.
    fused : Fused, optional
        The thresholds of listing 7.

    Notes
    -----
    Other than in print: ``A_width`` counts words, not elements; the subscripts are
    ``Asub[i*A_height+laneid]`` and ``Bsub[i*B_width+laneid]``, products where the text we have shows
    sums; the loop runs while ``j < WARP_SIZE``, not ``j = WARP_SIZE``; ``__shfl`` takes a member mask
    today (``__shfl_sync``). The listing ends with the counts of differing bits: equation 2,
    ``n - 2 * popc(a ^ b)``, its parameter n, and the store are added. Loads and stores are guarded for sides
    that 32 does not divide; along K both operands are padded with equal bits, and n is the true length. The
    paper does not define the sign of a NaN: `pack32_column` and `pack32_row` refuse it.

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
    dots = [np.int32(n) - 2 * count.astype(np.int32) for count in Cm]
    if fused:
        with warp.where(row < A_height):
            c = fused.concatenate(warp, dots, by * WARP_SIZE, B_width, zero)
            warp.store(C, by * A_height + row, c)
        return
    for j in range(WARP_SIZE):
        with warp.where((row < A_height) & (by * WARP_SIZE + j < B_width)):
            warp.store(C, row * B_width + by * WARP_SIZE + j, dots[j])


def BMM64_Arow_Brow(
    warp: Warp,
    A: GlobalArray,
    B: GlobalArray,
    C: GlobalArray,
    A_height: int,
    A_width: int,
    B_width: int,
    n: int,
    fused: Fused | None = None,
) -> None:
    """Listing 5: 64-bit BMM with two counters per register; with the thresholds of listing 7, BMM-64B.

    Parameters
    ----------
    A : (A_width, A_height), uint64
    B : (A_width, B_width), uint64
    C : (A_height, B_width), int32; if fused (ceil(B_width / 64), A_height), uint64
    A_width : int
        In words, ceil(n / 64).
    n : int
        The length of the dot products, at most `BMM64_LARGEST_K`.
    fused : Fused, optional
        The thresholds of listing 7.

    Notes
    -----
    Other than in print: as in `simwarp.listings.BMM32_Arow_Brow`. The loop over i runs while
    ``i < A_width``, the second fetch of B is ``b1``, ``l0`` is broadcast from ``b0``, and both counts
    are added (``+=``), where the text we have shows otherwise. The paper's 16 bits suffice for unsigned
    counters and n < 2¹⁶; the lower counter is masked, not read as a ``short``. On hardware a shuffle of
    64 bits is two of 32 bits.

    Grid: (ceil(A_height / 64), ceil(B_width / 64)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    row, column = bx * WORD + laneid, by * WORD + laneid
    zero = np.zeros(WARP_SIZE, np.uint64)
    Cm: list[npt.NDArray[Any]] = [np.zeros(WARP_SIZE, np.uint32)] * WORD
    for i in range(A_width):
        a, b = [zero] * 2, [zero] * 2
        for half in (0, 1):
            with warp.where(row + half * WARP_SIZE < A_height):
                a[half] = warp.select(warp.load(A, i * A_height + half * WARP_SIZE + row), zero)
            with warp.where(column + half * WARP_SIZE < B_width):
                b[half] = warp.select(warp.load(B, i * B_width + half * WARP_SIZE + column), zero)
        for j in range(WARP_SIZE):
            l0, l1 = warp.shfl(b[0], j), warp.shfl(b[1], j)  # broadcast 64 bits
            Cm[j] = Cm[j] + (popc(xor(a[0], l0)) << 16) + popc(xor(a[1], l0))
            Cm[j + WARP_SIZE] = Cm[j + WARP_SIZE] + (popc(xor(a[0], l1)) << 16) + popc(xor(a[1], l1))
    for half in (0, 1):
        counts = [packed & 0xFFFF if half else packed >> 16 for packed in Cm]
        dots = [np.int32(n) - 2 * count.astype(np.int32) for count in counts]
        with warp.where(row + half * WARP_SIZE < A_height):
            if fused:
                c = fused.concatenate(warp, dots, by * WORD, B_width, zero)
                warp.store(C, by * A_height + half * WARP_SIZE + row, c)
                continue
            for j in range(min(WORD, B_width - by * WORD)):
                warp.store(C, (row + half * WARP_SIZE) * B_width + by * WORD + j, dots[j])


def bmm32(a: Operand, b: Operand, **options: Unpack[ProductOptions]) -> Any:
    """The ±1 product op(a) · op(b) of the signs of two matrices, by listings 1, 2 and 4 (BMM-32).

    ``c[i, j] = K - 2 * popc(op(a)[i, :] xor op(b)[:, j])``, exact. The words of both operands run along K:
    these are the paper's four optimal combinations of layouts:

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
        PackedBits have 32-bit words and the layout above.
    b : likewise, (K, N), or (N, K) if transpose_b
        Its bit order is that of ``a``; matrices are packed "msb".
    transpose_a, transpose_b : bool, default False
    thresholds : integers in the range of int32, (N,), optional
        Return bits (BMM-32B, listing 7): bit (i, j) is 1 where ``c[i, j] >= thresholds[j]``.
    flip : bool, (N,), optional
        The columns whose bits are inverted.

    Returns
    -------
    array of int32, (M, N)
        With ``thresholds`` PackedBits instead, ``layout="column"``, ``word=32``, ``first="msb"``: the
        left operand of the next product.

    Raises
    ------
    ShapeError
        If an operand is not a matrix or has a dimension of 0, if the two K differ, or if there is not one
        threshold and flip per column.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; the message names the first.
    FormatError
        For PackedBits in another layout, word size or bit order, or whose words do not fit their shape.
    SchemeError
        For ``flip`` without ``thresholds``.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1, listing 4 and "Relaxing Assumption-(b)" and "-(c)"; listing 7;
    equations 1 and 2.

    Examples
    --------
    >>> bmm32([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    >>> hex(bmm32([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]], thresholds=[-1]).words[0, 0])
    '0x80000000'
    """
    return run(BMM32_Arow_Brow, WARP_SIZE, 32, a, b, **options)


def bmm64(a: Operand, b: Operand, **options: Unpack[ProductOptions]) -> Any:
    """The ±1 product op(a) · op(b) with 64-bit words, by listing 5 (BMM-64, BMM-64B); K up to 65535.

    Parameters, returns and errors are those of `bmm32`, with 64-bit words. K > 65535 is a ShapeError, since
    the 16-bit counters would overflow (`BMM64_LARGEST_K`).

    Notes
    -----
    Source: BSTC (SC'19), section 5.1 "BMM-64", listings 5 and 7; equations 1 and 2.

    Examples
    --------
    >>> bmm64([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    """
    return run(BMM64_Arow_Brow, WARP_SIZE, 64, a, b, largest_k=BMM64_LARGEST_K, **options)
