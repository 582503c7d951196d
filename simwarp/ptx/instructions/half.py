"""PTX ISA 9.7.4: half precision, f16 and bf16, single and packed in pairs.

A pair is one word, and each half is computed by itself. Operands arrive as words; a NaN result is always
0x7fff.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from simwarp import floats
from simwarp.ptx.instructions.float_formats import FORMATS, Format, pack, split, words
from simwarp.ptx.instructions.table import row
from simwarp.ptx.rows import Form, Function

_ONE, _TWO, _THREE = "d:T = a:T", "d:T = a:T, b:T", "d:T = a:T, b:T, c:T"


def _compute(form: Form, function: Callable[..., Any], *operands: Any) -> Any:
    """Apply ``function(format, form, *words)`` to single halves, or to both halves of pairs."""
    format = FORMATS[form.T.removesuffix("x2")]
    if not form.T.endswith("x2"):
        return function(format, form, *map(words, operands))
    high, low = (function(format, form, *part) for part in zip(*map(split, operands), strict=True))
    return pack(high, low)


def _arithmetic(form: Form, operation: Any, *operands: Any) -> Any:
    """An operation of `simwarp.floats` on halves, with the modifiers of the form."""

    def compute(format: Format, form: Form, *words: Any) -> Any:
        return format.result(form, partial(floats.half, operation, format=format.name), *words)

    return _compute(form, compute, *operands)


def _half(
    name: str,
    syntax: str,
    section: str,
    summary: str,
    f16: tuple[str, int],
    bf16: tuple[str, int],
    **facts: Any,
) -> Callable[[Function], Function]:
    """Declare the rows of an instruction in f16 and bf16, with the modifiers and the lowest chip of each."""

    def declare(function: Function) -> Function:
        of_name = partial(row, section=section, summary=summary, **facts)
        for kind, (modifiers, minimum_sm) in (("bf16", bf16), ("f16", f16)):
            of_kind = partial(of_name, T=f"{kind} {kind}x2", name=f"{name}.{kind}", minimum_sm=minimum_sm)
            of_kind(f"{name}{modifiers}.T", syntax)(function)
        return function

    return declare


_rounded = partial(_half, f16=("{.rn}{.ftz}{.sat}", 53), bf16=("{.rn}", 90))


@_rounded("add", _TWO, "9.7.4.1", "a + b", traits="sum")
def add(form: Form, a: Any, b: Any) -> Any:
    return _arithmetic(form, "add", a, b)


@_rounded("sub", _TWO, "9.7.4.2", "a - b", traits="sum")
def sub(form: Form, a: Any, b: Any) -> Any:
    return _arithmetic(form, "sub", a, b)


@_rounded("mul", _TWO, "9.7.4.3", "a · b", traits="product")
def mul(form: Form, a: Any, b: Any) -> Any:
    return _arithmetic(form, "mul", a, b)


@_half(
    "fma",
    _THREE,
    "9.7.4.4",
    "a · b + c with one rounding; relu (sm_80): negative becomes +0",
    f16=(".rn{.ftz}{.sat|.relu}", 53),
    bf16=(".rn{.relu}", 80),
    operations=2,
)
def fma(form: Form, a: Any, b: Any, c: Any) -> Any:
    return _arithmetic(form, "fma", a, b, c)


_sign = partial(_half, f16=("{.ftz}", 53), bf16=("", 80), operations=0)


@_sign("neg", _ONE, "9.7.4.5", "-a; of NaN, NaN")
def neg(form: Form, a: Any) -> Any:
    return _compute(form, Format.negative, a)


@_sign("abs", _ONE, "9.7.4.6", "|a|; of NaN, NaN")
def abs_(form: Form, a: Any) -> Any:
    return _compute(form, Format.absolute, a)


_EXTREME = "{.NaN}{.xorsign.abs}"
_extreme = partial(_half, f16=(f"{{.ftz}}{_EXTREME}", 80), bf16=(_EXTREME, 80))
_NAN = "NaN only of two NaN, with .NaN also of one"


@_extreme("min", _TWO, "9.7.4.7", f"the smaller one, -0 before +0; {_NAN}")
def min_(form: Form, a: Any, b: Any) -> Any:
    return _compute(form, Format.minimum, a, b)


@_extreme("max", _TWO, "9.7.4.8", f"the larger one, +0 behind -0; {_NAN}")
def max_(form: Form, a: Any, b: Any) -> Any:
    return _compute(form, Format.maximum, a, b)
