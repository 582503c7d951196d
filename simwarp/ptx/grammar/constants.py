"""Parse literals and constant expressions: ``0x1F``, ``-1``, ``(1+2)*4``, ``1.5``, ``0f3F800000``.

Integers have 64 bits and are signed, unless written with a ``U`` or too large for a signed word. Where the
PTX ISA is silent, values are those of ptxas 13.0: a shift amount counts modulo 64, and ``%`` treats both
operands as unsigned.

Source: PTX ISA 9.0, section 4.5 (constants).
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.syntax import Immediate

_WORD = (1 << 64) - 1
_DEEPEST = 50
"""Most nested parentheses and signs."""


@dataclass(frozen=True)
class Whole:
    """An integer constant, in the range of a signed or unsigned 64-bit word."""

    value: int
    unsigned: bool = False


Value: TypeAlias = Whole | float


def immediate(cursor: Cursor) -> Immediate:
    """Read a constant expression that is an operand or an initial value."""
    text = cursor.text
    if text[:2] in ("0f", "0F", "0d", "0D"):
        cursor.at += 1
        return Immediate(int(text[2:], 16), 32 if text[1] in "fF" else 64)
    value = _choice(cursor, 0)
    if isinstance(value, Whole):
        return Immediate(value.value)
    return Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], 64)


def integer(cursor: Cursor) -> int:
    """Read a constant expression that must be an integer."""
    at, value = cursor.at, _choice(cursor, 0)
    if isinstance(value, Whole):
        return value.value
    cursor.at = at
    raise cursor.error("expected an integer")


def number(cursor: Cursor) -> int:
    """Read a non-negative integer literal, the operand of a directive."""
    value = _literal(cursor.text)
    if not isinstance(value, Whole):
        raise cursor.error("expected an integer")
    cursor.at += 1
    return value.value


@lru_cache(maxsize=4096)
def _literal(text: str) -> Value | None:
    """The value of a literal token; None for another token."""
    if text == "WARP_SZ":
        return Whole(32)
    if not (text[:1].isdigit() or text[:1] == "."):
        return None
    base = 16 if text[:2] in ("0x", "0X") else 2 if text[:2] in ("0b", "0B") else 10
    digits = text.rstrip("U")
    try:
        if base == 10 and not digits.isdigit():
            value = float(text)
            return None if math.isinf(value) else value
        value = int(digits, 8 if base == 10 and digits.startswith("0") else base)
    except ValueError:
        return None
    return Whole(value, text.endswith("U") or value >> 63 > 0) if value <= _WORD else None


# ---- expressions -------------------------------------------------------------------------------------


def _choice(cursor: Cursor, depth: int) -> Value:
    """Read ``a ? b : c``, or an expression of binary operators."""
    condition = _binary(cursor, 1, depth)
    if cursor.text != "?":
        return condition
    if not isinstance(condition, Whole):
        raise cursor.error("expected an integer condition before this")
    cursor.at += 1
    first = _choice(cursor, _deeper(cursor, depth))
    cursor.expect(":")
    second = _choice(cursor, _deeper(cursor, depth))
    return first if condition.value else second


def _binary(cursor: Cursor, loosest: int, depth: int) -> Value:
    """Read binary operators of at least precedence ``loosest``, from left to right."""
    left = _unary(cursor, depth)
    while True:
        symbol = cursor.text
        precedence, apply = _OPERATORS.get(symbol, (0, None))
        if apply is None or precedence < loosest:
            return left
        at = cursor.at
        cursor.at += 1
        right = _binary(cursor, precedence + 1, depth)
        try:
            left = _apply(symbol, apply, left, right)
        except ArithmeticError as reason:
            cursor.at = at
            raise cursor.error(f"expected a constant, but {reason}") from None


def _unary(cursor: Cursor, depth: int) -> Value:
    """Read a literal, an expression in parentheses, or a sign or cast and its operand."""
    text, inner = cursor.text, _deeper(cursor, depth)
    if text in ("+", "-", "~", "!"):
        cursor.at += 1
        return _sign(cursor, text, _unary(cursor, inner))
    if text == "(":
        cursor.at += 1
        cast = cursor.text
        if cast in (".s64", ".u64"):
            cursor.at += 1
            cursor.expect(")")
            return _cast(cursor, _unary(cursor, inner), cast == ".u64")
        value = _choice(cursor, inner)
        cursor.expect(")")
        return value
    value = _literal(text)
    if value is None:
        raise cursor.error("expected a number")
    cursor.at += 1
    return value


def _deeper(cursor: Cursor, depth: int) -> int:
    """The depth plus 1; a syntax error if that is too deep."""
    if depth == _DEEPEST:
        raise cursor.error(f"expected no more than {_DEEPEST} levels of parentheses and signs")
    return depth + 1


def _sign(cursor: Cursor, sign: str, value: Value) -> Value:
    """Apply a unary operator, ``sign``, to the value of a constant expression."""
    if not isinstance(value, Whole):
        if sign in "+-":
            return -value if sign == "-" else value
        cursor.at -= 1
        raise cursor.error(f"expected an integer after {sign!r}")
    if sign == "!":
        return Whole(int(not value.value))
    return _wrap({"-": -value.value, "~": ~value.value, "+": value.value}[sign], value.unsigned)


def _cast(cursor: Cursor, value: Value, unsigned: bool) -> Value:
    """Convert an integer constant to 64 bits, unsigned or signed: the cast ``(.u64)`` or ``(.s64)``."""
    if isinstance(value, Whole):
        return _wrap(value.value, unsigned)
    cursor.at -= 1
    raise cursor.error("expected an integer after a cast")


def _wrap(value: int, unsigned: bool) -> Whole:
    """An integer wrapped to 64 bits, unsigned or in two's complement."""
    word = value & _WORD
    return Whole(word if unsigned or word >> 63 == 0 else word - (1 << 64), unsigned)


