"""PTX ISA 9.7.3: floating point in single and double precision, as far as it is exact.

An ``add``, ``sub`` or ``mul`` without a rounding modifier rounds to nearest here; `ptxas` may contract
it with its neighbour. For ``.ftz`` a result is subnormal, as on an H200, if rounding with exponents
without end leaves it below the normal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions._formats import (
    DIRECTED,
    FORMATS,
    ROUNDED,
    arithmetic,
    keep_payload,
    words,
)
from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form

Function: TypeAlias = Callable[..., Any]

_ONE, _TWO, _THREE = "d:T = a:T", "d:T = a:T, b:T", "d:T = a:T, b:T, c:T"


@row(
    "testp<.finite|.infinite|.number|.notanumber|.normal|.subnormal>.T",
    "p:pred = a:T",
    T="f32 f64",
    section="9.7.3.1",
    summary="whether a is of this kind; a zero is normal",
)
def testp(form: Form, a: Any) -> Any:
    finite, nan = np.isfinite(a), np.isnan(a)
    subnormal = (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)
    tests = {
        "finite": finite,
        "infinite": np.isinf(a),
        "number": ~nan,
        "notanumber": nan,
        "normal": finite & ~subnormal,
        "subnormal": subnormal,
    }
    return tests[form.modifiers[0]]


@row("copysign.T", _TWO, T="f32 f64", section="9.7.3.2", summary="b with the sign of a")
def copysign(form: Form, a: Any, b: Any) -> Any:
    sign = FORMATS[form.T].sign
    a, b = words(a), words(b)
    return np.bitwise_or(np.bitwise_and(a, sign), np.bitwise_and(b, np.invert(sign)))


@row(f"add{ROUNDED}{{.ftz}}{{.sat}}.T", _TWO, T="f32", name="add.f32", section="9.7.3.3", summary="a + b")
@row(f"add{ROUNDED}.T", _TWO, T="f64", name="add.f64", section="9.7.3.3", summary="a + b")
def add(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.add, a, b, first=(b, a))


@row(f"sub{ROUNDED}{{.ftz}}{{.sat}}.T", _TWO, T="f32", name="sub.f32", section="9.7.3.4", summary="a - b")
@row(f"sub{ROUNDED}.T", _TWO, T="f64", name="sub.f64", section="9.7.3.4", summary="a - b")
def sub(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.sub, a, b, first=(b, a))


@row(f"mul{ROUNDED}{{.ftz}}{{.sat}}.T", _TWO, T="f32", name="mul.f32", section="9.7.3.5", summary="a · b")
@row(f"mul{ROUNDED}.T", _TWO, T="f64", name="mul.f64", section="9.7.3.5", summary="a · b")
def mul(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.mul, a, b, first=(b, a))


@row(
    f"fma{DIRECTED}{{.ftz}}{{.sat}}.T",
    _THREE,
    T="f32",
    name="fma.f32",
    section="9.7.3.6",
    summary="a · b + c with one rounding",
)
@row(
    f"fma{DIRECTED}.T",
    _THREE,
    T="f64",
    name="fma.f64",
    section="9.7.3.6",
    summary="a · b + c with one rounding",
)
@row(
    f"mad{DIRECTED}{{.ftz}}{{.sat}}.T",
    _THREE,
    T="f32",
    name="mad.f32",
    section="9.7.3.7",
    summary="the same as fma",
)
@row(f"mad{DIRECTED}.T", _THREE, T="f64", name="mad.f64", section="9.7.3.7", summary="the same as fma")
def fma(form: Form, a: Any, b: Any, c: Any) -> Any:
    return arithmetic(form, floats.fma, a, b, c, first=(b, c, a))


@row(f"div{DIRECTED}{{.ftz}}.T", _TWO, T="f32", name="div.f32", section="9.7.3.8", summary="a / b")
@row(f"div{DIRECTED}.T", _TWO, T="f64", name="div.f64", section="9.7.3.8", summary="a / b")
def div(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.div, a, b, first=(a, b))


@row("abs{.ftz}.T", _ONE, T="f32", name="abs.f32", section="9.7.3.9", summary="|a|; of NaN, NaN")
@row(
    "abs.T",
    _ONE,
    T="f64",
    name="abs.f64",
    section="9.7.3.9",
    summary="|a|; a NaN keeps its sign on an H200",
)
def abs_(form: Form, a: Any) -> Any:
    d = FORMATS[form.T].absolute(form, words(a))
    return keep_payload(d.view(np.float64), a) if form.T == "f64" else d


@row("neg{.ftz}.T", _ONE, T="f32", name="neg.f32", section="9.7.3.10", summary="-a; of NaN, NaN")
@row(
    "neg.T",
    _ONE,
    T="f64",
    name="neg.f64",
    section="9.7.3.10",
    summary="-a; a NaN keeps its sign on an H200",
)
def neg(form: Form, a: Any) -> Any:
    d = FORMATS[form.T].negative(form, words(a))
    return keep_payload(d.view(np.float64), a) if form.T == "f64" else d


def _extreme(base: str, section: str, one: str) -> Callable[[Function], Function]:
    """The rows of ``min`` or ``max``, which gives the smaller or the larger ``one``."""
    forms = (
        ("{.ftz}", "f32", "", 50, f"{one} one; -0 is below +0; NaN only if both are"),
        ("", "f64", "", 50, f"{one} one; -0 is below +0; NaN only if both are"),
        ("{.ftz}<.NaN>", "f32", ".NaN", 80, f"{one} one; -0 is below +0; NaN if either is"),
        (
            "{.ftz}{.NaN}<.xorsign.abs>",
            "f32",
            ".xorsign.abs",
            86,
            f"{one} magnitude, the signs' exclusive-or",
        ),
    )

    def declare(function: Function) -> Function:
        for modifiers, kind, suffix, minimum_sm, summary in forms:
            row(
                f"{base}{modifiers}.T",
                _TWO,
                T=kind,
                name=f"{base}{suffix}.{kind}",
                section=section,
                minimum_sm=minimum_sm,
                summary=summary,
            )(function)
        return function

    return declare


@_extreme("min", "9.7.3.11", "the smaller")
def min_(form: Form, a: Any, b: Any) -> Any:
    d = FORMATS[form.T].minimum(form, words(a), words(b))
    return keep_payload(d.view(np.float64), b, a) if form.T == "f64" else d


@_extreme("max", "9.7.3.12", "the larger")
def max_(form: Form, a: Any, b: Any) -> Any:
    d = FORMATS[form.T].maximum(form, words(a), words(b))
    return keep_payload(d.view(np.float64), b, a) if form.T == "f64" else d


@row(f"rcp{DIRECTED}{{.ftz}}.T", _ONE, T="f32", name="rcp.f32", section="9.7.3.13", summary="1 / a")
@row(f"rcp{DIRECTED}.T", _ONE, T="f64", name="rcp.f64", section="9.7.3.13", summary="1 / a")
def rcp(form: Form, a: Any) -> Any:
    return arithmetic(form, floats.div, a.dtype.type(1), a, first=(a,))


@row(
    f"sqrt{DIRECTED}{{.ftz}}.T",
    _ONE,
    T="f32",
    name="sqrt.f32",
    section="9.7.3.15",
    summary="the square root; of -0, -0",
)
@row(
    f"sqrt{DIRECTED}.T",
    _ONE,
    T="f64",
    name="sqrt.f64",
    section="9.7.3.15",
    summary="the square root; of -0, -0",
)
def sqrt(form: Form, a: Any) -> Any:
    return arithmetic(form, floats.sqrt, a, first=(a,))
