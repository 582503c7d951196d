"""The fused multiply-add: a · b + c with one rounding.

NumPy has no fused multiply-add. A float32 product is exact in float64, and so is the error of the sum with c
(Knuth's two-sum); a float64 product has an error of its own (Dekker's two-product). The sums are rounded
twice, which is wrong only where the first rounding ends exactly halfway between two results. These elements,
and those near the ends of the exponent range, are recomputed exactly.

Source: PTX ISA 9.0, section 9.7.3.6 (fma); Boldo and Melquiond, IEEE Transactions on Computers 57(4),
2008 (emulation of the fused multiply-add).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simwarp.floats.elementwise import common_dtype, elementwise, redo
from simwarp.floats.error_free import signed_zero, sum_to_float32, two_product, two_sum
from simwarp.floats.formats import FORMATS
from simwarp.floats.packing import exact, pack
from simwarp.floats.rounding import Floats, Lanes, Rounding, check_rounding, directed, to_odd


@np.errstate(all="ignore")
def fma(a: Any, b: Any, c: Any, rounding: Rounding = "rn") -> Any:
    """The sum a · b + c, rounded once (PTX ISA 9.7.3.6, ``fma``).

    Parameters
    ----------
    a, b, c : float32 or float64, all of one type, of shapes that broadcast
    rounding : "rn", "rz", "rm" or "rp"

    Returns
    -------
    array of the same type

    Raises
    ------
    DtypeError, SchemeError
        For operands of other types, or an unknown rounding.

    Examples
    --------
    >>> x, c = np.float32(1 + 2.0**-23), np.float32(-1 - 2.0**-22)
    >>> float(x * x + c), float(fma(x, x, c)) == 2.0**-46
    (0.0, True)
    """
    check_rounding(rounding)
    if common_dtype(a, b, c).itemsize == 4:
        return elementwise(partial(_single, rounding), a, b, c)
    if rounding == "rn":
        return elementwise(_double, a, b, c)
    return elementwise(partial(_double_directed, rounding), a, b, c)


def _single(rounding: Rounding, a: Floats, b: Floats, c: Floats) -> Floats:
    product = a.astype(np.float64)
    product *= b
    return sum_to_float32(product, c, rounding)


def _double(a: Floats, b: Floats, c: Floats) -> Floats:
    product, product_error = two_product(a, b)
    total, total_error = two_sum(product, c)
    error = np.add(product_error, total_error)
    result = np.add(total, error)
    hard = _hard(result, product, total, a, b)
    # The rounding of ``error`` matters only if it ends halfway, at a few quarter units of ``total``.
    low = error.view(np.uint64)
    low <<= 20
    if low.min(initial=1) == 0:
        hard |= (low == 0) & (product_error != 0) & (total_error != 0)
    return redo(result, hard, partial(fused_by_parts, "rn"), a, b, c)


def _double_directed(rounding: Rounding, a: Floats, b: Floats, c: Floats) -> Floats:
    product, product_error = two_product(a, b)
    total, total_error = two_sum(product, c)
    nearest, rest = _nearest_and_rest(total, total_error, product_error)
    hard = _hard(nearest, product, total, a, b)
    result = directed(signed_zero(nearest, product, c, rounding), rest, rounding)
    return redo(result, hard, partial(fused_by_parts, rounding), a, b, c)


def _hard(result: Floats, product: Floats, total: Floats, a: Floats, b: Floats) -> Lanes:
    """The elements to recompute: the product's error may underflow, or a result overflowed.

    Elements with a factor of 0 become ``total``, since adding errors may change the sign of a 0.
    """
    hard = np.abs(product) < 2.0**-960
    if hard.any():
        zero = hard & ((a == 0) | (b == 0))
        np.copyto(result, total, where=zero)
        hard &= ~zero
    return hard | ~np.isfinite(result)


def _nearest_and_rest(total: Floats, error: Floats, more: Floats) -> tuple[Floats, Floats]:
    """The float64 nearest to total + error + more, and a number with the sign of its error."""
    return two_sum(total, to_odd(*two_sum(error, more)))


def fused_by_parts(rounding: Rounding, a: Floats, b: Floats, c: Floats) -> Floats:
    """The sum a · b + c of float64 of any exponent, also of zeros, infinities and NaN.

    Significands and exponents are separated. The smaller of product and addend is scaled up to 2^-200 of the
    other if it is less, which does not change the rounded result.
    """
    (a, a_exponent), (b, b_exponent), (c, c_exponent) = (np.frexp(x) for x in (a, b, c))
    product_exponent = np.where(a * b == 0, _OF_ZERO, a_exponent + b_exponent)
    c_exponent = np.where(c == 0, _OF_ZERO, c_exponent)
    exponent = np.maximum(product_exponent, c_exponent)
    a = np.ldexp(a, np.maximum(product_exponent - exponent, -200))
    c = np.ldexp(c, np.maximum(c_exponent - exponent, -200))
    product, product_error = two_product(a, b)
    plain, plain_error = two_sum(product, c)
    nearest, rest = _nearest_and_rest(plain, plain_error, product_error)
    result = pack(exact(nearest, rest, exponent), FORMATS["f64"], rounding).view(np.float64)
    # NumPy's infinities, NaN and zeros are right, except for the sign of zeros in other roundings.
    ready = ~np.isfinite(plain) | (nearest == 0)
    return np.where(ready, signed_zero(plain, product, c, rounding), result)


_OF_ZERO = np.int32(-10000)
