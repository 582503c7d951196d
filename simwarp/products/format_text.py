"""LLVM's text that decodes words of a floating-point format, and encodes numbers, in vectors of lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from simwarp.floats.formats import Format
from simwarp.products.operands import OF_ZERO

LANES = 8
"""Elements of a vector."""
REAL, WIDE, INT, BIT = (f"<{LANES} x {kind}>" for kind in ("double", "i64", "i32", "i1"))
INTRINSICS = f"""
declare {REAL} @llvm.fabs.v{LANES}f64({REAL})
declare {REAL} @llvm.trunc.v{LANES}f64({REAL})
declare {WIDE} @llvm.umin.v{LANES}i64({WIDE}, {WIDE})
declare {INT} @llvm.smax.v{LANES}i32({INT}, {INT})
declare i1 @llvm.vector.reduce.or.v{LANES}i1({BIT})
"""


def splat(kind: str, value: Any) -> str:
    """A constant in all lanes."""
    written = f"0x{int(np.float64(value).view(np.uint64)):016X}" if kind == "double" else value
    return f"splat ({kind} {written})"


def word(format: Format) -> str:
    """LLVM's type of a word."""
    return f"i{8 * format.word.itemsize}"


def words(format: Format) -> str:
    """LLVM's type of a vector of words."""
    return f"<{LANES} x {word(format)}>"


def decoding(format: Format) -> str:
    """The functions `value`, `exponent` and `outside` of a format, as `simwarp.products.operands` decodes it.

    Infinities and NaN are outside; of these, value and exponent mean nothing.
    """
    one, many, low = word(format), words(format), format.fraction_bits + format.padding
    as_int = f"bitcast {INT} %normal to {INT}" if one == "i32" else f"zext {many} %normal to {INT}"
    return f"""
define internal {REAL} @value.{format.name}({many} %word) alwaysinline {{
  %magnitude = and {many} %word, {splat(one, format.nan)}
  %wide = zext {many} %magnitude to {WIDE}
  %placed = shl {WIDE} %wide, {splat("i64", 52 - low)}
  %small = bitcast {WIDE} %placed to {REAL}
  %value = fmul {REAL} %small, {splat("double", 2.0 ** (1022 + format.least_exponent))}
  %opposite = fneg {REAL} %value
  %negative = icmp slt {many} %word, zeroinitializer
  %signed = select {BIT} %negative, {REAL} %opposite, {REAL} %value
  ret {REAL} %signed
}}
define internal {INT} @exponent.{format.name}({many} %word) alwaysinline {{
  %magnitude = and {many} %word, {splat(one, format.nan)}
  %field = lshr {many} %magnitude, {splat(one, low)}
  %subnormal = icmp eq {many} %field, zeroinitializer
  %normal = select {BIT} %subnormal, {many} {splat(one, 1)}, {many} %field
  %number = {as_int}
  %exponent = add {INT} %number, {splat("i32", format.least_exponent - 1)}
  %zero = icmp eq {many} %magnitude, zeroinitializer
  %result = select {BIT} %zero, {INT} {splat("i32", OF_ZERO)}, {INT} %exponent
  ret {INT} %result
}}
define internal {BIT} @outside.{format.name}({many} %word) alwaysinline {{
  %magnitude = and {many} %word, {splat(one, format.nan)}
  %outside = icmp ugt {many} %magnitude, {splat(one, format.largest << format.padding)}
  ret {BIT} %outside
}}
"""


def encoding(name: str, format: Format, rounding: str, bits: int, signed_zeros: bool) -> str:
    """A function of numbers that rounds them to words with so many fraction bits; an overflow is infinite.

    A number's magnitude is moved to the exponents of the format, so that its word is the upper bits, also of
    subnormal numbers, and rounding is that of an integer.
    """
    one, many, shift = word(format), words(format), 52 - format.fraction_bits
    if rounding == "rn":
        rounded = f"""
  %last = lshr {WIDE} %exact, {splat("i64", shift)}
  %odd = and {WIDE} %last, {splat("i64", 1)}
  %half = add {WIDE} %odd, {splat("i64", (1 << (shift - 1)) - 1)}
  %rounded = add {WIDE} %exact, %half"""
    else:
        cut = shift + format.fraction_bits - bits
        rounded = f"""
  %rounded = and {WIDE} %exact, {splat("i64", -(1 << cut))}"""
    nonzero = splat("i1", "true") if signed_zeros else "%nonzero"
    return f"""
define internal {many} @{name}({REAL} %number) alwaysinline {{
  %magnitude = call {REAL} @llvm.fabs.v{LANES}f64({REAL} %number)
  %moved = fmul {REAL} %magnitude, {splat("double", 2.0 ** -(1022 + format.least_exponent))}
  %exact = bitcast {REAL} %moved to {WIDE}{rounded}
  %placed = lshr {WIDE} %rounded, {splat("i64", shift)}
  %bounded = call {WIDE} @llvm.umin.v{LANES}i64({WIDE} %placed, {WIDE} {splat("i64", format.largest + 1)})
  %word = trunc {WIDE} %bounded to {many}
  %bits = bitcast {REAL} %number to {WIDE}
  %negative = icmp slt {WIDE} %bits, zeroinitializer
  %nonzero = icmp ne {many} %word, zeroinitializer
  %signed = and {BIT} %negative, {nonzero}
  %opposite = or {many} %word, {splat(one, -format.sign)}
  %result = select {BIT} %signed, {many} %opposite, {many} %word
  ret {many} %result
}}
"""
