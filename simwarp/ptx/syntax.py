"""What PTX text consists of, as plain data: the output of `simwarp.ptx.parse`."""

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
    """A label, a variable or a parameter."""

    name: str


@dataclass(frozen=True)
class Address:
    """``[base + offset]``."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """``{a, b, …}``."""

    elements: tuple[Register | Immediate, ...]


@dataclass(frozen=True)
class Pair:
    """``d|p``: a destination and its predicate; ``_`` is None."""

    first: Register | None
    second: Register | None


Operand: TypeAlias = Register | Immediate | Symbol | Address | Vector | Pair


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
class Variable:
    """A parameter, or a ``.shared`` or ``.global`` variable."""

    name: str
    space: str
    type: str
    count: int = 1
    alignment: int = 0


@dataclass
class Entry:
    """A kernel: its parameters, registers, variables and instructions."""

    name: str
    parameters: list[Variable]
    line: int
    registers: dict[str, str] = field(default_factory=dict[str, str])
    """Type of each declared register, e.g. ``{"%r1": "b32"}``."""
    variables: list[Variable] = field(default_factory=list[Variable])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    """Index of the instruction behind each label."""
    max_threads: int | None = None


@dataclass
class Module:
    """One PTX text."""

    version: str = ""
    target: str = ""
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    variables: list[Variable] = field(default_factory=list[Variable])
