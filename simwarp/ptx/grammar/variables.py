"""Parse declarations of variables and parameters: ``.align 8 .b8 name[2][16] = {…}``.

Source: PTX ISA 9.0, sections 5.2 (types), 5.4 (variables) and 7.1 (parameters).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simwarp.ptx.grammar.constants import number
from simwarp.ptx.grammar.initial import initial_values
from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.syntax import Variable

SPACES = frozenset([".global", ".shared", ".const", ".local", ".param"])
WIDTHS = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    **{"f16": 2, "f16x2": 4, "f32": 4, "f64": 8, "b128": 16},
}
"""Type of a variable → its size in bytes."""
OPAQUE = frozenset(["texref", "samplerref", "surfref"])
_LARGEST = 1 << 40
"""Most elements of an array: more than any device has memory for."""


@dataclass
class _Type:
    """The part of a variable's declaration before the name: alignment, vector size and type."""

    name: str = ""
    vector: int = 1
    alignment: int = 0
    is_pointer: bool = False
    """Whether ``.ptr`` was read: a later alignment is that of the memory it points to."""


def variables(cursor: Cursor, space: str, extern: bool = False) -> list[Variable]:
    """Read the declaration after a state space, and its semicolon."""
    kind = _type(cursor)
    variables = [_declared(cursor, space, kind, extern)]
    while cursor.accept(","):
        variables.append(_declared(cursor, space, kind, extern))
    cursor.expect(";")
    return variables


def parameter(cursor: Cursor, space: str) -> Variable:
    """Read one parameter after ``.param`` or ``.reg``: a variable without initial value."""
    kind = _type(cursor, allowed=frozenset(["pred"]) if space == "reg" else frozenset())
    name = "_" if cursor.accept("_") else cursor.name()
    extents = _extents(cursor)
    if space == "reg" and (extents or kind.vector > 1):
        raise cursor.error(f"expected a single register: {name} is an array or a vector")
    return Variable(name, space, kind.name, _count(cursor, kind, extents), _alignment(kind))


def skip_attribute(cursor: Cursor) -> None:
    """Skip the parentheses after ``.attribute``: managed and unified memory are global memory here."""
    cursor.expect("(")
    depth = 1
    while depth:
        text = cursor.take()
        depth += (text == "(") - (text == ")")


def _type(cursor: Cursor, allowed: frozenset[str] = OPAQUE) -> _Type:
    """Read the type, alignment and attributes of a declaration."""
    kind = _Type()
    while word := cursor.directive():
        if word == ".align":
            alignment = number(cursor)
            if alignment < 1 or alignment & (alignment - 1):
                cursor.at -= 1
                raise cursor.error("expected an alignment that is a power of two")
            if not kind.is_pointer:
                kind.alignment = alignment
        elif word in (".v2", ".v4", ".v8"):
            kind.vector = int(word[2:])
        elif word == ".attribute":
            skip_attribute(cursor)
        elif word == ".ptr":
            kind.is_pointer = True
        elif kind.is_pointer and word in SPACES - {".param"}:
            continue
        elif not kind.name and (word[1:] in WIDTHS or word[1:] in allowed):
            kind.name = word[1:]
        else:
            cursor.at -= 1
            raise cursor.error("expected a name, or one type such as .b32")
    if not kind.name:
        raise cursor.error("expected a type such as .b32")
    return kind


def _declared(cursor: Cursor, space: str, kind: _Type, extern: bool) -> Variable:
    """Read one name of a declaration, with its extents and initial values."""
    name, extents = cursor.name(), _extents(cursor)
    if cursor.text == "=":
        return _initialised(cursor, Variable(name, space, kind.name, extern=extern), kind, extents)
    if 0 in extents and not extern:
        raise cursor.error(f"expected the size of {name} before this: only .extern arrays have none")
    return Variable(name, space, kind.name, _count(cursor, kind, extents), _alignment(kind), extern=extern)


def _initialised(cursor: Cursor, variable: Variable, kind: _Type, extents: tuple[int, ...]) -> Variable:
    """Read the initial values after a variable's ``=``; returns the variable with them."""
    if variable.extern or variable.space not in ("global", "const") or kind.name in OPAQUE:
        raise cursor.error(
            "expected ';': only variables in .global and .const that are defined here have initial values"
        )
    cursor.expect("=")
    at = cursor.at
    values, items = initial_values(cursor, (*extents, kind.vector) if kind.vector > 1 else extents, kind.name)
    if 0 in extents and not items:
        cursor.at = at
        raise cursor.error(f"expected at least one value: {variable.name} has no other size")
    if 0 in extents:
        extents = (items, *extents[1:])
    count, alignment = _count(cursor, kind, extents), _alignment(kind)
    return replace(variable, count=count, alignment=alignment, initial=values)


def _extents(cursor: Cursor) -> tuple[int, ...]:
    """Read extents: ``[2][3]`` gives (2, 3). An empty first bracket gives 0."""
    extents: list[int] = []
    while cursor.accept("["):
        if cursor.text == "]" and not extents:
            extents.append(0)
        else:
            extents.append(number(cursor))
            if extents[-1] == 0:
                cursor.at -= 1
                raise cursor.error("expected at least one element")
        cursor.expect("]")
    return tuple(extents)


def _count(cursor: Cursor, kind: _Type, extents: tuple[int, ...]) -> int:
    """The number of elements, each of one scalar type."""
    count = math.prod(extents) * kind.vector
    if count > _LARGEST:
        raise cursor.error("expected an array that fits a device's memory before this")
    return count


def _alignment(kind: _Type) -> int:
    """The declared alignment, or the size of a whole vector; 0 if only the type determines it."""
    if kind.alignment or kind.vector == 1:
        return kind.alignment
    return kind.vector * WIDTHS[kind.name]
