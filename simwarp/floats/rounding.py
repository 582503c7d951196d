"""Where a rounding goes, once NumPy's own result and the sign of its error are known.

The functions of this package find the exact result as ``nearest + rest``: a number that NumPy rounded to
nearest, and an error term of which only the sign counts. From these two every rounding follows by one
step of the number's bits.

*Round to odd* (toward zero, then the last bit set where anything was lost) is the rounding for an
intermediate result: rounded again, to at least two bits fewer and in any direction, it gives what the
exact value would have given (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008).

Source: PTX ISA 9.0, section 9.7 (the rounding modifiers .rn .rz .rm .rp).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import SchemeError

Rounding: TypeAlias = Literal["rn", "rz", "rm", "rp"]
"""Nearest (ties to even), toward zero, toward minus infinity, toward plus infinity."""
NarrowRounding: TypeAlias = Literal["rn", "rna", "rz", "rm", "rp"]
"""The same, and nearest with ties away from zero."""

Floats: TypeAlias = npt.NDArray[Any]
Words: TypeAlias = npt.NDArray[Any]
Lanes: TypeAlias = npt.NDArray[np.bool_]


def check_rounding(rounding: str, *also: str) -> None:
    """Refuse a rounding of a name that does not exist.

    Raises
    ------
    SchemeError
        If it is none of rn, rz, rm, rp, nor of ``also``.

    Examples
    --------
    >>> check_rounding("rna")
    Traceback (most recent call last):
    ...
    reference.errors.SchemeError: there is no rounding 'rna' here
    choose one of rn, rz, rm, rp
    """
    known = ("rn", "rz", "rm", "rp", *also)
    if rounding not in known:
        raise SchemeError(f"there is no rounding {rounding!r} here\nchoose one of {', '.join(known)}")


def directed(nearest: Floats, rest: Floats, rounding: Rounding) -> Floats:
    """Round ``nearest + rest``, where ``nearest`` is the float nearest to it.

    Parameters
    ----------
    nearest : float32 or float64 array
        Overwritten. An overflow is an infinity here, with a ``rest`` of the other sign; an underflow is
        a zero of the exact value's sign.
    rest : float array
        Only its sign counts; NaN stands for 0.

    Examples
    --------
    >>> directed(np.array([1.0, -1.0]), np.array([1e-30, 1e-30]), "rz").tolist()
    [1.0, -0.9999999999999999]
    """
    if rounding == "rn":
        return nearest
    bits = _bits(nearest)
    negative = bits < 0
    if rounding == "rz":
        bits -= ((rest < 0) & ~negative) | ((rest > 0) & negative)
        return nearest
    moves, outward = (rest < 0, negative) if rounding == "rm" else (rest > 0, ~negative)
    bits += moves & outward
    bits -= moves & ~outward
    return nearest


def to_odd(nearest: Floats, rest: Floats) -> Floats:
    """Round ``nearest + rest`` to odd: a float with a 1 as its last bit, unless it is exact.

    Parameters
    ----------
    nearest, rest
        As of `directed`.

    Examples
    --------
    >>> [x.hex() for x in to_odd(np.array([1.0, 1.0, 1.0]), np.array([-1e-30, 0.0, 1e-30])).tolist()]
    ['0x1.fffffffffffffp-1', '0x1.0000000000000p+0', '0x1.0000000000001p+0']
    """
    inexact = (rest < 0) | (rest > 0)
    if inexact.any():
        bits = _bits(nearest)
        bits -= inexact & (np.signbit(nearest) != np.signbit(rest))
        bits |= inexact
    return nearest


def drop(significand: Words, count: Any, rounding: NarrowRounding, negative: Lanes) -> Words:
    """Drop the low ``count`` bits of unsigned integers, and round what stays.

    Parameters
    ----------
    significand : unsigned array
        With room at the top for a carry.
    count : int or unsigned array
        At least 1 and less than the width.
    negative : bool array
        The sign of the value that the integer is the magnitude of.

    Examples
    --------
    >>> plus = np.array([False])
    >>> [int(drop(np.uint32([0b10_10]), 2, mode, plus)[0]) for mode in ("rn", "rna", "rz", "rp")]
    [2, 3, 2, 3]
    """
    one = significand.dtype.type(1)
    count = np.asarray(count).astype(significand.dtype)
    ones = (one << count) - one
    if rounding == "rn":
        significand = significand + ((ones >> one) + ((significand >> count) & one))
    elif rounding == "rna":
        significand = significand + ((ones >> one) + one)
    elif rounding in ("rm", "rp"):
        outward = negative if rounding == "rm" else ~negative
        significand = significand + ones * outward
    return significand >> count


def _bits(x: Floats) -> npt.NDArray[Any]:
    return x.view(np.int64 if x.dtype.itemsize == 8 else np.int32)
