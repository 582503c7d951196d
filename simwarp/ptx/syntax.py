"""PTX text as plain data: the output of `simwarp.ptx.parse`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Register:
    """A register, a special register or a predicate: ``%r1``, ``%tid.x``, ``!%p1``."""

    name: str
    negated: bool = False


@dataclass(frozen=True)
class Immediate:
    """A literal: an integer, or the bits of a ``0f``/``0d`` float literal."""

    value: int
    float_bits: int = 0
    """32 or 64 for a float literal, else 0."""


@dataclass(frozen=True)
class Symbol:
    """A label, a variable, a function or a parameter, and an offset to its address."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """``[base + offset]``; also ``[base, more, …]`` of instructions that take several parts."""

    base: Register | Symbol | Immediate
    offset: int = 0
    more: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vector:
    """``{a, b, …}``."""

    elements: tuple[Register | Immediate, ...]


@dataclass(frozen=True)
class Pair:
    """``d|p``: a destination and its predicate; ``_`` is None."""

    first: Register | None
    second: Register | None


@dataclass(frozen=True)
class Group:
    """``(a, b, …)``: the arguments or results of a call."""

    elements: tuple[Register | Immediate | Symbol, ...]


Operand: TypeAlias = "Register | Immediate | Symbol | Address | Vector | Pair | Group"


@dataclass(frozen=True)
class SourceLine:
    """A line of CUDA C++, from ``.loc``."""

    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One instruction: ``@guard opcode operands;``."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | None
    line: int
    text: str
    source: SourceLine | None = None


@dataclass(frozen=True)
class Reference:
    """An initial value that is an address: ``symbol + offset``, or one byte of it.

    Attributes
    ----------
    generic : bool
        Written ``generic(symbol)``: an address that is valid without its state space.
    mask : int
        As in ``0xFF00(symbol)``: the bits to take, moved down to bit 0; 0 takes all of them.
    """

    name: str
    offset: int = 0
    generic: bool = False
    mask: int = 0


@dataclass(frozen=True)
class Variable:
    """A parameter, or a variable in ``.shared``, ``.global``, ``.const`` or ``.local``.

    Attributes
    ----------
    count : int
        Elements of ``type``; 0 for an array whose size comes with the launch.
    alignment : int
        In bytes; 0 if nothing was written: then that of ``type``. A vector's is its whole size.
    initial : tuple of Immediate and Reference
        The first elements' values; the others are 0. Empty without an initialiser.
    extern : bool
        Declared here, defined elsewhere (or, in ``.shared``, by the launch).
    """

    name: str
    space: str
    type: str
    count: int = 1
    alignment: int = 0
    initial: tuple[Immediate | Reference, ...] = ()
    extern: bool = False


@dataclass
class Function:
    """A kernel (``.entry``) or a device function (``.func``).

    A name that several scopes of a body declare is made unique by the parser: ``%p``, ``%p@2`` …;
    the same holds for labels and for ``.param`` variables of call sequences.
    """

    name: str
    parameters: list[Variable]
    line: int
    returns: list[Variable] = field(default_factory=list[Variable])
    """The results of a device function."""
    registers: dict[str, str] = field(default_factory=dict[str, str])
    """Type of each declared register, e.g. ``{"%r1": "b32"}``; also of ``.reg`` parameters."""
    variables: list[Variable] = field(default_factory=list[Variable])
    """Declared in the body: ``.shared``, ``.local``, ``.param`` and others."""
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    """Index of the instruction behind each label."""
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Labels of each ``.branchtargets``, functions of each ``.calltargets``."""
    prototypes: dict[str, Function] = field(default_factory=dict[str, "Function"])
    """Signature of each ``.callprototype``: only ``parameters`` and ``returns`` count."""
    max_threads: int | None = None
    """From ``.maxntid`` or ``.reqntid``."""
    cluster: tuple[int, int, int] | None = None
    """From ``.reqnctapercluster``."""
    extern: bool = False
    """Without a body."""


@dataclass
class Module:
    """One PTX text."""

    version: str = ""
    target: str = ""
    entries: dict[str, Function] = field(default_factory=dict[str, Function])
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    """Device functions, also those only declared; ``.alias`` adds a second name."""
    variables: list[Variable] = field(default_factory=list[Variable])