def _apply(symbol: str, apply: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Apply a binary operator to two values of a constant expression."""
    if not (isinstance(left, Whole) and isinstance(right, Whole)):
        return _apply_floats(symbol, apply, left, right)
    if symbol in ("<<", ">>"):
        return _wrap(apply(left.value, right.value & 63), left.unsigned)
    unsigned = left.unsigned or right.unsigned or symbol == "%"
    a, b = _wrap(left.value, unsigned).value, _wrap(right.value, unsigned).value
    if symbol in "/%" and b == 0:
        raise ArithmeticError("this divides by zero")
    # Comparisons and logical operators give a signed 0 or 1.
    return _wrap(int(apply(a, b)), unsigned and symbol in "+-*/%&^|")


def _apply_floats(symbol: str, apply: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Apply a binary operator to two floats of a constant expression."""
    if isinstance(left, Whole) or isinstance(right, Whole):
        raise ArithmeticError("this mixes an integer and a float")
    if symbol == "/":
        if right == 0:
            raise ArithmeticError("this divides by zero")
    elif symbol not in _FOR_FLOATS:
        raise ArithmeticError("this operator takes integers only")
    value = left / right if symbol == "/" else apply(left, right)
    if isinstance(value, bool):
        return Whole(int(value))
    if math.isinf(value):
        raise ArithmeticError("this overflows")
    return value


def _divide(a: int, b: int) -> int:
    """The quotient of two integers, rounded towards zero."""
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


_OPERATORS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "||": (1, lambda a, b: bool(a) or bool(b)),
    "&&": (2, lambda a, b: bool(a) and bool(b)),
    "|": (3, lambda a, b: a | b),
    "^": (4, lambda a, b: a ^ b),
    "&": (5, lambda a, b: a & b),
    "==": (6, operator.eq),
    "!=": (6, operator.ne),
    "<": (7, operator.lt),
    "<=": (7, operator.le),
    ">": (7, operator.gt),
    ">=": (7, operator.ge),
    "<<": (8, lambda a, b: a << b),
    ">>": (8, lambda a, b: a >> b),
    "+": (9, operator.add),
    "-": (9, operator.sub),
    "*": (10, operator.mul),
    "/": (10, _divide),
    "%": (10, operator.mod),
}
"""Binary operator → its precedence and function (PTX ISA 9.0, section 4.5.4)."""

_FOR_FLOATS = frozenset(["+", "-", "*", "<", "<=", ">", ">=", "==", "!="])
