"""Conversions of f16, bf16, tf32, e4m3 and e5m2, and arithmetic on f16 and bf16.

Source: PTX ISA 9.0, sections 5.2.3, 9.7.9.21 (cvt) and 9.7.4 (half precision add, sub, mul, fma).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from reference.errors import SchemeError, ShapeError
from simwarp.floats.elementwise import common_dtype, elementwise
from simwarp.floats.error_free import sum_to_odd
from simwarp.floats.formats import FORMATS, Format, FormatName
from simwarp.floats.packing import exact, join, pack
from simwarp.floats.rounding import Floats, NarrowRounding, Rounding, Words, check_rounding, drop, to_odd

HalfOperation: TypeAlias = Literal["add", "sub", "mul", "fma"]
HalfFormat: TypeAlias = Literal["f16", "bf16"]
_quiet = np.errstate(all="ignore")


@_quiet
def widen(words: Any, format: FormatName) -> Any:
    """Convert words of a format to float32, exactly; NaN stays NaN.

    Parameters
    ----------
    words : uint16 (f16, bf16), uint32 (tf32) or uint8 (e4m3, e5m2)
    format : "f16", "bf16", "tf32", "e4m3" or "e5m2"

    Raises
    ------
    SchemeError
        For an unknown format.

    Examples
    --------
    >>> float(widen(np.uint16(0x3F80), "bf16")), float(widen(np.uint8(0x7E), "e4m3"))
    (1.0, 448.0)
    """
    words = np.asarray(words)
    if format == "f16":
        return words.view(np.float16).astype(np.float32)
    if format == "bf16":
        return (words.astype(np.uint32) << 16).view(np.float32)
    if format == "tf32":
        return words.view(np.float32).copy()
    if format == "e5m2":  # the upper half of an f16
        return (words.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if format == "e4m3":
        return _E4M3[words]
    raise _no_format(format)


@_quiet
def narrow(x: Any, format: FormatName, rounding: NarrowRounding = "rn", saturate_finite: bool = False) -> Any:
    """Convert floats to words of a format, rounded once (PTX ISA 9.7.9.21, ``cvt``).

    An overflow gives infinity, in e4m3 NaN, unless the rounding goes toward zero; NaN gives the format's
    canonical NaN, which has all bits set except the sign.

    Parameters
    ----------
    x : float32 or float64
    format : "f16", "bf16", "tf32", "e4m3" or "e5m2"
    rounding : "rn", "rz", "rm", "rp", or "rna": to nearest, ties away from zero
    saturate_finite : bool
        Convert overflows and infinities to the largest finite value (``.satfinite``).

    Returns
    -------
    uint16, uint32 or uint8 array
        The words, as in `widen`; the low 13 bits of a tf32 word are 0.

    Raises
    ------
    DtypeError, SchemeError
        For operands of other types, or an unknown format or rounding.

    Examples
    --------
    >>> hex(narrow(np.float32(1e9), "f16")), hex(narrow(np.float32(1e9), "e4m3", saturate_finite=True))
    ('0x7c00', '0x7e')
    """
    common_dtype(x)
    check_rounding(rounding, "rna")
    if format not in _NARROW:
        raise _no_format(format)
    target = FORMATS[format]
    if format == "f16" and rounding == "rn" and not saturate_finite:
        function = _narrow_f16
    elif target.exponent_bits == FORMATS["f32"].exponent_bits:
        function = partial(_cut, target, rounding, saturate_finite)
    else:
        function = partial(_pack, target, rounding, saturate_finite)
    return elementwise(function, x, dtype=target.word)


def _narrow_f16(x: Floats) -> Words:
    return _canonical_nan(x.astype(np.float16).view(np.uint16), x, FORMATS["f16"])


def _cut(format: Format, rounding: NarrowRounding, saturate: bool, x: Floats) -> Words:
    """Round to a format with the exponents of float32: drop the last fraction bits of the word."""
    if x.dtype.itemsize == 8:
        nearest = x.astype(np.float32)
        x = to_odd(nearest, x - nearest)
    source = FORMATS["f32"]
    words = x.view(np.uint32)
    negative = words >= source.sign
    magnitude = words & np.uint32(source.sign - 1)
    kept = drop(magnitude, source.fraction_bits - format.fraction_bits, rounding, negative)
    if saturate:
        kept = np.minimum(kept, np.uint32(format.largest))
    return _canonical_nan(join(negative, kept, format), x, format)


def _pack(format: Format, rounding: NarrowRounding, saturate: bool, x: Floats) -> Words:
    words = pack(exact(x.astype(np.float64)), format, rounding, saturate)
    infinite = np.isinf(x)
    if infinite.any() and not saturate:
        words[infinite] = join(x[infinite] < 0, np.array([format.largest + 1]), format)
    return _canonical_nan(words, x, format)


def _canonical_nan(words: Words, x: Floats, format: Format) -> Words:
    unordered = np.isnan(x)
    if unordered.any():
        words[unordered] = format.nan
    return words


def _e4m3_values() -> Floats:
    """The value of every e4m3 word (OCP 8-bit Floating Point Specification, table 2)."""
    magnitude = np.arange(128)
    field, fraction = magnitude >> 3, magnitude & 7
    values = np.ldexp(np.where(field == 0, fraction, fraction + 8), np.maximum(field, 1) - 10)
    values[FORMATS["e4m3"].nan] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


_E4M3 = _e4m3_values()
_NARROW = ("f16", "bf16", "tf32", "e4m3", "e5m2")


def _no_format(name: str) -> SchemeError:
    return SchemeError(f"format is {name!r}\nchoose one of {', '.join(_NARROW)}")


_OPERANDS = {"add": 2, "sub": 2, "mul": 2, "fma": 3}


@_quiet
def half(operation: HalfOperation, *words: Any, format: HalfFormat, rounding: Rounding = "rn") -> Any:
    """Compute a + b, a - b, a · b or a · b + c of f16 or bf16, rounded once (PTX ISA 9.7.4).

    Parameters
    ----------
    operation : "add", "sub", "mul" or "fma"
    words : uint16, two of them or three, of shapes that broadcast
    format : "f16" or "bf16"
    rounding : "rn", "rz", "rm" or "rp"

    Returns
    -------
    uint16 array

    Raises
    ------
    SchemeError
        For an unknown operation, format or rounding.
    ShapeError
        For another number of operands.

    Examples
    --------
    >>> one = np.uint16(0x3C00)
    >>> hex(half("add", one, one, format="f16"))
    '0x4000'
    """
    check_rounding(rounding)
    if operation not in _OPERANDS:
        raise SchemeError(f"unknown half operation {operation!r}\nchoose one of {', '.join(_OPERANDS)}")
    if format not in ("f16", "bf16"):
        raise SchemeError(f"format of half arithmetic is {format!r}\nchoose f16 or bf16")
    if len(words) != _OPERANDS[operation]:
        raise ShapeError(f"{operation} of {len(words)} operands\npass {_OPERANDS[operation]} operands")
    return elementwise(partial(_half, operation, format, rounding), *words)


def _half(operation: HalfOperation, format: HalfFormat, rounding: Rounding, *words: Words) -> Words:
    """Compute in float64, where products of halves are exact and sums can be rounded to odd."""
    a, b, *c = (widen(x, format).astype(np.float64) for x in words)
    if operation in ("mul", "fma"):
        result = np.multiply(a, b)
        if c:
            result = sum_to_odd(result, c[0], rounding)
    else:
        result = sum_to_odd(a, b if operation == "add" else np.negative(b), rounding)
    return narrow(result, format, rounding)
