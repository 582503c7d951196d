"""The names and types of a kernel's parameters, read from its CUDA C++ or from hand-written PTX.

A compiler numbers parameters in PTX. This module finds the kernel's definition in the source by its name and
by the lines that its PTX was compiled from, and parses the parameter list. If that is ambiguous (a macro, a
parameter pack, two definitions on one line), the names are not known. Types are those of a mangled name; for
an ``extern "C"`` kernel, whose name has none, they are read from the parameter list, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from simwarp.ptx import mangled_names
from simwarp.ptx.mangled_names import plain_variable, readable
from simwarp.ptx.syntax import Function
from simwarp.run.aliases import Aliases, Branch, canonical

_LITERALS = re.compile(
    r'R"([^()\\\s]{0,16})\(.*?\)\1"|//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_MACRO = re.compile(r"#[ \t]*define[ \t]+(\w+)")
_TOKEN = re.compile(r"\x01\d+|[A-Za-z_]\w*|::|\.\.\.|->|\S")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBERED = re.compile(r".*_param_\d+")

_MARK = "\x01"
"""Begins the token for a preprocessor directive, as conditions are not evaluated here; its number follows."""

_QUALIFIER_WORDS = """
const volatile __restrict__ __restrict restrict register struct class enum union typename __grid_constant__
constexpr
"""
_TYPE_WORDS = """
void bool char short int long float double signed unsigned auto wchar_t char8_t char16_t char32_t
"""
_ATTRIBUTE_WORDS = """
__launch_bounds__ __cluster_dims__ __block_size__ __maxnreg__ __attribute__ __declspec alignas noexcept
requires decltype
"""
_OF_VARIABLES = frozenset(("__constant__", "__device__", "__managed__", "static", "extern"))
_QUALIFIERS = frozenset(_QUALIFIER_WORDS.split())
_TYPES = frozenset(_TYPE_WORDS.split())
_WITH_PARENTHESES = frozenset(_ATTRIBUTE_WORDS.split())
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}

Token: TypeAlias = tuple[str, int]
"""A token, and its line number."""


@dataclass(frozen=True)
class Definition:
    """A definition or declaration of a kernel in a source text."""

    name: str  # qualified by namespaces
    parameters: tuple[str, ...] | None  # names, "" for an unnamed one; None if they could not be parsed
    types: tuple[str, ...]  # without typedefs, "float*" for ``const float x[]``; "" for one that is not known
    first: int  # line of ``__global__``
    last: int  # line of the definition
    has_body: bool  # False for a declaration


def parameter_names(kernel: Function, texts: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The names of a kernel's parameters, "" for an unnamed one; () if they are not known."""
    if not texts:
        names = tuple(parameter.name for parameter in kernel.parameters)
        return () if any(map(_NUMBERED.fullmatch, names)) else names
    lists = {definition.parameters for definition in _definitions_of(kernel, texts)}
    only = next(iter(lists)) if len(lists) == 1 else None
    return only if only is not None and len(only) == len(kernel.parameters) else ()


