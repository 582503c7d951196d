"""Matrix elements that expose mistakes in products: ends of types, sums that cancel, NaN among numbers.

A *style* draws elements of the operands a, b or c of a product. All matrices of one product share a style,
since its effect shows only in the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from simwarp.floats.formats import FORMATS
from simwarp.floats.packing import join
from simwarp.lab.evidence.operands import FLOATS, Words, pick
from simwarp.verify.draw import Draw

Style: TypeAlias = Callable[[Draw, str, str, int], Words]
"""(draw, name of the operand, its type, count) → uint64 elements, each in its low bits."""


def styles_of(kind: str) -> tuple[Style, ...]:
    """The distributions of test elements for products of an element type."""
    return FLOATING if kind in FLOATS else WHOLE


def anything(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Elements of random bits."""
    return draw.words(count) & np.uint64((1 << _bits(kind)) - 1)


def _bits(kind: str) -> int:
    return sum(FLOATS[kind]) + 1 if kind in FLOATS else int(kind[1:])


def _each(a: Style, b: Style, c: Style) -> Style:
    """A style that uses its own style for each of the operands a, b and c."""
    by_name = {"a": a, "b": b, "c": c}
    return lambda draw, name, kind, count: by_name[name](draw, name, kind, count)


def among(style: Style, special: Style, one_in: int) -> Style:
    """A style in which one in ``one_in`` elements has the style ``special``."""

    def mixed(draw: Draw, name: str, kind: str, count: int) -> Words:
        chosen = draw.words(count) % np.uint64(one_in) == 0
        return np.where(chosen, special(draw, name, kind, count), style(draw, name, kind, count))

    return mixed


# ----------------------------------------------------------------------------------- integers and bits


def ends(draw: Draw, name: str, kind: str, count: int) -> Words:
    """The least and largest integers of a type, with c near an end, so that sums overflow."""
    bits = _bits(kind)
    ones, sign, near = (1 << bits) - 1, 1 << (bits - 1), 1 << 12
    if name == "c":
        start = pick(draw, np.array([sign - near, sign], np.uint64), count)
        return start + draw.words(count) % np.uint64(near)
    return pick(draw, np.array([0, 1, sign, sign - 1 & ones, ones, ones], np.uint64), count)


def _one_end(draw: Draw, name: str, kind: str, count: int) -> Words:
    bits = _bits(kind)
    large = (1 << (bits - 1), (1 << (bits - 1)) - 1 or 1, (1 << bits) - 1)
    return np.full(count, draw.choice(large), np.uint64)


ALIKE = _each(_one_end, _one_end, ends)
"""The largest products, all of one sign, with c near an end of its type."""


# ---------------------------------------------------------------------------------------------- floats


def between(low: int | None, high: int | None) -> Style:
    """Normal numbers with exponents from ``low`` to ``high``, clipped to the type; None: no limit."""

    def style(draw: Draw, name: str, kind: str, count: int) -> Words:
        exponent = FLOATS[kind][0]
        bias, last = (1 << (exponent - 1)) - 1, (1 << exponent) - (1 if kind == "e4m3" else 2)
        first = 1 if low is None else min(max(low + bias, 1), last)
        end = last if high is None else min(max(high + bias, first), last)
        fields = np.uint64(first) + draw.words(count) % np.uint64(end - first + 1)
        fractions = _fractions(draw, kind, count)
        if kind == "e4m3":  # the last fraction of the last exponent is NaN
            fractions = np.where(fields == last, fractions % np.uint64(7), fractions)
        return _float(draw, kind, fields, fractions)

    return style


def _fractions(draw: Draw, kind: str, count: int) -> Words:
    return draw.words(count) & np.uint64((1 << FLOATS[kind][1]) - 1)


def _float(draw: Draw, kind: str, field: Words | int, fraction: Words) -> Words:
    """Assemble floats with random signs from exponent fields and fractions."""
    negative = draw.words(fraction.size) % np.uint64(2) == 1
    magnitude = np.asarray(field, np.uint64) << np.uint64(FLOATS[kind][1]) | fraction
    return join(negative, magnitude, FORMATS[kind]).astype(np.uint64)


