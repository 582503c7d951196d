"""Parse initial values of variables: numbers, addresses, and lists of them in braces.

Source: PTX ISA 9.0, section 5.4.4 (initializers). Where it is silent, the behaviour is that of ptxas 13.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from simwarp.ptx.grammar.constants import immediate, integer
from simwarp.ptx.grammar.tokens import Cursor, is_name
from simwarp.ptx.syntax import Immediate, Reference

Initial: TypeAlias = "Immediate | Reference"
_FLOATS = {"f32": 32, "b32": 32, "f64": 64, "b64": 64}
"""Type → bits of the float literals that it takes; ptxas accepts none for .f16."""
_MASKS = frozenset(0xFF << 8 * byte for byte in range(8))
_MOST = 1 << 24
"""Most elements of an initialiser."""


def initial_values(cursor: Cursor, shape: Sequence[int], kind: str) -> tuple[tuple[Initial, ...], int]:
    """Read the values after ``=``; return them and the number of outer items (any if shape[0] is 0)."""
    if not shape:
        return (_value(cursor, kind),), 1
    if len(shape) > 8:
        raise cursor.error("expected an array of at most 8 dimensions")
    values, items = _list(cursor, shape, kind)
    return tuple(values), items


def _list(cursor: Cursor, shape: Sequence[int], kind: str) -> tuple[list[Initial], int]:
    """Read a list in braces, padded with zeros; returns its values and the number of its items."""
    if cursor.text.startswith('"'):
        raise cursor.error("expected the bytes of this string in braces: PTX has no string initialisers")
    cursor.expect("{")
    values: list[Initial] = []
    items, most, step = 0, shape[0] or math.inf, math.prod(shape[1:])
    while not cursor.accept("}"):
        if items and not cursor.accept(","):
            raise cursor.error("expected ',' or '}'")
        if items == most or items * step > _MOST:
            raise cursor.error(f"expected '}}': there are {items} values already")
        values += [Immediate(0)] * (items * step - len(values))
        values += _list(cursor, shape[1:], kind)[0] if len(shape) > 1 else [_value(cursor, kind)]
        items += 1
    return values, items


def _value(cursor: Cursor, kind: str) -> Initial:
    """Read one initial value: a number or an address."""
    at = cursor.at
    if is_name(cursor.text) and cursor.text != "WARP_SZ":
        return _reference(cursor, 0)
    value = immediate(cursor)
    if cursor.accept("("):
        return _byte_of(cursor, at, value)
    if kind not in _FLOATS if value.float_bits else kind.startswith("f"):
        cursor.at = at
        raise cursor.error(f"expected an initial value that a .{kind} can have")
    return _converted(value, _FLOATS.get(kind, 0))


def _byte_of(cursor: Cursor, at: int, mask: Immediate) -> Reference:
    """Read ``symbol)`` of ``0xFF00(symbol)``: one byte of an address."""
    if mask.float_bits or mask.value not in _MASKS:
        cursor.at = at
        raise cursor.error("expected a mask of one byte such as 0xFF00 before an address")
    reference = _reference(cursor, mask.value)
    cursor.expect(")")
    return reference


def _reference(cursor: Cursor, mask: int) -> Reference:
    """Read an address such as ``symbol + 8`` or ``generic(symbol) + 8``."""
    name = cursor.name()
    generic = name == "generic" and cursor.accept("(")
    if generic:
        name = cursor.name()
        cursor.expect(")")
    offset = integer(cursor) if cursor.accept("+") or cursor.text == "-" else 0
    return Reference(name, offset, generic, mask)


def _converted(value: Immediate, bits: int) -> Immediate:
    """A float literal in the variable's width: a double is rounded, the bits of a single are kept."""
    if value.float_bits in (0, bits):
        return value
    if bits == 64:
        return Immediate(value.value, 64)
    (double,) = struct.unpack("<d", value.value.to_bytes(8, "little"))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = np.float64(double).astype(np.float32)
    return Immediate(int(single.view(np.uint32)), 32)
