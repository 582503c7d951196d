"""Listing 5: row by row with 64-bit words, two 16-bit counters to a register (BMM-64).

A lane has two rows of a 64 × 64 bit block of A, 32 apart, and counts both in one register.

>>> A = GlobalArray.of("A", np.array([[0xA << 60]], np.uint64))  # one row, + - + -
>>> B = GlobalArray.of("B", np.array([[0x8 << 60]], np.uint64))  # one column, + - - -
>>> C = GlobalArray("C", (1, 1), np.int32)
>>> from simwarp.warp import launch
>>> launch(BMM64_Arow_Brow, (1, 1), 32, A, B, C, 1, 1, 1, 4)
>>> C.numpy().tolist()
[[2]]

Source: BSTC (SC'19), section 5.1 "BMM-64", listing 5; equation 2.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from simwarp.lanes import WARP_SIZE, popc, xor
from simwarp.listings.fused import Fused, run
from simwarp.listings.operands import Operand, row_by_row
from simwarp.listings.packing64 import WORD
from simwarp.warp import GlobalArray, Warp

BMM64_LARGEST_K = 2**16 - 1
"""The longest dot product that BMM-64 counts rightly, 65535.

A counter holds ``popc(a ^ b)``, at most K, since padding differs nowhere; K itself if no two signs
agree. 16 unsigned bits hold 0 … 2¹⁶ - 1, so up to that K neither half overflows. At K = 2¹⁶ such a
row makes the lower counter carry into the upper one: both are wrong. (Read as signed ``short``, as the
authors' code does, a counter is wrong from 2¹⁵ on.)
"""


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
    """Listing 5, 64-bit BMM with register packing; with listing 7's amendment BMM-64B.

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
        What listing 7 adds.

    Notes
    -----
    Other than in print: as in `simwarp.listings.BMM32_Arow_Brow`. The loop over i runs while
    ``i < A_width``, the second fetch of B is ``b1``, ``l0`` is broadcast from ``b0``, and both counts
    are added (``+=``), where the text we have shows otherwise. The paper says that 16 bits suffice; they
    do for unsigned counters and n < 2¹⁶, and the lower one is masked, not read as a ``short``. A
    shuffle of 64 bits is two on hardware.

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


def bmm64(
    a: Operand,
    b: Operand,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    thresholds: npt.ArrayLike | None = None,
    flip: npt.ArrayLike | None = None,
) -> Any:
    """The ±1 product op(a) · op(b) with 64-bit words, by listing 5 (BMM-64, BMM-64B); K up to 65535.

    Parameters
    ----------
    a, b, transpose_a, transpose_b, thresholds, flip
        As for `bmm32`; PackedBits have 64-bit words.

    Returns
    -------
    array of int32, (M, N), or with ``thresholds`` PackedBits
        As for `bmm32`, with 64-bit words.

    Raises
    ------
    ShapeError
        Also for K > 65535, which the 16-bit counters do not hold (`BMM64_LARGEST_K`).
    DtypeError, NotANumberError, FormatError, SchemeError
        As `bmm32`.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1 "BMM-64", listings 5 and 7; equations 1 and 2.

    Examples
    --------
    >>> bmm64([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    """
    ready = row_by_row(a, b, transpose_a, transpose_b, 64)
    if ready.k > BMM64_LARGEST_K:
        raise ShapeError(
            f"K is {ready.k}, and the 16-bit counters of BMM-64 hold at most {BMM64_LARGEST_K}: "
            "use bmm32 or bmms64, whose counters have 32 bits, or split K"
        )
    return run(BMM64_Arow_Brow, WARP_SIZE, ready, 64, thresholds, flip)
