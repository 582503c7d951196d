"""A tile of 8 × 8 products of ±1: what the bit tensor core counts, and what is made of the count.

Turing's tensor cores count the bits in which two vectors differ (XOR), from which equation 2 gives the
product. Hopper's count the bits that both have (AND); the bits that each has, which the lanes count
beside it, make one of the other: ``popc(a ^ b) = popc(a) + popc(b) - 2 * popc(a & b)``.

Source: BTC (TPDS), section 5.2, equation 2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simwarp.lanes import popc
from simwarp.listings.btc.fragments import Fragment, Operation, bmma_sync, fill_fragment
from simwarp.warp import Warp

Counts = npt.NDArray[np.int32]


class Tile:
    """A warp's accumulator, by either operation.

    Parameters
    ----------
    warp : Warp
    operation : "xor" or "and"

    Examples
    --------
    >>> from simwarp.warp import launch
    >>> a, b, kept = np.full((1, 32), 0b1100, np.uint32), np.full((1, 32), 0b1011, np.uint32), []
    >>> def kernel(warp):
    ...     for operation in ("xor", "and"):
    ...         tile = Tile(warp, operation)
    ...         tile.bmma(a, b)
    ...         kept.append(int(tile.dots(128)[0, 0]))
    >>> launch(kernel, 1, 32)
    >>> kept
    [104, 104]
    """

    def __init__(self, warp: Warp, operation: Operation = "xor") -> None:
        self.warp = warp
        self.operation: Operation = operation
        self.c_frag = fill_fragment(0)
        self._of_a = self._of_b = np.zeros(32, np.int32)

    def bmma(self, a_frag: Fragment, b_frag: Fragment) -> None:
        """Accumulate a step of 128 bits."""
        self.c_frag = bmma_sync(self.warp, a_frag, b_frag, self.c_frag, self.operation)
        if self.operation == "and":
            self._of_a = self._of_a + popc(a_frag[0]).astype(np.int32)
            self._of_b = self._of_b + popc(b_frag[0]).astype(np.int32)

    def dots(self, n: int) -> Fragment:
        """The products of vectors of n elements, int32 (2, 32): ``n - 2 * popc(a ^ b)``."""
        return np.int32(n) - 2 * self._differing()

    def _differing(self) -> Fragment:
        """How many bits differ.

        The four lanes that hold a row of A, or a column of B, are neighbours. The sum over A's is that of
        the lane's own row; those over B's come from the lanes of the lane's two columns.
        """
        if self.operation == "xor":
            return self.c_frag
        of_a, of_b = _sum_of_four(self.warp, self._of_a), _sum_of_four(self.warp, self._of_b)
        column = 2 * (self.warp.lane % 4)
        of_columns = np.stack([self.warp.shfl(of_b, 4 * (column + i)) for i in range(len(self.c_frag))])
        return of_a + of_columns - 2 * self.c_frag


def _sum_of_four(warp: Warp, counts: Counts) -> Counts:
    for distance in (1, 2):
        counts = counts + warp.shfl_xor(counts, distance)
    return counts
