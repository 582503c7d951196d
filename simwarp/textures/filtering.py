"""The filtered mean of texels, bit for bit as on an H100.

Floats: each texel is cut to four bits more than its format has, counted from the largest one's exponent; the
weighted sum of these is exact, and is rounded to the format, halves away from zero. A cube is two squares, of
which each is cut by itself; their sum is cut, too. Integers that are read as floats are 16 bits wide in the
filter, and their mean is rounded to that, halves up. All of it was found by experiment (docs/textures.md).

>>> import numpy as np
>>> texels = np.array([[1.0], [2.0]])
>>> mean(texels, np.array([[192], [64]]), np.ones((2, 1), bool), np.zeros(2, int), np.float32).tolist()
[1.25]
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

_NOTHING = -5000
"""The exponent of zero."""
_GUARD = 4
"""Bits by which a texel is longer in the filter than in its format."""
_NAN = np.uint32(0x7FFFFFFF)


def mean(texels: Array, weights: Array, read: Array, squares: Array, dtype: npt.DTypeLike) -> Array:
    """The mean of float texels (taps, lanes), weights in 1/256, as float32.

    ``read`` marks the texels that take part, ``squares`` (taps,) numbers the square of each tap; ``dtype`` is
    the texels' own, float16 or float32.
    """
    info = np.finfo(dtype)
    bits = info.nmant + 1
    finite = np.where(read & np.isfinite(texels), texels, 0.0)
    if bits == 24:
        finite = _flushed(finite, info)
    numbers = np.unique(squares).tolist()
    parts = [_square(finite[squares == n], weights[squares == n], bits) for n in numbers]
    total = parts[0][0] if len(parts) == 1 else _sum(parts[0], parts[1], bits)
    signs = (np.signbit(finite) & ((weights != 0) | (finite == 0))) | ~read
    total = np.where(total == 0, np.where(signs.all(axis=0), -0.0, 0.0), total)
    total = _rounded(total, bits, info)
    endless = np.where(read & ~np.isfinite(texels), texels, 0.0).sum(axis=0)
    result = np.where(endless != 0, endless, total).astype(np.float32)
    lost = _NAN if bits == 24 else _NAN >> np.uint32(13) << np.uint32(13)
    result.view(np.uint32)[np.isnan(result)] = lost
    return result


def _flushed(values: Array, info: Any) -> Array:
    """Values with subnormal numbers replaced by zero of the same sign."""
    return np.where(np.abs(values) < info.smallest_normal, np.copysign(0.0, values), values)


def _square(texels: Array, weights: Array, bits: int) -> tuple[Array, Array]:
    """The exact weighted sum of a square's texels, truncated to ``bits``; and its largest exponent."""
    texels = np.where(weights != 0, texels, 0.0)
    exponents = np.where(texels == 0, _NOTHING, np.frexp(texels)[1])
    largest = exponents.max(axis=0)
    cut = np.trunc(np.ldexp(texels, bits + _GUARD - largest))
    return np.ldexp((cut * weights).sum(axis=0), largest - bits - _GUARD - 8), largest


def _sum(first: tuple[Array, Array], second: tuple[Array, Array], bits: int) -> Array:
    """The sum of two squares' sums, each cut downwards at a multiple of four bits below the largest."""
    (one, of_one), (other, of_other) = first, second
    both = (of_one > _NOTHING) & (of_other > _NOTHING)
    unit = 4 * ((np.maximum(of_one, of_other) - 2) // 4) - (bits + 10)
    floors = np.floor(np.ldexp(one, -unit)) + np.floor(np.ldexp(other, -unit))
    return np.where(both, np.ldexp(floors, unit), one + other)


def _rounded(values: Array, bits: int, info: Any) -> Array:
    """Values rounded to ``bits`` bits, halves away from zero."""
    exponents = np.frexp(values)[1]
    if bits < 24:
        exponents = np.maximum(exponents, info.minexp + 1)
    scaled = np.ldexp(values, bits - exponents)
    rounded = np.ldexp(np.trunc(scaled + np.copysign(0.5, scaled)), exponents - bits)
    return _flushed(rounded, info) if bits == 24 else rounded


def normalized(values: Array, dtype: npt.DTypeLike) -> Array:
    """Integers of 8 or 16 bits as floats: 0 … 1 if they are unsigned, else -1 … 1."""
    dtype = np.dtype(dtype)
    return np.maximum(values / float(np.iinfo(dtype).max), -1.0).astype(np.float32)


def normalized_mean(values: Array, weights: Array, dtype: npt.DTypeLike) -> Array:
    """The mean of integer texels (taps, lanes), weights in 1/256, as `normalized` floats."""
    dtype = np.dtype(dtype)
    total = (values.astype(np.int64) * weights).sum(axis=0)
    if dtype == np.uint8:
        total *= 257
    wide = total + 128 >> 8
    if dtype == np.int8:  # int8 texels become 16-bit steps of width 258 or 259
        wide = total + (total + (total >> 12 << 4) + 64 >> 7)
    return normalized(wide, np.uint16 if dtype.kind == "u" else np.int16)
