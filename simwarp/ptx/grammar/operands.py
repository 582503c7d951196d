"""Parse the operands of an instruction: ``%r1``, ``[%rd1+4]``, ``{%f1, _}``, ``%r1|%p1``.

Source: PTX ISA 9.0, chapter 6 (operands), and the brackets of 9.7.10 (texture) and 9.7.9.27 (tensor copy).
"""

from __future__ import annotations

import re

from simwarp.ptx.grammar.constants import immediate, integer
from simwarp.ptx.grammar.scopes import Names
from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.syntax import Address, Group, Immediate, Operand, Pair, Register, Symbol, Vector

_WORD = re.compile(r"[A-Za-z_$][\w$.:]*|%[\w$][\w$.:]*", re.ASCII)
_ENDS = frozenset([",", ";", "]", "}", ")"])


class OperandReader:
    """A parser of operands at a cursor; ``names`` resolves their names.

    Attributes
    ----------
    has_free_name : bool
        Whether an operand, read since this was last set to False, has a name not declared so far:
        perhaps that of a later label.
    """

    def __init__(self, cursor: Cursor, names: Names) -> None:
        self.cursor, self.visible = cursor, names.visible
        self.has_free_name = False
        self._literals: dict[str, Immediate] = {}
        self._free: dict[str, Register] = {"_": Register("_")}

    def operands(self) -> tuple[Operand, ...]:
        """Read all operands of an instruction, and its semicolon."""
        cursor = self.cursor
        if cursor.accept(";"):
            return ()
        operands = [self._operand()]
        while cursor.texts[cursor.at] == ",":
            cursor.at += 1
            operands.append(self._operand())
        if not cursor.accept(";"):
            raise cursor.error("expected ',' or ';'")
        return tuple(operands)

    def call(self) -> tuple[Operand, ...]:
        """Read ``(returns), function, (arguments), prototype;``, where only the function is required."""
        cursor = self.cursor
        operands: list[Operand] = []
        if cursor.text == "(":
            operands.append(self._group())
            cursor.expect(",")
        target = self._simple()
        if isinstance(target, Immediate):
            cursor.at -= 1
            raise cursor.error("expected a function, or the register that holds its address")
        operands.append(target)
        following = cursor.accept(",")
        if following and cursor.text == "(":
            operands.append(self._group())
            following = cursor.accept(",")
        if following:
            operands.append(Symbol(cursor.name()))
            self.has_free_name = True
        cursor.expect(";")
        return tuple(operands)

    def guard(self) -> Register:
        """Read the guard ``%p`` or ``!%p`` after an ``@``."""
        negated = self.cursor.accept("!")
        return self._predicate(negated)

    # ---- one operand -------------------------------------------------------------------------------

    def _operand(self) -> Operand:
        """Read one operand: a register, constant, symbol, address, vector or pair."""
        cursor = self.cursor
        text = cursor.texts[cursor.at]
        if text == "[":
            return self._address()
        if text == "{":
            vector = self._vector()
            return self._pair(vector) if cursor.texts[cursor.at] == "|" else vector
        if text == "!" and _WORD.fullmatch(cursor.texts[cursor.at + 1]):
            cursor.at += 1
            return self._predicate(negated=True)
        first = self._simple()
        text = cursor.texts[cursor.at]
        if text == "|":
            return self._pair(first)
        if isinstance(first, Symbol) and text in ("+", "-"):
            return Symbol(first.name, self._offset())
        return first

    def _simple(self) -> Register | Immediate | Symbol:
        """Read an operand without brackets or braces: a register, a constant or a symbol."""
        cursor = self.cursor
        at = cursor.at
        text = cursor.texts[at]
        known = self.visible.get(text) or self._free.get(text)
        is_alone = cursor.texts[at + 1] in _ENDS
        if known is None and is_alone:
            known = self._literals.get(text)
        if known is not None:
            cursor.at += 1
            return known
        if _WORD.fullmatch(text) and (text != "WARP_SZ" or is_alone):
            return self._free_name(text)
        value = immediate(cursor)
        if is_alone:
            self._literals[text] = value
        return value

    def _free_name(self, text: str) -> Register | Symbol:
        """Read a name that is not declared yet: of a special register, a label or a function."""
        if text.partition(".")[0] in self.visible:
            raise self.cursor.error("expected a whole register: .x, .y … exist for special registers only")
        self.cursor.at += 1
        if text.startswith("%"):
            return self._free.setdefault(text, Register(text))
        self.has_free_name = True
        return Symbol(text)

    def _predicate(self, negated: bool) -> Register:
        """Read the name of a predicate register."""
        cursor = self.cursor
        register = self.visible.get(cursor.text) or Register(cursor.text)
        if not _WORD.fullmatch(cursor.text) or isinstance(register, Symbol):
            raise cursor.error("expected the name of a predicate register")
        cursor.at += 1
        return Register(register.name, negated) if negated else register

    def _pair(self, first: Operand) -> Pair:
        """Read ``|p`` after a destination."""
        self.cursor.expect("|")
        second = self._simple()
        if not isinstance(first, Register | Vector) or not isinstance(second, Register):
            raise self.cursor.error("expected registers on both sides of '|' before this")
        unused = Register("_")
        return Pair(None if first == unused else first, None if second == unused else second)

    def _address(self) -> Address:
        """Read an address in brackets, ``[base + offset]``."""
        cursor = self.cursor
        cursor.expect("[")
        base = self._simple()
        if isinstance(base, Immediate) and base.float_bits:
            raise cursor.error("expected an integer before this")
        offset = self._offset()
        more: list[Operand] = []
        while cursor.accept(","):
            more.append(self._vector() if cursor.text == "{" else self._simple())
        cursor.expect("]")
        return Address(base, offset, tuple(more))

    def _offset(self) -> int:
        """Read ``+ constant``, ``- constant`` or nothing; returns the offset."""
        cursor = self.cursor
        return integer(cursor) if cursor.accept("+") or cursor.texts[cursor.at] == "-" else 0

    def _vector(self) -> Vector:
        """Read a vector in braces, ``{a, b, …}``."""
        cursor = self.cursor
        cursor.expect("{")
        elements: list[Register | Immediate] = []
        for _ in cursor.separated("}"):
            element = self._simple()
            if isinstance(element, Symbol):
                raise cursor.error("expected registers or numbers before this")
            elements.append(element)
        return Vector(tuple(elements))

    def _group(self) -> Group:
        """Read the arguments or results of a call in parentheses."""
        cursor = self.cursor
        cursor.expect("(")
        if cursor.accept(")"):
            return Group(())
        return Group(tuple(self._simple() for _ in cursor.separated(")")))