def zeros(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Zeros with random signs."""
    return _float(draw, kind, 0, np.zeros(count, np.uint64))


def subnormal(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Subnormal numbers and zeros, with random signs."""
    return _float(draw, kind, 0, _fractions(draw, kind, count))


SMALL_TIMES_LARGE = _each(subnormal, between(-8, 15), between(-8, 15))
_ROOT_OF_LEAST = {4: (-6, -4), 5: (-14, -10), 8: (-80, -68), 11: (-540, -532)}
"""By number of exponent bits: the exponents of numbers whose products are near the least subnormal."""


def _tiny(draw: Draw, name: str, kind: str, count: int) -> Words:
    return between(*_ROOT_OF_LEAST[FLOATS[kind][0]])(draw, name, kind, count)


TINY = _each(_tiny, _tiny, zeros)
"""Products near or below the least subnormal result, with zeros in c."""


def _power(exponent: int) -> Style:
    """A power of two with random sign, subnormal where the exponent requires it."""

    def style(draw: Draw, name: str, kind: str, count: int) -> Words:
        bits, fraction, _ = FLOATS[kind]
        field = exponent + (1 << (bits - 1)) - 1
        below = 1 << (fraction + field - 1) if field < 1 else 0
        return _float(draw, kind, max(field, 0), np.full(count, below, np.uint64))

    return style


def _one_magnitude(draw: Draw, name: str, kind: str, count: int) -> Words:
    one = (1 << (FLOATS[kind][0] - 1)) - 1
    return _float(draw, kind, one, np.repeat(_fractions(draw, kind, 1), count))


CANCELLING = _each(_one_magnitude, _power(0), between(-24, -4))
"""One magnitude with random signs in a, ones in b, small numbers in c: almost all products cancel."""


def _of_two_bits(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Numbers near 1 in which only the two highest bits of the fraction may be set."""
    _, fraction, unused = FLOATS[kind]
    below = (1 << unused + max(fraction - 2, 0)) - 1
    return between(-7, 3)(draw, name, kind, count) & ~np.uint64(below)


TIES = _each(_of_two_bits, _of_two_bits, between(2, 6))
"""Products whose sums lie halfway between two numbers of c's type."""


def _halves(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Zeros, a sixteenth of them halves, and a few subnormal numbers."""
    few = among(zeros, subnormal, 8)(draw, name, kind, count)
    return np.where(draw.words(count) % np.uint64(16) == 0, _power(-1)(draw, name, kind, count), few)


STICKY = _each(_halves, _power(0), between(10, 10))
"""Halves and a few subnormal numbers, times ones; c has numbers whose last place is 1 in f16.

A term far below a half decides the rounding, if it is still part of the sum.
"""
_LOWEST = {
    "f16": (-12, -13, -24),
    "bf16": (-74, -75, -80),
    "tf32": (-74, -75, -80),
    "e4m3": (-5, -5, -9),
    "e5m2": (-12, -13, -16),
    "f64": (-537, -538, -543),
}
"""By type: exponents of a and b with a product of half the least result, and of far smaller factors."""


def lowest(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Mostly zeros, with a few products near the least result and a few far below it; zeros in c."""
    if name == "c":
        return zeros(draw, name, kind, count)
    in_a, in_b, small = _LOWEST[kind]
    large = _power(in_a if name == "a" else in_b)(draw, name, kind, count)
    either = among(_power(small), _power(small + 1), 2)(draw, name, kind, count)
    turn = draw.words(count) % np.uint64(16 if name == "a" else 3)
    few = np.where(turn <= (2 if name == "a" else 1), either, zeros(draw, name, kind, count))
    return np.where(turn == 0, large, few)


def infinite(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Infinities of both signs; for e4m3, which has no infinity, its largest numbers."""
    last, fraction = (1 << FLOATS[kind][0]) - 1, 6 if kind == "e4m3" else 0
    return _float(draw, kind, last, np.full(count, fraction, np.uint64))


def nan(draw: Draw, name: str, kind: str, count: int) -> Words:
    """NaN with random signs and payloads."""
    exponent, fraction, _ = FLOATS[kind]
    payloads = np.uint64(1) + draw.words(count) % np.uint64((1 << fraction) - 1)
    if kind == "e4m3":
        payloads = np.full(count, 7, np.uint64)
    return _float(draw, kind, (1 << exponent) - 1, payloads)


# ------------------------------------------------------------------------------------------------ both


def _nothing(draw: Draw, name: str, kind: str, count: int) -> Words:
    return np.zeros(count, np.uint64)


_NEAR, _WIDE, _LITTLE = between(-2, 2), between(None, None), between(-3, 3)

WHOLE: tuple[Style, ...] = (anything, ends, among(_nothing, anything, 8), ALIKE)
"""The styles of integer and bit matrices; warp k uses style k modulo their number."""
FLOATING: tuple[Style, ...] = (
    _NEAR,
    between(-8, 8),
    _WIDE,
    CANCELLING,
    _each(_LITTLE, _LITTLE, between(8, 20)),
    _each(_LITTLE, _LITTLE, between(-30, -12)),
    TIES,
    SMALL_TIMES_LARGE,
    subnormal,
    TINY,
    STICKY,
    lowest,
    among(subnormal, _WIDE, 4),
    zeros,
    among(zeros, _NEAR, 8),
    between(5, None),
    among(_NEAR, infinite, 100),
    among(among(_NEAR, infinite, 100), nan, 100),
    anything,
)
"""The styles of float matrices; warp k uses style k modulo their number."""
