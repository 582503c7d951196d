"""Listing 7: fused binarization, which compares each dot product with the threshold of its column.

Source: BSTC (SC'19), section 6.2, listing 7; equations 4 and 5.

>>> def kernel(warp, C, fused):
...     dots = [warp.lane.astype(np.int32) - 2, np.int32(5)]
...     warp.store(C, warp.lane, fused.concatenate(warp, dots, 0, 2, np.zeros(32, np.uint32)))
>>> C = GlobalArray("C", 32, np.uint32)
>>> launch(kernel, 1, 32, C, fuse([0, 6], [False, True], 2))
>>> [f"{word:02b}" for word in C.numpy()[:4]]
['01', '01', '11', '11']
"""

# The arrays keep the paper's names.
# ruff: noqa: N806

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types import PackedBits, Word
from simwarp.listings.operands import Operand, Operands, row_by_row
from simwarp.warp import Extent, GlobalArray, Warp, launch


class Fused(NamedTuple):
    """Thresholds (int32) and flips (bool) of the N columns of a product, in global memory.

    Other than listing 7 in print: the bit is ``t >= threshold``, as in equation 5, not ``t < threshold``. The
    count of differing bits becomes an ``int`` before it is subtracted: Cm is ``unsigned``, so
    ``A_width - 2*Cm`` in print is never negative, and ``max(…, 0)`` has no effect. There is no ``max``: a
    ReLU is part of the threshold (with it, a threshold of at most 0 always holds, see
    ``reference.integer_thresholds``). ``flip`` is added, for a negative γ. The vector length is n, where
    print has ``A_width``, which counts words in listing 4. The store has the guard of the loop.
    """

    thresholds: GlobalArray
    flip: GlobalArray

    def bit(self, warp: Warp, dot: Any, column: Any) -> npt.NDArray[np.bool_]:
        """The output bit of each lane: whether its dot product reaches the threshold, inverted by flip."""
        return (dot >= warp.load(self.thresholds, column)) ^ warp.load(self.flip, column)

    def vote(self, warp: Warp, dots: Any, column: Any) -> npt.NDArray[np.uint32]:
        """The ballot of the output bits of the lanes' columns, lane i's in bit i; 0 past the last column."""
        with warp.where(column < self.thresholds.size):
            positive = warp.select(self.bit(warp, dots, column), False)
        return warp.ballot(positive)

    def concatenate(
        self, warp: Warp, dots: Sequence[Any], first: int, columns: int, c: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Shift each lane's output bits of the columns from ``first`` on into ``c`` (lines 3 to 7).

        The first column becomes the most significant bit; bits of columns from ``columns`` on are 0.
        """
        for i, t in enumerate(dots):
            c = c << 1  # leave space for the next bit
            if first + i < columns:
                c = c | self.bit(warp, t, first + i)
        return c


def fuse(thresholds: npt.ArrayLike | None, flip: npt.ArrayLike | None, columns: int) -> Fused | None:
    """Check and upload the thresholds and flips of ``columns`` columns; None without thresholds."""
    if thresholds is None:
        if flip is not None:
            raise SchemeError(
                "flip is given without thresholds\nflip inverts the bits that thresholds make\n"
                "give both, or neither"
            )
        return None
    limits = np.asarray(thresholds)
    flips = np.zeros(columns, np.bool_) if flip is None else np.asarray(flip)
    int32 = np.iinfo(np.int32)
    if limits.dtype.kind not in "iu":
        raise DtypeError(
            f"thresholds has elements of {limits.dtype}\nthey are compared with integers\n"
            "give int32; reference.integer_thresholds computes them from a batch normalisation"
        )
    if limits.size and (limits.min() < int32.min or limits.max() > int32.max):
        raise DtypeError(
            f"thresholds has values {limits.min()} … {limits.max()}, beyond int32\nsums are int32\n"
            f"clamp it to {int32.min} … {int32.max}, as reference.integer_thresholds does"
        )
    if flips.dtype != np.bool_:
        raise DtypeError(
            f"flip has elements of {flips.dtype}\nbool is needed\ngive True for the columns to invert"
        )
    for name, vector in (("thresholds", limits), ("flip", flips)):
        if vector.shape != (columns,):
            raise ShapeError(
                f"{name} has shape {vector.shape}\nthe product has {columns} columns\ngive ({columns},)"
            )
    return Fused(
        GlobalArray.of("thresholds", limits.astype(np.int32), read_only=True),
        GlobalArray.of("flip", flips, read_only=True),
    )


class ProductOptions(TypedDict, total=False):
    """Keyword arguments of the row-by-row products: see `simwarp.listings.bmm32`."""

    transpose_a: bool
    transpose_b: bool
    thresholds: npt.ArrayLike | None
    flip: npt.ArrayLike | None


def run(
    kernel: Callable[..., None],
    block: Extent,
    word: Word,
    a: Operand,
    b: Operand,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    largest_k: int | None = None,
    **of_output: Any,
) -> Any:
    """Check, pack and upload the operands of a row-by-row product, and launch it."""
    ready = row_by_row(a, b, transpose_a, transpose_b, word)
    if largest_k is not None and ready.k > largest_k:
        raise ShapeError(
            f"K is {ready.k}\nthe 16-bit counters of BMM-64 hold at most {largest_k}\n"
            "call bmm32 or bmms64, whose counters have 32 bits, or split K"
        )
    return launched(kernel, block, ready, word, **of_output)


def launched(
    kernel: Callable[..., None],
    block: Extent,
    ready: Operands,
    word: Word,
    thresholds: npt.ArrayLike | None = None,
    flip: npt.ArrayLike | None = None,
) -> Any:
    """Launch a block per ``word`` × ``word`` tile of C, and download sums or, with thresholds, bits."""
    _, _, m, k, n, _ = ready
    fused = fuse(thresholds, flip, n)
    words = -(-n // word)
    C = GlobalArray("C", (words, m), f"uint{word}") if fused else GlobalArray("C", (m, n), np.int32)
    sizes, thresholding = (m, -(-k // word), n, k), (fused,) if fused else ()
    launch(kernel, (-(-m // word), words), block, ready.A, ready.B, C, *sizes, *thresholding)
    return PackedBits(C.numpy(), (m, n), "column", word, "msb") if fused else C.numpy()
