"""PTX ISA 9.7.1: integer arithmetic.

Operands of kind B are unsigned: modulo 2^width the result does not depend on the sign.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from simwarp import lanes
from simwarp.ptx.instructions.table import row, where
from simwarp.ptx.rows import DTYPES, Form, Function

INTEGERS = "u16 u32 u64 s16 s32 s64"
_PACKED = "d:b32 = a:b32, b:b32"
_END = "or the end of the range that it passes"


@row(
    "add.T",
    "d:B = a:B, b:B",
    T=INTEGERS,
    section="9.7.1.1",
    traits="displace",
    summary="a + b, modulo 2^width",
)
def add(form: Form, a: Any, b: Any) -> Any:
    return np.add(a, b)


@row("add.sat.s32", "d:s32 = a:s32, b:s32", section="9.7.1.1", summary=f"a + b, {_END}")
def add_sat(form: Form, a: Any, b: Any) -> Any:
    return _saturate(np.add(a, b, dtype=np.int64))


_pair = partial(row, T="u16x2 s16x2", minimum_sm=90)


def _packed(name: str, section: str, summary: str) -> Callable[[Function], Function]:
    """A decorator that declares the row of an instruction on packed halves."""
    return _pair(f"{name}.T", _PACKED, name=f"{name} (packed)", section=section, summary=summary)


@_packed("add", "9.7.1.1", "a + b in each half, modulo 2^16")
def add_packed(form: Form, a: Any, b: Any) -> Any:
    return pack([x + y for x, y in _pairs(form, a, b)])


@row("sub.T", "d:B = a:B, b:B", T=INTEGERS, section="9.7.1.2", summary="a - b, modulo 2^width")
def sub(form: Form, a: Any, b: Any) -> Any:
    return np.subtract(a, b)


@row("sub.sat.s32", "d:s32 = a:s32, b:s32", section="9.7.1.2", summary=f"a - b, {_END}")
def sub_sat(form: Form, a: Any, b: Any) -> Any:
    return _saturate(np.subtract(a, b, dtype=np.int64))


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


_mad = partial(row, section="9.7.1.4", operations=2)


@_mad("mad.lo.T", "d:B = a:B, b:B, c:B", T=INTEGERS, summary="the low half of a · b, plus c")
def mad_lo(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(np.multiply(a, b), c)


@_mad("mad.hi.T", "d:T = a:T, b:T, c:T", T=INTEGERS, summary="the high half of a · b, plus c")
def mad_hi(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(mul_hi(form, a, b), c)


@_mad("mad.hi.sat.s32", "d:s32 = a:s32, b:s32, c:s32", summary=f"the high half of a · b, plus c, {_END}")
def mad_hi_sat(form: Form, a: Any, b: Any, c: Any) -> Any:
    high = np.right_shift(np.multiply(a, b, dtype=np.int64), 32)
    return _saturate(np.add(high, c))


@_mad("mad.wide.T", "d:W = a:T, b:T, c:W", T="u16 u32 s16 s32", summary="a · b + c, twice as wide")
def mad_wide(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(mul_wide(form, a, b), c)


_PRODUCT_24 = "bits 0-31 or 16-47 of the product of two 24-bit numbers"
_mad24 = partial(row, section="9.7.1.6", operations=2)


@row("mul24<.lo|.hi>.T", "d:T = a:T, b:T", T="u32 s32", section="9.7.1.5", summary=_PRODUCT_24)
def mul24(form: Form, a: Any, b: Any) -> Any:
    return np.right_shift(_product_24(a, b), 16 if form.has("hi") else 0).astype(form.dtype)


@_mad24("mad24<.lo|.hi>.T", "d:T = a:T, b:T, c:T", T="u32 s32", summary=f"{_PRODUCT_24}, plus c")
def mad24(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(mul24(form, a, b), c)


@_mad24(
    "mad24.hi.sat.s32",
    "d:s32 = a:s32, b:s32, c:s32",
    summary="bits 16-47 of the product of two 24-bit numbers, plus c, or the end of the range it passes",
)
def mad24_hi_sat(form: Form, a: Any, b: Any, c: Any) -> Any:
    return _saturate(np.add(np.right_shift(_product_24(a, b), 16), c))


@row(
    "sad.T",
    "d:T = a:T, b:T, c:T",
    T=INTEGERS,
    section="9.7.1.7",
    operations=2,
    summary="|a - b| + c, modulo 2^width",
)
def sad(form: Form, a: Any, b: Any, c: Any) -> Any:
    return np.add(where(np.less(a, b), np.subtract(b, a), np.subtract(a, b)), c)


def _by_zero(_: Form, _a: Any, b: Any) -> Any:
    """Whether each lane divides by zero."""
    return b == 0


_divide = partial(row, T=INTEGERS, fidelity="open", unspecified=_by_zero)
_ZERO = "by zero: unspecified, on an H200 all ones"


@_divide("div.T", "d:T = a:T, b:T", section="9.7.1.8", summary=f"a / b, rounded toward zero; {_ZERO}")
def div(form: Form, a: Any, b: Any) -> Any:
    if form.dtype.kind == "u":
        return where(b == 0, np.invert(form.dtype.type(0)), np.floor_divide(a, _not_zero(b)))
    quotient = np.floor_divide(_magnitude(a), _not_zero(_magnitude(b)))
    signed = where((a < 0) != (b < 0), np.negative(quotient), quotient).view(form.dtype)
    return where(b == 0, form.dtype.type(-1), signed)


@_divide(
    "rem.T",
    "d:T = a:T, b:T",
    section="9.7.1.9",
    traits="remainder",
    summary=f"a modulo b with the sign of a; {_ZERO}",
)
def rem(form: Form, a: Any, b: Any) -> Any:
    if form.dtype.kind == "u":
        return where(b == 0, np.invert(form.dtype.type(0)), np.remainder(a, _not_zero(b)))
    remainder = np.remainder(_magnitude(a), _not_zero(_magnitude(b)))
    signed = where(a < 0, np.negative(remainder), remainder).view(form.dtype)
    return where(b == 0, form.dtype.type(-1), signed)


@row("abs.T", "d:T = a:T", T="s16 s32 s64", section="9.7.1.10", summary="|a|; of the least value, itself")
def abs_(form: Form, a: Any) -> Any:
    return where(a < 0, np.negative(a), a)


@row("neg.T", "d:T = a:T", T="s16 s32 s64", section="9.7.1.11", summary="-a, modulo 2^width")
def neg(form: Form, a: Any) -> Any:
    return np.negative(a)


def _extreme(name: str, choose: Function, section: str, what: str) -> None:
    """Declare the rows of ``min`` or ``max``: on integers, on packed halves, and with ``.relu``."""

    def plain(form: Form, a: Any, b: Any) -> Any:
        return choose(a, b)

    def packed(form: Form, a: Any, b: Any) -> Any:
        return pack([choose(x, y) for x, y in _pairs(form, a, b)])

    def relu(form: Form, a: Any, b: Any) -> Any:
        return pack([np.maximum(choose(x, y), 0) for x, y in _pairs(form, a, b)])

    other = f"{name}.relu, as the PTX ISA's examples write it"
    row(f"{name}.T", "d:T = a:T, b:T", T=INTEGERS, section=section, summary=what)(plain)
    _packed(name, section, f"{what} in each half")(packed)
    of_relu = partial(row, T="s32 s16x2", section=section, minimum_sm=90)
    of_relu(f"{name}.T.relu", _PACKED, name=f"{name}.T.relu", summary=other)(relu)
    of_relu(f"{name}.relu.T", _PACKED, summary=f"{what}, and 0 instead of a negative one")(relu)


_extreme("min", np.minimum, "9.7.1.12", "the smaller one")
_extreme("max", np.maximum, "9.7.1.13", "the larger one")


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
    word = a
    if form.dtype.kind == "i":
        word = where(word < 0, np.invert(word), word).view(f"u{form.dtype.itemsize}")
    zeros = lanes.clz(word)
    position = zeros if form.has("shiftamt") else np.subtract(width - np.uint32(1), zeros)
    return where(zeros == width, np.uint32(0xFFFFFFFF), position)


@row(
    "fns.b32",
    "d:b32 = a:b32, b:b32, c:s32",
    section="9.7.1.17",
    fidelity="open",
    amounts="b",
    summary="where a's |c|-th 1 is, from bit b on up or down; none: all ones; on an H200 also where "
    "b > 31, which is undefined, but 0 where c is the least s32",
)
def fns(form: Form, a: Any, b: Any, c: Any) -> Any:
    down = np.less(c, 0)
    up = where(down, lanes.brev(a), a)  # a search downwards is a search upwards in the reversed word
    base = where(down, np.subtract(31, b, dtype=np.uint32), b)
    ahead = lanes.shr(up, base)
    left = lanes.shl(where(c == 0, ahead & 1, ahead), base)
    passed = np.minimum(_magnitude(c), 33)
    for n in range(1, 33):
        left = where(n < passed, left & (left - 1), left)  # clear the lowest bit that is 1
    position = lanes.popc(~left & (left - 1))
    position = where(left == 0, np.uint32(0xFFFFFFFF), where(down, 31 - position, position))
    return where(c == -(1 << 31), np.uint32(0), position)


@row("brev.T", "d:B = a:B", T="b32 b64", section="9.7.1.18", summary="the bits in reverse order")
def brev(form: Form, a: Any) -> Any:
    return lanes.brev(a)


_AMOUNTS = "both modulo 256, but in 64 bits on an H200 at most 255"


@row(
    "bfe.T",
    "d:T = a:T, b:u32, c:u32",
    T="u32 u64 s32 s64",
    section="9.7.1.19",
    fidelity="open",
    bitwise=1,
    amounts="bc",
    summary=f"c bits of a from bit b on; {_AMOUNTS}",
)
def bfe(form: Form, a: Any, b: Any, c: Any) -> Any:
    return lanes.bfe(a, *_amounts(form, b, c))


@row(
    "bfi.T",
    "d:B = a:B, b:B, c:u32, e:u32",
    T="b32 b64",
    section="9.7.1.20",
    fidelity="open",
    traits="insert",
    bitwise=2,
    amounts="ce",
    summary=f"e bits of a put into b at bit c; {_AMOUNTS}",
)
def bfi(form: Form, a: Any, b: Any, c: Any, e: Any) -> Any:
    return lanes.bfi(a, b, *_amounts(form, c, e))


@row(
    "szext<.clamp|.wrap>.T",
    "d:T = a:T, b:u32",
    T="u32 s32",
    minimum_sm=70,
    amounts="b",
    section="9.7.1.21",
    summary="the low b bits of a, extended; b past 31: a itself (clamp), or b modulo 32 (wrap)",
)
def szext(form: Form, a: Any, b: Any) -> Any:
    above = np.subtract(32, np.bitwise_and(b, 31)).astype(np.uint32)
    cut = lanes.shr(lanes.shl(a, above), above)
    cut = where(above == 32, form.dtype.type(0), cut)
    return where(np.greater(b, 31), a, cut) if form.has("clamp") else cut


@row(
    "bmsk<.clamp|.wrap>.b32",
    "d:b32 = a:u32, b:u32",
    minimum_sm=70,
    amounts="ab",
    section="9.7.1.22",
    summary="b ones from bit a on; past 31: cut off (clamp), or both modulo 32 (wrap)",
)
def bmsk(form: Form, a: Any, b: Any) -> Any:
    if form.has("wrap"):
        a, b = np.bitwise_and(a, 31), np.bitwise_and(b, 31)
    ones: Any = np.uint32(0xFFFFFFFF)
    return lanes.shl(lanes.not_(lanes.shl(ones, b)), a)


_dot = partial(row, T="u32 s32", U="u32 s32", minimum_sm=61)


@_dot(
    "dp4a.T.U",
    "d:b32 = a:b32, b:b32, c:b32",
    section="9.7.1.23",
    operations=8,
    summary="c plus the dot product of a's bytes and b's, modulo 2^32",
)
def dp4a(form: Form, a: Any, b: Any, c: Any) -> Any:
    x, y = elements(a, f"{form.T[0]}8"), elements(b, f"{form.U[0]}8")
    return accumulate(c, [p * q for p, q in zip(x, y, strict=True)])


@_dot(
    "dp2a<.lo|.hi>.T.U",
    "d:b32 = a:b32, b:b32, c:b32",
    section="9.7.1.24",
    operations=4,
    summary="c plus the dot product of a's halves and b's two low or high bytes, modulo 2^32",
)
def dp2a(form: Form, a: Any, b: Any, c: Any) -> Any:
    x, y = elements(a, f"{form.T[0]}16"), elements(b, f"{form.U[0]}8")
    y = y[2:] if form.has("hi") else y[:2]
    return accumulate(c, [p * q for p, q in zip(x, y, strict=True)])


def elements(word: Any, kind: str) -> list[Any]:
    """The bytes or halves of 32-bit words, lowest first, each sign- or zero-extended to int32."""
    dtype = DTYPES[kind]
    bits = dtype.itemsize * 8
    return [np.right_shift(word, bits * i).astype(dtype).astype(np.int32) for i in range(32 // bits)]


def pack(values: list[Any]) -> Any:
    """Pack one, two or four int32 values into a 32-bit word, the first one lowest, each truncated."""
    bits = 32 // len(values)
    word = np.uint32(0)
    for i, value in enumerate(values):
        word = word | np.left_shift(value.view(np.uint32) & ((1 << bits) - 1), bits * i)
    return word


def accumulate(c: Any, values: list[Any]) -> Any:
    """The sum of c and some int32 values, modulo 2^32."""
    for value in values:
        c = np.add(c, value.view(np.uint32))
    return c


def _pairs(form: Form, a: Any, b: Any) -> zip[tuple[Any, Any]]:
    """The pairs of elements that an instruction combines: halves of a and b, or whole words for s32."""
    kind = form.T.removesuffix("x2")
    return zip(elements(a, kind), elements(b, kind), strict=True)


def _saturate(exact: Any) -> Any:
    """An int64 clamped to the range of s32: -2³¹ to 2³¹ - 1."""
    return np.clip(exact, -(1 << 31), (1 << 31) - 1).astype(np.int32)


def _product_24(a: Any, b: Any) -> Any:
    """The 48-bit product of the low 24 bits of two 32-bit words."""
    x, y = (np.right_shift(np.left_shift(z, 8), 8).astype(f"{z.dtype.kind}8") for z in (a, b))
    return np.multiply(x, y)


def _high_64(a: Any, b: Any) -> Any:
    """The high half of a 64 x 64 bit product, by schoolbook multiplication of 32-bit halves."""
    dtype, mask, half = a.dtype, np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    high = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & mask)) >> half)
    if dtype.kind == "i":  # read as unsigned, a negative operand is too large by 2^64
        high = high - where(a < 0, y, np.uint64(0)) - where(b < 0, x, np.uint64(0))
    return high.view(dtype)


def _amounts(form: Form, position: Any, length: Any) -> tuple[Any, Any]:
    """Position and length of a bit field as an H200 reads them: modulo 256, in 64-bit words at most 255."""
    if form.dtype.itemsize == 8:
        return np.minimum(position, 255), np.minimum(length, 255)
    return position, length


def _magnitude(a: Any) -> Any:
    """The magnitude of a as an unsigned word; right also for the least value."""
    return where(a < 0, np.negative(a), a).view(f"u{a.dtype.itemsize}")


def _not_zero(b: Any) -> Any:
    """A divisor with zeros replaced by 1, to divide without warnings."""
    return where(b == 0, b.dtype.type(1), b)
