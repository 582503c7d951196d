"""PTX ISA 9.7.6 and 9.7.7: comparison and selection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from simwarp.ptx.instructions.float_formats import FORMATS, pack, split, widen, words
from simwarp.ptx.instructions.table import row, where
from simwarp.ptx.rows import Form, storage

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_BITS = "<.eq|.ne>{.and|.or|.xor}"
_SIGNED = "<.eq|.ne|.lt|.le|.gt|.ge>{.and|.or|.xor}"
_UNSIGNED = "<.eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs>{.and|.or|.xor}"
_FLOAT = "<.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan|.eq|.ne|.lt|.le|.gt|.ge>{.and|.or|.xor}"
_FLUSHING = f"{_FLOAT}{{.ftz}}"
_SELECTED = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"


# ------------------------------------------------------------------------------------------------ set


def _set(compare: str, written: str, read: str, name: str, minimum_sm: int = 50) -> Any:
    """A decorator that declares a row of ``set`` in the PTX table, with destination and source types."""
    return row(
        f"set{compare}.T.U",
        "d:T = a:U, b:U, c:pred?",
        T=written,
        U=read,
        name=name,
        minimum_sm=minimum_sm,
        section="9.7.7.1" if minimum_sm > 50 else "9.7.6.1",
        summary="1.0 or all ones where a and b compare so (and, or, xor c), else 0",
    )


@_set(_BITS, "u32 s32 f32", "b16 b32 b64", "set (bits)")
@_set(_SIGNED, "u32 s32 f32", "s16 s32 s64", "set (signed)")
@_set(_UNSIGNED, "u32 s32 f32", "u16 u32 u64", "set")
@_set(_FLUSHING, "u32 s32 f32", "f32", "set (f32)")
@_set(_FLOAT, "u32 s32 f32", "f64", "set (f64)")
@_set(_BITS, "f16", "b16 b32 b64", "set.f16 (bits)", 53)
@_set(_SIGNED, "f16", "s16 s32 s64", "set.f16 (signed)", 53)
@_set(_UNSIGNED, "f16", "u16 u32 u64", "set.f16", 53)
@_set(_FLUSHING, "f16", "f32", "set.f16 (f32)", 53)
@_set(_FLOAT, "f16", "f64", "set.f16 (f64)", 53)
@_set(_FLUSHING, "u16 s16 u32 s32 f16", "f16", "set (f16)", 53)
@_set(_BITS, "bf16", "b16 b32 b64", "set.bf16 (bits)", 90)
@_set(_SIGNED, "bf16", "s16 s32 s64", "set.bf16 (signed)", 90)
@_set(_UNSIGNED, "bf16", "u16 u32 u64", "set.bf16", 90)
@_set(_FLOAT, "bf16", "f16 f32 f64", "set.bf16 (float)", 90)
@_set(_FLOAT, "u16 s16 u32 s32 bf16", "bf16", "set (bf16)", 90)
def set_(form: Form, a: Any, b: Any, c: Any = None) -> Any:
    return _truth(form.T, _combine(form, _holds(form, form.U, a, b), c))


@_set(_FLUSHING, "u32 s32 f16x2", "f16x2", "set (f16x2)", 53)
@_set(_FLOAT, "u32 s32 bf16x2", "bf16x2", "set (bf16x2)", 90)
def set_pair(form: Form, a: Any, b: Any, c: Any = None) -> Any:
    high, low = (_combine(form, t, c) for t in _holds_of_pair(form, form.U, a, b))
    half = form.T.removesuffix("x2") if form.T.endswith("x2") else "u16"
    return pack(_truth(half, high), _truth(half, low))


def _truth(kind: str, holds: Any) -> Any:
    """The result of ``set``: for true 1.0 as a float or all ones as an integer, for false 0."""
    word = storage(kind).type
    return where(holds, FORMATS[kind].one if kind in FORMATS else np.invert(word(0)), word(0))


# ----------------------------------------------------------------------------------------------- setp


def _decided(form: Form, a: Any, b: Any, c: Any = None) -> tuple[Any, Any, Any]:
    """For each operand, the lanes where another one decides: false in ``.and``, true in ``.or``."""
    if c is None or form.modifiers[1] == "xor":
        return False, False, False
    holds = _holds(form, form.T, a, b)
    if form.modifiers[1] == "or":
        return c, c, holds
    return ~c, ~c, ~holds


_SETP = "p:pred | q:pred = a:T, b:T, c:pred?"


_setp = partial(row, section="9.7.6.2", ignores=_decided, traits="compare")
_AS = "as for integers; …u also where either is NaN, num neither, nan either"


@_setp(
    f"setp{_BITS}.T",
    _SETP,
    T="b16 b32 b64",
    name="setp (bits)",
    summary="whether a and b are equal, or differ; q: the opposite; each combined with c",
)
@_setp(
    f"setp{_SIGNED}.T",
    _SETP,
    T="s16 s32 s64",
    name="setp (signed)",
    summary="whether a and b compare so; q: whether they do not; each combined with c",
)
@_setp(
    f"setp{_UNSIGNED}.T",
    _SETP,
    T="u16 u32 u64",
    summary="as for signed integers; lo, ls, hi, hs are lt, le, gt, ge",
)
@_setp(f"setp{_FLUSHING}.T", _SETP, T="f32", name="setp (f32)", summary=_AS)
@_setp(f"setp{_FLOAT}.T", _SETP, T="f64", name="setp (f64)", summary=_AS)
def setp(form: Form, a: Any, b: Any, c: Any = None) -> Any:
    holds = _holds(form, form.T, a, b)
    return _combine(form, holds, c), _combine(form, np.logical_not(holds), c)


def _setp_half(compare: str, syntax: str, kind: str, minimum_sm: int, summary: str) -> Any:
    """A decorator that declares a row of ``setp`` on halves."""
    of_kind = partial(row, T=kind, name=f"setp ({kind})", minimum_sm=minimum_sm, section="9.7.7.2")
    return of_kind(f"setp{compare}.T", syntax, summary=summary, traits="compare")


_ONE = "p:pred = a:T, b:T, c:pred?"
_BOTH = "whether the low halves compare so; q: the high halves; each combined with c"


@_setp_half(_FLUSHING, _ONE, "f16", 53, "as for f32, but without q")
@_setp_half(_FLOAT, _ONE, "bf16", 90, "as for f32, but without q")
def setp_half(form: Form, a: Any, b: Any, c: Any = None) -> Any:
    return _combine(form, _holds(form, form.T, a, b), c)


@_setp_half(_FLUSHING, _SETP, "f16x2", 53, _BOTH)
@_setp_half(_FLOAT, _SETP, "bf16x2", 90, _BOTH)
def setp_pair(form: Form, a: Any, b: Any, c: Any = None) -> Any:
    high, low = _holds_of_pair(form, form.T, a, b)
    return _combine(form, low, c), _combine(form, high, c)


# ------------------------------------------------------------------------------------------ selection


def _not_selected(form: Form, a: Any, b: Any, c: Any) -> tuple[Any, Any, bool]:
    """For a and b of a select, the lanes where c selects the other operand; False for c."""
    first = c if c.dtype == np.bool_ else _number(form, form.U, c) >= 0
    return ~first, first, False


@row(
    "selp.T",
    "d:B = a:B, b:B, c:pred",
    T=_SELECTED,
    bitwise=2,
    section="9.7.6.3",
    ignores=_not_selected,
    summary="a where c holds, else b",
)
def selp(form: Form, a: Any, b: Any, c: Any) -> Any:
    return where(c, a, b)


_slct = partial(row, T=_SELECTED, section="9.7.6.4", ignores=_not_selected)


@_slct("slct.T.U", "d:B = a:B, b:B, c:U", U="s32", summary="a where c >= 0, else b")
@_slct(
    "slct{.ftz}.T.U",
    "d:B = a:B, b:B, c:U",
    U="f32",
    name="slct (f32)",
    summary="a where c >= 0, also -0, else b, also for NaN",
)
def slct(form: Form, a: Any, b: Any, c: Any) -> Any:
    return where(_number(form, form.U, c) >= 0, a, b)


# -------------------------------------------------------------------------------------- shared functions


def _combine(form: Form, holds: Any, c: Any) -> Any:
    """Combine a comparison with predicate c, if there is one."""
    return holds if c is None else _COMBINE[form.modifiers[1]](holds, c)


def _holds(form: Form, kind: str, a: Any, b: Any) -> Any:
    """Compare two values of PTX type ``kind`` by the operator in the opcode."""
    compare = form.modifiers[0]
    if kind not in FORMATS:
        return COMPARE[compare](a, b)
    a, b = _number(form, kind, a), _number(form, kind, b)
    unordered = np.isnan(a) | np.isnan(b)
    if compare in ("num", "nan"):
        return unordered if compare == "nan" else ~unordered
    holds = COMPARE[compare[:2]](a, b)
    # NumPy's "not equal" holds for a NaN; PTX's plain "ne" does not.
    return holds | unordered if compare.endswith("u") else holds & ~unordered


def _holds_of_pair(form: Form, kind: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Compare the high and the low halves of packed pairs by the operator in the opcode."""
    half = kind.removesuffix("x2")
    high, low = (_holds(form, half, x, y) for x, y in zip(split(a), split(b), strict=True))
    return high, low


def _number(form: Form, kind: str, x: Any) -> Any:
    """An operand as a NumPy number: flushed for ``.ftz``, and bf16, which NumPy lacks, as f32."""
    if kind not in FORMATS:
        return x
    if form.has("ftz"):
        x = FORMATS[kind].flush(words(x))
    return widen(words(x), "bf16") if kind == "bf16" else x.view(f"f{x.dtype.itemsize}")
