"""Instruction rows: the facts about an instruction, written directly above its function.

A row is written once, in `simwarp.ptx.instructions`, in the file of its PTX ISA section::

    @row("mul.wide.T", "d:W = a:T, b:T", T="u16 s16 u32 s32", section="9.7.1.3", summary="…")
    def mul_wide(form, a, b):
        return a.astype(form.wide) * b.astype(form.wide)

The first string spells the opcode: one of ``{.x|.y}`` is optional, one of ``<.x|.y>`` is required, ``.T`` and
``.U`` stand for a type of the list of that name. The second string gives the operands in PTX order:
destinations, ``=``, sources; each with its type:

=========  ======================================================================
``T U``    the opcode's types (signed and float operands arrive as such)
``B``      as wide as T, unsigned: for operations that do not depend on the sign
``W``      twice as wide as T
``u32`` …  itself; ``pred`` is bool
``number`` a literal of 32 bits
``count``  how many bytes a copy reads, u32; or a predicate: whether it reads none
``carry``  the condition code's carry flag, bool: an implicit operand
``rank``   the block's rank in its cluster: an implicit operand
``fragment``  a warp's part of a matrix: a vector of registers, by `simwarp.fragments`
``matrix`` a fragment, or the descriptor of a matrix in shared memory, b64
``[a]``    an address; the first is where a copy writes, the second where it reads
``[bar]``  the address of the mbarrier that counts a copy
``tensor``  in brackets: the generic address of a tensor map, and coordinates, one for each dimension
``offsets``  im2col offsets: a vector of u16, one for each spatial dimension
``texture``  in brackets: the handle of a texture, and coordinates; so ``surface``, and ``handle`` without any
``gradient``  a vector of f32, one for each dimension
=========  ======================================================================

An operand with a ``?`` exists only with the modifiers ``.and .or .xor``; one with a ``*`` is optional.

A ``bounded`` row gives the largest error of its result: ``bound="2 ulp"``, or in other words of the PTX ISA.

Parser, executor, documentation and tests derive from the rows; nothing else knows a mnemonic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from simwarp.ptx.kinds import PURE, Kind

Fidelity: TypeAlias = Literal["exact", "bounded", "open", "unsupported"]
Function: TypeAlias = Callable[..., Any]

TRAITS = {
    "fence": "orders the memory accesses of several threads",
    "grid": "waits for the grids before, or allows those that depend on this one to start",
    "pair": "its second result must be taken",
    "remote": "computes an address in another block of the cluster",
    "generic": "converts an address between a state space and generic",
    "move": "its result is its operand",
    "convert": "its result is its operand in another type",
    "displace": "an integer addition, which may add an offset to an address",
    "mask": "one operand may be a mask, which keeps or sets bits of the other",
    "insert": "combines bits of its first two operands, at positions that the others give",
    "product": "a multiplication that ptxas may contract with an addition",
    "sum": "an addition or subtraction that ptxas may contract with a multiplication",
    "remainder": "a remainder instead of a quotient",
    "initialisation": "publishes initialisations of mbarriers",
    "compare": "a comparison, whose results are predicates",
    "constant": "loads memory that nothing may write during the launch",
}
"""Properties of rows that program analyses use instead of mnemonics."""

DTYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64) for kind in "bu"},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    **{kind: np.dtype("u2") for kind in ("bf16", "e4m3x2", "e5m2x2")},
    **{kind: np.dtype("u4") for kind in ("tf32", "f16x2", "bf16x2", "u16x2", "s16x2")},
}
"""PTX type → the NumPy type it is computed in; a word for packed pairs and types that NumPy lacks."""

_STRONG = {"volatile", "relaxed", "acquire", "release", "mmio"}


def storage(type_name: str) -> np.dtype[Any]:
    """The unsigned dtype (bool for a predicate) that a register of a PTX type is stored in."""
    dtype = DTYPES[type_name]
    return dtype if dtype == np.bool_ else np.dtype(f"u{dtype.itemsize}")


@dataclass(frozen=True)
class Form:
    """One full spelling of a row, e.g. ``shfl.sync.bfly.b32``.

    Attributes
    ----------
    opcode : str
    modifiers : tuple of str
        The modifiers chosen among the row's alternatives, without dots.
    T, U : str
        The types, "" where the row has none.
    """

    opcode: str
    modifiers: tuple[str, ...] = ()
    T: str = ""
    U: str = ""

    def has(self, modifier: str) -> bool:
        """Whether the opcode has a modifier, such as "ftz"."""
        return modifier in self.modifiers

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the opcode's type, T."""
        return DTYPES[self.T]

    @property
    def wide(self) -> np.dtype[Any]:
        """The NumPy type of T's kind with twice the width."""
        return np.dtype(f"{self.dtype.kind}{self.dtype.itemsize * 2}")

    @cached_property
    def vector(self) -> int:
        """The number of elements of a vector access; 1 without ``.v2``, ``.v4`` or ``.v8``."""
        return next((n for n in (2, 4, 8) if self.has(f"v{n}")), 1)

    @property
    def is_strong(self) -> bool:
        """Whether a load or store is a strong operation (PTX ISA 9.0, 8.4)."""
        return bool(_STRONG.intersection(self.modifiers))

    @property
    def combines(self) -> bool:
        """Whether ``.and``, ``.or`` or ``.xor`` combines the result with a predicate operand."""
        return bool({"and", "or", "xor"} & set(self.modifiers))

    def resolve(self, kind: str) -> str:
        """The PTX type that an operand's type letter stands for in this form."""
        if kind in ("T", "U"):
            return self.T if kind == "T" else self.U
        if kind == "B":
            return "pred" if self.T == "pred" else f"b{self.dtype.itemsize * 8}"
        if kind == "W":
            return f"{self.T[0]}{self.dtype.itemsize * 16}"
        if kind == "fragment":
            return "b64" if "f64" in self.opcode.split(".") else "b32"
        return {"number": "u32", "rank": "u32", "carry": "pred", "matrix": "b64"}.get(kind, kind)


