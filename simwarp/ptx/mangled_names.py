"""Demangle kernel names: the name and parameter types in CUDA C++, from nvcc's mangled names.

Source: Itanium C++ ABI, 5.1 (mangling); only what names and template arguments of kernels need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

_BUILTIN = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "f": "float",
    "d": "double",
}
_SUFFIX = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile", "r": " __restrict__"}
_LISTED = 12
"""Most names that a message lists."""
_LITERAL = {"b": "{}", "i": "{}", "j": "{}u", "l": "{}l", "m": "{}ul", "x": "{}ll", "y": "{}ull"}


@lru_cache(maxsize=1024)
def readable(mangled: str) -> str:
    """A kernel's name in CUDA C++, with template arguments and without parameters.

    A name that is not mangled, or whose mangling this function does not know, is returned unchanged.
    """
    try:
        return _Reader(mangled).name() if mangled.startswith("_Z") else mangled
    except (_NotUnderstood, IndexError):
        return mangled


def parameter_types(mangled: str) -> list[str]:
    """The types of a kernel's parameters, from its mangled name; empty if it is not mangled."""
    try:
        return _Reader(mangled).parameters() if mangled.startswith("_Z") else []
    except (_NotUnderstood, IndexError):
        return []


def plain(name: str) -> str:
    """A demangled C++ name without its namespaces and template arguments."""
    return name.partition("<")[0].rpartition("::")[2]


def plain_variable(name: str) -> str:
    """The CUDA C++ name of a variable, given its PTX name.

    >>> plain_variable("_ZZ6kernelE4tile"), plain_variable("tile")
    ('tile', 'tile')
    """
    match = re.search(r"E(\d+)(\w+)$", name) if name.startswith("_Z") else None
    return name if match is None else match[2][: int(match[1])]


def choose(name: str, mangled: Iterable[str]) -> list[str]:
    """The mangled names that ``name`` may mean, by the strictest of these rules that has a match.

    The rules: it is the mangled name; it is the name in the source, with or without the types of parameters
    and apart from spaces, suffixes and casts of numbers; the same without outer namespaces; the same
    without namespaces and template arguments.
    """
    mangled = list(mangled)
    if name in mangled:
        return [name]
    wanted, short_names = _bare(name), {one: _bare(readable(one)) for one in mangled}
    typed = {one: f"{short}({_bare(', '.join(parameter_types(one)))})" for one, short in short_names.items()}
    for names in (short_names, typed):
        exact = [one for one, short in names.items() if short == wanted]
        inner = [one for one, short in names.items() if short.endswith(f"::{wanted}")]
        if exact or inner:
            return exact or inner
    return [one for one in mangled if plain(readable(one)) == wanted]


def listed(mangled: Iterable[str]) -> str:
    """The list of mangled names for a message, demangled: overloads with parameters, at most `_LISTED`."""
    texts = told_apart(mangled)
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def told_apart(mangled: Iterable[str]) -> list[str]:
    """Mangled names as in the source; overloads get the types of their parameters."""
    mangled = list(mangled)
    short = [readable(one) for one in mangled]
    return [
        f"{name}({', '.join(parameter_types(one))})" if short.count(name) > 1 else name
        for one, name in zip(mangled, short, strict=True)
    ]


def _bare(name: str) -> str:
    """A name without spaces, and without casts and suffixes of numbers."""
    name = re.sub(r"\s+", "", name)
    return re.sub(r"([<,])(?:\([^()<>]*\))?(-?\d+)[uUlL]*(?=[>,])", r"\1\2", name)


class _NotUnderstood(Exception):  # noqa: N818 - not an error: the name is shown unchanged
    """Raised for a mangling that `_Reader` does not know."""


