"""PTX ISA 9.7.2: extended-precision integer arithmetic, on words of 32 or 64 bits with a carry flag.

The carry flag is an implicit operand. Subtraction sets it as an H200 does, to the carry of ``a + ~b + 1``: 1
where nothing was borrowed. The PTX ISA specifies the borrow itself. Within chains of additions, or of
subtractions, both give the same results.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simwarp.ptx.instructions.integer import mul_hi
from simwarp.ptx.instructions.table import row
from simwarp.ptx.rows import Form

_extended = partial(row, T="u32 s32 u64 s64")
_MAKES, _TAKES, _BOTH = (
    "d:B | carry:carry = {}",
    "d:B = {}, carry:carry",
    "d:B | carry:carry = {}, carry:carry",
)
_NO_CARRY, _CARRY = np.bool_(False), np.bool_(True)
_TWO, _THREE = "a:B, b:B", "a:T, b:T, c:B"
_BORROW = "carry: nothing borrowed, as on an H200 (the PTX ISA: the borrow)"
_HALF = "the low or high half of a · b, plus c"


@_extended(
    "addc.cc.T", _BOTH.format(_TWO), section="9.7.2.2", summary="a + b + carry; carry: what does not fit"
)
@_extended("addc.T", _TAKES.format(_TWO), section="9.7.2.2", summary="a + b + carry")
@_extended("add.cc.T", _MAKES.format(_TWO), section="9.7.2.1", summary="a + b; carry: what does not fit")
def add(form: Form, a: Any, b: Any, carry: Any = _NO_CARRY) -> Any:
    """The sum and, with ``.cc``, its carry; the operands are unsigned words."""
    partial = np.add(a, b)
    total = np.add(partial, carry, dtype=partial.dtype)
    return (total, np.less(partial, a) | np.less(total, partial)) if ".cc" in form.opcode else total


_sub = partial(_extended, fidelity="open")


@_sub("subc.cc.T", _BOTH.format(_TWO), section="9.7.2.4", summary=f"a - b - 1 + carry; {_BORROW}")
@_sub(
    "subc.T",
    _TAKES.format(_TWO),
    section="9.7.2.4",
    summary="a - b - 1 + carry, as on an H200 (the PTX ISA, whose carry is the borrow: a - b - carry)",
)
@_sub("sub.cc.T", _MAKES.format(_TWO), section="9.7.2.3", summary=f"a - b; {_BORROW}")
def sub(form: Form, a: Any, b: Any, carry: Any = _CARRY) -> Any:
    return add(form, a, np.invert(b), carry)


_mad = partial(_extended, operations=2)


@_mad(
    "madc<.lo|.hi>.cc.T",
    _BOTH.format(_THREE),
    section="9.7.2.6",
    summary=f"{_HALF}, plus carry; carry: what does not fit of the additions",
)
@_mad("madc<.lo|.hi>.T", _TAKES.format(_THREE), section="9.7.2.6", summary=f"{_HALF}, plus carry")
@_mad(
    "mad<.lo|.hi>.cc.T",
    _MAKES.format(_THREE),
    section="9.7.2.5",
    summary=f"{_HALF}; carry: what does not fit of the addition",
)
def mad(form: Form, a: Any, b: Any, c: Any, carry: Any = _NO_CARRY) -> Any:
    return add(form, _half(form, a, b), c, carry)


def _half(form: Form, a: Any, b: Any) -> Any:
    """The half of a product that the opcode names, as an unsigned word."""
    half = mul_hi(form, a, b) if form.has("hi") else np.multiply(a, b)
    return half.view(f"u{form.dtype.itemsize}")
