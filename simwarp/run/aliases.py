"""Types in CUDA C++ text: their canonical form, and the typedefs and macros that stand for them.

>>> canonical("const unsigned * __restrict__ x [ ]".split(), lambda name: None, "x")
'unsigned int**'
>>> canonical("std :: uint8_t * y".split(), lambda name: None, "y")
'unsigned char*'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

Branch: TypeAlias = tuple[int, str, int]
"""A condition of the preprocessor: its depth, its text, and the number of its branch."""
Meaning: TypeAlias = Callable[[str], str | None]

_QUALIFIERS = frozenset(
    """
    const volatile __restrict__ __restrict restrict register typename __grid_constant__ constexpr struct class
    """.split()  # noqa: SIM905 - a list of words
)
_NUMBERS = frozenset("unsigned signed char short int long float double bool".split())  # noqa: SIM905
_OF_CUDA = {
    "half": "__half",
    "half2": "__half2",
    "nv_bfloat16": "__nv_bfloat16",
    "nv_bfloat162": "__nv_bfloat162",
    "cuComplex": "float2",
    "cuFloatComplex": "float2",
    "cuDoubleComplex": "double2",
    "size_t": "unsigned long",
    "ptrdiff_t": "long",
    "intptr_t": "long",
    "uintptr_t": "unsigned long",
    "uchar": "unsigned char",
    "ushort": "unsigned short",
    "uint": "unsigned int",
    "ulong": "unsigned long",
    "cudaTextureObject_t": "unsigned long long",
    "cudaSurfaceObject_t": "unsigned long long",
}
"""Names of CUDA and of the C library that stand for other types; the source may define its own instead."""
QUALIFIER = "const"
"""The meaning of a macro that stands for qualifiers, or for nothing."""
_SIZED = {"8": "char", "16": "short", "32": "int", "64": "long"}


class _Alias(NamedTuple):
    """The meaning of a name, "" if that is not known; the conditions around it, and its namespaces."""

    meaning: str
    branches: tuple[Branch, ...]
    scope: tuple[str, ...]


@dataclass
class Aliases:
    """The typedefs, macros and structures of a source so far, by name."""

    known: dict[str, list[_Alias]] = field(default_factory=dict[str, list[_Alias]])

    def add(self, name: str, meaning: str, branches: Sequence[Branch], scope: tuple[str, ...] = ()) -> None:
        """Add a name; "" as its meaning for a structure, or for a type that is not understood."""
        self.known.setdefault(name, []).append(_Alias(meaning, tuple(branches), scope))

    def find(self, name: str, branches: Sequence[Branch], scope: tuple[str, ...]) -> str | None:
        """The type that a name stands for under conditions; "" if not certain, None if it is not an alias."""
        *outer, last = name.split("::")
        found = [
            one
            for one in self.known.get(last, [])
            if (not outer and one.scope == scope[: len(one.scope)])
            or (outer and outer[-1:] == [*one.scope[-1:]])
        ]
        if not found:
            return None
        deepest = max(len(one.scope) for one in found)
        found = [one for one in found if len(one.scope) == deepest]
        certain = all(one.branches == tuple(branches[: len(one.branches)]) for one in found)
        return found[0].meaning if certain and len({one.meaning for one in found}) == 1 else ""


def canonical(tokens: Sequence[str], meaning: Meaning, name: str = "") -> str:
    """The type of a declaration of ``name``, as in mangled names, without ``const``; "" if not understood."""
    text = re.sub(
        r"\[ \[.*?\] \]|\b(?:alignas|__align__|__attribute__) (?:\( [^()]* \))+", "", " ".join(tokens)
    )
    pointers = 0
    if array := re.fullmatch(r"(.*?)\( [*&] (?:const |__restrict__ )*(\w*) \) ((?:\[[^\[\]]*\] ?)+)", text):
        text, pointers = f"{array[1]}{array[2]}", 1
    elif bounds := re.search(r"((?: \[[^\[\]]*\])+)$", text):
        text, pointers = text[: bounds.start()], 1
    words = [word for word in text.split() if word not in _QUALIFIERS and meaning(word) != QUALIFIER]
    if not words:
        return QUALIFIER
    if name and words[-1:] == [name]:
        words.pop()
    while words[-1:] == ["*"]:
        words.pop()
        pointers += 1
    base = _base(words, meaning)
    return base + "*" * pointers if base else ""


def _base(words: Sequence[str], meaning: Meaning) -> str:
    """The C++ type without pointers; "" if it is not recognised."""
    if not words or any(not re.fullmatch(r"\w+|::|<|>|,", word) for word in words):
        return ""
    if any(meaning(word) is not None for word in words if word in _NUMBERS):
        return ""  # a macro replaces it
    if {*words} <= _NUMBERS:
        return _number(words)
    written = "".join(words).removeprefix("::")
    own = meaning(written)
    if own is not None:
        return own
    plain = re.sub(r"^(?:cuda::)?std::(?=\w+_t$)", "", written)
    if sized := re.fullmatch(r"(u?)int(?:_fast|_least)?(8|16|32|64)_t", plain):
        kind = _SIZED[sized[2]]
        return f"{'unsigned' if sized[1] else 'signed' if kind == 'char' else ''} {kind}".strip()
    return _OF_CUDA.get(plain, "" if len(words) > 1 and "<" not in written and "::" not in written else plain)


def _number(words: Sequence[str]) -> str:
    """The usual name of an arithmetic type: "unsigned long" for ``long int unsigned``."""
    signs = {"unsigned", "signed"} & {*words}
    kinds = [word for word in words if word not in ("unsigned", "signed")]
    if len(kinds) > 1:
        kinds = [word for word in kinds if word != "int"]
    kind = " ".join(kinds) or "int"
    if "unsigned" in signs:
        return f"unsigned {kind}"
    return "signed char" if signs and kind == "char" else kind
