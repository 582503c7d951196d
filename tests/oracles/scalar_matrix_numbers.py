"""What a tensor core computes with a row of A and a column of B, in plain Python integers.

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
    """The words of D: of each row of A with each column of B, begun with the element of C."""
    read_a, read_b, one = rule(opcode, types)
    rows = [[read_a(word) for word in row] for row in rows]
    columns = [[read_b(word) for word in column] for column in columns]
    return [
        [one(row, column, start) for column, start in zip(columns, line, strict=True)]
        for row, line in zip(rows, sums, strict=True)
    ]


def rule(opcode, types):
    """What is made of each element of A and of B, and what of a row, a column and an element of C."""
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
    """The integer that a word of s4, u8, s32 or the like stands for."""
    size = int(kind[1:])
    return word - (1 << size) if kind[0] == "s" and word >> size - 1 else word


def integers(saturate, row, column, start):
    total = whole("s32", start) + sum(x * y for x, y in zip(row, column, strict=True))
    if saturate:
        total = min(max(total, -(2**31)), 2**31 - 1)
    return total & 0xFFFFFFFF


# --------------------------------------------------------------------------------------- one fused sum


def parts(kind, word):
    """(sign, significand, exponent of its last digit, exponent), or (sign, "inf"), or (0, "nan").

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
    """All products and the start at once: each is cut, toward zero, to the digits that are kept.

    A product's exponent is the sum of its factors'; what is zero has none.
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
    """Toward zero, to a whole number of units."""
    return significand << shift if shift >= 0 else significand >> -shift


def narrow(d, total):
    """To f32 toward zero, but to infinity past its end; to f16 to nearest even. A zero is +0."""
    if d == "f32" and abs(total) >= ieee.two_to(128):
        return ieee.encode(d, ieee.signed(ieee.INF, ieee.sign_of(total)))
    word = ieee.round_to(d, total, "rz" if d == "f32" else "rn")
    return 0 if word == ieee.encode(d, ieee.MINUS_ZERO) else word


def infinite(pairs):
    """NaN or an infinity, where a product or the start makes one; else None."""
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
    """``wmma.mma``: what is f16 in C or D alone is converted from f32 or to it."""
    if d == c == "f16":
        return fused(d, row, column, parts(c, start))
    total = fused("f32", row, column, parts("f32", widened(c, start)))
    return total if d == "f32" else rounded("f32", total, d)


def halved(d, c, row, column, start):
    """``wmma.mma`` of tf32: two sums, of four products each."""
    for k in range(0, len(row), 4):
        start = fused(d, row[k : k + 4], column[k : k + 4], parts(c, start))
    return start


# ------------------------------------------------------------- what an H200 makes of other instructions


def known(kind, word):
    """A word of scalar_floats, with the NaN that hardware gives."""
    return NAN[kind] if word == ieee.NAN else word


def rounded(kind, word, to):
    return known(to, ieee.convert(kind, word, to))


def widened(kind, word):
    return rounded(kind, word, "f32")


def as_half(kind, word):
    """8-bit floats are f16 before they are multiplied."""
    return parts("f16", rounded(kind, word, "f16"))


def eights(d, row, column, start):
    """``mma`` of 8-bit floats: first those k whose second digit is 0, then the others; C is added to that."""
    total = 0
    for digit in (0, 2):
        chosen = [k for k in range(len(row)) if k & 2 == digit]
        total = fused(d, [row[k] for k in chosen], [column[k] for k in chosen], parts(d, total))
    return known(d, ieee.add(d, start, total))


def multiply_add(x, y, z):
    return known("f32", ieee.fma("f32", x, y, z))


def ascending(c, row, column, start):
    """``mma.m8n8k4`` with a result of f32: a chain of fma from 0 on; C is added to that."""
    total = reduce(lambda sum_, pair: multiply_add(*pair, sum_), zip(row, column, strict=True), 0)
    return known("f32", ieee.add("f32", widened(c, start), total))


def pairwise(row, column, start):
    """``mma.m8n8k4`` with a result of f16: two products at a time, in f32."""
    total = widened("f16", start)
    for k in (0, 2):
        first = known("f32", ieee.mul("f32", row[k], column[k]))
        total = known("f32", ieee.add("f32", total, multiply_add(row[k + 1], column[k + 1], first)))
    return rounded("f32", total, "f16")


def chain(rounding, row, column, start):
    """f64: a chain of ``fma`` from C on, k ascending; NaN has the bits that ``fma`` gives it."""
    for x, y in zip(row, column, strict=True):
        start = instructions.fma(f"fma.{rounding}.f64", x, y, start)
    return start
