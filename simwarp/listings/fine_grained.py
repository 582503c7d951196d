"""Fine-grained products: 32 warps share the loop over the rows of a tile (BMMS-32, BMMS-64).

Each warp multiplies one row of A's tile with all rows of B's. It loads what the loop broadcast by shuffle,
and a lane has one counter. With 64-bit words a warp has two rows, 32 apart, and a lane four counters.

>>> A = GlobalArray.of("A", np.array([[0xA0000000]], np.uint32))  # one row, + - + -
>>> B = GlobalArray.of("B", np.array([[0x80000000]], np.uint32))  # one column, + - - -
>>> C = GlobalArray("C", (1, 1), np.int32)
>>> from simwarp.warp import launch
>>> launch(BMMS32_Arow_Brow, (1, 1), BLOCK, A, B, C, 1, 1, 1, 4)
>>> C.numpy().tolist()
[[2]]

Source: BSTC (SC'19), section 5.1 "Extracting Fine-Grained Parallelism", Table 2.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from simwarp.lanes import WARP_SIZE, popc, xor
from simwarp.listings.fused import Fused, ProductOptions, run
from simwarp.listings.operands import Operand
from simwarp.listings.packing import bits_of, lines_of, rotated
from simwarp.warp import GlobalArray, Warp

BLOCK = 32 * WARP_SIZE
"""The threads of a block: a warp for each iteration of the loop in listing 4."""


def BMMS32_Arow_Brow(
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
    """Listing 4 with the loop of lines 7-8 distributed over the warps of a block (BMMS-32, BMMS-32B).

    Parameters
    ----------
    A, B, C, A_height, A_width, B_width, n, fused
        As of `simwarp.listings.BMM32_Arow_Brow`.

    Notes
    -----
    Other than in the paper's sentence: A and B change places: a warp has a row of A, and a lane a row of B.
    A lane is then a column of C, so that a warp stores consecutive elements, and a word of output bits is
    one vote of a warp, rotated by op (H). With words of 64 bits a warp has two rows of A and a lane two of
    B, each 32 apart.

    Grid: (ceil(A_height / 32), ceil(B_width / 32)), blocks of 32 warps.
    """
    laneid, (bx, by, _), word = warp.lane, warp.block, bits_of(A)
    halves = range(0, word, WARP_SIZE)
    rows = [bx * word + half + warp.index for half in halves if bx * word + half + warp.index < A_height]
    columns = [by * word + half + laneid for half in halves]
    Cm = {row: [np.zeros(WARP_SIZE, np.uint32)] * len(columns) for row in rows}
    for i in range(A_width):
        a = {row: warp.load(A, i * A_height + row) for row in rows}  # all lanes load the same word
        for half, column in enumerate(columns):
            with warp.where(column < B_width):
                b = warp.select(warp.load(B, i * B_width + column), B.dtype.type(0))
            for row in rows:
                Cm[row][half] = Cm[row][half] + popc(xor(a[row], b))
    for row in rows:
        dots = [np.int32(n) - 2 * count.astype(np.int32) for count in Cm[row]]
        if fused:
            votes = [fused.vote(warp, dot, column) for dot, column in zip(dots, columns, strict=True)]
            with warp.where(laneid == 0):
                warp.store(C, by * A_height + row, rotated(votes))
            continue
        for dot, column in zip(dots, columns, strict=True):
            with warp.where(column < B_width):
                warp.store(C, row * B_width + column, dot)


@lines_of(BMMS32_Arow_Brow)
def BMMS64_Arow_Brow(
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
    """Listing 5 with its loop distributed over the warps of a block (BMMS-64, BMMS-64B).

    Parameters
    ----------
    warp, A, B, C, A_height, A_width, B_width, n, fused
        As of `simwarp.listings.BMM64_Arow_Brow`, except that n is any int32.

    Notes
    -----
    A and B change places as in `simwarp.listings.BMMS32_Arow_Brow`. A lane has four counters of 32 bits,
    which need no packing: n is bounded only by int32.

    Grid: (ceil(A_height / 64), ceil(B_width / 64)), blocks of 32 warps.
    """
    BMMS32_Arow_Brow(warp, A, B, C, A_height, A_width, B_width, n, fused)


def bmms32(a: Operand, b: Operand, **options: Unpack[ProductOptions]) -> Any:
    """The ±1 product op(a) · op(b), computed by 32 warps per tile (BMMS-32, BMMS-32B).

    Parameters, returns and errors are those of `bmm32`.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1 "Extracting Fine-Grained Parallelism", listings 4 and 7.

    Examples
    --------
    >>> bmms32([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]])
    array([[-1]], dtype=int32)
    """
    return run(BMMS32_Arow_Brow, BLOCK, 32, a, b, **options)


def bmms64(a: Operand, b: Operand, **options: Unpack[ProductOptions]) -> Any:
    """The ±1 product op(a) · op(b) with 64-bit words, computed by 32 warps per tile (BMMS-64, BMMS-64B).

    Parameters, returns and errors are those of `bmm64`, except that K is unbounded.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1 "Extracting Fine-Grained Parallelism", listings 5 and 7.

    Examples
    --------
    >>> bmms64([[2.0, -3.0, 0.0]], [[1.0], [1.0], [-1.0]], thresholds=[-1]).words.tolist()
    [[9223372036854775808]]
    """
    return run(BMMS64_Arow_Brow, BLOCK, 64, a, b, **options)
