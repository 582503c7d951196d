"""Scalar twins of ``cvt``, exact in `fractions.Fraction`, from the PTX ISA 9.0, section 9.7.9.21."""

import math
from fractions import Fraction

from oracles import scalar_ptx_floating as floating

words, NAN, FORMATS = floating.words, floating.NAN, floating.FORMATS
decode, encode = floating.decode, floating.encode


def cvt(opcode, *operands):
    """Convert one number, or two into or out of a packed pair, whose upper half is the first operand."""
    to, source = opcode.split(".")[-2:]
    if not to.endswith("x2"):
        return single(opcode, to, source, operands[0])
    to = to.removesuffix("x2")
    if source.endswith("x2"):
        source = source.removesuffix("x2")
        (a,), bits = operands, words.bits_of(source)
        operands = (a >> bits, a & words.ones(source))
    high, low = (single(opcode, to, source, a & words.ones(source)) for a in operands)
    return high << words.bits_of(to) | low


def single(opcode, to, source, a):
    if source in FORMATS:
        # The PTX ISA lets .ftz flush f32 inputs of all conversions; an H200 does not on the way to f16.
        number = decode(source, a, ".ftz" in opcode and source == "f32" and to != "f16")
        if to not in FORMATS:
            return to_integer(opcode, to, source, number)
        return nan(opcode, to, source, a) if math.isnan(number) else from_float(opcode, to, number)
    number = words.value(source, a)
    if to in FORMATS:
        return finished(opcode, to, Fraction(number) or 0.0)
    return (words.clamped(to, number) if ".sat" in opcode else number) & words.ones(to)


def integer_rounding(opcode):
    """The rounding ``rn`` of ``.rni`` and so on; None without one."""
    found = (m[:2] for m in opcode.split(".")[1:] if m in ("rni", "rzi", "rmi", "rpi"))
    return next(found, None)


def to_integer(opcode, to, source, number):
    """Round, then clamp to the range of the integer type.

    A NaN gives 0; ``1 << (BitWidth - 1)`` if either type has 64 bits.
    """
    if math.isnan(number):
        wide = source == "f64" or words.bits_of(to) == 64
        return 1 << (words.bits_of(to) - 1) if wide else 0
    if math.isinf(number):
        return words.clamped(to, (1 << 64) * floating.sign_of(number)) & words.ones(to)
    n = floating.rounded(abs(Fraction(number)), integer_rounding(opcode), number < 0)
    return words.clamped(to, -n if number < 0 else n) & words.ones(to)


def from_float(opcode, to, number):
    """Convert between float formats with one rounding; within one format, round to an integral value."""
    mode = integer_rounding(opcode)
    if mode and math.isfinite(number) and number != 0:
        n = floating.rounded(abs(Fraction(number)), mode, number < 0)
        number = floating.sign_of(number) * float(n)
    exact = Fraction(number) if math.isfinite(number) and number != 0 else number
    return finished(opcode, to, exact)


def nan(opcode, to, source, a):
    """The NaN that the conversion of a NaN gives on an H200; the PTX ISA leaves its bits open.

    The canonical one, but between f64 and another format sign and payload stay, quiet and cut; a plain
    ``cvt`` within f32 or f64, and from bf16 to f32, moves the bits.
    """
    flushes = ".ftz" in opcode
    if "sat" in opcode.split("."):
        return 0
    if "rna" in opcode:
        # The PTX ISA wants a NaN. Silicon drops 13 bits, and .satfinite goes one step down from there.
        return (a & ~0x1FFF) - (0x2000 if ".satfinite" in opcode else 0)
    if opcode in ("cvt.f32.f32", "cvt.f64.f64"):
        return a
    if (source, to, flushes) == ("bf16", "f32", False):
        return a << 16
    if "f64" not in (to, source):
        return NAN[to]
    if flushes and source == "f32":
        a = NAN["f32"]
    fraction, more = FORMATS[source][1], FORMATS[to][1] - FORMATS[source][1]
    payload = a & ((1 << fraction) - 1)
    payload = payload << more if more >= 0 else payload >> -more
    sign = a >> (words.bits_of(source) - 1) << (words.bits_of(to) - 1)
    return sign | floating.infinity(to) | payload | 1 << (FORMATS[to][1] - 1)


def finished(opcode, to, exact):
    if ".satfinite" in opcode:
        word = encode(to, exact, floating.rounding_of(opcode), finite=True)
        return 0 if ".relu" in opcode and decode(to, word) <= 0 else word
    return floating.finish(opcode, to, exact, ftz=".ftz" in opcode and to == "f32")
