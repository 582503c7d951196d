"""Parse PTX text into `simwarp.ptx.syntax`, without knowledge of any instruction.

This file reads a module's directives; `tokens`, `constants`, `initial`, `variables`, `signatures`,
`scopes`, `operands`, `statements` and `locations` read the parts.

Source: PTX ISA 9.0, chapters 4 (syntax), 5 (state spaces), 7 (functions) and 11 (directives), as far as
nvcc 13.0 emits them and hand-written kernels use them; where the text is silent, the behaviour is that of
ptxas 13.0.
"""

from __future__ import annotations

import re

from simwarp.faults import PtxSyntaxError
from simwarp.ptx.grammar.locations import Locations, skip_file
from simwarp.ptx.grammar.signatures import device_function, kernel, skip_pragma
from simwarp.ptx.grammar.statements import Body
from simwarp.ptx.grammar.tokens import Cursor
from simwarp.ptx.grammar.variables import skip_attribute, variables
from simwarp.ptx.syntax import Module, Variable

VERSIONS = tuple(
    f"{major}.{minor}" for major, last in ((6, 5), (7, 8), (8, 8), (9, 0)) for minor in range(last + 1)
)
"""The supported versions of the PTX ISA."""
TARGETS = frozenset(
    [f"sm_{n}" for n in (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90)]
    + [f"sm_{n}{suffix}" for n in (100, 101, 103, 110, 120, 121) for suffix in ("", "a", "f")]
    + ["sm_90a"]
)
"""The architectures that a module may target."""
_OPTIONS = frozenset(["debug", "texmode_unified", "texmode_independent", "map_f64_to_f32"])
_CUDA = re.compile(r"^[^\S\n]*#[ \t]*include\b|\b__(?:global|device|host|constant)__", re.MULTILINE)
_LINKAGE = frozenset([".visible", ".extern", ".weak", ".common"])


def parse(text: str) -> Module:
    """Parse a PTX module: PTX ISA 6.0 to 9.0, for sm_50 or later, with 64-bit addresses."""
    try:
        return _ModuleReader(Cursor(text)).module()
    except PtxSyntaxError as error:
        cuda = None if ".version" in text else _CUDA.search(text)
        if cuda is None:
            raise error
        line = text.count("\n", 0, cuda.start()) + 1
        raise PtxSyntaxError(
            f"line {line}: `{cuda[0].strip()}` is CUDA C++, not PTX\n"
            "compile it first: simwarp.run.load(path), gpu.compile.compile(text, name) or nvcc -ptx"
        ) from None