@dataclass(frozen=True)
class OperandSpec:
    """One operand of a row: its name, its type letter and how it may be written."""

    name: str
    kind: str
    memory: bool = False
    optional: bool = False
    absent: bool = False

    @property
    def is_fragment(self) -> bool:
        """Whether the operand is a fragment of a matrix, a vector of registers."""
        return self.kind == "fragment"


@dataclass(frozen=True)
class Row:
    """One row of the PTX table: an instruction's spellings, properties, and the function of its result.

    Attributes
    ----------
    spelling, syntax : str
        The two strings described at the top of this module.
    section : str
        Section of the PTX ISA.
    types : tuple of str
        The choices of T.
    kind : Kind
        What all steps of its kind do, see `simwarp.ptx.kinds`.
    fidelity : str
        "exact": to the last bit; "bounded": within ``bound``; "open": the PTX ISA leaves the result
        unspecified in documented cases.
    minimum_sm : int
        The lowest compute capability, times ten, that supports it.
    architecture : str
        The one target that has it, such as "sm_90a"; "" for a row that later ones have, too.
    name : str
        The spelling without choices and types, ``mul.wide``, unless the row gives another.
    bound : str
        For a bounded row: the largest error that the PTX ISA allows.
    wider : bool
        Whether its registers may be wider than their type (PTX ISA 9.4.1).
    special : bool
        Whether it can read special registers (PTX ISA chapter 10).
    aligned : bool
        For a barrier without ``.aligned`` in its spelling: whether it still requires whole warps.
    moves : bool
        Whether it moves values of its first operand between lanes unchanged.
    traits : frozenset of str
        Names in `TRAITS`.
    operations : int
        Number of arithmetic operations per lane.
    bitwise : int
        If n > 0, each bit of the result depends on at most one bit of each of the first n operands; the
        other operands select which.
    amounts : str
        The names of operands that are shift amounts, positions or lengths in bits.
    ignores : callable, optional
        Takes the function's arguments; returns per operand the lanes whose result does not depend on it, so
        that it may be uninitialised there.
    unspecified : callable, optional
        Takes the function's arguments; returns the lanes where the PTX ISA leaves the result unspecified; it
        then counts as uninitialised.
    together : callable, optional
        For an atomic operation: takes the form, the values in memory, the `Runs` of lanes that share an
        address and their operands; returns the old value of each lane, and the lanes where it is exact.
    clash : callable, optional
        Takes the words of an opcode, or its first words; returns whether they exclude each other.
    lacks : callable, optional
        Takes the words of an opcode and its types T and U; returns whether PTX lacks that form.
    """

    spelling: str
    syntax: str
    section: str
    summary: str
    function: Callable[..., Any]
    types: tuple[str, ...] = ()
    types_u: tuple[str, ...] = ()
    destinations: tuple[OperandSpec, ...] = ()
    sources: tuple[OperandSpec, ...] = ()
    name: str = ""
    traits: frozenset[str] = frozenset()
    kind: Kind = PURE
    fidelity: Fidelity = "exact"
    minimum_sm: int = 50
    architecture: str = ""
    bound: str = ""
    wider: bool = False
    special: bool = False
    aligned: bool = False
    moves: bool = False
    operations: int = 1
    bitwise: int = 0
    amounts: str = ""
    ignores: Callable[..., Any] | None = None
    unspecified: Callable[..., Any] | None = None
    together: Callable[..., Any] | None = None
    clash: Callable[[Sequence[str]], bool] | None = None
    lacks: Callable[[Sequence[str], str, str], bool] | None = None

    @property
    def base(self) -> str:
        """The opcode without modifiers and types, such as "shfl"."""
        return self.spelling.split(".")[0].split("{")[0].split("<")[0]

    def match(self, opcode: str) -> Form | None:
        """The form that an opcode spells; None if the opcode is not of this row."""
        match = self._pattern.fullmatch(opcode)
        if match is None:
            return None
        groups = match.groupdict()
        chosen = [value[1:] for key, value in groups.items() if value and key.startswith("m")]
        return Form(opcode, tuple(chosen), groups.get("T") or "", groups.get("U") or "")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        pattern = ""
        for i, (optional, required, word) in enumerate(PARTS.findall(self.spelling)):
            if optional or required:
                choices = "|".join(re.escape(c) for c in (optional or required).split("|"))
                pattern += f"(?P<m{i}>{choices})" + ("?" if optional else "")
            elif word in (".T", ".U"):
                types = self.types if word == ".T" else self.types_u
                pattern += rf"\.(?P<{word[1]}>{'|'.join(types)})"
            else:
                pattern += re.escape(word)
        return re.compile(pattern)


