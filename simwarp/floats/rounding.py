"""Directed roundings, computed from NumPy's result and the sign of its error.

The functions of this package compute the exact result as ``nearest + rest``: NumPy's result, rounded to
nearest, and an error term of which only the sign matters. Every other rounding is that result, or the next
number on the side of the error.

*Round to odd* (toward zero, then set the last bit if the result is inexact) is the rounding for intermediate
results: rounding again, to at least two bits fewer and in any direction, gives the same as rounding the
exact value (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008).

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
"""`Rounding`, and "rna": nearest with ties away from zero."""

Floats: TypeAlias = npt.NDArray[Any]
Words: TypeAlias = npt.NDArray[Any]
Lanes: TypeAlias = npt.NDArray[np.bool_]


def check_rounding(rounding: str, *also: str) -> None:
    """Raise SchemeError unless the rounding is rn, rz, rm, rp or one of ``also``."""
    known = ("rn", "rz", "rm", "rp", *also)
    if rounding not in known:
        raise SchemeError(f"unknown rounding {rounding!r}\nchoose one of {', '.join(known)}")


def directed(nearest: Floats, rest: Floats, rounding: Rounding) -> Floats:
    """Round the exact value ``nearest + rest``, in place: ``nearest`` is the float nearest to it.

    Only the sign of ``rest`` matters; NaN counts as 0. An overflow is an infinity in ``nearest``, with a
    ``rest`` of the other sign; an underflow is a zero of the exact value's sign.
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
    """Round ``nearest + rest`` (see `directed`) to odd, in place: the last bit of inexact results is 1."""
    inexact = (rest < 0) | (rest > 0)
    if inexact.any():
        bits = _bits(nearest)
        bits -= inexact & (np.signbit(nearest) != np.signbit(rest))
        bits |= inexact
    return nearest


def to_float32(x: Floats, rounding: Rounding) -> Floats:
    """Round a float64 array, of at least one axis, to float32."""
    nearest = x.astype(np.float32)
    return nearest if rounding == "rn" else directed(nearest, x - nearest, rounding)


def drop(significand: Words, count: Any, rounding: NarrowRounding, negative: Lanes) -> Words:
    """Drop the low ``count`` bits of magnitudes, at least 1 and less than the width, and round the rest.

    Significands must have room at the top for a carry; ``negative`` is the sign of the values.
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
