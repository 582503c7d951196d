"""Classes of operand values: the edge cases of each PTX type, by name.

All types share the names ``zero``, ``one``, ``minus one``, ``smallest`` and ``largest`` where such values
exist; floats also have ``negative zero``, ``subnormal``, ``infinity`` and ``NaN``, untyped words ``all
ones``, predicates ``true`` and ``false``. All other values are ``positive``, ``negative`` or ``other``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from simwarp.ptx.rows import storage

Test: TypeAlias = Callable[[Any], Any]
"""A predicate on register words: an array of bool, or one bool for one word."""

_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
"""The exponent bits and the fraction bits of each type."""


def classes(kind: str) -> Mapping[str, Test]:
    """The classes of a PTX type: name → predicate on arrays of words.

    Types other than predicates, common floats and integers have the classes of ``b`` types.

    >>> [name for name, test in classes("f32").items() if test(np.uint32(0xBF800000))]
    ['minus one']
    >>> [name for name, test in classes("s16").items() if test(np.uint16(0x8000))]
    ['smallest']
    """
    word = storage(kind)
    if kind == "pred":
        return {"true": np.asarray, "false": np.logical_not}
    if kind in _FLOATS:
        return _float_classes(kind)
    return _integer_classes(kind[0] if kind[0] in "us" and kind[1:].isdigit() else "b", word.itemsize * 8)


@cache
def _float_classes(kind: str) -> Mapping[str, Test]:
    exponent, fraction = _FLOATS[kind]
    infinity = ((1 << exponent) - 1) << fraction
    sign, least = 1 << (exponent + fraction), 1 << fraction
    one = ((1 << (exponent - 1)) - 1) << fraction
    named = {one, sign | one, least, sign | least, infinity - 1, sign | (infinity - 1)}
    magnitude = sign - 1

    def ordinary(w: Any) -> Any:
        found = ((w & magnitude) >= least) & ((w & magnitude) < infinity)
        for value in named:
            found = found & (w != value)
        return found

    return {
        "NaN": lambda w: (w & magnitude) > infinity,
        "infinity": lambda w: (w & magnitude) == infinity,
        "zero": lambda w: w == 0,
        "negative zero": lambda w: w == sign,
        "subnormal": lambda w: ((w & magnitude) < least) & ((w & magnitude) != 0),
        "one": lambda w: w == one,
        "minus one": lambda w: w == (sign | one),
        "smallest": lambda w: (w & magnitude) == least,
        "largest": lambda w: (w & magnitude) == infinity - 1,
        "positive": lambda w: ordinary(w) & (w < sign),
        "negative": lambda w: ordinary(w) & (w >= sign),
    }


@cache
def _integer_classes(sort: str, bits: int) -> Mapping[str, Test]:
    """The classes of unsigned ("u") and signed ("s") integers, and of bits ("b")."""
    ones, sign = (1 << bits) - 1, 1 << (bits - 1)
    found: dict[str, Test] = {"zero": lambda w: w == 0, "one": lambda w: w == 1}
    signed: dict[str, Test] = {
        "minus one": lambda w: w == ones,
        "smallest": lambda w: w == sign,
        "largest": lambda w: w == sign - 1,
        "positive": lambda w: (w > 1) & (w < sign - 1),
        "negative": lambda w: (w > sign) & (w < ones),
    }
    unsigned: dict[str, Test] = {
        "largest" if sort == "u" else "all ones": lambda w: w == ones,
        "other": lambda w: (w > 1) & (w < ones),
    }
    return found | (signed if sort == "s" else unsigned)
