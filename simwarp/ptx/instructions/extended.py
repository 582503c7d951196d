"""PTX ISA 9.7.2: extended-precision integer arithmetic, in words of 32 or 64 bits joined by a carry.

PTX text does not name the condition code's carry flag. Subtraction sets it as an H200 does, to the carry
of ``a + ~b + 1``: 1 where nothing was borrowed. The PTX ISA writes the borrow itself. Inside
chains of additions, or of subtractions, both give the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simwarp.ptx.instructions._table import row
from simwarp.ptx.instructions.integer import mul_hi
from simwarp.ptx.rows import Form

_WORDS = "u32 s32 u64 s64"


_extended = partial(row, T=_WORDS)
_MAKES, _TAKES, _BOTH = (
    "d:B | carry:carry = {}",
    "d:B = {}, carry:carry",
    "d:B | carry:carry = {}, carry:carry",
)
_TWO, _THREE = "a:B, b:B", "a:T, b:T, c:B"
_BORROW = "carry: nothing borrowed, as on an H200 (the PTX ISA: the borrow)"
_HALF = "the low or high half of a · b, plus c"


@_extended("add.cc.T", _MAKES.format(_TWO), section="9.7.2.1", summary="a + b; carry: what does not fit")
def add_cc(form: Form, a: Any, b: Any) -> tuple[Any, Any]:
    return _add(a, b, np.bool_(False))


@_extended("addc.T", _TAKES.format(_TWO), section="9.7.2.2", summary="a + b + carry")
def addc(form: Form, a: Any, b: Any, carry: Any) -> Any:
    return _add(a, b, carry)[0]


@_extended(
    "addc.cc.T", _BOTH.format(_TWO), section="9.7.2.2", summary="a + b + carry; carry: what does not fit"
)
def addc_cc(form: Form, a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    return _add(a, b, carry)


@_extended("sub.cc.T", _MAKES.format(_TWO), section="9.7.2.3", fidelity="open", summary=f"a - b; {_BORROW}")
def sub_cc(form: Form, a: Any, b: Any) -> tuple[Any, Any]:
    return _add(a, np.invert(b), np.bool_(True))


_subc = partial(_extended, section="9.7.2.4", fidelity="open")


@_subc(
    "subc.T",
    _TAKES.format(_TWO),
    summary="a - b - 1 + carry, as on an H200 (the PTX ISA, whose carry is the borrow: a - b - carry)",
)
def subc(form: Form, a: Any, b: Any, carry: Any) -> Any:
    return _add(a, np.invert(b), carry)[0]


@_subc("subc.cc.T", _BOTH.format(_TWO), summary=f"a - b - 1 + carry; {_BORROW}")
def subc_cc(form: Form, a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    return _add(a, np.invert(b), carry)


_mad = partial(_extended, operations=2)


@_mad(
    "mad<.lo|.hi>.cc.T",
    _MAKES.format(_THREE),
    section="9.7.2.5",
    summary=f"{_HALF}; carry: what does not fit of the addition",
)
def mad_cc(form: Form, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    return _add(_half(form, a, b), c, np.bool_(False))


@_mad("madc<.lo|.hi>.T", _TAKES.format(_THREE), section="9.7.2.6", summary=f"{_HALF}, plus carry")
def madc(form: Form, a: Any, b: Any, c: Any, carry: Any) -> Any:
    return _add(_half(form, a, b), c, carry)[0]


@_mad(
    "madc<.lo|.hi>.cc.T",
    _BOTH.format(_THREE),
    section="9.7.2.6",
    summary=f"{_HALF}, plus carry; carry: what does not fit of the additions",
)
def madc_cc(form: Form, a: Any, b: Any, c: Any, carry: Any) -> tuple[Any, Any]:
    return _add(_half(form, a, b), c, carry)


def _add(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    """The sum of unsigned words and a carry, and whether it does not fit."""
    partial = np.add(a, b)
    total = np.add(partial, carry, dtype=partial.dtype)
    return total, np.less(partial, a) | np.less(total, partial)


def _half(form: Form, a: Any, b: Any) -> Any:
    """The half of a product that the opcode asks for, as an unsigned word."""
    half = mul_hi(form, a, b) if form.has("hi") else np.multiply(a, b)
    return half.view(f"u{form.dtype.itemsize}")