def parameter_types(
    kernel: Function, texts: Mapping[str, str], defined: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """The types of a kernel's parameters in CUDA C++, "" for an unknown one; () if none is known.

    ``defined`` are the macros that the compiler's options define: names that may stand for any type.
    """
    if kernel.name.startswith("_Z"):
        return tuple(mangled_names.parameter_types(kernel.name))
    lists = {definition.types for definition in _definitions_of(kernel, texts, defined)}
    if {len(types) for types in lists} != {len(kernel.parameters)}:
        return ()
    return tuple(each[0] if len({*each}) == 1 else "" for each in zip(*lists, strict=True))


def _definitions_of(
    kernel: Function, texts: Mapping[str, str], defined: frozenset[str] = frozenset()
) -> list[Definition]:
    """The definitions that a kernel may be compiled from; declarations if there is no other."""
    lines = {(i.source.file, i.source.line) for i in kernel.instructions if i.source is not None}
    found = [
        definition
        for file, text in texts.items()
        for definition in definitions(text, defined)
        if _is_called(definition.name, kernel)
        and (not lines or any(at == file and definition.first <= n <= definition.last for at, n in lines))
    ]
    return [definition for definition in found if definition.has_body] or found


def _is_called(name: str, kernel: Function) -> bool:
    """True if a definition is that of a kernel; of an unmangled kernel only the last part is compared."""
    called, before = readable(kernel.name), ""
    while called != before:  # removes template arguments, the innermost first
        called, before = re.sub(r"<[^<>]*>", "", called), called
    parts = [part for part in called.split("::") if part != "(anonymous namespace)"]
    mine = name.split("::")
    return mine == parts if kernel.name.startswith("_Z") else mine[-1:] == parts[-1:]


def without_literals(text: str) -> str:
    """Replace comments and literals in CUDA C++ by blanks, so that lines and columns stay."""
    return _LITERALS.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def variable_type(name: str, texts: Mapping[str, str], defined: frozenset[str] = frozenset()) -> str:
    """The type of a ``__constant__`` or ``__device__`` variable, "float*" for an array; "" if not known."""
    plain = plain_variable(name) if name.startswith("_ZZ") else readable(name).rpartition("::")[2]
    types = {each for text in texts.values() for each in _read(text, defined).variables.get(plain, [])}
    return types.pop() if len(types) == 1 else ""


def definitions(text: str, defined: frozenset[str] = frozenset()) -> tuple[Definition, ...]:
    """Find the kernels that CUDA C++ defines or declares, outside of macros; see `parameter_types`."""
    return _read(text, defined).kernels


@lru_cache(maxsize=16)
def _read(text: str, defined: frozenset[str]) -> _Declarations:
    """The kernels and device variables that a CUDA C++ text declares."""
    code = without_literals(text)
    macros, directives = frozenset(_MACRO.findall(code)), list[str]()

    def numbered(found: re.Match[str]) -> str:
        directives.append(found[0].replace("\\\n", " ").strip())
        return f"{_MARK}{len(directives) - 1} " + "\n" * found[0].count("\n")

    code = _DIRECTIVE.sub(numbered, code.replace(_MARK, " "))
    tokens: list[Token] = []
    for number, line in enumerate(code.split("\n"), 1):
        tokens += [(token, number) for token in _TOKEN.findall(line.replace("\\", " "))]
    reader = _Reader(tokens, macros, directives)
    for name in defined:
        reader.aliases.add(name, "", ())
    return _Declarations(tuple(reader.read()), reader.variables)


class _Declarations(NamedTuple):
    """The declarations of a text: kernels, and the types of each variable in the device's memory."""

    kernels: tuple[Definition, ...]
    variables: Mapping[str, list[str]]


@dataclass
class _Reader:
    """Parser of the kernels in a sequence of tokens."""

    tokens: list[Token]
    macros: frozenset[str]
    directives: list[str]
    scopes: list[str | None] = field(default_factory=list[str | None])
    """The enclosing namespaces, "" for unnamed ones and ``extern "C"``; None for other braces."""
    aliases: Aliases = field(default_factory=Aliases)
    branches: list[Branch] = field(default_factory=list[Branch])
    """The conditions of the preprocessor that hold here."""
    variables: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def read(self) -> list[Definition]:
        """Find all definitions and declarations of kernels and variables in the text."""
        found: list[Definition] = []
        at = 0
        while at < len(self.tokens):
            token = self._text(at)
            if token == "namespace":
                at = self._namespace(at + 1)
            elif token == "__global__":
                definition = self._kernel(at)
                found += [definition] if definition else []
            elif token == "{":
                self.scopes.append("" if self._text(at - 1) == "extern" else None)
            elif token == "}" and self.scopes:
                self.scopes.pop()
            elif token.startswith(_MARK):
                self._directive(self.directives[int(token[1:])])
            elif token in ("typedef", "using", "struct", "class", "union", "enum"):
                self._type(at)
            elif token in _OF_VARIABLES and self._text(at - 1) not in _OF_VARIABLES:
                self._variable(at)
            at += 1
        return found

    def _variable(self, at: int) -> None:
        """Note the types of the variables that a declaration names."""
        end = at
        while self._text(end) not in (";", "(", "{", "}", ""):
            end += 1
        if self._text(end) == "(":
            return
        tokens = [text for text, _ in self.tokens[at:end] if text not in _OF_VARIABLES]
        first, *others = _split(tokens)
        name = _name_of(first)
        if name:
            kind = canonical(first, self._meaning, name) if not others else ""
            self.variables.setdefault(name, []).append(kind)

    def _directive(self, text: str) -> None:
        """Enter or leave a condition of the preprocessor, or note a macro that stands for a type."""
        word, _, rest = text.removeprefix("#").strip().partition(" ")
        if word in ("if", "ifdef", "ifndef"):
            self.branches.append((len(self.branches), text, 0))
        elif word in ("elif", "else", "elifdef", "elifndef") and self.branches:
            depth, condition, number = self.branches[-1]
            self.branches[-1] = (depth, condition, number + 1)
        elif word == "endif" and self.branches:
            self.branches.pop()
        elif word == "undef":
            self.aliases.add(rest.strip(), "", ())
        elif word == "define" and (macro := re.fullmatch(r"(\w+)(?:\s+(.*))?", rest.strip())):
            meaning = canonical(_TOKEN.findall(macro[2] or ""), self._meaning)
            self.aliases.add(macro[1], meaning, self.branches)

    def _type(self, at: int) -> None:
        """Note the type that a declaration outside of functions and structures names."""
        if None in self.scopes:
            return
        kind, end = self._text(at), at + 1
        if kind not in ("typedef", "using"):
            name = next((i for i in range(end, len(self.tokens)) if not self._is_attribute(i)), end)
            if self._text(name + 1) in ("{", ":", ";", "final"):
                self.aliases.add(self._text(name), "", self.branches, self._scope)
            return
        while self._text(end) not in (";", ""):
            end = self._behind(end) if self._text(end) in _CLOSING and self._text(end) != "<" else end + 1
        tokens = [text for text, _ in self.tokens[at + 1 : end]]
        if kind == "using" and tokens[1:2] == ["="]:
            self.aliases.add(tokens[0], canonical(tokens[2:], self._meaning), self.branches, self._scope)
        elif kind == "typedef":
            for part in _split(tokens):
                name = _name_of(part) or next((word for word in reversed(part) if _WORD.match(word)), "")
                simple = not {"{", "("} & {*tokens} and len(_split(tokens)) == 1
                meaning = canonical(part, self._meaning, name) if simple else ""
                self.aliases.add(name, meaning, self.branches, self._scope)

    def _is_attribute(self, at: int) -> bool:
        """True if a token belongs to an attribute between ``struct`` and its name."""
        text = self._text(at)
        if text in _WITH_PARENTHESES or text in ("__align__", "["):
            return True
        return not _WORD.match(text) or self._text(at - 1) in ("(", "[") or self._text(at + 1) == ")"

    @property
    def _scope(self) -> tuple[str, ...]:
        """The names of the namespaces around the current position, from the outermost one."""
        return tuple(part for part in self.scopes if part)

    def _meaning(self, name: str) -> str | None:
        """The type that a name of the source stands for; "" if that is not certain, None if it is not one."""
        return self.aliases.find(name, self.branches, self._scope)

    def _text(self, at: int) -> str:
        """The text of a token; "" before the first and after the last."""
        return self.tokens[at][0] if 0 <= at < len(self.tokens) else ""

    def _namespace(self, at: int) -> int:
        """Enter a namespace; return the position of its opening brace, or of the end of an alias."""
        name: list[str] = []
        while (token := self._text(at)) not in ("{", ";", "=", ""):
            name += [token] if token != "inline" else []
            at += 1
        if token == "{":
            self.scopes.append("".join(name))
        return at

    def _kernel(self, start: int) -> Definition | None:
        """Parse the kernel after a ``__global__``; None if there is not one."""
        at = start + 1
        while (token := self._text(at)) != "(" or self._text(at - 1) in _WITH_PARENTHESES:
            if token in ("", ";", "{", "}", "__global__"):
                return None
            at = self._behind(at) if token in "([" else at + 1
        name, behind = self._name(at - 1), self._behind(at)
        end = behind
        while (token := self._text(end)) not in ("{", ";"):
            if token in ("", "}", "__global__") or (
                token == "(" and self._text(end - 1) not in _WITH_PARENTHESES
            ):
                return None
            end = self._behind(end) if token == "(" else end + 1
        if not name or name in self.macros:
            return None
        certain = not any(text.startswith(_MARK) for text, _ in self.tokens[start:end])
        between = [text for text, _ in self.tokens[at + 1 : behind - 1]]
        parameters = self._parameters(between) if certain else None
        types = self._types(between, parameters)
        last = self._behind(end) - 1 if token == "{" else end
        lines = self.tokens[start][1], self.tokens[min(last, len(self.tokens) - 1)][1]
        return Definition("::".join([*self._scope, name]), parameters, types, *lines, token == "{")

    def _behind(self, at: int) -> int:
        """The position after the bracket that closes the one at a position."""
        opening, depth = self._text(at), 0
        while at < len(self.tokens):
            depth += (self._text(at) == opening) - (self._text(at) == _CLOSING[opening])
            at += 1
            if not depth:
                break
        return at

    def _name(self, at: int) -> str:
        """The qualified name that ends at a position, without template arguments."""
        if self._text(at) == ">":
            depth = 0
            while at > 0:
                depth += (self._text(at) == ">") - (self._text(at) == "<")
                at -= 1
                if not depth:
                    break
        name = self._text(at)
        while self._text(at - 1) == "::" and _WORD.fullmatch(self._text(at - 2)):
            name, at = f"{self._text(at - 2)}::{name}", at - 2
        return name if _WORD.match(name) else ""

    def _parameters(self, tokens: list[str]) -> tuple[str, ...] | None:
        """The names in a parameter list; None if one is ambiguous."""
        if tokens in ([], ["void"]):
            return ()
        names = [_name_of(part) for part in _split(tokens)]
        known = tuple(name for name in names if name is not None and name not in self.macros)
        return known if len(known) == len(names) else None

    def _types(self, tokens: list[str], names: tuple[str, ...] | None) -> tuple[str, ...]:
        """The types in a parameter list whose names are known."""
        parts = _split(tokens) if names else []
        return tuple(
            canonical(part, self._meaning, name) for part, name in zip(parts, names or (), strict=True)
        )


def _split(tokens: Sequence[str]) -> list[list[str]]:
    """Split a parameter list at its commas outside of brackets, and drop default values."""
    parts, depth, skipping = [list[str]()], 0, False
    for token in tokens:
        if token == "," and not depth:
            parts.append([])
            skipping = False
            continue
        skipping = skipping or (token == "=" and not depth)
        depth += (token in "([{<") - (token in ")]}>")
        if not skipping:
            parts[-1].append(token)
    return parts


def _name_of(tokens: list[str]) -> str | None:
    """The name in the tokens of a parameter; "" if it is unnamed, None if it is ambiguous."""
    if "..." in tokens:
        return None
    text = " ".join(tokens)
    pointer = re.fullmatch(r"[\w:<>,*& ]+\( [*&] (?:const )?(\w+) \) (?:\([^()]*\)|\[.*\])", text)
    if pointer:
        return pointer[1]
    text, before = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[ \[.*?\] \]", "", text)), ""
    while text != before:
        text, before = re.sub(r"<[^<>]*>", " ", text), text
    words = text.split()
    if any(not _WORD.fullmatch(word) and word not in ("*", "&", "::") for word in words):
        return None
    types = [word for word in words[:-1] if _WORD.fullmatch(word) and word not in _QUALIFIERS]
    unnamed = not types or words[-1] in _TYPES | _QUALIFIERS | {"*", "&"} or words[-2] == "::"
    return "" if unnamed else words[-1]
