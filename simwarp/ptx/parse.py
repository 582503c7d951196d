"""PTX text → `simwarp.ptx.syntax`. Knows the grammar, and no instruction.

Source: PTX ISA 9.0, chapters 4 (syntax) and 5 (state spaces), as far as NVRTC uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from simwarp.faults import PtxSyntaxError
from simwarp.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    Pair,
    Register,
    SourceLine,
    Symbol,
    Variable,
    Vector,
)

_TOKEN = re.compile(
    r"""(?P<newline>\n)
      | (?P<blank>[ \t\r]+ | //[^\n]*)
      | (?P<comment>/\*.*?\*/)
      | (?P<string>"[^"\n]*")
      | (?P<number>0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16} | 0[xX][0-9a-fA-F]+U?
                  | 0[bB][01]+U? | \d+\.\d+ | \d+U?)
      | (?P<word>[A-Za-z_$%.](?:[\w$.] | ::)*)
      | (?P<mark>[-+@!|,;:(){}\[\]<>=])""",
    re.VERBOSE | re.DOTALL,
)

_LINKAGE = {".visible", ".extern", ".weak", ".common"}
_SPACES = {".global", ".shared", ".const", ".local", ".param"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def parse(text: str) -> Module:
    """Read a PTX module.

    Raises
    ------
    PtxSyntaxError
        Names the line and what was expected there.

    Examples
    --------
    >>> module = parse('''
    ... .version 9.0
    ... .target sm_90
    ... .address_size 64
    ... .visible .entry nothing(.param .u64 out) { .reg .b32 %r<2>; mov.u32 %r1, %tid.x; ret; }
    ... ''')
    >>> [i.opcode for i in module.entries["nothing"].instructions]
    ['mov.u32', 'ret']
    """
    return _Parser(text).module()


def _tokens(text: str) -> Iterator[_Token]:
    line, at = 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PtxSyntaxError(f"line {line}: {text[at : at + 20]!r} is not PTX")
        kind, found = match.lastgroup or "", match.group()
        if kind not in ("newline", "blank", "comment"):
            yield _Token(kind, found, line)
        line += found.count("\n")
        at = match.end()
    yield _Token("end", "", line)


@dataclass
class _Location:
    """A ``.loc``: a line of a file, and the line it was inlined at."""

    file: str
    line: int
    inlined_at: tuple[str, int] | None = None


@dataclass
class _Parser:
    text: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    locations: list[tuple[Function, int, _Location | None]] = field(
        default_factory=list[tuple[Function, int, _Location | None]]
    )

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")
        self.tokens = list(_tokens(self.text))
        self.at = 0
        self.declared: dict[str, str] = {}

    # ---- tokens ----------------------------------------------------------------------------------

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def next(self) -> _Token:
        token = self.tokens[self.at]
        if token.kind == "end":
            raise self.error("expected more")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.token.text == text and self.token.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}")

    def error(self, expected: str) -> PtxSyntaxError:
        token = self.token
        line = self.lines[token.line - 1].strip() if token.line <= len(self.lines) else ""
        return PtxSyntaxError(f"line {token.line}: {expected}, found {token.text!r} in `{line}`")

    def word(self) -> str:
        if self.token.kind != "word":
            raise self.error("expected a name")
        return self.next().text

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        try:
            value = _integer(self.token.text if self.token.kind == "number" else "")
        except ValueError:
            raise self.error("expected a whole number") from None
        self.at += 1
        return sign * value

    # ---- the module ------------------------------------------------------------------------------

    def module(self) -> Module:
        module = Module()
        while self.token.kind != "end":
            word = self.word()
            if word == ".version":
                module.version = self.next().text
            elif word == ".target":
                module.target = self.word()
                while self.accept(","):
                    self.word()
            elif word == ".address_size":
                if self.token.text != "64":
                    raise self.error("expected 64-bit addresses")
                self.next()
            elif word == ".file":
                self.file()
            elif word == ".section":
                self.section()
            elif word in _LINKAGE:
                continue
            elif word in _SPACES:
                module.variables.append(self.variable(word[1:]))
                self.expect(";")
            elif word == ".entry":
                entry = self.entry()
                module.entries[entry.name] = entry
            else:
                self.at -= 1
                raise self.error("expected a directive such as .entry")
        self.place_lines()
        return module

    def file(self) -> None:
        number = self.next().text
        self.files[number] = self.next().text.strip('"')
        while self.accept(","):
            self.integer()

    def section(self) -> None:
        """Debug sections say nothing that execution needs."""
        while not self.accept("{"):
            self.next()
        depth = 1
        while depth:
            if self.token.kind == "end":
                raise self.error("expected '}'")
            text = self.next().text
            depth += (text == "{") - (text == "}")

    def variable(self, space: str) -> Variable:
        """``.align 8 .b8 name[16]``, also ``.v4 .f32`` and parameters of pointer type."""
        alignment, vector, kind = 0, 1, ""
        while self.token.text.startswith("."):
            word = self.word()
            if word == ".align":
                alignment = self.integer()
            elif word in (".v2", ".v4"):
                vector = int(word[2:])
            elif word == ".ptr" or word in _SPACES:
                continue
            else:
                kind = word[1:]
        name = self.word()
        count = vector
        while self.accept("["):
            if not self.accept("]"):
                count *= self.integer()
                self.expect("]")
            else:
                count = 0  # extern shared memory: its size comes with the launch
        if self.token.text == "=":
            raise self.error("initialised variables are not supported: expected ';'")
        return Variable(name, space, kind, count, alignment)

    # ---- an entry --------------------------------------------------------------------------------

    def entry(self) -> Function:
        entry = Function(self.word(), [], self.token.line)
        if self.accept("(") and not self.accept(")"):
            while True:
                self.expect(".param")
                entry.parameters.append(self.variable("param"))
                if self.accept(")"):
                    break
                self.expect(",")
        while not self.accept("{"):
            directive = self.word()
            numbers: list[int] = []
            while self.token.kind == "number":
                numbers.append(self.integer())
                self.accept(",")
            if directive in (".maxntid", ".reqntid"):
                entry.max_threads = 1
                for number in numbers:
                    entry.max_threads *= number
        self.body(entry)
        return entry

    def body(self, entry: Function) -> None:
        """The statements up to the closing brace; nested braces only group."""
        self.declared = entry.registers
        depth = 1
        while depth:
            token = self.token
            if token.kind == "end":
                raise self.error("expected '}'")
            if self.accept("{"):
                depth += 1
            elif self.accept("}"):
                depth -= 1
            elif token.text == ".reg":
                self.registers(entry)
            elif token.text == ".loc":
                self.location(entry)
            elif token.text in _SPACES:
                self.next()
                entry.variables.append(self.variable(token.text[1:]))
                self.expect(";")
            elif token.text.startswith(".pragma"):
                while not self.accept(";"):
                    self.next()
            elif token.kind == "word" and self.tokens[self.at + 1].text == ":":
                entry.labels[self.word()] = len(entry.instructions)
                self.expect(":")
            else:
                entry.instructions.append(self.instruction())

    def registers(self, entry: Function) -> None:
        self.expect(".reg")
        kind = self.word()[1:]
        while True:
            name = self.word()
            if self.accept("<"):
                for i in range(self.integer()):
                    entry.registers[f"{name}{i}"] = kind
                self.expect(">")
            else:
                entry.registers[name] = kind
            if self.accept(";"):
                return
            self.expect(",")

    def location(self, entry: Function) -> None:
        self.expect(".loc")
        file, line, _column = self.next().text, self.integer(), self.integer()
        location = _Location(file, line)
        while self.accept(","):
            attribute = self.word()
            if attribute == "function_name":
                self.word()
                if self.accept("+"):
                    self.integer()
            elif attribute == "inlined_at":
                location.inlined_at = (self.next().text, self.integer())
                self.integer()
            else:
                raise self.error("expected function_name or inlined_at before this")
        self.locations.append((entry, len(entry.instructions), location))

    def instruction(self) -> Instruction:
        line, guard = self.token.line, None
        if self.accept("@"):
            negated = self.accept("!")
            guard = Register(self.word(), negated)
        opcode = self.word()
        operands: list[Operand] = []
        while not self.accept(";"):
            if operands and not self.accept(","):
                raise self.error("expected ',' or ';'")
            operands.append(self.operand())
        return Instruction(opcode, tuple(operands), guard, line, self.lines[line - 1].strip())

    def operand(self) -> Operand:
        if self.accept("["):
            return self.address()
        if self.accept("{"):
            elements: list[Register | Immediate] = []
            while not self.accept("}"):
                element = self.simple()
                if element == Symbol("_"):
                    element = Register("_")
                elif isinstance(element, Symbol):
                    raise self.error("expected registers or numbers before this")
                elements.append(element)
                self.accept(",")
            return Vector(tuple(elements))
        first = self.simple()
        if self.accept("|"):
            second = self.simple()
            return Pair(_destination(first), _destination(second))
        return first

    def simple(self) -> Register | Immediate | Symbol:
        if self.accept("!"):
            return Register(self.word(), negated=True)
        if self.token.kind == "word":
            name = self.word()
            # Inline assembly declares registers without the percent sign.
            return Register(name) if name.startswith("%") or name in self.declared else Symbol(name)
        text = self.token.text
        if text[:2] in ("0f", "0F", "0d", "0D"):
            self.next()
            return Immediate(int(text[2:], 16), 32 if text[1] in "fF" else 64)
        return Immediate(self.integer())

    def address(self) -> Address:
        base = self.simple()
        offset = 0
        if self.accept("+") or self.token.text == "-":
            offset = self.integer()
        self.expect("]")
        return Address(base, offset)

    # ---- lines of CUDA C++ -----------------------------------------------------------------------

    def place_lines(self) -> None:
        """Give each instruction its source line, once every ``.file`` is known."""
        for i, (entry, start, location) in enumerate(self.locations):
            following = self.locations[i + 1] if i + 1 < len(self.locations) else None
            same_entry = following is not None and following[0] is entry
            stop = following[1] if following and same_entry else len(entry.instructions)
            source = self.source_line(location) if location else None
            for k in range(start, stop):
                old = entry.instructions[k]
                entry.instructions[k] = Instruction(
                    old.opcode, old.operands, old.guard, old.line, old.text, source
                )

    def source_line(self, location: _Location) -> SourceLine | None:
        """The line itself; of code from CUDA's own headers, the line that it was inlined at."""
        file, line = location.file, location.line
        if "include/" in self.files.get(file, "") and location.inlined_at:
            file, line = location.inlined_at
        return SourceLine(self.files.get(file, ""), line) if line else None


def _integer(text: str) -> int:
    digits = text.rstrip("U")
    return int(digits, 8 if digits.startswith("0") and digits.isdigit() else 0)


def _destination(operand: Operand) -> Register | None:
    return operand if isinstance(operand, Register) else None
