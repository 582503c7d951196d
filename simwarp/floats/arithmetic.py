"""Addition, multiplication, division and square root, correctly rounded in every direction.

Results rounded to nearest are NumPy's own. In another rounding a float32 result is computed in float64, where
products are exact, and a float64 result from NumPy's and its error.

Source: PTX ISA 9.0, section 9.7.3 (add, sub, mul, div, rcp, sqrt, and the modifiers .ftz, .sat).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simwarp.floats.elementwise import common_dtype, elementwise, redo
from simwarp.floats.error_free import signed_zero, sum_through_odd, two_product, two_sum
from simwarp.floats.formats import FORMATS
from simwarp.floats.fused import fused_by_parts
from simwarp.floats.packing import exact, pack
from simwarp.floats.rounding import Floats, Rounding, check_rounding, directed, to_float32

_quiet = np.errstate(all="ignore")


def add(a: Any, b: Any, rounding: Rounding = "rn") -> Any:
    """The sum a + b (PTX ISA 9.7.3.3, ``add``).

    Parameters
    ----------
    a, b : float32 or float64, both of one type, of shapes that broadcast
    rounding : "rn", "rz", "rm" or "rp"

    Returns
    -------
    array of the same type

    Raises
    ------
    DtypeError, SchemeError
        For operands of other types, or an unknown rounding; so in all functions of this module.

    Examples
    --------
    >>> one, tiny = np.float32(1), np.float32(1e-30)
    >>> [float(add(one, tiny, mode)) for mode in ("rn", "rp")]
    [1.0, 1.0000001192092896]
    """
    return _rounded(np.add, _ADD, rounding, a, b)


def sub(a: Any, b: Any, rounding: Rounding = "rn") -> Any:
    """The difference a - b (PTX ISA 9.7.3.4, ``sub``).

    Parameters
    ----------
    a, b, rounding
        As of `add`.

    Examples
    --------
    >>> float(sub(np.float32(1), np.float32(1), "rm"))
    -0.0
    """
    return add(a, np.negative(b), rounding)


def mul(a: Any, b: Any, rounding: Rounding = "rn") -> Any:
    """The product a · b (PTX ISA 9.7.3.5, ``mul``).

    Parameters
    ----------
    a, b, rounding
        As of `add`.

    Examples
    --------
    >>> huge = np.float32(3e38)
    >>> [float(mul(huge, huge, mode)) for mode in ("rn", "rz")]
    [inf, 3.4028234663852886e+38]
    """
    return _rounded(np.multiply, _MUL, rounding, a, b)


def div(a: Any, b: Any, rounding: Rounding = "rn") -> Any:
    """The quotient a / b (PTX ISA 9.7.3.8, ``div``).

    Parameters
    ----------
    a, b, rounding
        As of `add`.

    Examples
    --------
    >>> one, three = np.float64(1), np.float64(3)
    >>> float(div(one, three, "rp")) - float(div(one, three, "rm")) == 2.0**-54
    True
    """
    return _rounded(np.divide, _DIV, rounding, a, b)


def rcp(a: Any, rounding: Rounding = "rn") -> Any:
    """The reciprocal 1 / a (PTX ISA 9.7.3.13, ``rcp``).

    Parameters
    ----------
    a, rounding
        As of `add`.

    Examples
    --------
    >>> float(rcp(np.float32(-0.0)))
    -inf
    """
    return div(common_dtype(a).type(1), a, rounding)


def sqrt(a: Any, rounding: Rounding = "rn") -> Any:
    """The square root of a; NaN for a < 0, -0 for -0 (PTX ISA 9.7.3.15, ``sqrt``).

    Parameters
    ----------
    a, rounding
        As of `add`.

    Examples
    --------
    >>> two = np.float64(2)
    >>> [float(sqrt(two, mode)) for mode in ("rn", "rz")]
    [1.4142135623730951, 1.414213562373095]
    """
    return _rounded(np.sqrt, _SQRT, rounding, a)


@_quiet
def flush(a: Any) -> Any:
    """Replace subnormal numbers by zeros of the same sign: the modifier ``.ftz``.

    Parameters
    ----------
    a : float32 or float64

    Examples
    --------
    >>> flush(np.float32([-1e-40, 1e-30])).tolist()
    [-0.0, 1.0000000031710769e-30]
    """
    return np.multiply(a, np.abs(a) >= np.finfo(common_dtype(a)).tiny)


@_quiet
def saturate(a: Any) -> Any:
    """Clamp ``a`` to [+0, 1], and NaN to +0: the modifier ``.sat``.

    Parameters
    ----------
    a : float32 or float64

    Examples
    --------
    >>> saturate(np.float32([np.nan, -0.0, 0.5, np.inf])).tolist()
    [0.0, 0.0, 0.5, 1.0]
    """
    common_dtype(a)
    return elementwise(_saturate, a)


@_quiet
def _rounded(nearest: np.ufunc, others: dict[int, Any], rounding: Rounding, *operands: Any) -> Any:
    """Round to nearest with NumPy; other roundings call the function in ``others`` for the operand size."""
    dtype = common_dtype(*operands)
    if rounding == "rn":
        return nearest(*operands)
    check_rounding(rounding)
    return elementwise(partial(others[dtype.itemsize], rounding), *operands)


def _saturate(a: Floats) -> Floats:
    result = np.fmax(a, a.dtype.type(0))
    np.fmin(result, a.dtype.type(1), out=result)
    result += 0  # fmax may return -0 for -0 and +0
    return result


def _in_float64(operation: np.ufunc, rounding: Rounding, *operands: Floats) -> Floats:
    # A product of float32 is exact in float64. A quotient or root that is not a float32 is farther from every
    # float32 than the rounding error of float64.
    return to_float32(operation(*operands, dtype=np.float64), rounding)


def _add_64(rounding: Rounding, a: Floats, b: Floats) -> Floats:
    nearest, rest = two_sum(a, b)
    hard = ~np.isfinite(rest)
    result = directed(signed_zero(nearest, a, b, rounding), rest, rounding)
    return redo(result, hard, partial(fused_by_parts, rounding), a, np.ones_like(a), b)


def _mul_64(rounding: Rounding, a: Floats, b: Floats) -> Floats:
    nearest, rest = two_product(a, b)
    hard = ~((np.abs(nearest) >= _EXACT_PRODUCT) & np.isfinite(rest))
    zero = np.copysign(0.0, a) * np.copysign(1.0, b)
    return redo(directed(nearest, rest, rounding), hard, partial(fused_by_parts, rounding), a, b, zero)


def _div_64(rounding: Rounding, a: Floats, b: Floats) -> Floats:
    nearest, rest = _quotient(a, b)
    hard = ~((np.abs(a) >= _EXACT_PRODUCT) & np.isfinite(rest))
    return redo(directed(nearest, rest, rounding), hard, partial(_div_by_parts, rounding), a, b)


def _div_by_parts(rounding: Rounding, a: Floats, b: Floats) -> Floats:
    """The quotient of float64 with any exponents, also of zeros, infinities and NaN."""
    (a_part, a_exponent), (b_part, b_exponent) = np.frexp(a), np.frexp(b)
    nearest, rest = _quotient(a_part, b_part)
    exponent = a_exponent.astype(np.int64) - b_exponent
    result = pack(exact(nearest, rest, exponent), FORMATS["f64"], rounding).view(np.float64)
    return np.where(np.isfinite(nearest) & (nearest != 0), result, nearest)


def _quotient(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The float64 nearest to a / b, and a number with the sign of its error: the remainder's times b's."""
    nearest = np.divide(a, b)
    product, error = two_product(nearest, b)
    return nearest, ((a - product) - error) * np.copysign(1.0, b)


def _sqrt_64(rounding: Rounding, a: Floats) -> Floats:
    # Scale to [1/4, 1) by a power of 4, so that the root is scaled back exactly.
    part, exponent = np.frexp(a)
    odd = exponent & 1
    part = np.ldexp(part, -odd)
    nearest = np.sqrt(part)
    product, error = two_product(nearest, nearest)
    return np.ldexp(directed(nearest, (part - product) - error, rounding), (exponent + odd) >> 1)


_EXACT_PRODUCT = 2.0**-960

_ADD = {4: sum_through_odd, 8: _add_64}
_MUL = {4: partial(_in_float64, np.multiply), 8: _mul_64}
_DIV = {4: partial(_in_float64, np.divide), 8: _div_64}
_SQRT = {4: partial(_in_float64, np.sqrt), 8: _sqrt_64}
