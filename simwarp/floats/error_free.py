"""Sums and products of floats with their exact errors, and sums rounded once, to odd or to float32.

Source: Knuth, The Art of Computer Programming 2, section 4.2.2 (`two_sum`); Dekker, Numerische
Mathematik 18, 1971 (`two_product`).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from simwarp.floats.elementwise import redo
from simwarp.floats.rounding import Floats, Rounding, to_float32, to_odd


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum and its error: ``a + b = sum + error`` exactly.

    The error is not finite where the sum, or an intermediate result, overflows.
    """
    total = np.add(a, b)
    b_part = np.subtract(total, a)
    error = np.subtract(total, b_part)
    np.subtract(a, error, out=error)
    np.subtract(b, b_part, out=b_part)
    error += b_part
    return total, error


def two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded product of float64 and its error: ``a * b = product + error`` exactly.

    This holds where the product is at least 2^-960 in magnitude; the error is not finite where the
    product, or an intermediate result, overflows.
    """
    product = np.multiply(a, b)
    # a is rounded to 26 bits, with a signed rest of 26; b is cut to 26 bits, with a rest of 27. All four
    # products of these are exact.
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


def signed_zero(total: Floats, a: Floats, b: Floats, rounding: Rounding) -> Floats:
    """Correct the signs of exact zeros among sums a + b rounded to nearest, for another rounding.

    Toward minus infinity, only +0 plus +0 is +0 (IEEE 754-2019, section 6.3).
    """
    if rounding == "rm":
        zero = total == 0
        if zero.any():
            np.copyto(total, -0.0, where=zero & (np.signbit(a) | np.signbit(b)))
    return total


def sum_to_odd(a: Floats, b: Floats, rounding: Rounding = "rn") -> Floats:
    """The float64 sum a + b, far from overflow, rounded to odd; ``rounding`` decides the sign of zeros."""
    total, error = two_sum(a, b)
    return to_odd(signed_zero(total, a, b, rounding), error)


def sum_to_float32(a: Floats, b: Floats, rounding: Rounding) -> Floats:
    """The float64 sum a + b as float32, rounded once; one operand may be float32.

    The sum is rounded to float64 first. The second rounding is wrong only where the first ends on a float32
    or halfway between two of them; there the sum is rounded to odd instead.
    """
    total = np.add(a, b)
    result = to_float32(total, rounding)
    # the low 28 bits: 0 if the sum is a float32, or halfway between two
    low = np.left_shift(total.view(np.uint64), 36)
    if low.min(initial=1) == 0:
        if rounding != "rn":
            return sum_through_odd(rounding, a, b)
        redo(result, (low == 0) & (result != total), partial(sum_through_odd, rounding), a, b)
    return result


def sum_through_odd(rounding: Rounding, a: Floats, b: Floats) -> Floats:
    """The sum a + b as float32, rounded to odd in float64 first."""
    return to_float32(sum_to_odd(a.astype(np.float64), b.astype(np.float64), rounding), rounding)
