"""Words of floating-point formats decoded to numbers and exponents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simwarp.floats.formats import FORMATS, Format
from simwarp.products.warps import Tiles

OF_ZERO = -1000
"""The exponent of a zero, far below all others."""


class Numbers(NamedTuple):
    """Finite numbers, and where something else stood.

    Attributes
    ----------
    value : float64 array
        0 where ``special`` is not.
    exponent : int16 array
        The binary exponent, a subnormal number's being the least one of its format; `OF_ZERO` of 0.
    special : float64 array or None
        0, or an infinity or NaN; None if there is none.
    """

    value: Tiles
    exponent: Tiles
    special: Tiles | None


def decode(words: Tiles, name: str) -> Numbers:
    """The numbers that words of a format stand for; low bits that the format ignores are dropped."""
    format = FORMATS[name]
    magnitude = words & words.dtype.type(format.nan)  # all bits but the sign, and none of the padding
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
    """The words shifted to a float64's fields; the factor corrects the bias of the exponent."""
    wide = magnitude.astype(np.uint64)
    wide <<= np.uint64(52 - format.fraction_bits - format.padding)
    wide |= (words >= format.sign).astype(np.uint64) << np.uint64(63)
    value = wide.view(np.float64)
    value *= 2.0 ** (1022 + format.least_exponent)
    return value
