"""PTX ISA 9.7.2: extended-precision integer arithmetic, in words of 32 or 64 bits joined by a carry.

PTX text does not name the condition code's carry flag. Subtraction keeps in it what an H200 keeps there,
the carry of ``a + ~b + 1``: 1 where nothing was borrowed. The PTX ISA writes the borrow itself. Inside
chains of additions, or of subtractions, there is no difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simwarp.ptx.instructions._table import row
from simwarp.ptx.instructions.integer import mul_hi
from simwarp.ptx.rows import Form

_WORDS = "u32 s32 u64 s64"


@row(
    "add.cc.T",
    "d:B | carry:carry = a:B, b:B",
    T=_WORDS,
    section="9.7.2.1",
    summary="a + b; carry: what does not fit",
)
def add_cc(form: Form, a: Any, b: Any) -> tuple[Any, Any]:
    return _add(a, b, np.bool_(False))


@row("addc.T", "d:B = a:B, b:B, carry:carry", T=_WORDS, section="9.7.2.2", summary="a + b + carry")
def addc(form: Form, a: Any, b: Any, carry: Any) -> Any:
    return _add(a, b, carry)[0]


@row(
    "addc.cc.T",
    "d:B | carry:carry = a:B, b:B, carry:carry",
    T=_WORDS,
    section="9.7.2.2",
    summary="a + b + carry; carry: what does not fit",
)
def addc_cc(form: Form, a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    return _add(a, b, carry)


@row(
    "sub.cc.T",
    "d:B | carry:carry = a:B, b:B",
    T=_WORDS,
    section="9.7.2.3",
    fidelity="open",
    summary="a - b; carry: nothing borrowed, as on an H200 (the PTX ISA: the borrow)",
)
def sub_cc(form: Form, a: Any, b: Any) -> tuple[Any, Any]:
    return _add(a, np.invert(b), np.bool_(True))


@row(
    "subc.T",
    "d:B = a:B, b:B, carry:carry",
    T=_WORDS,
    section="9.7.2.4",
    fidelity="open",
    summary="a - b - 1 + carry, as on an H200 (the PTX ISA, whose carry is the borrow: a - b - carry)",
)
def subc(form: Form, a: Any, b: Any, carry: Any) -> Any:
    return _add(a, np.invert(b), carry)[0]


@row(
    "subc.cc.T",
    "d:B | carry:carry = a:B, b:B, carry:carry",
    T=_WORDS,
    section="9.7.2.4",
    fidelity="open",
    summary="a - b - 1 + carry; carry: nothing borrowed, as on an H200 (the PTX ISA: the borrow)",
)
def subc_cc(form: Form, a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    return _add(a, np.invert(b), carry)


@row(
    "mad<.lo|.hi>.cc.T",
    "d:B | carry:carry = a:T, b:T, c:B",
    T=_WORDS,
    section="9.7.2.5",
    summary="the low or high half of a · b, plus c; carry: what does not fit of the addition",
)
def mad_cc(form: Form, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    return _add(_half(form, a, b), c, np.bool_(False))


@row(
    "madc<.lo|.hi>.T",
    "d:B = a:T, b:T, c:B, carry:carry",
    T=_WORDS,
    section="9.7.2.6",
    summary="the low or high half of a · b, plus c, plus carry",
)
def madc(form: Form, a: Any, b: Any, c: Any, carry: Any) -> Any:
    return _add(_half(form, a, b), c, carry)[0]


@row(
    "madc<.lo|.hi>.cc.T",
    "d:B | carry:carry = a:T, b:T, c:B, carry:carry",
    T=_WORDS,
    section="9.7.2.6",
    summary="the low or high half of a · b, plus c, plus carry; carry: what does not fit of the additions",
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
