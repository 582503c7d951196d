"""Arithmetic operations per instruction, by type.

A fused multiply-add counts as two operations, an instruction on pairs of halves as two of its kind, a dot
product of four bytes as four multiplications and four additions. Moves, conversions, comparisons and
selections count as none, and so do floating-point ``abs``, ``neg``, ``copysign`` and ``testp``, which
usually cost nothing.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from simwarp.ptx.rows import DTYPES, Row


class Operations(NamedTuple):
    """The arithmetic operations of an instruction in one lane.

    Attributes
    ----------
    type : str
        "f16", "bf16", "f32", "f64", "i16", "i32", "i64"; "approximate" for reciprocals, roots, sines and
        other functions with an error bound.
    number : int
    """

    type: str
    number: int


_INTEGER, _FLOAT, _VIDEO = ("9.7.1.", "9.7.2.", "9.7.8."), ("9.7.3.", "9.7.4."), ("9.7.18.",)


@cache
def operations(row: Row, type_name: str) -> Operations | None:
    """The arithmetic operations of an instruction in one lane; None if it has none.

    Parameters
    ----------
    row : Row
    type_name : str
        The type T of the instruction's form.

    Examples
    --------
    >>> from simwarp.ptx.instructions import ROWS
    >>> operations(ROWS["fma.f16"], "f16x2"), operations(ROWS["mul.wide"], "u32")
    (Operations(type='f16', number=4), Operations(type='i32', number=1))
    >>> operations(ROWS["mov"], "b32") is None
    True
    """
    if row.section.startswith(_VIDEO):
        return Operations("i32", row.operations)
    pair = 2 if type_name.endswith("x2") else 1
    number, single = row.operations * pair, type_name.removesuffix("x2")
    if row.section.startswith(_FLOAT) and number:
        return Operations("approximate" if row.fidelity == "bounded" else single, number)
    if row.section.startswith(_INTEGER) and type_name != "pred":
        bits = 8 * DTYPES[single].itemsize if single else 32
        return Operations(f"i{bits}", number)
    return None
