"""Decode words of floating-point formats to numbers and exponents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simwarp.floats.formats import FORMATS, Format
from simwarp.products.warps import Tiles

OF_ZERO = -1000
"""The exponent of zeros, far below all others."""


class Numbers(NamedTuple):
    """Decoded floats: values with their exponents; infinities and NaN are kept separately."""

    value: Tiles  # 0 for infinities and NaN
    exponent: Tiles  # the binary exponent, int16; the format's least for subnormal numbers, `OF_ZERO` for 0
    special: Tiles | None  # infinities and NaN, and 0 elsewhere; None if all values are finite


def decode(words: Tiles, name: str) -> Numbers:
    """Decode words of a format; low bits that the format ignores are dropped."""
    format = FORMATS[name]
    magnitude = words & words.dtype.type(format.nan)  # the word's bits without sign and padding
    field = (magnitude >> (format.fraction_bits + format.padding)).astype(np.int16)
    exponent = np.maximum(field, 1)
    exponent += format.least_exponent - 1
    exponent[magnitude == 0] = OF_ZERO
    value = _value(words, magnitude, format)
    largest = format.largest << format.padding
    if magnitude.max(initial=0) <= largest:
        return Numbers(value, exponent, None)
    outside = magnitude > largest
    infinite = format.has_infinity & (magnitude == largest + (1 << format.padding))
    special = np.where(outside, np.where(infinite, np.copysign(np.inf, value), np.nan), 0.0)
    value[outside], exponent[outside] = 0, OF_ZERO
    return Numbers(value, exponent, special)


def _value(words: Tiles, magnitude: Tiles, format: Format) -> Tiles:
    """Convert fields to float64: shift them into position, and correct the bias by a factor."""
    wide = magnitude.astype(np.uint64)
    wide <<= np.uint64(52 - format.fraction_bits - format.padding)
    wide |= (words >= format.sign).astype(np.uint64) << np.uint64(63)
    value = wide.view(np.float64)
    value *= 2.0 ** (1022 + format.least_exponent)
    return value
