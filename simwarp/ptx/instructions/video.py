"""PTX ISA 9.7.18.2: SIMD video instructions, on the two halves or four bytes of a word.

Selectors and masks are not supported: operands are all of a, all of b and all of d. Only ``.add`` reads c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simwarp.ptx.instructions.comparison import COMPARE
from simwarp.ptx.instructions.integer import accumulate, elements, pack
from simwarp.ptx.instructions.table import row
from simwarp.ptx.rows import DTYPES, Form

_SYNTAX = "d:b32 = a:b32, b:b32, c:b32"
_WORDS = "u32 s32"


def _average(x: Any, y: Any) -> Any:
    total = np.add(x, y)
    return np.right_shift(total + (total >= 0), 1)


def _absolute_difference(x: Any, y: Any) -> Any:
    return np.abs(np.subtract(x, y))


_OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "vadd": (np.add, "a + b"),
    "vsub": (np.subtract, "a - b"),
    "vavrg": (_average, "(a + b) / 2, half up from 0, half down below it"),
    "vabsdiff": (_absolute_difference, "|a - b|"),
    "vmin": (np.minimum, "the smaller one"),
    "vmax": (np.maximum, "the larger one"),
}
_PARTS = {2: ("half", "9.7.18.2.1", "9.7.18.2.2"), 4: ("byte", "9.7.18.2.3", "9.7.18.2.4")}


def arithmetic(form: Form, a: Any, b: Any, c: Any) -> Any:
    """``vadd2`` … ``vmax4``: combine the parts of a and b, then pack the results or add them to c."""
    operation, _ = _OPERATIONS[form.opcode.split(".")[0][:-1]]
    bits = _width(form)
    values = [operation(x, y) for x, y in _parts(form, a, b)]
    if form.has("add"):
        return accumulate(c, values)
    if form.has("sat"):
        ends = np.iinfo(DTYPES[f"{form.modifiers[0][0]}{bits}"])
        values = [np.clip(value, ends.min, ends.max) for value in values]
    return pack(values)


def comparison(form: Form, a: Any, b: Any, c: Any) -> Any:
    """``vset2``, ``vset4``: compare each part of a with that of b, then pack the results or add them to c."""
    compare = COMPARE[form.modifiers[0]]
    values = [compare(x, y).astype(np.int32) for x, y in _parts(form, a, b)]
    return accumulate(c, values) if form.has("add") else pack(values)


for _count, (_part, _section, _section_of_set) in _PARTS.items():
    for _name, (_, _meaning) in _OPERATIONS.items():
        row(
            f"{_name}{_count}<.u32|.s32>.T.U{{.sat|.add}}",
            _SYNTAX,
            T=_WORDS,
            U=_WORDS,
            section=_section,
            operations=_count,
            summary=f"{_meaning}, for each {_part}; sat: in the first type's range; add: their sum, plus c",
        )(arithmetic)
    row(
        f"vset{_count}.T.U<.eq|.ne|.lt|.le|.gt|.ge>{{.add}}",
        _SYNTAX,
        T=_WORDS,
        U=_WORDS,
        section=_section_of_set,
        operations=_count,
        summary=f"1 where a compares so with b, else 0, for each {_part}; add: how many do, plus c",
    )(comparison)


def _width(form: Form) -> int:
    """The bits of each part of a SIMD video instruction's operand: 8 or 16."""
    return 32 // int(form.opcode.split(".")[0][-1])


def _parts(form: Form, a: Any, b: Any) -> zip[tuple[Any, Any]]:
    """The pairs of parts that an instruction combines, each extended by its own type."""
    bits = _width(form)
    return zip(elements(a, f"{form.T[0]}{bits}"), elements(b, f"{form.U[0]}{bits}"), strict=True)
