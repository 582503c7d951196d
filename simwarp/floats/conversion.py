"""Conversions between float32, float64 and integers, and to integral values, in every rounding.

Source: PTX ISA 9.0, section 9.7.9.21 (cvt).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from simwarp.floats.elementwise import common_dtype, elementwise
from simwarp.floats.error_free import two_sum
from simwarp.floats.rounding import Floats, Rounding, Words, check_rounding, directed, to_float32, to_odd

_quiet = np.errstate(all="ignore")


@_quiet
def convert(x: Any, dtype: npt.DTypeLike, rounding: Rounding = "rn") -> Any:
    """Convert between float32 and float64 (PTX ISA 9.7.9.21, ``cvt``).

    Parameters
    ----------
    x : float32 or float64
    dtype : float32 or float64
    rounding : "rn", "rz", "rm" or "rp"
        The rounding of float64 to float32; other conversions are exact.

    Raises
    ------
    DtypeError, SchemeError
        For another type, or an unknown rounding.

    Examples
    --------
    >>> [float(convert(np.float64(1e300), np.float32, mode)) for mode in ("rn", "rz")]
    [inf, 3.4028234663852886e+38]
    """
    check_rounding(rounding)
    source, target = common_dtype(x), _float_dtype(dtype)
    if target == source or target.itemsize == 8 or rounding == "rn":
        return x.astype(target)
    return elementwise(partial(to_float32, rounding=rounding), x, dtype=target)


@_quiet
def round_integral(a: Any, rounding: Rounding) -> Any:
    """Round to an integral value of the same type (PTX ISA 9.7.9.21, ``.rni .rzi .rmi .rpi``).

    Parameters
    ----------
    a : float32 or float64
    rounding : "rn", "rz", "rm" or "rp"

    Raises
    ------
    DtypeError, SchemeError
        For another type, or an unknown rounding.

    Examples
    --------
    >>> [float(round_integral(np.float32(-2.5), mode)) for mode in ("rn", "rz", "rm", "rp")]
    [-2.0, -2.0, -3.0, -2.0]
    """
    common_dtype(a)
    check_rounding(rounding)
    return _INTEGRAL[rounding](a)


_INTEGRAL: dict[str, np.ufunc] = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}


@_quiet
def from_integer(i: Any, dtype: npt.DTypeLike, rounding: Rounding = "rn") -> Any:
    """Convert integers to floats (PTX ISA 9.7.9.21, ``cvt``).

    Parameters
    ----------
    i : integers of 8 to 64 bits, signed or not
    dtype : float32 or float64
    rounding : "rn", "rz", "rm" or "rp"

    Raises
    ------
    DtypeError, SchemeError
        For another type, or an unknown rounding.

    Examples
    --------
    >>> [int(from_integer(np.int32(2**24 + 1), np.float32, mode)) for mode in ("rn", "rp")]
    [16777216, 16777218]
    """
    check_rounding(rounding)
    source, target = i.dtype, _float_dtype(dtype)
    if source.kind not in "iu":
        raise DtypeError(f"i has elements of {source}\nintegers are needed\npass (u)int8 to (u)int64")
    if rounding == "rn":
        return i.astype(target)
    if source.itemsize < 8:
        return convert(i.astype(np.float64), target, rounding)
    return elementwise(partial(_from_64_bits, target.itemsize == 4, rounding), i, dtype=target)


def _from_64_bits(single: bool, rounding: Rounding, i: Words) -> Floats:
    high, low = i >> 32, i & 0xFFFFFFFF
    nearest, rest = two_sum(high.astype(np.float64) * 2.0**32, low.astype(np.float64))
    return to_float32(to_odd(nearest, rest), rounding) if single else directed(nearest, rest, rounding)


@_quiet
def to_integer(a: Any, dtype: npt.DTypeLike, rounding: Rounding) -> Any:
    """Convert floats to integers (PTX ISA 9.7.9.21, ``cvt``): values out of range are clamped, NaN gives 0.

    Parameters
    ----------
    a : float32 or float64
    dtype : integer of 8 to 64 bits, signed or not
    rounding : "rn", "rz", "rm" or "rp"

    Raises
    ------
    DtypeError, SchemeError
        For another type, or an unknown rounding.

    Examples
    --------
    >>> to_integer(np.float32([-2.5, 1e30, np.nan]), np.int32, "rn").tolist()
    [-2, 2147483647, 0]
    """
    common_dtype(a)
    check_rounding(rounding)
    target = np.dtype(dtype)
    if target.kind not in "iu":
        raise DtypeError(f"dtype is {target}\nan integer type is needed\npass (u)int8 to (u)int64")
    return elementwise(partial(_to_integer, target, rounding), a, dtype=target)


def _to_integer(target: np.dtype[Any], rounding: Rounding, a: Floats) -> Words:
    ends = np.iinfo(target)
    greatest = _greatest_within(ends.max, a.dtype)
    integral = _INTEGRAL[rounding](a)
    result = np.clip(integral, a.dtype.type(ends.min), greatest).astype(target)
    unordered = np.isnan(integral)
    if unordered.any():
        result[unordered] = 0
    if int(greatest) != ends.max:
        result[integral > greatest] = ends.max
    return result


def _greatest_within(end: int, dtype: np.dtype[Any]) -> Any:
    """The largest float that is at most an integer."""
    nearest = dtype.type(end)
    return nearest if int(nearest) <= end else np.nextafter(nearest, dtype.type(0))


def _float_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    target = np.dtype(dtype)
    if target.kind != "f" or target.itemsize not in (4, 8):
        raise DtypeError(f"dtype is {target}\na float type is needed\npass float32 or float64")
    return target
