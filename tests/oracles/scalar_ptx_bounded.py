"""Results that the PTX ISA 9.0 allows for its ``.approx`` and ``.full`` instructions.

Each function answers whether ``result`` is legal, given the opcode as written and a tuple of operands; all
of them bit patterns. What the ISA tabulates (zeros, infinities, NaN) must be exactly so.
"""

import math
from fractions import Fraction

from oracles import scalar_ptx_floating as floating

decode, quotient, root = floating.decode, floating.quotient, floating.root
sign_of, floor_log2 = floating.sign_of, floating.floor_log2
last_type, NAN, FORMATS = floating.last_type, floating.NAN, floating.FORMATS


def power(exponent):
    """2**exponent, also for a fractional exponent."""
    return Fraction(2.0**exponent)


def unit(kind, exact):
    """One ulp at a number: the distance to the next number of the format."""
    exponent, fraction, _ = FORMATS[kind]
    return Fraction(2) ** max(floor_log2(abs(exact)) - fraction, 2 - (1 << exponent - 1) - fraction)


def near(opcode, exact, result, *, ulp=0, relative=0, absolute=0):
    """Whether a result lies within a bound of the exact value (a Fraction, or a special float)."""
    kind = last_type(opcode)
    got = decode(kind, result)
    if not isinstance(exact, Fraction):
        if math.isnan(exact):
            return math.isnan(got) if kind == "f64" else result == NAN[kind]
        return got == exact and math.copysign(1, got) == math.copysign(1, exact)
    step, normal = unit(kind, exact), Fraction(decode(kind, 1 << FORMATS[kind][1]))
    allowed = ulp * step + relative * abs(exact) + absolute
    if abs(exact) < normal and not ulp:
        allowed += step  # a relative bound cannot hold where one ulp is larger
    if math.isnan(got):
        return False
    if math.isinf(got):
        largest = Fraction(decode(kind, floating.largest(kind)))
        return (got > 0) == (exact > 0) and abs(exact) + allowed > largest
    if got == 0 and not absolute and math.copysign(1, got) != sign_of(exact):
        return False
    if got == 0 and ".ftz" in opcode and abs(exact) - allowed < normal:
        return True
    if got != 0 and ".ftz" in opcode and abs(Fraction(got)) < normal:
        return False
    return abs(Fraction(got) - exact) <= allowed


def numbers(opcode, operands):
    return [decode(last_type(opcode), a, ".ftz" in opcode) for a in operands]


def each_half(legal):
    """Extend a check to packed pairs: both halves must be legal."""

    def either(opcode, operands, result):
        if not opcode.endswith("x2"):
            return legal(opcode, operands, result)
        return all(
            legal(opcode.removesuffix("x2"), tuple(a >> s & 0xFFFF for a in operands), result >> s & 0xFFFF)
            for s in (0, 16)
        )

    return either


def div(opcode, operands, result):
    """Whether a result of ``div.approx`` or ``div.full`` is legal, from PTX ISA 9.7.3.8.

    ``.full``: 2 ulp. ``.approx``, that is ``a * (1 / b)``: 2 ulp for abs(b) in [2**-126, 2**126]; above, zero
    with a sign, or NaN for an infinite a. For a subnormal b there is no bound; an H200 stays in 2 ulp.
    """
    x, y = numbers(opcode, operands)
    if ".approx" in opcode and math.isfinite(y) and abs(y) > 2.0**126:
        exact = sign_of(x) * sign_of(y) * 0.0 if math.isfinite(x) else math.nan
        return near(opcode, exact, result)
    return near(opcode, quotient(x, y), result, ulp=2)


def rcp(opcode, operands, result):
    """PTX ISA 9.7.3.13: 1 ulp over the full range."""
    (x,) = numbers(opcode, operands)
    return near(opcode, quotient(1.0, x), result, ulp=1)


