"""The product of a row of A and a column of B on a tensor core, in plain Python integers.

The PTX ISA fixes integers and bits, and leaves open in which order and how exactly floats are added: there
this is what an NVIDIA H200 does.
"""

from functools import partial, reduce

from oracles import scalar_floats as ieee
from oracles import scalar_ptx_floating as instructions

NAN = {"f16": 0x7FFF, "f32": 0x7FFFFFFF}
"""The NaN of a result, whatever NaN went in."""
KEPT = 25
"""Binary digits of an addend that are added, counted from the largest addend's first digit."""
LOWEST = {"f16": -21, "f32": -133}
"""The least that the largest addend's exponent counts as: seven below that of the least normal result."""


def product(opcode, types, rows, columns, sums):
    """The words of D: each row of A times each column of B, plus the element of C."""
    read_a, read_b, one = rule(opcode, types)
    rows = [[read_a(word) for word in row] for row in rows]
    columns = [[read_b(word) for word in column] for column in columns]
    return [
        [one(row, column, start) for column, start in zip(columns, line, strict=True)]
        for row, line in zip(rows, sums, strict=True)
    ]


def rule(opcode, types):
    """How D is computed for these types: conversion of A and B, and the product of a row, a column and C."""
    words, (d, a, b, c) = opcode.split("."), types
    if a == "b1":
        return int, int, partial(bits, int.__xor__ if "xor" in words else int.__and__)
    if d == "s32":
        return partial(whole, a), partial(whole, b), partial(integers, "satfinite" in words)
    if d == "f64":
        return int, int, partial(chain, next((w for w in words if w in ("rn", "rz", "rm", "rp")), "rn"))
    if a in ("e4m3", "e5m2"):
        return partial(as_half, a), partial(as_half, b), partial(eights, d)
    if "m8n8k4" in words:
        return (
            partial(widened, a),
            partial(widened, b),
            pairwise if d == c == "f16" else partial(ascending, c),
        )
    if "wmma" in words:
        return partial(parts, a), partial(parts, b), partial(halved if a == "tf32" else wide, d, c)
    return (
        partial(parts, a),
        partial(parts, b),
        lambda row, column, start: fused(d, row, column, parts(c, start)),
    )


# --------------------------------------------------------------------------------- integers and bits


def bits(combine, row, column, start):
    return start + sum(map(combine, row, column)) & 0xFFFFFFFF


def whole(kind, word):
    """The integer that a word of type s4, u8, s32 or similar encodes."""
    size = int(kind[1:])
    return word - (1 << size) if kind[0] == "s" and word >> size - 1 else word


def integers(saturate, row, column, start):
    total = whole("s32", start) + sum(x * y for x, y in zip(row, column, strict=True))
    if saturate:
        total = min(max(total, -(2**31)), 2**31 - 1)
    return total & 0xFFFFFFFF


# --------------------------------------------------------------------------------------- one fused sum


def parts(kind, word):
    """(sign, significand, exponent of its last bit, exponent) of a float; (sign, "inf") or (0, "nan").

    The exponent is the stored one; subnormal numbers and zeros have that of the smallest normal number.
    """
    size, exponent_bits, fraction_bits, below = ieee.FORMATS[kind]
    sign = -1 if word >> size - 1 else 1
    field, fraction = divmod(word >> below & (1 << size - 1 - below) - 1, 1 << fraction_bits)
    top = (1 << exponent_bits) - 1
    if field == top:
        return (0, "nan") if fraction else (sign, "inf")
    exponent = max(field, 1) - (top >> 1)
    significand = fraction + (1 << fraction_bits if field else 0)
    return sign, significand, exponent - fraction_bits, exponent


def fused(d, row, column, start):
    """The sum of all products and the addend, each truncated toward zero to the bits that are kept.

    The exponent of a product is the sum of its factors' exponents; a zero has none.
    """
    pairs = list(zip(row, column, strict=True))
    special = infinite([*pairs, ((1, 1), start)])
    if special is not None:
        return NAN[d] if special == ieee.NAN else ieee.encode(d, special)
    addends = [(x[0] * y[0], x[1] * y[1], x[2] + y[2], x[3] + y[3]) for x, y in pairs]
    addends = [addend for addend in (*addends, start) if addend[1]]
    if not addends:
        return 0
    unit = max(LOWEST[d], *(exponent for *_, exponent in addends)) - KEPT
    total = sum(sign * cut(significand, last - unit) for sign, significand, last, _ in addends)
    return narrow(d, total * ieee.two_to(unit))