@dataclass
class _Reader:
    """A parser of one mangled name, from left to right."""

    text: str
    at: int = 2
    known: list[str] = field(default_factory=list[str])
    """The substitutions ``S_``, ``S0_`` …"""
    template: list[str] = field(default_factory=list[str])
    """The template arguments ``T_``, ``T0_`` …"""

    def parameters(self) -> list[str]:
        """Read the name and return the parameter types; a template's result type precedes them."""
        if self.name().endswith(">"):
            self._type()
        types: list[str] = []
        while self.at < len(self.text):
            types.append(self._type())
        return [] if types == ["void"] else types

    def name(self) -> str:
        """Read a name: plain, nested, or with template arguments."""
        if self._take("N"):
            return self._nested()
        self._take("L")  # L marks internal linkage
        name = self._source_name()
        return self._template(name) if self._next == "I" else name

    def _nested(self) -> str:
        """Read a nested name of a mangled name: the parts between N and E."""
        name = ""
        while not self._take("E"):
            if self._next == "I":
                self.template = self._arguments()
                name += _bracketed(self.template)
            else:
                self._take("L")
                part = self._substitution() if self._next == "S" else self._source_name()
                name = f"{name}::{part}" if name and part else name or part
            if self._next != "E" and name not in self.known:
                self.known.append(name)
        return name

    def _template(self, name: str) -> str:
        """Read the template arguments after ``name`` in a mangled name; returns both."""
        if name not in self.known:
            self.known.append(name)
        self.template = self._arguments()
        return name + _bracketed(self.template)

    def _arguments(self) -> list[str]:
        """Read the template arguments of a mangled name, between I and E."""
        self._expect("I")
        return self._until_end()

    def _until_end(self) -> list[str]:
        """Read template arguments of a mangled name, up to an E."""
        arguments: list[str] = []
        while not self._take("E"):
            arguments.append(self._argument())
        return arguments

    def _argument(self) -> str:
        """Read one template argument: a type, a constant or a pack."""
        if self._take("J"):  # J begins a pack of template arguments
            return ", ".join(self._until_end())
        return self._literal() if self._take("L") else self._type()

    def _literal(self) -> str:
        """Read a constant: its type, n for a minus, digits."""
        kind = self._next
        form = _LITERAL.get(kind)
        if form is not None:
            self.at += 1
        else:
            form = f"({self._type()}){{}}"
        digits = self._match(r"n?\d+").replace("n", "-")
        self._expect("E")
        return {"0": "false", "1": "true"}[digits] if kind == "b" else form.format(digits)

    def _type(self) -> str:
        """Read an encoded type of a mangled name; returns it as C++ text."""
        letter = self._next
        if letter in _BUILTIN:
            self.at += 1
            return _BUILTIN[letter]
        if letter in _SUFFIX:
            self.at += 1
            type_name = self._type() + _SUFFIX[letter]
        elif letter == "S":
            type_name = self._substitution()
            if self._next != "I":
                return type_name
            type_name += _bracketed(self._arguments())
        elif letter == "T":
            self.at += 1
            type_name = self._numbered(self.template)
        elif letter == "N":
            self.at += 1
            type_name = self._nested()
        elif letter == "A":
            self.at += 1
            extent = self._match(r"\d*")
            self._expect("_")
            type_name = f"{self._type()}[{extent}]"
        else:
            type_name = self._source_name()
            if self._next == "I":
                type_name = self._template(type_name)
        self.known.append(type_name)
        return type_name

    def _substitution(self) -> str:
        """Read a substitution: ``S_`` is the first name so far, ``S0_`` the second; ``St`` is std."""
        self._expect("S")
        if self._take("t"):
            return f"std::{self._source_name()}"
        return self._numbered(self.known)

    def _numbered(self, table: list[str]) -> str:
        """Read an index into a table: ``_`` is its first entry, ``0_`` the second."""
        digits = self._match(r"[0-9A-Z]*")
        self._expect("_")
        return table[int(digits, 36) + 1 if digits else 0]

    def _source_name(self) -> str:
        """Read an identifier of a mangled name: its length, then its characters."""
        length = int(self._match(r"[1-9]\d*"))
        self.at += length
        if self.at > len(self.text):
            raise _NotUnderstood
        name = self.text[self.at - length : self.at]
        while self._take("B"):  # ABI tags, by which Numba tells kernels of one name apart
            self._source_name()
        if name.startswith("_INTERNAL_"):  # the namespace that NVRTC puts around static functions
            return ""
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N_") else name

    @property
    def _next(self) -> str:
        """The next character of the mangled name, not consumed; "" at its end."""
        return self.text[self.at : self.at + 1]

    def _match(self, pattern: str) -> str:
        """Consume and return the text at the current position that matches a pattern."""
        match = re.compile(pattern).match(self.text, self.at)
        if match is None:
            raise _NotUnderstood
        self.at = match.end()
        return match[0]

    def _take(self, letter: str) -> bool:
        """Skip a letter of the mangled name if it is the next one; returns whether it was."""
        taken = self.text.startswith(letter, self.at)
        self.at += taken
        return taken

    def _expect(self, letter: str) -> None:
        """Consume a letter that must be the next character of the mangled name."""
        if not self._take(letter):
            raise _NotUnderstood


def _bracketed(arguments: list[str]) -> str:
    return f"<{', '.join(arguments)}>"