class _ModuleReader:
    """Parses the directives of a PTX module."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.result = Module()
        self.locations = Locations(cursor)
        self.variables: dict[str, Variable] = {}
        self.defined: dict[str, tuple[str, int]] = {}
        """Name → the kind of its definition and its line."""
        self.aliases: list[tuple[str, str, int]] = []

    def module(self) -> Module:
        """Parse the whole PTX text."""
        self._version()
        self._target()
        self._address_size()
        while self.cursor.text:
            self._directive()
        self._alias_all()
        self.result.variables = list(self.variables.values())
        return self.result

    # ---- the first lines ---------------------------------------------------------------------------

    def _version(self) -> None:
        cursor = self.cursor
        if not cursor.accept(".version"):
            raise cursor.error("expected the text to begin with .version 6.0 to 9.0")
        if cursor.text not in VERSIONS:
            raise cursor.error("expected a version of the PTX ISA from 9.0 down to 6.0")
        self.result.version = cursor.take()

    def _target(self) -> None:
        cursor = self.cursor
        if not cursor.accept(".target"):
            raise cursor.error("expected .target after .version, such as .target sm_90")
        if cursor.text not in TARGETS:
            raise cursor.error("expected an architecture from sm_50 on, such as sm_90, sm_90a or sm_100f")
        self.result.target = cursor.take()
        while cursor.accept(","):
            if cursor.text not in _OPTIONS:
                raise cursor.error(f"expected one of {', '.join(sorted(_OPTIONS))}")
            self.result.debug |= cursor.take() == "debug"

    def _address_size(self) -> None:
        cursor = self.cursor
        if cursor.accept(".address_size"):
            if cursor.text != "64":
                raise cursor.error("expected 64-bit addresses, .address_size 64")
            cursor.take()

    # ---- declarations -------------------------------------------------------------------------------

    def _directive(self) -> None:
        cursor, at = self.cursor, self.cursor.at
        word = cursor.directive()
        linkage = word if word in _LINKAGE else ""
        if linkage:
            word = cursor.directive()
        while word == ".attribute":
            skip_attribute(cursor)
            word = cursor.directive()
        if word in (".global", ".const", ".shared"):
            self._variables(word[1:], linkage == ".extern")
        elif word == ".entry":
            self._function("kernel")
        elif word == ".func":
            self._function("function")
        elif linkage or not self._skipped(word):
            cursor.at = at
            raise cursor.error("expected a directive such as .entry, .func or .global")

    def _skipped(self, word: str) -> bool:
        """Skip a directive that declares nothing; returns False for another directive."""
        cursor = self.cursor
        if word == ".file":
            skip_file(cursor)
        elif word == ".section":
            self._skip_section()
        elif word == ".pragma":
            skip_pragma(cursor)
        elif word == ".alias":
            line, alias = cursor.line, cursor.name()
            cursor.expect(",")
            self.aliases.append((alias, cursor.name(), line))
            cursor.expect(";")
        else:
            return False
        return True

    def _skip_section(self) -> None:
        """Skip a debug section, up to its closing brace."""
        cursor, depth = self.cursor, 1
        while not cursor.accept("{"):
            cursor.take()
        while depth:
            if not cursor.text:
                raise cursor.error("expected '}'")
            text = cursor.take()
            depth += (text == "{") - (text == "}")

    def _variables(self, space: str, extern: bool) -> None:
        line = self.cursor.line
        for variable in variables(self.cursor, space, extern):
            self._define(variable.name, "variable", line, extern)
            if not extern or variable.name not in self.variables:
                self.variables[variable.name] = variable

    def _function(self, what: str) -> None:
        """Read a kernel or device function; a later definition replaces a declaration."""
        cursor, functions = self.cursor, self.result.functions
        function = (kernel if what == "kernel" else device_function)(cursor)
        function.extern = cursor.accept(";")
        if not function.extern:
            cursor.expect("{")
            Body(cursor, self.locations, function).read()
        name = function.name
        self._define(name, what, function.line, function.extern)
        if function.extern:
            if name not in self.result.entries:
                functions.setdefault(name, function)
        elif what == "kernel":
            functions.pop(name, None)
            self.result.entries[name] = function
        else:
            functions[name] = function

    def _define(self, name: str, what: str, line: int, declared_only: bool) -> None:
        """Raise a syntax error for a second definition of a module-level name."""
        before, where = self.defined.get(name, (what, 0))
        if before != what or (where and not declared_only):
            raise PtxSyntaxError(
                f"line {line}: {name} is already a {before}, defined in line {where}: expected another name\n"
                "rename one of the two, or remove one"
            )
        if not declared_only:
            self.defined[name] = (what, line)

    def _alias_all(self) -> None:
        """Apply ``.alias a, b``: a is another name of function b, which may be defined later."""
        functions = self.result.functions
        for alias, name, line in self.aliases:
            if name not in functions or functions[name].extern:
                raise PtxSyntaxError(
                    f"line {line}: expected a function that this module defines after .alias, found {name!r}"
                )
            if alias in functions and not functions[alias].extern:
                raise PtxSyntaxError(f"line {line}: expected a new name after .alias: {alias!r} has a body")
            functions[alias] = functions[name]
