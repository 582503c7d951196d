"""Random inputs from counters: input k of a case is the same on every machine and for every NumPy version.

NumPy guarantees the raw words of its Philox bit generator, but not the numbers that `Generator` derives from
them. This module derives sizes and values from the words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

PRIMES = [p for p in range(2, 132) if all(p % q for q in range(2, p))]
WORD_EDGES = [n + d for n in (32, 64, 96, 128) for d in (-1, 0, 1)]

_SPECIAL = {
    "float64": np.array([0.0, -0.0, 5e-324, -5e-324, np.inf, -np.inf, 1.0, -1.0]),
    "float32": np.array([0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, 1.0, -1.0], np.float32),
    "float16": np.array([0.0, -0.0, 6e-8, -6e-8, np.inf, -np.inf, 1.0, -1.0], np.float16),
    "int8": np.array([0, 1, -1, 127, -128, 2, -2, 64], np.int8),
}
DTYPES = tuple(_SPECIAL)
"""The dtypes of drawn matrices."""


class Draw:
    """The random numbers of one input, determined by a seed, the case and the input's number.

    Parameters
    ----------
    seed : int
    case : str
        The case's name.
    k : int
        The number of the input in the case.

    Examples
    --------
    >>> Draw(0, "bmm", 7).integer(1, 100) == Draw(0, "bmm", 7).integer(1, 100)
    True
    """

    def __init__(self, seed: int, case: str, k: int) -> None:
        self.k = k
        name = int.from_bytes(hashlib.sha256(case.encode()).digest()[:8], "little")
        # The lowest word of the counter counts up; k is in a higher one, so that no two inputs overlap.
        # Typed, because np.array of ints from 2**63 on would be float64.
        counter, key = np.array([0, 0, k, 0], np.uint64), np.array([seed % 2**64, name], np.uint64)
        self._philox = np.random.Philox(counter=counter, key=key)

    def words(self, n: int) -> npt.NDArray[np.uint64]:
        """Draw ``n`` raw 64-bit words."""
        return self._philox.random_raw(n)

    def integer(self, low: int, high: int) -> int:
        """Draw an integer from low to high, both included."""
        return low + int(self.words(1)[0]) % (high - low + 1)

    def choice(self, options: Sequence[T]) -> T:
        """Draw one of the options, all equally likely."""
        return options[self.integer(0, len(options) - 1)]

    def sizes(self, count: int) -> tuple[int, ...]:
        """Draw dimensions: by turns prime, near a multiple of a word, tiny, any, or one of them long.

        Examples
        --------
        >>> max(Draw(0, "bmm", 4).sizes(3)) > 1000
        True
        """
        kind = self.k % 5
        if kind == 0:
            return tuple(self.choice(PRIMES) for _ in range(count))
        if kind == 1:
            return tuple(self.choice(WORD_EDGES) for _ in range(count))
        if kind == 2:
            return tuple(self.integer(1, 9) for _ in range(count))
        if kind == 3:
            return tuple(self.integer(1, 150) for _ in range(count))
        sizes = [self.integer(1, 40) for _ in range(count)]
        sizes[self.integer(0, count - 1)] = self.integer(1001, 1600)
        return tuple(sizes)

    def matrix(self, rows: int, columns: int, dtype: str) -> npt.NDArray[Any]:
        """Draw a matrix of any bit patterns except NaN; every eighth element is ±0, ±inf, subnormal …."""
        special = _SPECIAL[dtype]
        n = rows * columns
        raw = self.words(-(-n * special.dtype.itemsize // 8)).astype("<u8").view(np.uint8)
        values = raw.view(special.dtype.newbyteorder("<"))[:n].astype(special.dtype)
        values = np.where(np.isnan(values), special.dtype.type(-1), values)
        pick = self.words(-(-n // 8)).astype("<u8").view(np.uint8)[:n]
        return np.where(pick < 32, special[pick % 8], values).reshape(rows, columns)

    def bits(self, lines: int, length: int, word: int, first: str) -> npt.NDArray[Any]:
        """Draw packed words (words, lines) of ``length`` random bits per line, padded with 0."""
        words = -(-length // word)
        n = words * lines
        dtype = np.dtype(f"u{word // 8}")
        raw = self.words(-(-n * dtype.itemsize // 8)).astype("<u8").view(dtype.newbyteorder("<"))[:n]
        packed = raw.astype(dtype).reshape(words, lines)
        spare = words * word - length
        ones = (1 << word) - 1
        packed[-1] &= dtype.type(ones << spare & ones if first == "msb" else ones >> spare)
        return packed