PARTS = re.compile(r"\{([^}]*)\}|<([^>]*)>|(\.?[A-Za-z0-9_:]+)")
"""The parts of a spelling: an optional choice, a required choice, or a word."""


_ORDERS = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "cluster", "gpu", "sys")


def in_order(opcode: str) -> str:
    """An opcode with memory order and scope before the state space, the order in the PTX ISA.

    ptxas takes them in any order, and CUTLASS writes some behind the state space.

    >>> in_order("ld.global.acquire.gpu.b32")
    'ld.acquire.gpu.global.b32'
    """
    base, *words = opcode.split(".")
    words.sort(key=lambda word: 0 if word in _ORDERS else 1 if word in _SCOPES else 2)
    return ".".join([base, *words])


class Table:
    """All rows, by name and by base opcode, in the order in which they were declared."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._by_base: dict[str, list[Row]] = {}
        self._found: dict[str, tuple[Row, Form]] = {}

    def row(
        self,
        spelling: str,
        syntax: str,
        *,
        T: str = "",  # noqa: N803 - the name in the PTX ISA
        U: str = "",  # noqa: N803
        name: str = "",
        traits: str = "",
        **facts: Any,
    ) -> Callable[[Function], Function]:
        """A decorator that declares a row, computed by the function; ``facts`` are fields of `Row`."""

        def declare(function: Function) -> Function:
            written, _, read = syntax.rpartition("=")
            row = Row(
                spelling,
                syntax,
                function=function,
                types=tuple(T.split()),
                types_u=tuple(U.split()),
                destinations=_specs(written),
                sources=_specs(read),
                name=name or re.sub(r"\{[^}]*\}|<[^>]*>|\.[TU]\b", "", spelling),
                traits=frozenset(traits.split()),
                **facts,
            )
            if row.name in self.rows:
                raise ValueError(f"two rows are named {row.name}: give one of them another name=")
            if not row.traits <= TRAITS.keys():
                raise ValueError(f"row {row.name}: expected traits among {', '.join(TRAITS)}, got {traits!r}")
            self.rows[row.name] = row
            self._by_base.setdefault(row.base, []).append(row)
            return function

        return declare

    def find(self, opcode: str) -> tuple[Row, Form] | None:
        """The row and form that an opcode spells; None if there is no such row."""
        if opcode not in self._found:
            for row in self._by_base.get(opcode.split(".")[0], []):
                form = row.match(opcode)
                if form is None and row.kind.access:
                    form = row.match(in_order(opcode))
                if form is not None:
                    self._found[opcode] = (row, form)
                    break
        return self._found.get(opcode)

    def relatives(self, opcode: str) -> list[str]:
        """The spellings of rows with the same base opcode, for an error."""
        return [row.spelling for row in self._by_base.get(opcode.split(".")[0], [])]


def _specs(text: str) -> tuple[OperandSpec, ...]:
    """Parse operands such as ``"d:T|p:pred"``, ``"a:T, b:u32"``, ``"[a]"`` or ``"b:u32?"``."""
    specs: list[OperandSpec] = []
    for part in re.split(r"[,|]", text):
        part = part.strip()
        if not part:
            continue
        optional, absent = part.endswith("?"), part.endswith("*")
        part = part.rstrip("?*")
        memory = part.startswith("[")
        name, _, kind = part.strip("[]").partition(":")
        specs.append(OperandSpec(name, kind, memory, optional, absent))
    return tuple(specs)
