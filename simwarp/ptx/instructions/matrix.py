"""PTX ISA 9.7.14: matrix instructions of a warp, on fragments.

`simwarp.fragments` has the forms and layouts, `simwarp.products` the bit-exact products,
`simwarp.engine.tensor_core.warps` the execution by a warp.

The PTX ISA leaves open how floats are added; they are added as the device's chip adds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simwarp.fragments.forms import GROUPS, SECTIONS, Group
from simwarp.ptx.instructions.fragment_products import multiply, transpose
from simwarp.ptx.instructions.table import operand, row
from simwarp.ptx.kinds import MATRIX, MATRIX_LOAD, MATRIX_STORE, Kind
from simwarp.ptx.rows import Form


def _product(form: Form, cc: tuple[int, int], a: Any, b: Any, c: Any) -> Any:
    return multiply(form.opcode, cc, a, b, c)


def _transposed(form: Form, cc: tuple[int, int], a: Any) -> Any:
    return transpose(form.opcode, a)


# Instruction → operands, kind and function; X stands for the operand in the name of a wmma.load.
_INSTRUCTIONS: dict[str, tuple[str, Kind, Callable[..., Any]]] = {
    "mma": ("d:fragment = a:fragment, b:fragment, c:fragment", MATRIX, _product),
    "wmma.mma": ("d:fragment = a:fragment, b:fragment, c:fragment", MATRIX, _product),
    "wmma.load": ("X:fragment = [p], stride:u32*", MATRIX_LOAD, operand),
    "wmma.store": ("[p], d:fragment, stride:u32*", MATRIX_STORE, operand),
    "ldmatrix": ("r:fragment = [p]", MATRIX_LOAD, operand),
    "stmatrix": ("[p], r:fragment", MATRIX_STORE, operand),
    "movmatrix": ("d:fragment = a:fragment", MATRIX, _transposed),
}


# Name of a group, or its last word → summary.
_SUMMARIES = {
    "mma.m8n8k4.f16": "d = a b + c, four products of half precision, one in each two quads",
    "f16": "d = a b + c in half precision, one fused sum",
    "bf16": "d = a b + c of bfloat16, one fused sum",
    "tf32": "d = a b + c of tf32, one fused sum",
    "f8": "d = a b + c of 8-bit floats",
    "f64": "d = a b + c, a chain of fma",
    "rounding": "wmma.mma.f64, as nvcc writes it",
    "s8": "d = a b + c of bytes",
    "s4": "d = a b + c of 4-bit integers",
    "xor": "d = c plus how many bits of a's row and b's column differ",
    "and": "d = c plus how many bits a's row and b's column share",
    "b1": "d = c plus how many bits of a's row and b's column differ, or are shared",
    "ldmatrix": "1, 2 or 4 matrices of 8 x 8, each row from the address of one lane",
    "ldmatrix.number": "ldmatrix, as CUTLASS writes it",
    "stmatrix": "1, 2 or 4 matrices of 8 x 8, each row to the address of one lane",
    "stmatrix.number": "stmatrix, as CUTLASS writes it",
    "movmatrix": "a matrix of 8 x 8, transposed across the lanes",
}


def _declare(group: Group) -> None:
    """Declare the row of the PTX table for a group of matrix instructions."""
    syntax, kind, function = _INSTRUCTIONS[group.instruction]
    words = group.name.split(".")
    matrix, summary = "", _SUMMARIES.get(group.name) or _SUMMARIES.get(words[-1], "")
    if group.instruction in ("wmma.load", "wmma.store"):
        matrix = words[2]
        way = "from" if kind is MATRIX_LOAD else "to"
        summary = f"a warp's fragment of {matrix.upper()} {way} memory"
    row(
        group.spelling,
        syntax.replace("X", matrix),
        name=group.name,
        kind=kind,
        fidelity="open" if function is _product and ".s32" not in group.spelling else "exact",
        section=SECTIONS[group.instruction],
        minimum_sm=group.minimum_sm,
        summary=summary,
    )(function)


for _group in GROUPS:
    if _group.instruction in _INSTRUCTIONS:
        _declare(_group)
