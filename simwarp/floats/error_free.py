"""Sums and products of floats together with their exact errors.

Source: Knuth, The Art of Computer Programming 2, section 4.2.2 (`two_sum`); Dekker, Numerische
Mathematik 18, 1971 (`two_product`).
"""

from __future__ import annotations

import numpy as np

from simwarp.floats.rounding import Floats


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum and its error: ``a + b = sum + error`` exactly.

    The error is not finite where the sum, or a step on the way to it, overflows.

    Parameters
    ----------
    a, b : float32 or float64, of one type and at least one axis

    Examples
    --------
    >>> sum, error = two_sum(np.array([1.0]), np.array([1e-30]))
    >>> float(sum[0]), float(error[0])
    (1.0, 1e-30)
    """
    total = np.add(a, b)
    b_part = np.subtract(total, a)
    error = np.subtract(total, b_part)
    np.subtract(a, error, out=error)
    np.subtract(b, b_part, out=b_part)
    error += b_part
    return total, error


def two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded product and its error: ``a * b = product + error`` exactly.

    This holds where the product is at least 2^-960 in magnitude; the error is not finite where the
    product, or a step on the way to it, overflows.

    Parameters
    ----------
    a, b : float64 arrays of one shape, of at least one axis

    Examples
    --------
    >>> product, error = two_product(np.array([1 + 2.0**-52]), np.array([1 + 2.0**-52]))
    >>> float(product[0]) == 1 + 2.0**-51, float(error[0]) == 2.0**-104
    (True, True)
    """
    product = np.multiply(a, b)
    # Rounded to 26 bits, a signed rest of 26; cut to 26 bits, a rest of 27: all four products are exact.
    words = np.add(a.view(np.uint64), _HALF_UNIT)
    words &= _HIGH
    a_high = words.view(np.float64)
    a_low = np.subtract(a, a_high)
    b_high = np.bitwise_and(b.view(np.uint64), _HIGH).view(np.float64)
    b_low = np.subtract(b, b_high)
    rest = np.multiply(a_high, b_high)
    np.subtract(product, rest, out=rest)
    b_high *= a_low
    rest -= b_high
    a_high *= b_low
    rest -= a_high
    a_low *= b_low
    a_low -= rest
    return product, a_low


_HIGH = np.uint64(2**64 - 2**27)
_HALF_UNIT = np.uint64(2**26)