def cut(significand, shift):
    """Truncate toward zero to a whole number of units."""
    return significand << shift if shift >= 0 else significand >> -shift


def narrow(d, total):
    """Round a sum: to f32 toward zero, to infinity beyond its range; to f16 to nearest even. A zero is +0."""
    if d == "f32" and abs(total) >= ieee.two_to(128):
        return ieee.encode(d, ieee.signed(ieee.INF, ieee.sign_of(total)))
    word = ieee.round_to(d, total, "rz" if d == "f32" else "rn")
    return 0 if word == ieee.encode(d, ieee.MINUS_ZERO) else word


def infinite(pairs):
    """NaN or an infinity if a product or the addend is one, else None."""
    signs = set()
    for x, y in pairs:
        if "nan" in x or "nan" in y or ("inf" in x and y[1] == 0) or ("inf" in y and x[1] == 0):
            return ieee.NAN
        if "inf" in x or "inf" in y:
            signs.add(x[0] * y[0])
    if len(signs) > 1:
        return ieee.NAN
    return ieee.signed(ieee.INF, signs.pop()) if signs else None


def wide(d, c, row, column, start):
    """``wmma.mma`` with f16 in only one of C and D: convert that operand from or to f32."""
    if d == c == "f16":
        return fused(d, row, column, parts(c, start))
    total = fused("f32", row, column, parts("f32", widened(c, start)))
    return total if d == "f32" else rounded("f32", total, d)


def halved(d, c, row, column, start):
    """``wmma.mma`` of tf32: two sums of four products each."""
    for k in range(0, len(row), 4):
        start = fused(d, row[k : k + 4], column[k : k + 4], parts(c, start))
    return start


# ------------------------------------------------------------- what an H200 makes of other instructions


def known(kind, word):
    """Encode a number of scalar_floats as a word, with the NaN that hardware returns."""
    return NAN[kind] if word == ieee.NAN else word


def rounded(kind, word, to):
    return known(to, ieee.convert(kind, word, to))


def widened(kind, word):
    return rounded(kind, word, "f32")


def as_half(kind, word):
    """Convert an 8-bit float to f16, as done before the multiplication."""
    return parts("f16", rounded(kind, word, "f16"))


def eights(d, row, column, start):
    """``mma`` of 8-bit floats: sum the products with bit 1 of k clear, then the others; add C last."""
    total = 0
    for digit in (0, 2):
        chosen = [k for k in range(len(row)) if k & 2 == digit]
        total = fused(d, [row[k] for k in chosen], [column[k] for k in chosen], parts(d, total))
    return known(d, ieee.add(d, start, total))


def multiply_add(x, y, z):
    return known("f32", ieee.fma("f32", x, y, z))


def ascending(c, row, column, start):
    """``mma.m8n8k4`` with f32 results: a chain of fma in ascending k, starting at 0; C is added last."""
    total = reduce(lambda sum_, pair: multiply_add(*pair, sum_), zip(row, column, strict=True), 0)
    return known("f32", ieee.add("f32", widened(c, start), total))


def pairwise(row, column, start):
    """``mma.m8n8k4`` with f16 results: two products at a time, in f32."""
    total = widened("f16", start)
    for k in (0, 2):
        first = known("f32", ieee.mul("f32", row[k], column[k]))
        total = known("f32", ieee.add("f32", total, multiply_add(row[k + 1], column[k + 1], first)))
    return rounded("f32", total, "f16")


def chain(rounding, row, column, start):
    """f64 products: a chain of ``fma`` in ascending k, starting at C; a NaN has the bits of ``fma``."""
    for x, y in zip(row, column, strict=True):
        start = instructions.fma(f"fma.{rounding}.f64", x, y, start)
    return start
