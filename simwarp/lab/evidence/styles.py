"""Elements of matrices that find mistakes in products: ends of types, sums that cancel, NaN among numbers.

A *style* makes so many elements of one of the operands a, b and c of a product; the matrices of one product
are of one style, since what is special about them shows in their product alone.

Examples
--------
>>> draw = Draw(0, "cancelling sums", 0)
>>> sorted(set(cancelling(draw, "b", "f16", 100).tolist())) == [0x3C00, 0xBC00]
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from simwarp.lab.evidence.operands import FLOATS, Words, pick
from simwarp.verify.draw import Draw

Style: TypeAlias = Callable[[Draw, str, str, int], Words]
"""(draw, the operand's name, its type, how many) → uint64 elements, each in its low bits."""
FORMATS = {**FLOATS, "e4m3": (4, 3, 0), "e5m2": (5, 2, 0)}
"""Of each floating type: the bits of its exponent, of its fraction, and unused ones below."""


def styles_of(kind: str) -> tuple[Style, ...]:
    """The styles of products of a type.

    Examples
    --------
    >>> len(styles_of("s8")), len(styles_of("f16"))
    (4, 19)
    """
    return FLOATING if kind in FORMATS else WHOLE


def anything(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Any bits.

    Examples
    --------
    >>> int(anything(Draw(0, "any", 0), "a", "u4", 1000).max())
    15
    """
    return draw.words(count) & np.uint64((1 << _bits(kind)) - 1)


def _bits(kind: str) -> int:
    return sum(FORMATS[kind]) + 1 if kind in FORMATS else int(kind[1:])


# ----------------------------------------------------------------------------------- integers and bits


def ends(draw: Draw, name: str, kind: str, count: int) -> Words:
    """The ends of a type; of c what lies near them, so that sums leave the type.

    Examples
    --------
    >>> sorted(set(ends(Draw(0, "ends", 0), "a", "s8", 100).tolist()))
    [0, 1, 127, 128, 255]
    """
    bits = _bits(kind)
    ones, sign, near = (1 << bits) - 1, 1 << (bits - 1), 1 << 12
    if name == "c":
        return pick(draw, np.array([sign - near, sign], np.uint64), count) + draw.words(count) % np.uint64(
            near
        )
    return pick(draw, np.array([0, 1, sign, sign - 1 & ones, ones, ones], np.uint64), count)


def alike(draw: Draw, name: str, kind: str, count: int) -> Words:
    """The largest products, all of one sign; c near an end.

    Examples
    --------
    >>> len(set(alike(Draw(0, "alike", 0), "a", "s8", 100).tolist()))
    1
    """
    if name == "c":
        return ends(draw, name, kind, count)
    bits = _bits(kind)
    large = (1 << (bits - 1), (1 << (bits - 1)) - 1 or 1, (1 << bits) - 1)
    return np.full(count, draw.choice(large), np.uint64)


# ---------------------------------------------------------------------------------------------- floats


def between(low: int | None, high: int | None, low_c: int | None = None, high_c: int | None = None) -> Style:
    """Numbers with exponents from ``low`` to ``high``; those of c, where given, from ``low_c`` to ``high_c``.

    None stands for the type's own end.

    Examples
    --------
    >>> elements = between(0, 1)(Draw(0, "near one", 0), "a", "f16", 100).astype(np.uint16)
    >>> sizes = np.abs(elements.view(np.float16))
    >>> bool(sizes.min() >= 1), bool(sizes.max() < 4)
    (True, True)
    """

    def style(draw: Draw, name: str, kind: str, count: int) -> Words:
        if name == "c" and low_c is not None:
            return _normal(draw, kind, count, low_c, high_c)
        return _normal(draw, kind, count, low, high)

    return style


def _normal(draw: Draw, kind: str, count: int, low: int | None, high: int | None) -> Words:
    """Normal numbers with exponents in a range, as far as the type has it."""
    exponent = FORMATS[kind][0]
    bias, last = (1 << (exponent - 1)) - 1, (1 << exponent) - (1 if kind == "e4m3" else 2)
    first = 1 if low is None else min(max(low + bias, 1), last)
    end = last if high is None else min(max(high + bias, first), last)
    fields = np.uint64(first) + draw.words(count) % np.uint64(end - first + 1)
    fractions = _fractions(draw, kind, count)
    if kind == "e4m3":  # the last one of the last exponent is NaN
        fractions = np.where(fields == last, fractions % np.uint64(7), fractions)
    return _float(draw, kind, fields, fractions)


def _fractions(draw: Draw, kind: str, count: int) -> Words:
    return draw.words(count) & np.uint64((1 << FORMATS[kind][1]) - 1)


def _float(draw: Draw, kind: str, field: Words | int, fraction: Words) -> Words:
    """Floats of either sign."""
    exponent, bits, unused = FORMATS[kind]
    signs = draw.words(fraction.size) % np.uint64(2) << np.uint64(exponent)
    words = (signs | np.asarray(field, np.uint64)) << np.uint64(bits) | fraction
    return words << np.uint64(unused)


def zeros(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Zeros of both signs.

    Examples
    --------
    >>> sorted(set(zeros(Draw(0, "zeros", 0), "a", "e5m2", 100).tolist()))
    [0, 128]
    """
    return _float(draw, kind, 0, np.zeros(count, np.uint64))


def subnormal(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Subnormal numbers, and zeros.

    Examples
    --------
    >>> int((subnormal(Draw(0, "subnormal", 0), "a", "f16", 100) & 0x7C00).max())
    0
    """
    return _float(draw, kind, 0, _fractions(draw, kind, count))


def small_times_large(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Subnormal numbers in a, large ones in b and c.

    Examples
    --------
    >>> int((small_times_large(Draw(0, "small", 0), "a", "f16", 100) & 0x7C00).max())
    0
    """
    return subnormal(draw, name, kind, count) if name == "a" else _normal(draw, kind, count, -8, 15)


_ROOT_OF_LEAST = {4: (-6, -4), 5: (-14, -10), 8: (-80, -68), 11: (-540, -532)}
"""By the bits of the exponent: exponents of numbers whose products are near the least subnormal result."""


def tiny(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Products about as small as the least result, or smaller; zeros in c.

    Examples
    --------
    >>> elements = tiny(Draw(0, "tiny", 0), "a", "f16", 100).astype(np.uint16)
    >>> bool(np.abs(elements.view(np.float16)).max() < 2**-9)
    True
    """
    if name == "c":
        return zeros(draw, name, kind, count)
    return _normal(draw, kind, count, *_ROOT_OF_LEAST[FORMATS[kind][0]])


def cancelling(draw: Draw, name: str, kind: str, count: int) -> Words:
    """In a one magnitude of either sign, in b ones, in c little: products cancel but for a few.

    Examples
    --------
    >>> elements = cancelling(Draw(0, "cancelling", 0), "a", "bf16", 100)
    >>> len(set(elements.tolist()))
    2
    """
    if name == "c":
        return _normal(draw, kind, count, -24, -4)
    if name == "b":
        return _power(draw, kind, count, 0)
    return _float(draw, kind, (1 << (FORMATS[kind][0] - 1)) - 1, np.repeat(_fractions(draw, kind, 1), count))


def ties(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Fractions of two bits in a and b, so that sums lie halfway between two numbers of c's type.

    Examples
    --------
    >>> int((ties(Draw(0, "ties", 0), "a", "f16", 100) & 0xFF).max())
    0
    """
    _, fraction, unused = FORMATS[kind]
    if name == "c":
        return _normal(draw, kind, count, 2, 6)
    below = (1 << unused + max(fraction - 2, 0)) - 1
    return _normal(draw, kind, count, -7, 3) & ~np.uint64(below)


def sticky(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Halves, and few subnormal numbers, times ones; in c odd multiples of 1 as f16 has them.

    What lies far below a half decides how it is rounded, if the sum still has it.

    Examples
    --------
    >>> elements = sticky(Draw(0, "sticky", 0), "c", "f16", 100).astype(np.uint16).view(np.float16)
    >>> bool((abs(elements) >= 1024).all())
    True
    """
    if name == "c":
        return _normal(draw, kind, count, 10, 10)
    if name == "b":
        return _power(draw, kind, count, 0)
    few = among(zeros, subnormal, 8)(draw, name, kind, count)
    return np.where(draw.words(count) % np.uint64(16) == 0, _power(draw, kind, count, -1), few)


_LOWEST = {
    "f16": (-12, -13, -24),
    "bf16": (-74, -75, -80),
    "tf32": (-74, -75, -80),
    "e4m3": (-5, -5, -9),
    "e5m2": (-12, -13, -16),
    "f64": (-537, -538, -543),
}
"""Exponents of a and of b with a product about half of the least result, and of far smaller factors."""


def lowest(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Mostly zeros; few products near the least result, few far below it; zeros in c.

    Examples
    --------
    >>> elements = lowest(Draw(0, "lowest", 0), "a", "f16", 100).astype(np.uint16).view(np.float16)
    >>> sorted(set(np.log2(abs(elements[elements != 0])).tolist()))
    [-24.0, -23.0, -12.0]
    """
    if name == "c":
        return zeros(draw, name, kind, count)
    in_a, in_b, small = _LOWEST[kind]
    large = _power(draw, kind, count, in_a if name == "a" else in_b)
    either = among(_of_power(small), _of_power(small + 1), 2)(draw, name, kind, count)
    turn = draw.words(count) % np.uint64(16 if name == "a" else 3)
    few = np.where(turn <= (2 if name == "a" else 1), either, zeros(draw, name, kind, count))
    return np.where(turn == 0, large, few)


def _of_power(exponent: int) -> Style:
    return lambda draw, name, kind, count: _power(draw, kind, count, exponent)


def _power(draw: Draw, kind: str, count: int, exponent: int) -> Words:
    """A power of two of either sign, subnormal where it must be."""
    bits, fraction, _ = FORMATS[kind]
    field = exponent + (1 << (bits - 1)) - 1
    below = 1 << (fraction + field - 1) if field < 1 else 0
    return _float(draw, kind, max(field, 0), np.full(count, below, np.uint64))


def infinite(draw: Draw, name: str, kind: str, count: int) -> Words:
    """Infinities of both signs; of e4m3, which has none, its largest numbers.

    Examples
    --------
    >>> sorted(set(infinite(Draw(0, "infinite", 0), "a", "e4m3", 100).tolist()))
    [126, 254]
    """
    last, fraction = (1 << FORMATS[kind][0]) - 1, 6 if kind == "e4m3" else 0
    return _float(draw, kind, last, np.full(count, fraction, np.uint64))


def nan(draw: Draw, name: str, kind: str, count: int) -> Words:
    """NaN of both signs with any payload.

    Examples
    --------
    >>> elements = nan(Draw(0, "NaN", 0), "a", "f16", 100).astype(np.uint16)
    >>> bool(np.isnan(elements.view(np.float16)).all())
    True
    """
    exponent, fraction, _ = FORMATS[kind]
    payloads = np.uint64(1) + draw.words(count) % np.uint64((1 << fraction) - 1)
    if kind == "e4m3":
        payloads = np.full(count, 7, np.uint64)
    return _float(draw, kind, (1 << exponent) - 1, payloads)


# ------------------------------------------------------------------------------------------------ both


def among(style: Style, special: Style, one_in: int) -> Style:
    """A style in which one in so many elements is of another.

    Examples
    --------
    >>> style = among(zeros, nan, 10)
    >>> elements = style(Draw(0, "few NaN", 0), "a", "f16", 1000).astype(np.uint16)
    >>> 50 < np.isnan(elements.view(np.float16)).sum() < 150
    np.True_
    """

    def mixed(draw: Draw, name: str, kind: str, count: int) -> Words:
        chosen = draw.words(count) % np.uint64(one_in) == 0
        return np.where(chosen, special(draw, name, kind, count), style(draw, name, kind, count))

    return mixed


def _nothing(draw: Draw, name: str, kind: str, count: int) -> Words:
    return np.zeros(count, np.uint64)


_NEAR, _WIDE = between(-2, 2), between(None, None)

WHOLE: tuple[Style, ...] = (anything, ends, among(_nothing, anything, 8), alike)
"""The styles of matrices of integers and bits, by turns."""
FLOATING: tuple[Style, ...] = (
    _NEAR,
    between(-8, 8),
    _WIDE,
    cancelling,
    between(-3, 3, 8, 20),
    between(-3, 3, -30, -12),
    ties,
    small_times_large,
    subnormal,
    tiny,
    sticky,
    lowest,
    among(subnormal, _WIDE, 4),
    zeros,
    among(zeros, _NEAR, 8),
    between(5, None),
    among(_NEAR, infinite, 100),
    among(among(_NEAR, infinite, 100), nan, 100),
    anything,
)
"""The styles of matrices of floats, by turns."""
