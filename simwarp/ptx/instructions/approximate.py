"""PTX ISA 9.7.3 and 9.7.4: the ``.approx`` forms, of which the ISA bounds the error and leaves the bits free.

Here they are what NumPy gives in f64, rounded once, and exact where the ISA lists a special case.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions._formats import FORMATS, keep_payload, narrow, pack, split, widen, words
from simwarp.ptx.instructions._table import row, where
from simwarp.ptx.rows import Form


def _bounded(
    spelling: str,
    name: str,
    section: str,
    summary: str,
    bound: str,
    *,
    types: str = "f32",
    syntax: str = "d:T = a:T",
    minimum_sm: int = 50,
) -> Any:
    of_name = partial(row, T=types, name=name, section=section, minimum_sm=minimum_sm)
    return of_name(f"{spelling}.T", syntax, summary=summary, fidelity="bounded", bound=bound)


def _f32(form: Form, function: Any, *operands: Any) -> Any:
    if form.has("ftz"):
        operands = tuple(floats.flush(x) for x in operands)
    d = np.asarray(function(*(x.astype(np.float64) for x in operands)))
    return FORMATS["f32"].finish(form, words(d.astype(np.float32)))


@_bounded("div<.full>{.ftz}", "div.full.f32", "9.7.3.8", "a / b", "2 ulp", syntax="d:T = a:T, b:T")
def div_full(form: Form, a: Any, b: Any) -> Any:
    return _f32(form, np.divide, a, b)


@_bounded(
    "div<.approx>{.ftz}",
    "div.approx.f32",
    "9.7.3.8",
    "a / b; with |b| above 2^126 a zero, or NaN if a is infinite",
    "2 ulp",
    syntax="d:T = a:T, b:T",
)
def div_approx(form: Form, a: Any, b: Any) -> Any:
    return _f32(form, _by_reciprocal, a, b)


@_bounded("rcp<.approx>{.ftz}", "rcp.approx.f32", "9.7.3.13", "1 / a", "1 ulp")
def rcp(form: Form, a: Any) -> Any:
    return _f32(form, np.reciprocal, a)


@_bounded("sqrt<.approx>{.ftz}", "sqrt.approx.f32", "9.7.3.15", "the square root", "2^-23 of it")
def sqrt(form: Form, a: Any) -> Any:
    return _f32(form, np.sqrt, a)


@_bounded("rsqrt<.approx>{.ftz}", "rsqrt.approx.f32", "9.7.3.16", "1 / sqrt(a)", "2^-22.9 of it")
def rsqrt(form: Form, a: Any) -> Any:
    return _f32(form, _rsqrt, a)


@_bounded("rsqrt<.approx>", "rsqrt.approx.f64", "9.7.3.16", "1 / sqrt(a)", "2^-22.9 of it", types="f64")
def rsqrt_f64(form: Form, a: Any) -> Any:
    return keep_payload(_rsqrt(a), a)


_TOP = "of and to the upper 32 bits of f64; the lower ones are not read, and written as 0"


@_bounded("rcp<.approx><.ftz>", "rcp.approx.ftz.f64", "9.7.3.14", f"1 / a {_TOP}", "2^-19 of it", types="f64")
def rcp_top(form: Form, a: Any) -> Any:
    return _top(np.reciprocal, a)


@_bounded(
    "rsqrt<.approx><.ftz>",
    "rsqrt.approx.ftz.f64",
    "9.7.3.17",
    f"1 / sqrt(a) {_TOP}",
    "2^-19 of it",
    types="f64",
)
def rsqrt_top(form: Form, a: Any) -> Any:
    return _top(_rsqrt, a)


@_bounded("sin<.approx>{.ftz}", "sin.approx.f32", "9.7.3.18", "the sine of a", "2^-20.5 within 2 pi of 0")
def sin(form: Form, a: Any) -> Any:
    return _f32(form, np.sin, a)


@_bounded("cos<.approx>{.ftz}", "cos.approx.f32", "9.7.3.19", "the cosine of a", "2^-20.5 within 2 pi of 0")
def cos(form: Form, a: Any) -> Any:
    return _f32(form, np.cos, a)


@_bounded(
    "lg2<.approx>{.ftz}",
    "lg2.approx.f32",
    "9.7.3.20",
    "the logarithm of a to base 2",
    "2^-22, of it outside 0.5 to 2",
)
def lg2(form: Form, a: Any) -> Any:
    return _f32(form, np.log2, a)


@_bounded("ex2<.approx>{.ftz}", "ex2.approx.f32", "9.7.3.21", "2 to the power of a", "2 ulp")
def ex2(form: Form, a: Any) -> Any:
    return _f32(form, np.exp2, a)


@_bounded(
    "tanh<.approx>", "tanh.approx.f32", "9.7.3.22", "the hyperbolic tangent", "2^-11 of it", minimum_sm=75
)
def tanh(form: Form, a: Any) -> Any:
    return _f32(form, np.tanh, a)


_f16 = partial(_bounded, types="f16 f16x2", minimum_sm=75)
_bf16 = partial(_bounded, types="bf16 bf16x2", minimum_sm=90)
_TANH = "the hyperbolic tangent"


@_f16("tanh<.approx>", "tanh.approx.f16", "9.7.4.9", _TANH, "2^-10.987")
@_bf16("tanh<.approx>", "tanh.approx.bf16", "9.7.4.9", f"{_TANH}; an H200 errs by up to 2^-7.93", "2^-8")
def tanh_half(form: Form, a: Any) -> Any:
    return _half(form, np.tanh, a)


@_f16("ex2<.approx>", "ex2.approx.f16", "9.7.4.10", "2 to the power of a", "2^-9.9 of it")
@_bf16("ex2<.approx><.ftz>", "ex2.approx.ftz.bf16", "9.7.4.10", "2 to the power of a", "2^-7 of it")
def ex2_half(form: Form, a: Any) -> Any:
    return _half(form, np.exp2, a)


def _by_reciprocal(a: Any, b: Any) -> Any:
    return np.multiply(a, where(np.abs(b) > 2.0**126, np.copysign(0.0, b), np.divide(1.0, b)))


def _rsqrt(a: Any) -> Any:
    return np.reciprocal(np.sqrt(a))


def _top(function: Any, a: Any) -> Any:
    f64, upper = FORMATS["f64"], np.uint64(0xFFFFFFFF << 32)
    x = f64.flush(np.bitwise_and(words(a), upper)).view(np.float64)
    d = words(function(x))
    d = where(f64.is_nan(d), np.uint64(0x7FFFFFFF << 32), np.bitwise_and(d, upper))
    return f64.flush(d)


def _half(form: Form, function: Any, a: Any) -> Any:
    """Each half computed in f64 and rounded once."""
    kind = form.T.removesuffix("x2")
    format = FORMATS[kind]

    def compute(word: Any) -> Any:
        x = format.flush(word) if form.has("ftz") else word
        d = function(widen(x, kind).astype(np.float64))
        return format.finish(form, narrow(d, kind, "rn"))

    return pack(*map(compute, split(a))) if form.T.endswith("x2") else compute(words(a))
