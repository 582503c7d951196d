"""Sums of two float64, rounded once: to odd, or to float32."""

from __future__ import annotations

from functools import partial

import numpy as np

from simwarp.floats.conversion import to_float32
from simwarp.floats.elementwise import redo
from simwarp.floats.error_free import two_sum
from simwarp.floats.rounding import Floats, Rounding, to_odd


def signed_zero(total: Floats, a: Floats, b: Floats, rounding: Rounding) -> Floats:
    """Give the exact zeros among sums of a and b, as rounded to nearest, the sign of another rounding.

    Toward minus infinity, only +0 plus +0 is +0 (IEEE 754-2019, section 6.3).

    Examples
    --------
    >>> signed_zero(np.array([0.0]), np.array([1.0]), np.array([-1.0]), "rm").tolist()
    [-0.0]
    """
    if rounding == "rm":
        zero = total == 0
        if zero.any():
            np.copyto(total, -0.0, where=zero & (np.signbit(a) | np.signbit(b)))
    return total


def sum_to_odd(a: Floats, b: Floats, rounding: Rounding = "rn") -> Floats:
    """The sum a + b rounded to odd; ``rounding`` only signs the zeros.

    Parameters
    ----------
    a, b : float64 arrays of one shape, of magnitudes far from overflow; also infinities and NaN

    Examples
    --------
    >>> sum_to_odd(np.array([1.0]), np.array([-1e-30]))[0].hex()
    '0x1.fffffffffffffp-1'
    """
    total, error = two_sum(a, b)
    return to_odd(signed_zero(total, a, b, rounding), error)


def sum_to_float32(a: Floats, b: Floats, rounding: Rounding) -> Floats:
    """The sum a + b as float32, rounded once.

    The sum is rounded to float64 first. That is one rounding too many only where it ends on a float32, or
    halfway between two of them: there, the sum is rounded to odd instead.

    Parameters
    ----------
    a, b
        As of `sum_to_odd`; one of them may be float32.

    Examples
    --------
    >>> a, b = np.array([1 + 2.0**-24]), np.array([2.0**-80])
    >>> float(np.float32(a + b)[0]), float(sum_to_float32(a, b, "rn")[0])
    (1.0, 1.0000001192092896)
    """
    total = np.add(a, b)
    result = to_float32(total, rounding)
    low = np.left_shift(total.view(np.uint64), 36)  # the last 28 bits, 0 in either case
    if low.min(initial=1) == 0:
        if rounding != "rn":
            return _through_odd(rounding, a, b)
        redo(result, (low == 0) & (result != total), partial(_through_odd, rounding), a, b)
    return result


def _through_odd(rounding: Rounding, a: Floats, b: Floats) -> Floats:
    return to_float32(sum_to_odd(a.astype(np.float64), b.astype(np.float64), rounding), rounding)
