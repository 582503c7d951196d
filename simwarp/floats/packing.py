"""Exact values of any exponent, and their single rounding into the words of a format.

For results that the fast paths do not cover: overflows, subnormal numbers, and formats that NumPy lacks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simwarp.floats.formats import Format
from simwarp.floats.rounding import Floats, Lanes, NarrowRounding, Words, drop


class Exact(NamedTuple):
    """Numbers ± significand · 2^(exponent - 61), rounded to odd.

    A significand is 0, or from 2^61 - 1 to 2^62 - 1; its last bit is also set if the number has further bits.
    """

    negative: Lanes
    significand: Words
    exponent: Words  # for a zero, below all other exponents


def exact(nearest: Floats, rest: Any = 0.0, exponent: Any = 0) -> Exact:
    """Convert float64 numbers ``(nearest + rest) · 2^exponent`` to `Exact`.

    Only the sign of ``rest`` matters; it is less than half a unit of ``nearest``. The result is meaningless
    for NaN and infinity; a subnormal ``nearest`` is taken for some value of its sign below 2^-1022.
    """
    bits = nearest.view(np.uint64)
    negative = np.signbit(nearest)
    zero = nearest == 0
    power = ((bits >> 52) & 0x7FF).astype(np.int64) - 1023 + exponent
    significand = ((bits & (2**52 - 1)) | 2**52) << 9
    inexact = (rest < 0) | (rest > 0)
    significand -= inexact & (negative != np.signbit(rest))
    significand |= inexact
    return Exact(negative, np.where(zero, np.uint64(0), significand), np.where(zero, _LEAST, power))


_LEAST = np.int64(-(10**5))


def pack(x: Exact, format: Format, rounding: NarrowRounding, saturate: bool = False) -> Words:
    """Round exact numbers once, into words of a floating-point format.

    An overflow gives infinity (NaN in a format without infinity) if the rounding goes away from zero and
    ``saturate`` is not set, else the largest finite value.
    """
    fraction_bits, least = format.fraction_bits, format.least_exponent
    # A subnormal number loses one more bit for each binade below the least normal one.
    below = np.maximum(least - x.exponent, 0)
    kept = drop(x.significand, np.minimum(61 - fraction_bits + below, 63), rounding, x.negative)
    binade = np.clip(x.exponent - least, 0, format.greatest_exponent - least + 1).astype(np.uint64)
    # The leading 1 of ``kept``, and a carry out of it, add to the exponent field.
    magnitude = np.minimum(kept + (binade << fraction_bits), _limit(format, rounding, x.negative, saturate))
    return join(x.negative, magnitude, format)


def _limit(format: Format, rounding: NarrowRounding, negative: Lanes, saturate: bool) -> Words:
    """The magnitude to which an overflow rounds: the largest finite word, or the next larger word."""
    toward: dict[str, Any] = {"rz": 0, "rm": negative, "rp": ~negative}
    outward = 0 if saturate else toward.get(rounding, 1)
    return np.add(np.uint64(format.largest), outward, dtype=np.uint64)


def join(negative: Lanes, magnitude: Words, format: Format) -> Words:
    """Combine signs and magnitudes without padding into words of a format."""
    word = format.word.type
    signs = negative.astype(format.word) * word(format.sign)
    return (magnitude.astype(format.word) << word(format.padding)) | signs
