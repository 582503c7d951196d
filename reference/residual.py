"""The fit of a model that is almost equal to its tensor, in double-double arithmetic.

In float64 the terms of ``‖X‖² + ‖M‖² - 2 <X, M>`` cancel almost completely. Here each term is the unevaluated
sum of two float64, *high* and *low*, with 106 bits together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.types import Coo

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Pair: TypeAlias = tuple[Array, Array]

# Terms of a chunk, which fit into a cache.
_CHUNK = 1 << 15
# A Gram matrix is the sum of exact products of slices of 21 bits and 2**10 rows: 2 * 21 + 10 < 53.
_SLICES, _BITS, _ROWS = 5, 21, 1 << 10


def precise_fit(tensor: Coo, factors: Sequence[Array], weights: Array) -> float:
    """Return ``1 - ‖X - M‖ / ‖X‖`` correct to float64, for values around 1 and columns of norm 1 or 0.

    Sources: T. Ogita, S. Rump, S. Oishi, Accurate sum and dot product (SIAM J. Sci. Comput. 26, 2005); for
    Gram matrices, K. Ozaki et al., Error-free transformations of matrix multiplication (Numer. Algorithms 59,
    2012).
    """
    square = _total(_product(tensor.values, tensor.values))
    norm = float(square[0][0])
    model = _total(_square_of_model(factors, weights))
    high, low = _with_model(tensor, factors, weights)
    residual = _sum(_sum(square, model), (-2.0 * high, -2.0 * low))
    return 1.0 - math.sqrt(max(0.0, float(residual[0][0]))) / math.sqrt(norm)


def _with_model(tensor: Coo, factors: Sequence[Array], weights: Array) -> Pair:
    """The inner product <X, M> of tensor and model, in chunks of nonzeros."""
    total = np.zeros(1), np.zeros(1)
    step = max(1, _CHUNK // weights.size)
    for at in range(0, tensor.values.size, step):
        terms = _product(tensor.values[at : at + step, None], weights)
        for factor, index in zip(factors, tensor.coords[:, at : at + step], strict=True):
            terms = _times(terms, (factor[index], np.zeros(())))
        total = _sum(total, _total(terms))
    return total


def _square_of_model(factors: Sequence[Array], weights: Array) -> Pair:
    """The terms of ‖M‖²: the weighted elementwise product of the Gram matrices."""
    terms = _product(weights[:, None], weights)
    for factor in factors:
        terms = _times(terms, _gram(factor))
    return terms


def _gram(factor: Array) -> Pair:
    """The Gram matrix of columns of norm 1, with an error of about 2**-95.

    Columns are cut into slices of few bits, so that products of slices of few rows are exact.
    """
    high, low = np.zeros((2, factor.shape[1], factor.shape[1]))
    for at in range(0, len(factor), _ROWS):
        rest, slices = factor[at : at + _ROWS], list[Array]()
        for n in range(1, _SLICES + 1):
            slices.append(np.ldexp(np.rint(np.ldexp(rest, n * _BITS)), -n * _BITS))
            rest = rest - slices[-1]
        for i, left in enumerate(slices):
            for right in slices[: _SLICES - i]:
                high, low = _sum((high, low), (left.T @ right, np.zeros(())))
    return high, low


def _exact_sum(a: Array, b: Array) -> Pair:
    """The exact sum of two float64 (TwoSum)."""
    high = a + b
    of_b = high - a
    return high, (a - (high - of_b)) + (b - of_b)


def _ordered(a: Array, b: Array) -> Pair:
    """The sum of two float64, exact where |a| >= |b| (FastTwoSum)."""
    high = a + b
    return high, b - (high - a)


def _halves(a: Array) -> Pair:
    """Split a float64 into two of 26 bits, whose products are exact (Dekker)."""
    far = a * (2.0**27 + 1)
    high = far - (far - a)
    return high, a - high


def _product(a: Array, b: Array) -> Pair:
    """The exact product of two float64 (TwoProduct)."""
    high, (a1, a2), (b1, b2) = a * b, _halves(a), _halves(b)
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def _sum(a: Pair, b: Pair) -> Pair:
    """The sum of two double-double numbers."""
    high, low = _exact_sum(a[0], b[0]), _exact_sum(a[1], b[1])
    first = _ordered(high[0], high[1] + low[0])
    return _ordered(first[0], first[1] + low[1])


def _times(a: Pair, b: Pair) -> Pair:
    """The product of two double-double numbers."""
    high, low = _product(a[0], b[0])
    return _ordered(high, low + (a[0] * b[1] + a[1] * b[0]))


def _total(terms: Pair) -> Pair:
    """The sum of all elements, added pairwise."""
    high, low = (part.reshape(-1) for part in np.broadcast_arrays(*terms))
    while high.size > 1:
        even = high.size // 2 * 2
        first, second = (high[:even:2], low[:even:2]), (high[1:even:2], low[1:even:2])
        rest = high[even:], low[even:]
        high, low = (np.concatenate(pair) for pair in zip(_sum(first, second), rest, strict=True))
    return high, low
