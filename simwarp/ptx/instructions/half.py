"""PTX ISA 9.7.4: half precision, f16 and bf16, alone and in pairs.

A pair is one word: the rows compute each half by itself. Operands arrive as words; a NaN result is
0x7fff, whatever came in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from simwarp import floats
from simwarp.ptx.instructions._formats import FORMATS, Format, pack, split, words
from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form

_F16, _BF16 = "f16 f16x2", "bf16 bf16x2"
_ONE, _TWO, _THREE = "d:T = a:T", "d:T = a:T, b:T", "d:T = a:T, b:T, c:T"


def _compute(form: Form, function: Callable[..., Any], *operands: Any) -> Any:
    """Apply ``function(format, form, *words)`` to single halves, or to both halves of pairs."""
    format = FORMATS[form.T.removesuffix("x2")]
    if not form.T.endswith("x2"):
        return function(format, form, *map(words, operands))
    high, low = (function(format, form, *part) for part in zip(*map(split, operands), strict=True))
    return pack(high, low)


def _arithmetic(form: Form, operation: Any, *operands: Any) -> Any:
    def compute(format: Format, form: Form, *words: Any) -> Any:
        return format.result(form, partial(floats.half, operation, format=format.name), *words)

    return _compute(form, compute, *operands)


@row(
    "add{.rn}{.ftz}{.sat}.T",
    _TWO,
    T=_F16,
    name="add.f16",
    minimum_sm=53,
    section="9.7.4.1",
    summary="a + b",
)
@row("add{.rn}.T", _TWO, T=_BF16, name="add.bf16", minimum_sm=90, section="9.7.4.1", summary="a + b")
def add(form: Form, a: Any, b: Any) -> Any:
    return _arithmetic(form, "add", a, b)


@row(
    "sub{.rn}{.ftz}{.sat}.T", _TWO, T=_F16, name="sub.f16", minimum_sm=53, section="9.7.4.2", summary="a - b"
)
@row("sub{.rn}.T", _TWO, T=_BF16, name="sub.bf16", minimum_sm=90, section="9.7.4.2", summary="a - b")
def sub(form: Form, a: Any, b: Any) -> Any:
    return _arithmetic(form, "sub", a, b)


@row(
    "mul{.rn}{.ftz}{.sat}.T", _TWO, T=_F16, name="mul.f16", minimum_sm=53, section="9.7.4.3", summary="a · b"
)
@row("mul{.rn}.T", _TWO, T=_BF16, name="mul.bf16", minimum_sm=90, section="9.7.4.3", summary="a · b")
def mul(form: Form, a: Any, b: Any) -> Any:
    return _arithmetic(form, "mul", a, b)


@row(
    "fma.rn{.ftz}{.sat|.relu}.T",
    _THREE,
    T=_F16,
    name="fma.f16",
    minimum_sm=53,
    section="9.7.4.4",
    summary="a · b + c with one rounding; relu (sm_80): negative becomes +0",
)
@row(
    "fma.rn{.relu}.T",
    _THREE,
    T=_BF16,
    name="fma.bf16",
    minimum_sm=80,
    section="9.7.4.4",
    summary="a · b + c with one rounding; relu: negative becomes +0",
)
def fma(form: Form, a: Any, b: Any, c: Any) -> Any:
    return _arithmetic(form, "fma", a, b, c)


@row("neg{.ftz}.T", _ONE, T=_F16, name="neg.f16", minimum_sm=53, section="9.7.4.5", summary="-a; of NaN, NaN")
@row("neg.T", _ONE, T=_BF16, name="neg.bf16", minimum_sm=80, section="9.7.4.5", summary="-a; of NaN, NaN")
def neg(form: Form, a: Any) -> Any:
    return _compute(form, Format.negative, a)


@row(
    "abs{.ftz}.T", _ONE, T=_F16, name="abs.f16", minimum_sm=53, section="9.7.4.6", summary="|a|; of NaN, NaN"
)
@row("abs.T", _ONE, T=_BF16, name="abs.bf16", minimum_sm=80, section="9.7.4.6", summary="|a|; of NaN, NaN")
def abs_(form: Form, a: Any) -> Any:
    return _compute(form, Format.absolute, a)


_EXTREME = "{.NaN}{.xorsign.abs}.T"
_MIN = "the smaller one, -0 before +0; NaN only of two NaN, with .NaN also of one"
_MAX = "the larger one, +0 behind -0; NaN only of two NaN, with .NaN also of one"


@row(f"min{{.ftz}}{_EXTREME}", _TWO, T=_F16, name="min.f16", minimum_sm=80, section="9.7.4.7", summary=_MIN)
@row(f"min{_EXTREME}", _TWO, T=_BF16, name="min.bf16", minimum_sm=80, section="9.7.4.7", summary=_MIN)
def min_(form: Form, a: Any, b: Any) -> Any:
    return _compute(form, Format.minimum, a, b)


@row(f"max{{.ftz}}{_EXTREME}", _TWO, T=_F16, name="max.f16", minimum_sm=80, section="9.7.4.8", summary=_MAX)
@row(f"max{_EXTREME}", _TWO, T=_BF16, name="max.bf16", minimum_sm=80, section="9.7.4.8", summary=_MAX)
def max_(form: Form, a: Any, b: Any) -> Any:
    return _compute(form, Format.maximum, a, b)
