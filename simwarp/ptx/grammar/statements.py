"""Parse the body of a function: declarations, labels and instructions, in nested scopes.

Source: PTX ISA 9.0, sections 4.3 (statements), 5.4.6 (parameterized names), 11.3 (control flow directives).
"""

from __future__ import annotations

import re
from dataclasses import replace

from simwarp.ptx.grammar.constants import number
from simwarp.ptx.grammar.locations import Locations
from simwarp.ptx.grammar.operands import OperandReader
from simwarp.ptx.grammar.scopes import Names, Scope
from simwarp.ptx.grammar.signatures import prototype, skip_pragma
from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.grammar.variables import SPACES, WIDTHS, variables
from simwarp.ptx.syntax import (
    Function,
    Immediate,
    Instruction,
    Operand,
    Reference,
    Register,
    SourceLine,
    Symbol,
    Variable,
)

_OPCODE = re.compile(r"[a-z]\w*(?:\.\w+(?:::\w+)*)*", re.ASCII)
_MOST_REGISTERS = 1 << 20
_TABLES = (".branchtargets", ".calltargets", ".callprototype")


class Body:
    """A parser of a function body after its opening brace, which fills ``function``."""

    def __init__(self, cursor: Cursor, locations: Locations, function: Function) -> None:
        self.cursor, self.locations, self.function = cursor, locations, function
        self.names = Names()
        self.reader = OperandReader(cursor, self.names)
        self.source: SourceLine | None = None
        self.opcodes: set[str] = set()
        self.free: list[tuple[int, Scope]] = []
        """Indices of instructions with names that may be labels, and the scopes of these instructions."""
        self.listed: list[tuple[str, Scope]] = []
        """Names of tables of labels, and the scopes of these tables."""

    def read(self) -> None:
        """Read all statements of a function's body, and its closing brace."""
        cursor = self.cursor
        self._parameters()
        while True:
            text = cursor.texts[cursor.at]
            if text == "{":
                cursor.at += 1
                self.names.enter()
            elif text == "}":
                cursor.at += 1
                if self.names.scope.parent is None:
                    break
                self.names.leave()
            elif text == "":
                raise cursor.error("expected '}'")
            elif text[0] == ".":
                self._directive()
            elif cursor.texts[cursor.at + 1] == ":":
                self._label()
            else:
                self.function.instructions.append(self._instruction())
        self._name_labels()

    def _parameters(self) -> None:
        """Declare the function's parameters and results."""
        function = self.function
        for variable in (*function.returns, *function.parameters):
            is_register = variable.space == "reg"
            self.names.declare(variable.name, function.line, Register if is_register else Symbol)
            if is_register:
                function.registers[variable.name] = variable.type

    # ---- declarations ------------------------------------------------------------------------------

    def _directive(self) -> None:
        """Read a directive within a function's body."""
        cursor, at = self.cursor, self.cursor.at
        word = cursor.directive()
        if word == ".loc":
            self.source = self.locations.read()
        elif word == ".reg":
            self._registers()
        elif word in SPACES:
            line = cursor.line
            for variable in variables(cursor, word[1:]):
                self._declare(variable, line)
        elif word == ".pragma":
            skip_pragma(cursor)
        else:
            cursor.at = at
            raise cursor.error("expected an instruction, or a directive such as .reg or .shared")

    def _declare(self, variable: Variable, line: int) -> None:
        """Add a variable under a unique name; names in its initial values become unique, too."""
        name = self.names.declare(variable.name, line, Symbol)
        initial = tuple(map(self._unique, variable.initial))
        self.function.variables.append(replace(variable, name=name, initial=initial))

    def _unique(self, value: Immediate | Reference) -> Immediate | Reference:
        known = self.names.visible.get(value.name) if isinstance(value, Reference) else None
        return replace(value, name=known.name) if isinstance(value, Reference) and known else value

    def _registers(self) -> None:
        """Read register declarations after ``.reg``."""
        cursor, at = self.cursor, self.cursor.at
        kind = cursor.directive()[1:]
        if kind not in WIDTHS and kind != "pred":
            cursor.at = at
            vector = " (of vectors, declare each element)" if kind in ("v2", "v4") else ""
            raise cursor.error(f"expected the type of a register such as .b32{vector}")
        registers, declare = self.function.registers, self.names.declare
        for _ in cursor.separated(";"):
            line = cursor.line
            for name in self._range():
                registers[declare(name, line, Register)] = kind

    def _range(self) -> list[str]:
        """Read a name, or ``%r<100>`` for the names ``%r0`` to ``%r99``."""
        cursor = self.cursor
        name = cursor.name()
        if not cursor.accept("<"):
            return [name]
        count = number(cursor)
        if count > _MOST_REGISTERS:
            cursor.at -= 1
            raise cursor.error(f"expected at most {_MOST_REGISTERS} names")
        cursor.expect(">")
        return [f"{name}{i}" for i in range(count)]

    # ---- labels ------------------------------------------------------------------------------------

    def _label(self) -> None:
        """Read a label, or a table or prototype with its name."""
        cursor, function = self.cursor, self.function
        line, written = cursor.line, cursor.name()
        name = self.names.label(written, line)
        cursor.expect(":")
        if cursor.text not in _TABLES:
            function.labels[name] = len(function.instructions)
            return
        word = cursor.take()
        if word == ".callprototype":
            function.prototypes[name] = prototype(cursor)
            return
        function.tables[name] = tuple(part for _ in cursor.separated(";") for part in self._range())
        if word == ".branchtargets":
            self.listed.append((name, self.names.scope))

    def _name_labels(self) -> None:
        """Replace uses of labels by their unique names, once all labels are known."""
        if not self.names.has_renamed_labels:
            return
        for i, scope in self.free:
            old = self.function.instructions[i]
            operands = tuple(_relabelled(operand, scope) for operand in old.operands)
            self.function.instructions[i] = replace(old, operands=operands)
        for name, scope in self.listed:
            self.function.tables[name] = tuple(map(scope.label, self.function.tables[name]))

    # ---- instructions ------------------------------------------------------------------------------

    def _instruction(self) -> Instruction:
        """Read one instruction: guard, opcode, operands and semicolon."""
        cursor, reader = self.cursor, self.reader
        first, line, guard = cursor.at, cursor.lines[cursor.at], None
        if cursor.accept("@"):
            guard = reader.guard()
        opcode = self._opcode()
        operands = reader.call() if opcode.split(".")[0] == "call" else reader.operands()
        if reader.has_free_name:
            self.free.append((len(self.function.instructions), self.names.scope))
            reader.has_free_name = False
        return Instruction(opcode, operands, guard, line, cursor.quote(first, cursor.at, line), self.source)

    def _opcode(self) -> str:
        """Read an opcode; blanks may precede its dots."""
        cursor = self.cursor
        opcode = cursor.texts[cursor.at]
        if opcode not in self.opcodes:
            if not _OPCODE.fullmatch(opcode):
                raise cursor.error("expected an instruction")
            self.opcodes.add(opcode)
        cursor.at += 1
        while modifier := cursor.directive():
            opcode += modifier
        return opcode


def _relabelled(operand: Operand, scope: Scope) -> Operand:
    """An operand with a label replaced by its unique name."""
    return replace(operand, name=scope.label(operand.name)) if isinstance(operand, Symbol) else operand
