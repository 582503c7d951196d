"""PTX ISA 9.7.1: integer arithmetic.

Operands of kind B arrive unsigned: modulo 2^width the sign does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simwarp import lanes
from simwarp.ptx.instructions._table import row, where
from simwarp.ptx.rows import Form

INTEGERS = "u16 u32 u64 s16 s32 s64"


@row("add.T", "d:B = a:B, b:B", T=INTEGERS, section="9.7.1.1", summary="a + b, modulo 2^width")
def add(form: Form, a: Any, b: Any) -> Any:
    return np.add(a, b)


@row("sub.T", "d:B = a:B, b:B", T=INTEGERS, section="9.7.1.2", summary="a - b, modulo 2^width")
def sub(form: Form, a: Any, b: Any) -> Any:
    return np.subtract(a, b)


@row("mul.lo.T", "d:B = a:B, b:B", T=INTEGERS, section="9.7.1.3", summary="the low half of a · b")
def mul_lo(form: Form, a: Any, b: Any) -> Any:
    return np.multiply(a, b)


@row("mul.hi.T", "d:T = a:T, b:T", T=INTEGERS, section="9.7.1.3", summary="the high half of a · b")
def mul_hi(form: Form, a: Any, b: Any) -> Any:
    bits = form.dtype.itemsize * 8
    if bits == 64:
        return _high_64(a, b)
    product = np.multiply(a, b, dtype=form.wide)
    return np.right_shift(product, form.wide.type(bits)).astype(form.dtype)


@row("mul.wide.T", "d:W = a:T, b:T", T="u16 u32 s16 s32", section="9.7.1.3", summary="a · b, twice as wide")
def mul_wide(form: Form, a: Any, b: Any) -> Any:
    return np.multiply(a, b, dtype=form.wide)


@row(
    "mad.lo.T",
    "d:B = a:B, b:B, c:B",
    T=INTEGERS,
    section="9.7.1.4",
    summary="the low half of a · b, plus c",
)
def mad_lo(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(np.multiply(a, b), c)


@row(
    "mad.hi.T",
    "d:T = a:T, b:T, c:T",
    T=INTEGERS,
    section="9.7.1.4",
    summary="the high half of a · b, plus c",
)
def mad_hi(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(mul_hi(form, a, b), c)


@row(
    "mad.wide.T",
    "d:W = a:T, b:T, c:W",
    T="u16 u32 s16 s32",
    section="9.7.1.4",
    summary="a · b + c, twice as wide",
)
def mad_wide(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(mul_wide(form, a, b), c)


@row(
    "div.T",
    "d:T = a:T, b:T",
    T=INTEGERS,
    section="9.7.1.8",
    fidelity="open",
    summary="a / b, rounded toward zero; by zero: unspecified, here all ones",
)
def div(form: Form, a: Any, b: Any) -> Any:
    if form.dtype.kind == "u":
        return where(b == 0, np.invert(form.dtype.type(0)), np.floor_divide(a, _not_zero(b)))
    quotient = np.floor_divide(_magnitude(a), _not_zero(_magnitude(b)))
    signed = where((a < 0) != (b < 0), np.negative(quotient), quotient).view(form.dtype)
    return where(b == 0, form.dtype.type(-1), signed)


@row(
    "rem.T",
    "d:T = a:T, b:T",
    T=INTEGERS,
    section="9.7.1.9",
    fidelity="open",
    summary="a modulo b with the sign of a; by zero: unspecified, here a",
)
def rem(form: Form, a: Any, b: Any) -> Any:
    if form.dtype.kind == "u":
        return where(b == 0, a, np.remainder(a, _not_zero(b)))
    remainder = np.remainder(_magnitude(a), _not_zero(_magnitude(b)))
    signed = where(a < 0, np.negative(remainder), remainder).view(form.dtype)
    return where(b == 0, a, signed)


@row("abs.T", "d:T = a:T", T="s16 s32 s64", section="9.7.1.10", summary="|a|; of the least value, itself")
def abs_(form: Form, a: Any) -> Any:
    return where(a < 0, np.negative(a), a)


@row("neg.T", "d:T = a:T", T="s16 s32 s64", section="9.7.1.11", summary="-a, modulo 2^width")
def neg(form: Form, a: Any) -> Any:
    return np.negative(a)


@row("min.T", "d:T = a:T, b:T", T=INTEGERS, section="9.7.1.12", summary="the smaller one")
def min_(form: Form, a: Any, b: Any) -> Any:
    return np.minimum(a, b)


@row("max.T", "d:T = a:T, b:T", T=INTEGERS, section="9.7.1.13", summary="the larger one")
def max_(form: Form, a: Any, b: Any) -> Any:
    return np.maximum(a, b)


@row("popc.T", "d:u32 = a:T", T="b32 b64", section="9.7.1.14", summary="how many bits are 1")
def popc(form: Form, a: Any) -> Any:
    return lanes.popc(a)


@row("clz.T", "d:u32 = a:T", T="b32 b64", section="9.7.1.15", summary="leading zeros; of 0, the width")
def clz(form: Form, a: Any) -> Any:
    return lanes.clz(a)


@row(
    "bfind{.shiftamt}.T",
    "d:u32 = a:T",
    T="u32 u64 s32 s64",
    section="9.7.1.16",
    summary="the highest bit that is not sign, or its distance from the top; none: all ones",
)
def bfind(form: Form, a: Any) -> Any:
    width = np.uint32(form.dtype.itemsize * 8)
    word = np.asarray(a)
    if form.dtype.kind == "i":
        word = where(word < 0, np.invert(word), word).view(f"u{form.dtype.itemsize}")
    zeros = lanes.clz(word)
    found = zeros if form.has("shiftamt") else np.subtract(width - np.uint32(1), zeros)
    return where(zeros == width, np.uint32(0xFFFFFFFF), found)


@row("brev.T", "d:B = a:B", T="b32 b64", section="9.7.1.18", summary="the bits in reverse order")
def brev(form: Form, a: Any) -> Any:
    return lanes.brev(a)


@row(
    "bfe.T",
    "d:T = a:T, b:u32, c:u32",
    T="u32 u64 s32 s64",
    section="9.7.1.19",
    fidelity="open",
    summary="c bits of a from bit b on; in 64 bits with b or c past 255, an H200 differs",
)
def bfe(form: Form, a: Any, b: Any, c: Any) -> Any:
    return lanes.bfe(a, b, c)


@row(
    "bfi.T",
    "d:B = a:B, b:B, c:u32, e:u32",
    T="b32 b64",
    section="9.7.1.20",
    fidelity="open",
    summary="e bits of a put into b at bit c; in 64 bits with c or e past 255, an H200 differs",
)
def bfi(form: Form, a: Any, b: Any, c: Any, e: Any) -> Any:
    return lanes.bfi(a, b, c, e)


def _high_64(a: Any, b: Any) -> Any:
    """The high half of a 64 x 64 bit product, by schoolbook on 32-bit halves."""
    dtype, mask, half = np.asarray(a).dtype, np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = np.asarray(a).view(np.uint64), np.asarray(b).view(np.uint64)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    high = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & mask)) >> half)
    if dtype.kind == "i":  # as unsigned, a negative operand stands for itself plus 2^64
        high = high - where(a < 0, y, np.uint64(0)) - where(b < 0, x, np.uint64(0))
    return np.asarray(high).view(dtype)


def _magnitude(a: Any) -> Any:
    """|a| as an unsigned word, right also for the least value."""
    return where(a < 0, np.negative(a), a).view(f"u{np.asarray(a).dtype.itemsize}")


def _not_zero(b: Any) -> Any:
    return where(b == 0, b.dtype.type(1), b)
