"""PTX ISA 9.7.3: the correctly rounded instructions in single and double precision.

An ``add``, ``sub`` or ``mul`` without a rounding modifier rounds to nearest here; `ptxas` may contract
it into an ``fma``. For ``.ftz`` a result is subnormal, as on an H200, if it is subnormal when rounded with
unlimited exponents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from simwarp import floats
from simwarp.ptx.instructions.float_formats import (
    DIRECTED,
    FORMATS,
    ROUNDED,
    Format,
    arithmetic,
    keep_payload,
    words,
)
from simwarp.ptx.instructions.table import row
from simwarp.ptx.rows import Form, Function

_ONE, _TWO, _THREE = "d:T = a:T", "d:T = a:T, b:T", "d:T = a:T, b:T, c:T"


@row(
    "testp<.finite|.infinite|.number|.notanumber|.normal|.subnormal>.T",
    "p:pred = a:T",
    T="f32 f64",
    section="9.7.3.1",
    operations=0,
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


@row("copysign.T", _TWO, T="f32 f64", section="9.7.3.2", operations=0, summary="b with the sign of a")
def copysign(form: Form, a: Any, b: Any) -> Any:
    sign = FORMATS[form.T].sign
    a, b = words(a), words(b)
    return np.bitwise_or(np.bitwise_and(a, sign), np.bitwise_and(b, np.invert(sign)))


def _float(
    name: str, modifiers: str, syntax: str, section: str, summary: str, of_f64: str = "", **facts: Any
) -> Callable[[Function], Function]:
    """A decorator that declares the rows of f32, and of f64, which has no ``.ftz`` and ``.sat``."""
    declare_row, rounding = partial(row, section=section, **facts), modifiers.partition("{.ftz}")[0]

    def declare(function: Function) -> Function:
        declare_row(f"{name}{rounding}.T", syntax, T="f64", name=f"{name}.f64", summary=of_f64 or summary)(
            function
        )
        declare_row(f"{name}{modifiers}.T", syntax, T="f32", name=f"{name}.f32", summary=summary)(function)
        return function

    return declare


@_float("add", f"{ROUNDED}{{.ftz}}{{.sat}}", _TWO, "9.7.3.3", "a + b", traits="sum")
def add(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.add, a, b, first=(b, a))


@_float("sub", f"{ROUNDED}{{.ftz}}{{.sat}}", _TWO, "9.7.3.4", "a - b", traits="sum")
def sub(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.sub, a, b, first=(b, a))


@_float("mul", f"{ROUNDED}{{.ftz}}{{.sat}}", _TWO, "9.7.3.5", "a · b", traits="product")
def mul(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.mul, a, b, first=(b, a))


_FUSED = f"{DIRECTED}{{.ftz}}{{.sat}}"


@_float("fma", _FUSED, _THREE, "9.7.3.6", "a · b + c with one rounding", operations=2)
@_float("mad", _FUSED, _THREE, "9.7.3.7", "the same as fma", operations=2)
def fma(form: Form, a: Any, b: Any, c: Any) -> Any:
    return arithmetic(form, floats.fma, a, b, c, first=(b, c, a))


@_float("div", f"{DIRECTED}{{.ftz}}", _TWO, "9.7.3.8", "a / b")
def div(form: Form, a: Any, b: Any) -> Any:
    return arithmetic(form, floats.div, a, b, first=(a, b))


def _sign(name: str, section: str, summary: str, change: Function) -> None:
    """Declare the rows of ``abs`` or ``neg`` in the PTX table."""

    def function(form: Form, a: Any) -> Any:
        d = change(FORMATS[form.T], form, words(a))
        return keep_payload(d.view(np.float64), a) if form.T == "f64" else d

    of_f64 = f"{summary}; a NaN keeps its sign on an H200"
    _float(name, "{.ftz}", _ONE, section, f"{summary}; of NaN, NaN", of_f64, operations=0)(function)


_sign("abs", "9.7.3.9", "|a|", Format.absolute)
_sign("neg", "9.7.3.10", "-a", Format.negative)


def _extreme(base: str, section: str, one: str, choose: Function) -> None:
    """Declare the rows of ``min`` or ``max``; ``one`` is "the smaller" or "the larger"."""

    def function(form: Form, a: Any, b: Any) -> Any:
        d = choose(FORMATS[form.T], form, words(a), words(b))
        return keep_payload(d.view(np.float64), b, a) if form.T == "f64" else d

    either = f"{one} one; -0 is below +0; NaN only if both are"
    magnitude = f"{one} magnitude, the signs' exclusive-or"
    for modifiers, kind, suffix, minimum_sm, summary in (
        ("{.ftz}", "f32", "", 50, either),
        ("", "f64", "", 50, either),
        ("{.ftz}<.NaN>", "f32", ".NaN", 80, f"{one} one; -0 is below +0; NaN if either is"),
        ("{.ftz}{.NaN}<.xorsign.abs>", "f32", ".xorsign.abs", 86, magnitude),
    ):
        of_kind = partial(row, T=kind, name=f"{base}{suffix}.{kind}", section=section, minimum_sm=minimum_sm)
        of_kind(f"{base}{modifiers}.T", _TWO, summary=summary)(function)


_extreme("min", "9.7.3.11", "the smaller", Format.minimum)
_extreme("max", "9.7.3.12", "the larger", Format.maximum)


@_float("rcp", f"{DIRECTED}{{.ftz}}", _ONE, "9.7.3.13", "1 / a")
def rcp(form: Form, a: Any) -> Any:
    return arithmetic(form, floats.div, a.dtype.type(1), a, first=(a,))


@_float("sqrt", f"{DIRECTED}{{.ftz}}", _ONE, "9.7.3.15", "the square root; of -0, -0")
def sqrt(form: Form, a: Any) -> Any:
    return arithmetic(form, floats.sqrt, a, first=(a,))
