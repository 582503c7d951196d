"""Handmade tiles: float sums that show alignment, rounding and truncation, and integer sums that overflow.

A *sum* is one dot product plus c. Sums lie along the diagonals of tiles, so that elements off the diagonal
mix them. An instruction omits the sums whose numbers its types lack, or that have more products than it.

>>> tiles("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")["a"].shape
(7, 8, 16)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from reference.errors import DtypeError
from simwarp.floats.formats import FORMATS
from simwarp.fragments import Fragments, Operand, fragments_of
from simwarp.testing.fragments.words import words_of

TOP = 12
"""The exponent of products that cancel; within the range of products of every type."""


class Sum(NamedTuple):
    """The factors of some products, and the addend c: floats, or bit patterns as integers."""

    name: str
    products: tuple[tuple[float | int, float | int], ...]
    c: float | int = 0.0


def tiles(opcode: str) -> dict[str, np.ndarray]:
    """The words of a, b and c: (tiles, rows, columns), or (tiles, matrices, rows, columns)."""
    fragments = fragments_of(opcode)
    operands, d = fragments.operands, fragments.operands["d"].layout
    made = (of_integers if operands["d"].type == "s32" else of_floats)(fragments)
    sums = [found for one in made if (found := words(one, fragments))]
    side, longer = sorted((d.rows, d.columns))
    count = -(-len(sums) // (side * d.matrices)) * d.matrices
    places = [(tile * side + np.arange(longer)) % len(sums) for tile in range(count)]
    a, b, c = (np.array([one[name] for one in sums], operands[name].layout.dtype) for name in "abc")
    placed = {
        "a": [a[at[: d.rows]] for at in places],
        "b": [b[at[: d.columns]].T for at in places],
        "c": [c[at[np.minimum(*np.indices((d.rows, d.columns)))], 0] for at in places],
    }
    return {n: np.array(placed[n]).reshape(-1, *operands[n].layout.shape) for n in "abc"}


def words(found: Sum, fragments: Fragments) -> dict[str, list[int]] | None:
    """The words of a sum (a's row, b's column, and c); None if the instruction cannot compute it."""
    spare = fragments.shape.k - len(found.products)
    if spare < 0:
        return None
    left, right = zip(*found.products, *[(0, 0)] * spare, strict=True)
    numbers = {"a": left, "b": right, "c": (found.c,)}
    try:
        return {name: [word(x, fragments.operands[name]) for x in numbers[name]] for name in "abc"}
    except (DtypeError, OverflowError):
        return None


def word(number: float | int, operand: Operand) -> int:
    """The word of a float in an operand's type; an integer is already a word."""
    if not isinstance(number, float):
        return number
    return _word(number.hex(), operand.type, operand.layout.bits)


@cache
def _word(number: str, kind: str, bits: int) -> int:
    return int(words_of(np.asarray(float.fromhex(number)), kind, bits))


# ------------------------------------------------------------------------------------------- floats


