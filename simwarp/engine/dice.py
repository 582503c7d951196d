"""Random choices of a launch, the same for the same seed."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

_MEAN = 30
"""Mean number of steps of a turn."""


def _lengths() -> list[int]:
    """For k = 1, 2, …: the number of 64-bit random words that choose a turn of at most k steps."""
    longer, lengths = 1 << 64, list[int]()
    while longer:
        longer = longer * (_MEAN - 1) // _MEAN
        lengths.append((1 << 64) - longer)
    return lengths


_LENGTHS = _lengths()


class Dice:
    """Random choices from a Philox generator with a key of two numbers; NumPy keeps its raw words stable."""

    def __init__(self, *key: int) -> None:
        self._philox = np.random.Philox(key=np.array([number % 2**64 for number in key], np.uint64))

    def below(self, end: int) -> int:
        """A random integer from 0 to ``end`` - 1."""
        return int(self._philox.random_raw()) % end

    def length(self) -> int:
        """A random number of steps, at least 1, with a geometric distribution, which has no memory."""
        return bisect_right(_LENGTHS, int(self._philox.random_raw())) + 1

    def order(self, n: int) -> npt.NDArray[np.intp]:
        """(n,): a random permutation of the integers from 0 to ``n`` - 1."""
        return np.argsort(self._philox.random_raw(n), kind="stable")

    def some(self, n: int) -> npt.NDArray[np.bool_]:
        """(n,): random bools, at least one of them true."""
        chosen = self._philox.random_raw(n) >> np.uint64(63) != 0
        chosen[self.below(n)] = True
        return chosen
