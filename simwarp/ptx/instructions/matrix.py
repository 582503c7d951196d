"""PTX ISA 9.7.14: matrices that a warp holds in fragments.

The forms, and who holds what, are in `simwarp.fragments`; what products are to the bit, in
`simwarp.products`; how a warp executes them together, in `simwarp.engine.tensor_core`.

How floats are added the PTX ISA leaves open; here it is as the device's chip does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simwarp.fragments.forms import GROUPS, SECTIONS, Group
from simwarp.ptx.instructions._products import multiply, transpose
from simwarp.ptx.instructions._table import row
from simwarp.ptx.rows import Form, Kind


def _product(form: Form, cc: tuple[int, int], a: Any, b: Any, c: Any) -> Any:
    return multiply(form.opcode, cc, a, b, c)


def _moved(form: Form, fragment: Any) -> Any:
    return fragment


def _transposed(form: Form, cc: tuple[int, int], a: Any) -> Any:
    return transpose(form.opcode, a)


# Registers, kind and function of each instruction; X is the operand that a load names.
_INSTRUCTIONS: dict[str, tuple[str, Kind, Callable[..., Any]]] = {
    "mma": ("d:fragment = a:fragment, b:fragment, c:fragment", "matrix", _product),
    "wmma.mma": ("d:fragment = a:fragment, b:fragment, c:fragment", "matrix", _product),
    "wmma.load": ("X:fragment = [p], stride:u32*", "matrix load", _moved),
    "wmma.store": ("[p], d:fragment, stride:u32*", "matrix store", _moved),
    "ldmatrix": ("r:fragment = [p]", "matrix load", _moved),
    "stmatrix": ("[p], r:fragment", "matrix store", _moved),
    "movmatrix": ("d:fragment = a:fragment", "matrix", _transposed),
}


def _declare(group: Group) -> None:
    syntax, kind, function = _INSTRUCTIONS[group.instruction]
    operand = group.name.split(".")[2] if kind != "matrix" and group.name.startswith("wmma") else ""
    way = "from" if kind == "matrix load" else "to"
    row(
        group.spelling,
        syntax.replace("X", operand),
        name=group.name,
        kind=kind,
        fidelity="open" if function is _product and ".s32" not in group.spelling else "exact",
        section=SECTIONS[group.instruction],
        minimum_sm=group.minimum_sm,
        summary=group.summary or f"a warp's fragment of {operand.upper()} {way} memory",
    )(function)


for _group in GROUPS:
    if _group.instruction in _INSTRUCTIONS:
        _declare(_group)