def of_floats(fragments: Fragments) -> Iterator[Sum]:
    """All handmade sums of floats for an instruction; its types may lack the numbers of some."""
    d, a, b, c = (fragments.operands[name].type for name in "dabc")

    def power(exponent: int, factor: float = 1.0) -> tuple[float, float]:
        """Two factors whose product is factor · 2^exponent, of about equal size if the types allow it."""
        left, right = FORMATS[a], FORMATS[b]
        low = max(left.least_exponent - left.fraction_bits, exponent - right.greatest_exponent)
        high = min(left.greatest_exponent, exponent - right.least_exponent + right.fraction_bits)
        half = max(low, min(high, exponent // 2))
        return factor * 2.0**half, 2.0 ** (exponent - half)

    k = fragments.shape.k
    yield from _cut(power, TOP)
    yield from _zeros(power, FORMATS[a].greatest_exponent)
    yield from _rounded(power, FORMATS[d].fraction_bits)
    yield from _tiny(power, FORMATS[d].least_exponent, FORMATS[d].fraction_bits, k)
    yield from _great(power, FORMATS[c])
    yield from _special(FORMATS[a], FORMATS[b], FORMATS[c])


def _cut(power: Any, top: int) -> Iterator[Sum]:
    """Sums with a term some bits below products that cancel, or below c."""
    pair = (power(top), power(top, -1.0))
    for bits in range(22, 29):
        for sign in (1.0, -1.0):
            yield Sum(f"{bits} bits below two products", (*pair, power(top - bits, sign)))
            yield Sum(f"{bits} bits below c", (power(top, -1.0), power(top - bits, sign)), 2.0**top)
            yield Sum(f"c {bits} bits below", pair, sign * 2.0 ** (top - bits))
    for bits in range(23, 28):
        pair = (power(top, 1.5), power(top, -1.5))
        tiny = power(top - bits)
        yield Sum(f"{bits} bits below 1.5 times 1", (*pair, tiny))
        halves = ((1.5 * power(top)[0], 1.5 * power(top)[1]), (-1.5 * power(top)[0], 1.5 * power(top)[1]))
        yield Sum(f"{bits} bits below 1.5 times 1.5", (*halves, tiny))
        full = power(top - bits, 1.75)
        yield Sum(f"three bits from {bits} bits below", (power(top), power(top, -1.0), full, full))


def _zeros(power: Any, greatest: int) -> Iterator[Sum]:
    """Sums of zeros and small products, and sums that are zero."""
    for zero in (0.0, -0.0):
        yield Sum("zero times large, beside small", ((zero, 2.0**greatest), power(-12)))
        for c in (0.0, -0.0):
            yield Sum("zeros", ((zero, 1.0),), c)
            yield Sum("zeros times -1", ((zero, -1.0), (zero, -1.0)), c)
    yield Sum("1 - 1", ((1.0, 1.0), (-1.0, 1.0)), -0.0)
    yield Sum("1 - c", ((1.0, 1.0),), -1.0)
    yield Sum("little is left, and cut off", (power(TOP), power(TOP, -1.0), power(-16, -1.0)), -0.0)


def _rounded(power: Any, fraction_bits: int) -> Iterator[Sum]:
    """Sums halfway between two numbers of d's type, and slightly more or less."""
    half = -fraction_bits - 1
    for c in (1.0, -1.0, 1.0 + 2.0**-fraction_bits):
        for sign in (1.0, -1.0):
            yield Sum("half a unit", (power(half, sign),), c)
            yield Sum("three quarters of a unit", (power(half, 1.5 * sign),), c)
            for bits in (1, 3, 24 + half, 25 + half):
                if bits > 0:
                    yield Sum(f"half a unit and {bits} bits less", (power(half), power(half - bits, sign)), c)


def _tiny(power: Any, least: int, fraction_bits: int, k: int) -> Iterator[Sum]:
    """Sums near the least number of d's type, with c zero."""
    unit = least - fraction_bits
    for bits in (30, 31, 32, 33, 34):
        for sign in (1.0, -1.0):
            dust = (power(least - bits, sign),)
            yield Sum(f"half the least number and 2^-{bits} of the least normal", (power(unit - 1), *dust))
            yield Sum("the same with more dust", (power(unit - 1), *dust * 3))
            yield Sum("the least number and dust", (power(unit, sign), *dust * 3))
            yield Sum(f"the least number from {bits}", dust * k)
    for exponent in range(unit - 4, unit + 2):
        for sign in (1.0, -1.0):
            yield Sum(f"one product of 2^{exponent}", (power(exponent, sign),))
            yield Sum(f"products of 2^{exponent}", (power(exponent, sign),) * k)
    yield Sum("two least normal numbers cancel", (power(least), power(least, -1.0), power(unit)))


def _great(power: Any, c: Any) -> Iterator[Sum]:
    """Sums near the largest number of c's type, and larger products that cancel."""
    last = c.greatest_exponent
    largest = 2.0**last * (2.0 - 2.0**-c.fraction_bits)
    for sign in (1.0, -1.0):
        for below in (c.fraction_bits - 1, c.fraction_bits, c.fraction_bits + 1, c.fraction_bits + 2):
            for factor in (1.0, 1.5):
                added = (power(last - below, sign * factor),)
                yield Sum(f"the largest number and 2^{last - below}", added, sign * largest)
        yield Sum("twice the largest power", (power(last, sign),), sign * 2.0**last)
    for exponent in (last + 1, last + 20):
        if exponent < 1000:
            pair = (power(exponent), power(exponent, -1.0))
            yield Sum(f"2^{exponent} cancels", pair, 1.0)
            yield Sum(f"2^{exponent} less a quarter of it", (power(exponent), power(exponent - 2, -1.0)))


def _special(a: Any, b: Any, c: Any) -> Iterator[Sum]:
    """Yield sums with infinities or NaN as a term or factor."""

    def words(format: Any) -> list[int]:
        beyond = format.largest + 1 << format.padding
        found = [beyond, beyond + 1, beyond + (1 << format.padding), format.nan]
        return [word | sign for word in found if word <= format.nan for sign in (0, format.sign)]

    for left in words(a):
        yield Sum("a times 1", ((left, 1.0),))
        yield Sum("a times 0", ((left, 0.0),))
        yield Sum("a, and c 1", ((left, -1.0), (1.0, 1.0)), 1.0)
        for right in words(b)[:4]:
            yield Sum("a times b", ((left, right),), -0.0)
        for addend in words(c)[:4]:
            yield Sum("a and c", ((left, 1.0), (1.0, 1.0)), addend)
    for addend in words(c):
        yield Sum("c alone", ((1.0, 1.0),), addend)
    infinity = a.largest + 1 << a.padding
    yield Sum("opposite products", ((infinity, 1.0), (infinity, -1.0)))


# ----------------------------------------------------------------------------------------- integers


def of_integers(fragments: Fragments) -> Iterator[Sum]:
    """Sums of products of the largest and least integers, with c at an end of its type."""
    bits, k = fragments.operands["a"].layout.bits, fragments.shape.k
    ends = sorted({0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1})
    addends = (0, 2**31 - 1, 2**31, 2**32 - 1, 1)
    for i, a in enumerate(ends):
        for j, b in enumerate(ends):
            for c in (addends[(i + j) % 5], addends[(i + j + 1) % 5]):
                yield Sum(f"{a:#x} times {b:#x}", ((a, b),) * k, c)
