"""PTX ISA 9.7.6: comparison and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simwarp.ptx.instructions._table import row, where
from simwarp.ptx.rows import Form

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
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
_SETP = "p:pred | q:pred = a:T, b:T, c:pred?"
_FLOAT = "<.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan|.eq|.ne|.lt|.le|.gt|.ge>"


@row(
    "setp<.eq|.ne>{.and|.or|.xor}.T",
    _SETP,
    T="b16 b32 b64",
    name="setp (bits)",
    section="9.7.6.2",
    summary="whether a and b are equal, or differ; q: the opposite; each combined with c",
)
@row(
    "setp<.eq|.ne|.lt|.le|.gt|.ge>{.and|.or|.xor}.T",
    _SETP,
    T="s16 s32 s64",
    name="setp (signed)",
    section="9.7.6.2",
    summary="whether a and b compare so; q: whether they do not; each combined with c",
)
@row(
    "setp<.eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs>{.and|.or|.xor}.T",
    _SETP,
    T="u16 u32 u64",
    section="9.7.6.2",
    summary="as for signed integers; lo, ls, hi, hs are lt, le, gt, ge",
)
def setp(form: Form, a: Any, b: Any, c: Any = None) -> Any:
    return _with_complement(form, _COMPARE[form.modifiers[0]](a, b), c)


@row(
    f"setp{_FLOAT}{{.and|.or|.xor}}{{.ftz}}.T",
    _SETP,
    T="f32 f64",
    name="setp (float)",
    section="9.7.6.2",
    summary="as for integers; …u also where either is NaN, num neither, nan either",
)
def setp_float(form: Form, a: Any, b: Any, c: Any = None) -> Any:
    compare = form.modifiers[0]
    if form.has("ftz"):
        a, b = _flush(a), _flush(b)
    unordered = np.isnan(a) | np.isnan(b)
    if compare in ("num", "nan"):
        result = unordered if compare == "nan" else ~unordered
    else:
        result = _COMPARE[compare[:2]](a, b)
        # NumPy's "not equal" holds for a NaN; PTX's plain "ne" does not.
        result = result | unordered if compare.endswith("u") else result & ~unordered
    return _with_complement(form, result, c)


@row(
    "selp.T",
    "d:B = a:B, b:B, c:pred",
    T="b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64",
    section="9.7.6.3",
    summary="a where c holds, else b",
)
def selp(form: Form, a: Any, b: Any, c: Any) -> Any:
    return where(c, a, b)


def _with_complement(form: Form, result: Any, c: Any) -> tuple[Any, Any]:
    complement = np.logical_not(result)
    if c is None:
        return result, complement
    combine = _COMBINE[form.modifiers[1]]
    return combine(result, c), combine(complement, c)


def _flush(x: Any) -> Any:
    return where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)
