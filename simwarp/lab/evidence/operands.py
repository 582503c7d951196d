"""Operands that reveal mistakes: all combinations of each PTX type's edge values, then random values.

An operand tuple is one row of a ``uint64`` array, which has the bit pattern of each operand in a column;
predicates are 0 or 1. The opcode alone determines all operands, so a recording stores none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.floats.formats import FORMATS
from simwarp.ptx.rows import DTYPES
from simwarp.verify.draw import Draw

Words: TypeAlias = npt.NDArray[np.uint64]

_WIDTHS = [width + near for width in (16, 32, 64) for near in (-1, 0, 1)]
AMOUNTS = (0, 1, 2, 4, *_WIDTHS, 127, 128, 255, 256, 257, 288, 1 << 31, (1 << 32) - 1)
"""Shift amounts, positions and lengths: small ones, around each word width, and beyond 8 bits."""
FLOATS = {name: (f.exponent_bits, f.fraction_bits, f.padding) for name, f in FORMATS.items()}
"""By float type: the number of exponent bits, of fraction bits, and of unused low bits."""


class Column(NamedTuple):
    """Name and PTX type of an operand or result of a probe; ``amount`` marks a number of bits."""

    name: str
    type: str
    amount: bool = False


def width(kind: str) -> int:
    """The width of a PTX type, in bits."""
    return 1 if kind == "pred" else DTYPES[kind].itemsize * 8


def tuples(columns: Sequence[Column], name: str, count: int) -> Words:
    """``count`` operand tuples: at most three quarters are combinations of edge values, the others random.

    If there are fewer combinations, all are included; if there are more, some are drawn. ``name``, the
    opcode, seeds the random words.
    """
    draw = Draw(0, f"operands of {name}", 0)
    choices = [np.array(edges(c.type, c.amount), np.uint64) for c in columns]
    most = count - count // 4
    if math.prod(map(len, choices)) <= most:
        crossed = np.array(list(itertools.product(*choices)), np.uint64).reshape(-1, len(columns))
    else:
        crossed = np.stack([pick(draw, choice, most) for choice in choices], axis=1)
    random = np.stack([_random(draw, c, count - len(crossed)) for c in columns], axis=1)
    return np.concatenate([crossed, random])


def pick(draw: Draw, choices: Words, count: int) -> Words:
    """Draw ``count`` of the choices, with repetition, all equally likely."""
    return choices[(draw.words(count) % np.uint64(len(choices))).astype(np.intp)]


@cache
def edges(kind: str, amount: bool = False) -> tuple[int, ...]:
    """The edge values of a PTX type, or with ``amount`` of shift amounts and bit positions."""
    if amount:
        return AMOUNTS
    if kind == "pred":
        return (0, 1)
    if kind in FLOATS:
        return _float_edges(*FLOATS[kind])
    if kind in ("e4m3x2", "e5m2x2"):
        return tuple(low | 255 - low << 8 for low in range(256))
    if kind in ("f16x2", "bf16x2"):
        halves = _float_edges(*FLOATS[kind[:-2]])
        turned = halves[7:] + halves[:7]
        return tuple(low | high << 16 for low, high in zip(halves, turned, strict=True))
    return _integer_edges(width(kind))


def _integer_edges(bits: int) -> tuple[int, ...]:
    """Edge values of integers: 0, -1, around the sign bit, alternating bits and bytes, single bits."""
    ones, sign, half = (1 << bits) - 1, 1 << (bits - 1), bits // 2
    words = [0, ones, ones - 1, sign, sign - 1, sign + 1, ones // 3, ones // 3 * 2, (1 << half) - 1]
    words += [2, 3, ones // 255, ones // 255 * 128] + [1 << i for i in range(0, bits, bits // 8)]
    return tuple(dict.fromkeys(words))


def _float_edges(exponent: int, fraction: int, unused: int) -> tuple[int, ...]:
    """Edge values of floats: zeros, subnormals, around 1, ties, ends of integer types, infinities, NaNs."""
    infinity = ((1 << exponent) - 1) << fraction
    bias, top = (1 << (exponent - 1)) - 1, (1 << exponent) - 2
    one, half = bias << fraction, 1 << (fraction - 1)
    words = [0, 1, 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1]
    words += [one - 1, one, one + 1, one + half, one + (1 << fraction), one + (1 << fraction) + half]
    words += [one - (1 << fraction), one - (1 << fraction) + half]  # 0.5 and 0.75
    words += [min(bias + fraction, top) << fraction | 1, min(bias + fraction - 1, top) << fraction | 3]
    for bits in (7, 8, 15, 16, 31, 32, 63, 64):
        if bias + bits <= top:
            words += [(bias + bits) << fraction, ((bias + bits) << fraction) - 1]
    words += [infinity - 1, infinity, infinity | 1, infinity | half, infinity | half | 5]
    words += [infinity | (1 << fraction) - 1]
    sign = 1 << (exponent + fraction)
    words = [word for word in dict.fromkeys(words) if word < sign]
    return tuple((word | s) << unused for s in (0, sign) for word in words)


def _random(draw: Draw, column: Column, count: int) -> Words:
    """Random operands: any bits, except that amounts are mostly small and half of the floats are near 1."""
    words, kind = draw.words(count), column.type
    turn = np.arange(count)
    if column.amount:
        small = words % np.uint64(80)
        return np.where(turn % 4 < 3, small, words & np.uint64(0xFFFFFFFF))
    packed = kind in ("f16x2", "bf16x2")
    element = kind.removesuffix("x2") if packed else kind
    for shift in (0, 16) if packed else (0,):
        if element in FLOATS:
            near = _near_one(words, draw.words(count), shift, *FLOATS[element])
            words = np.where(turn % 2 == 0, words, near)
    return words & np.uint64((1 << width(kind)) - 1)


def _near_one(words: Words, more: Words, shift: int, exponent: int, fraction: int, unused: int) -> Words:
    """Give floats drawn exponents from -12 to 11, so that sums and quotients are rounded."""
    bias = (1 << (exponent - 1)) - 1
    chosen = np.uint64(bias - 12) + more % np.uint64(24)
    at = np.uint64(shift + unused + fraction)
    keep = np.uint64((1 << 64) - 1 ^ (((1 << exponent) - 1) << int(at)))
    return (words & keep) | (chosen << at)
