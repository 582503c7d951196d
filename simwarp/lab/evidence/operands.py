"""Operands that find mistakes: the edges of each PTX type crossed with each other, then random ones.

A set of operands is one row of a ``uint64`` array, the bit pattern of each operand in a column;
predicates are 0 and 1. Everything is made from the form's name alone, so that a golden needs to
store no operands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.ptx.rows import DTYPES
from simwarp.verify.draw import Draw

Words: TypeAlias = npt.NDArray[np.uint64]

AMOUNTS = (
    0,
    1,
    2,
    4,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    257,
    288,
    1 << 31,
    (1 << 32) - 1,
)
"""Shift amounts, positions and lengths: at and past each width, and past the bits that are looked at."""
FLOATS = {"f16": (5, 10, 0), "bf16": (8, 7, 0), "tf32": (8, 10, 13), "f32": (8, 23, 0), "f64": (11, 52, 0)}
"""Of each floating type: the bits of its exponent, of its fraction, and unused ones below."""


class Column(NamedTuple):
    """One operand, or one result: its name and its PTX type; ``amount``: it counts bits.

    Attributes
    ----------
    name, type : str
    amount : bool
    """

    name: str
    type: str
    amount: bool = False


def width(kind: str) -> int:
    """The bits of a PTX type.

    Examples
    --------
    >>> width("f16x2"), width("pred")
    (32, 1)
    """
    return 1 if kind == "pred" else DTYPES[kind].itemsize * 8


def sets(columns: Sequence[Column], name: str, count: int) -> Words:
    """``count`` sets of operands: three quarters edges crossed, the others random.

    Where the crossed edges are fewer, all of them are there; where they are more, some are drawn.

    Parameters
    ----------
    columns : sequence of Column
    name : str
        What the random words depend on: the form.
    count : int

    Returns
    -------
    uint64 (count, len(columns))

    Examples
    --------
    >>> sets([Column("a", "b32"), Column("b", "u32", True)], "shl.b32", 1024)[:2].tolist()
    [[0, 0], [0, 1]]
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
    """``count`` of the choices, each as likely.

    Examples
    --------
    >>> set(pick(Draw(0, "x", 0), np.array([3, 4], np.uint64), 50).tolist()) == {3, 4}
    True
    """
    return choices[(draw.words(count) % np.uint64(len(choices))).astype(np.intp)]


@cache
def edges(kind: str, amount: bool = False) -> tuple[int, ...]:
    """The values of one operand that are crossed with those of the others.

    Examples
    --------
    >>> [hex(word) for word in edges("u16")[:8]]
    ['0x0', '0xffff', '0xfffe', '0x8000', '0x7fff', '0x8001', '0x5555', '0xaaaa']
    >>> [hex(word) for word in edges("f16") if word & 0x7C00 == 0x7C00 and not word >> 15]
    ['0x7c00', '0x7c01', '0x7e00', '0x7e05', '0x7fff']
    """
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
    """Zero, ones, the ends of the sign, alternating bits and bytes, one bit in each eighth of the word."""
    ones, sign, half = (1 << bits) - 1, 1 << (bits - 1), bits // 2
    words = [0, ones, ones - 1, sign, sign - 1, sign + 1, ones // 3, ones // 3 * 2, (1 << half) - 1]
    words += [2, 3, ones // 255, ones // 255 * 128] + [1 << i for i in range(0, bits, bits // 8)]
    return tuple(dict.fromkeys(words))


def _float_edges(exponent: int, fraction: int, unused: int) -> tuple[int, ...]:
    """Zeros, subnormal and normal ends, about 1, ties, the ends of integer types, infinities and NaNs."""
    infinity = ((1 << exponent) - 1) << fraction
    bias, top = (1 << (exponent - 1)) - 1, (1 << exponent) - 2
    one, half = bias << fraction, 1 << (fraction - 1)
    words = [0, 1, 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1]
    words += [one - 1, one, one + 1, one + half, one + (1 << fraction), one + (1 << fraction) + half]
    words += [one - (1 << fraction), one - (1 << fraction) + half]  # a half and three quarters
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
    """Any bits; of amounts mostly small ones, of floats as many with an exponent near 0."""
    words, kind = draw.words(count), column.type
    turn = np.arange(count)
    if column.amount:
        small = words % np.uint64(80)
        return np.where(turn % 4 < 3, small, words & np.uint64(0xFFFFFFFF))
    mask = np.uint64((1 << width(kind)) - 1)
    parts = {"f16x2": "f16", "bf16x2": "bf16"}
    halves = [0, 16] if kind in parts else [0]
    for shift in halves:
        for_type = FLOATS.get(parts.get(kind, kind))
        if for_type:
            near = _near_one(words, draw.words(count), shift, *for_type)
            words = np.where(turn % 2 == 0, words, near)
    return words & mask


def _near_one(words: Words, more: Words, shift: int, exponent: int, fraction: int, unused: int) -> Words:
    """The same numbers with exponents from -12 to 11, so that sums and quotients meet roundings."""
    bias = (1 << (exponent - 1)) - 1
    chosen = np.uint64(bias - 12) + more % np.uint64(24)
    at = np.uint64(shift + unused + fraction)
    keep = np.uint64((1 << 64) - 1 ^ (((1 << exponent) - 1) << int(at)))
    return (words & keep) | (chosen << at)
