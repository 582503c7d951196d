"""PTX ISA 9.7.3 and 9.7.4: the ``.approx`` forms, whose error the ISA bounds.

Here they are computed by NumPy in f64 and rounded once; special cases that the ISA lists are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions.float_formats import FORMATS, keep_payload, narrow, pack, split, widen, words
from simwarp.ptx.instructions.table import row, where
from simwarp.ptx.rows import Form


def _bounded(
    function: Callable[..., Any],
    spelling: str,
    name: str,
    section: str,
    summary: str,
    bound: str,
    *,
    types: str = "f32",
    syntax: str = "d:T = a:T",
    minimum_sm: int = 50,
) -> None:
    """Declare a row; ``function`` takes the form and the operands."""
    of_name = partial(row, T=types, name=name, section=section, minimum_sm=minimum_sm)
    of_name(f"{spelling}.T", syntax, summary=summary, fidelity="bounded", bound=bound)(function)


def _f32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A row's function that computes in f64 and rounds once to f32."""

    def compute(form: Form, *operands: Any) -> Any:
        if form.has("ftz"):
            operands = tuple(floats.flush(x) for x in operands)
        d = np.asarray(function(*(x.astype(np.float64) for x in operands)))
        return FORMATS["f32"].finish(form, words(d.astype(np.float32)))

    return compute


def _by_reciprocal(a: Any, b: Any) -> Any:
    """The quotient as ``div.approx`` computes it, by a reciprocal: 0 or NaN for a large divisor."""
    return np.multiply(a, where(np.abs(b) > 2.0**126, np.copysign(0.0, b), np.divide(1.0, b)))


def _rsqrt(a: Any) -> Any:
    """1 / √a, in the type of a."""
    return np.reciprocal(np.sqrt(a))


def _rsqrt_f64(form: Form, a: Any) -> Any:
    """``rsqrt.approx.f64``: 1 / √a; a NaN keeps its payload."""
    return keep_payload(_rsqrt(a), a)


def _top(function: Callable[..., Any]) -> Callable[..., Any]:
    """A row's function on the upper 32 bits of f64."""

    def compute(form: Form, a: Any) -> Any:
        f64, upper = FORMATS["f64"], np.uint64(0xFFFFFFFF << 32)
        x = f64.flush(np.bitwise_and(words(a), upper)).view(np.float64)
        d = words(function(x))
        d = where(f64.is_nan(d), np.uint64(0x7FFFFFFF << 32), np.bitwise_and(d, upper))
        return f64.flush(d)

    return compute


def _half(function: Callable[..., Any]) -> Callable[..., Any]:
    """A row's function that computes each half in f64 and rounds it once."""

    def compute(form: Form, a: Any) -> Any:
        kind = form.T.removesuffix("x2")
        format = FORMATS[kind]

        def one(word: Any) -> Any:
            x = format.flush(word) if form.has("ftz") else word
            d = function(widen(x, kind).astype(np.float64))
            return format.finish(form, narrow(d, kind, "rn"))

        return pack(*map(one, split(a))) if form.T.endswith("x2") else one(words(a))

    return compute


_divide = partial(_bounded, section="9.7.3.8", bound="2 ulp", syntax="d:T = a:T, b:T")
_divide(_f32(np.divide), "div<.full>{.ftz}", "div.full.f32", summary="a / b")
_divide(
    _f32(_by_reciprocal),
    "div<.approx>{.ftz}",
    "div.approx.f32",
    summary="a / b; with |b| above 2^126 a zero, or NaN if a is infinite",
)
for _base, _function, _section, _summary, _bound in (
    ("rcp", np.reciprocal, "9.7.3.13", "1 / a", "1 ulp"),
    ("sqrt", np.sqrt, "9.7.3.15", "the square root", "2^-23 of it"),
    ("rsqrt", _rsqrt, "9.7.3.16", "1 / sqrt(a)", "2^-22.9 of it"),
    ("sin", np.sin, "9.7.3.18", "the sine of a", "2^-20.5 within 2 pi of 0"),
    ("cos", np.cos, "9.7.3.19", "the cosine of a", "2^-20.5 within 2 pi of 0"),
    ("lg2", np.log2, "9.7.3.20", "the logarithm of a to base 2", "2^-22, of it outside 0.5 to 2"),
    ("ex2", np.exp2, "9.7.3.21", "2 to the power of a", "2 ulp"),
):
    _bounded(_f32(_function), f"{_base}<.approx>{{.ftz}}", f"{_base}.approx.f32", _section, _summary, _bound)
_TANH = "the hyperbolic tangent"
_bounded(_f32(np.tanh), "tanh<.approx>", "tanh.approx.f32", "9.7.3.22", _TANH, "2^-11 of it", minimum_sm=75)

_f64 = partial(_bounded, types="f64")
_TOP = "of and to the upper 32 bits of f64; the lower ones are not read, and written as 0"
_f64(_rsqrt_f64, "rsqrt<.approx>", "rsqrt.approx.f64", "9.7.3.16", "1 / sqrt(a)", "2^-22.9 of it")
for _base, _function, _section, _summary in (
    ("rcp", np.reciprocal, "9.7.3.14", "1 / a"),
    ("rsqrt", _rsqrt, "9.7.3.17", "1 / sqrt(a)"),
):
    _f64(
        _top(_function),
        f"{_base}<.approx><.ftz>",
        f"{_base}.approx.ftz.f64",
        _section,
        f"{_summary} {_TOP}",
        "2^-19 of it",
    )

_f16 = partial(_bounded, types="f16 f16x2", minimum_sm=75)
_bf16 = partial(_bounded, types="bf16 bf16x2", minimum_sm=90)
_tanh, _ex2 = _half(np.tanh), _half(np.exp2)
_bf16(
    _tanh, "tanh<.approx>", "tanh.approx.bf16", "9.7.4.9", f"{_TANH}; an H200 errs by up to 2^-7.93", "2^-8"
)
_f16(_tanh, "tanh<.approx>", "tanh.approx.f16", "9.7.4.9", _TANH, "2^-10.987")
_bf16(_ex2, "ex2<.approx><.ftz>", "ex2.approx.ftz.bf16", "9.7.4.10", "2 to the power of a", "2^-7 of it")
_f16(_ex2, "ex2<.approx>", "ex2.approx.f16", "9.7.4.10", "2 to the power of a", "2^-9.9 of it")