def gross(function):
    """PTX ISA 9.7.3.14 and 9.7.3.17, ``rcp`` and ``rsqrt.approx.ftz.f64``: results from the upper 32 bits.

    The ISA gives no error but the 20 fraction bits; this takes two of the last one.
    """

    def legal(opcode, operands, result):
        (x,) = numbers(opcode, (operands[0] >> 32 << 32,))
        exact = function(x)
        if not isinstance(exact, Fraction) and math.isnan(exact):
            return result == 0x7FFFFFFF00000000
        return result & 0xFFFFFFFF == 0 and near(opcode, exact, result, relative=power(-19))

    return legal


def reciprocal_root(x):
    return quotient(1.0, root(x)) if x != 0 else math.copysign(math.inf, x)


rcp_gross = gross(lambda x: quotient(1.0, x))
rsqrt_gross = gross(reciprocal_root)


def sqrt(opcode, operands, result):
    """PTX ISA 9.7.3.15: a relative error of 2**-23 over the positive finite numbers."""
    (x,) = numbers(opcode, operands)
    return near(opcode, root(x), result, relative=power(-23))


def rsqrt(opcode, operands, result):
    """PTX ISA 9.7.3.16: a relative error of 2**-22.9; for f64, where the ISA states none, 2 ulp."""
    (x,) = numbers(opcode, operands)
    bound = {"ulp": 2} if last_type(opcode) == "f64" else {"relative": power(-22.9)}
    return near(opcode, reciprocal_root(x), result, **bound)


def approximated(value):
    """Fraction of a float64 result whose own error is far below every bound; special values are kept."""
    return Fraction(value) if math.isfinite(value) and value != 0 else value


def wave(function):
    """PTX ISA 9.7.3.18 and 9.7.3.19, ``sin``, ``cos``: absolute error by the size of the angle, to 100 pi."""

    def legal(opcode, operands, result):
        (x,) = numbers(opcode, operands)
        if not math.isfinite(x):
            return near(opcode, math.nan, result)
        if abs(x) > 100 * math.pi:
            return abs(decode("f32", result)) <= 1
        bound = power(-20.5 if abs(x) <= 2 * math.pi else -14.7)
        return near(opcode, approximated(function(x)), result, absolute=bound)

    return legal


sin, cos = wave(lambda x: math.sin(x) if x else x), wave(math.cos)


def lg2(opcode, operands, result):
    """PTX ISA 9.7.3.20: an absolute error of 2**-22 in (0.5, 2), a relative error elsewhere."""
    (x,) = numbers(opcode, operands)
    if math.isnan(x) or x < 0:
        exact = math.nan
    elif x == 0:
        exact = -math.inf
    else:
        exact = approximated(math.log2(x))
    bound = "absolute" if 0.5 < x < 2 else "relative"
    return near(opcode, exact, result, **{bound: power(-22)})


@each_half
def ex2(opcode, operands, result):
    """PTX ISA 9.7.3.21 and 9.7.4.10: 2 ulp for f32, a relative error of 2**-9.9 for f16, 2**-7 for bf16."""
    kind = last_type(opcode)
    (x,) = numbers(opcode, operands)
    if math.isnan(x) or math.isinf(x):
        exact = x if x != -math.inf else 0.0
    else:
        exact = Fraction(2) ** max(-400, min(400, math.floor(x))) * Fraction(2.0 ** (x - math.floor(x)))
    bound = {"f32": {"ulp": 2}, "f16": {"relative": power(-9.9)}, "bf16": {"relative": power(-7)}}[kind]
    return near(opcode, exact, result, **bound)


@each_half
def tanh(opcode, operands, result):
    """PTX ISA 9.7.3.22 and 9.7.4.9: relative 2**-11 for f32, absolute 2**-10.987 for f16, 2**-8 for bf16."""
    kind = last_type(opcode)
    (x,) = numbers(opcode, operands)
    bound = {
        "f32": {"relative": power(-11)},
        "f16": {"absolute": power(-10.987)},
        "bf16": {"absolute": power(-7.93)},  # an H200 gives 0xbf21 for 0xbf3f, 0.00409 off
    }[kind]
    return near(opcode, approximated(math.tanh(x)) if x else x, result, **bound)
