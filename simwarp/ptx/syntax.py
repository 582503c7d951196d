"""Parsed PTX: the plain data that `simwarp.ptx.parse` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Register:
    """A register, special register or predicate: ``%r1``, ``%tid.x``, ``!%p1``."""

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
    """The name of a label, variable, function or parameter, and an offset to its address."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """An address operand, ``[base + offset]``, or ``[base, more, …]`` of texture and tensor instructions."""

    base: Register | Symbol | Immediate
    offset: int = 0
    more: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vector:
    """A vector operand, ``{a, b, …}``."""

    elements: tuple[Register | Immediate, ...]


@dataclass(frozen=True)
class Pair:
    """A destination and its predicate, ``d|p``; None for ``_``."""

    first: Register | Vector | None
    second: Register | None


@dataclass(frozen=True)
class Group:
    """The arguments or results of a call, ``(a, b, …)``."""

    elements: tuple[Register | Immediate | Symbol, ...]


Operand: TypeAlias = "Register | Immediate | Symbol | Address | Vector | Pair | Group"


@dataclass(frozen=True)
class SourceLine:
    """A line of CUDA C++ source, from ``.loc``.

    Attributes
    ----------
    column : int
        The column where the statement begins, from 1 on; 0 if it is not known.
    function : str
        The inlined function that the line is in, as it is called in the source; "" if nothing is inlined.
    caller : SourceLine or None
        The line that it was inlined into.
    """

    file: str
    line: int
    column: int = field(default=0, compare=False)
    function: str = field(default="", compare=False)
    caller: SourceLine | None = field(default=None, compare=False)


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
    """An initial value that is an address, ``symbol + offset``, or one byte of an address.

    Attributes
    ----------
    generic : bool
        Whether it is written ``generic(symbol)``: a generic address.
    mask : int
        The bits to take, as in ``0xFF00(symbol)``, shifted down to bit 0; 0 for all bits.
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
        Number of elements of ``type``; 0 for an array whose size the launch gives.
    alignment : int
        Alignment in bytes; 0 for that of ``type``. A vector is aligned to its whole size.
    initial : tuple of Immediate and Reference
        The values of the first elements; the others are 0. Empty without an initialiser.
    extern : bool
        Whether it is only declared here: defined elsewhere or, in ``.shared``, sized by the launch.
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

    The parser makes names unique that several scopes of a body declare: ``%p``, ``%p@2`` …; also labels and
    ``.param`` variables of call sequences.
    """

    name: str
    parameters: list[Variable]
    line: int
    returns: list[Variable] = field(default_factory=list[Variable])
    """The results of a device function."""
    registers: dict[str, str] = field(default_factory=dict[str, str])
    """Register → its declared type, e.g. ``{"%r1": "b32"}``; ``.reg`` parameters included."""
    variables: list[Variable] = field(default_factory=list[Variable])
    """The variables declared in the body: ``.shared``, ``.local``, ``.param`` and others."""
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    """Label → index of the instruction after it."""
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Name of a ``.branchtargets`` or ``.calltargets`` → its labels or functions."""
    prototypes: dict[str, Function] = field(default_factory=dict[str, "Function"])
    """Name of a ``.callprototype`` → its signature: only ``parameters`` and ``returns`` are set."""
    max_threads: int | None = None
    """Most threads per block, from ``.maxntid`` or ``.reqntid``."""
    required_block: tuple[int, int, int] | None = None
    """Threads per block, from ``.reqntid``."""
    cluster: tuple[int, int, int] | None = None
    """Blocks per cluster, from ``.reqnctapercluster``."""
    max_cluster: int | None = None
    """Most blocks per cluster, from ``.maxclusterrank``."""
    max_registers: int | None = None
    """Most registers per thread, from ``.maxnreg``."""
    min_blocks: int | None = None
    """Blocks per multiprocessor to aim at, from ``.minnctapersm``."""
    explicit_cluster: bool = False
    """Whether each launch must be in clusters, from ``.explicitcluster``."""
    extern: bool = False
    """Whether it is only declared, without a body."""


@dataclass
class Module:
    """A parsed PTX module."""

    version: str = ""
    target: str = ""
    entries: dict[str, Function] = field(default_factory=dict[str, Function])
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    """Device functions by name, declarations included; ``.alias`` adds a second name."""
    variables: list[Variable] = field(default_factory=list[Variable])
    debug: bool = False
    """Whether it was compiled with ``-G``."""
