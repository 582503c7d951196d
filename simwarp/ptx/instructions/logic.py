"""PTX ISA 9.7.8: logic and shift."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simwarp import lanes
from simwarp.ptx.instructions.table import row
from simwarp.ptx.rows import Form


def _beside_zero(form: Form, a: Any, b: Any) -> tuple[Any, Any]:
    """For ``and``: per operand, the lanes where the other operand is 0."""
    return np.equal(b, 0), np.equal(a, 0)


def _beside_ones(form: Form, a: Any, b: Any) -> tuple[Any, Any]:
    """For ``or``: per operand, the lanes where the other operand has all bits set."""
    return np.equal(lanes.not_(b), 0), np.equal(lanes.not_(a), 0)


_bitwise = partial(row, T="pred b16 b32 b64")
_TWO = "d:B = a:B, b:B"


@_bitwise(
    "and.T",
    _TWO,
    section="9.7.8.1",
    traits="mask",
    bitwise=2,
    ignores=_beside_zero,
    summary="a and b, bit by bit",
)
def and_(form: Form, a: Any, b: Any) -> Any:
    return lanes.and_(a, b)


@_bitwise(
    "or.T",
    _TWO,
    section="9.7.8.2",
    traits="mask",
    bitwise=2,
    ignores=_beside_ones,
    summary="a or b, bit by bit",
)
def or_(form: Form, a: Any, b: Any) -> Any:
    return lanes.or_(a, b)


@_bitwise("xor.T", _TWO, section="9.7.8.3", bitwise=2, summary="a exclusive-or b, bit by bit")
def xor(form: Form, a: Any, b: Any) -> Any:
    return lanes.xor(a, b)


@_bitwise("not.T", "d:B = a:B", section="9.7.8.4", bitwise=1, summary="every bit inverted")
def not_(form: Form, a: Any) -> Any:
    return lanes.not_(a)


@row("cnot.T", "d:B = a:B", T="b16 b32 b64", section="9.7.8.5", summary="1 of 0, else 0, as ! in C")
def cnot(form: Form, a: Any) -> Any:
    return np.equal(a, 0).astype(form.dtype)


@row(
    "lop3.b32",
    "d:u32 = a:u32, b:u32, c:u32, table:number",
    section="9.7.8.6",
    bitwise=3,
    summary="the function of three bits whose values for 0xF0, 0xCC, 0xAA make the table",
)
def lop3(form: Form, a: Any, b: Any, c: Any, table: Any) -> Any:
    return lanes.lop3(a, b, c, int(table) & 0xFF)


@row(
    "lop3<.or|.and>.b32",
    "d:u32 | p:pred = a:u32, b:u32, c:u32, table:number, q:pred",
    name="lop3.BoolOp.b32",
    minimum_sm=70,
    section="9.7.8.6",
    summary="as lop3; p: whether any bit of d is 1, combined with q",
)
def lop3_predicate(form: Form, a: Any, b: Any, c: Any, table: Any, q: Any) -> tuple[Any, Any]:
    d = lop3(form, a, b, c, table)
    return d, lanes.or_(d != 0, q) if form.has("or") else lanes.and_(d != 0, q)


@row(
    "shf<.l|.r><.clamp|.wrap>.b32",
    "d:u32 = a:u32, b:u32, c:u32",
    section="9.7.8.7",
    bitwise=2,
    amounts="c",
    summary="the funnel {b, a} shifted; 32 bits of it",
)
def shf(form: Form, a: Any, b: Any, c: Any) -> Any:
    return lanes.shf(a, b, c, *form.modifiers)  # pyright: ignore[reportArgumentType]


@row(
    "shl.T",
    "d:B = a:B, b:u32",
    T="b16 b32 b64",
    section="9.7.8.8",
    bitwise=1,
    amounts="b",
    summary="a · 2^b; 0 past the width",
)
def shl(form: Form, a: Any, b: Any) -> Any:
    return lanes.shl(a, b)


@row(
    "shr.T",
    "d:T = a:T, b:u32",
    T="b16 b32 b64 u16 u32 u64 s16 s32 s64",
    section="9.7.8.9",
    bitwise=1,
    amounts="b",
    summary="a shifted right; zeros or the sign enter",
)
def shr(form: Form, a: Any, b: Any) -> Any:
    return lanes.shr(a, b)
