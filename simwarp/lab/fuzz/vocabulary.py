"""The opcodes that programs use, by purpose; each is a form of a row.

Seed and vocabulary determine a program. A recording stores its vocabulary, so that new rows do not change
the programs of old recordings.

>>> all_rows()["leave"]
{'ret': ('ret', 'ret.uni'), 'exit': ('exit',)}
>>> row, form = find("shfl.sync.bfly.b32")
>>> row.base, form.modifiers
('shfl', ('bfly',))
>>> guard_of(ROWS["div"], "b", "u32"), guard_of(ROWS["div"], "a", "u32")
(('or', 1), None)
>>> purpose_of(ROWS["popc"]), purpose_of(ROWS["bra"])
('compute', '')
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from simwarp.chips.chips import RECORDED
from simwarp.ptx import kinds
from simwarp.ptx.forms import forms
from simwarp.ptx.instructions import ROWS, TABLE
from simwarp.ptx.kinds import Kind
from simwarp.ptx.rows import DTYPES, Fidelity, Form, Row

SM = RECORDED.sm
"""The compute capability, times ten, that programs target."""

_PACKED = dict.fromkeys(("f16x2", "bf16x2"), 1 << 31 | 1 << 15)
SIGNS = {"f16": 1 << 15, "bf16": 1 << 15, "f32": 1 << 31, "f64": 1 << 63, **_PACKED}
"""By float type, its sign bits."""
FINITE = {name: (1 << sign.bit_length()) - 1 - (sign >> 1) for name, sign in SIGNS.items()}
"""By float type, all bits except the highest exponent bit: a mask that makes any word finite."""

Guard: TypeAlias = "tuple[str, int | dict[str, int]]"
"""The operation ``and``, ``or`` or ``mov``, and its second operand, perhaps by type."""
GUARDS: dict[Fidelity, dict[str, dict[str, Guard]]] = {
    "open": {
        "div": {"b": ("or", 1)},
        "rem": {"b": ("or", 1)},
        "bfe": {"b": ("and", 255), "c": ("and", 255)},
        "bfi": {"c": ("and", 255), "e": ("and", 255)},
        "fns": {"b": ("and", 31)},
    },
    # The result is exact if an operand is a zero of either sign.
    "bounded": {
        **{base: {"a": ("and", SIGNS)} for base in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2")},
        "tanh": {"a": ("and", SIGNS)},
        "div": {"a": ("and", SIGNS), "b": ("mov", 0x3F800000)},
    },
    # Compilers may flip a NaN's sign, depending on instruction selection.
    "exact": {base: {"a": ("and", FINITE)} for base in ("abs", "neg")},
}
"""By fidelity, base opcode and operand: the instruction before it that makes the result well defined."""
WITNESSES = ("activemask", "elect")
"""Opcodes with partly defined results; a `Warp` statement keeps the defined part only."""

_ROUNDINGS = {"rn", "rz", "rm", "rp"}

Purpose: TypeAlias = str
"""The purpose of a row in programs: "compute", "chain" (makes a carry), "link" (takes and makes one),
"end" (takes one), "locate"; "warp"; "load", "load once", "store", "atomic", "copy", "hint"; "barrier",
"poll", "arrive", "cluster", "warp barrier", "fence"; "leave", "call", "switch", "trap"."""
Vocabulary: TypeAlias = Mapping[Purpose, Mapping[str, tuple[str, ...]]]
"""The opcodes to draw from, by purpose and by name of the row."""


@cache
def all_rows() -> Vocabulary:
    """The vocabulary of all rows that programs can use."""
    opcodes: dict[Purpose, dict[str, tuple[str, ...]]] = {}
    for row in ROWS.values():
        purpose = purpose_of(row) if row.minimum_sm <= SM else ""
        certain = tuple(filter(_is_certain, forms(row))) if purpose else ()
        if certain:
            opcodes.setdefault(purpose, {})[row.name] = certain
    return opcodes


def find(opcode: str) -> tuple[Row, Form]:
    """The row and form of a program's opcode; KeyError if no row has it."""
    found = TABLE.find(opcode)
    if found is None:
        raise KeyError(opcode)
    return found


def size_of(form: Form) -> int:
    """The number of bytes that an instruction accesses in memory."""
    return DTYPES[form.T].itemsize * form.vector


def guard_of(row: Row, operand: str, kind: str) -> tuple[str, int] | None:
    """The guard of an operand of a PTX type; None if the operand can have any value."""
    operation, number = GUARDS.get(row.fidelity, {}).get(row.base, {}).get(operand, ("", 0))
    if isinstance(number, dict):
        return (operation, number[kind]) if kind in number else None
    return (operation, number) if operation else None


def purpose_of(row: Row) -> Purpose:
    """The purpose of a row; "" if programs do not use it."""
    if row.kind is kinds.PURE:
        return _purpose_of_pure(row)
    if row.kind is kinds.BARRIER:
        return "poll" if row.destinations else "arrive" if ".arrive" in row.spelling else "barrier"
    if row.sources and row.sources[0].name == "map":  # programs have no tensor maps
        return ""
    # bulk prefetches with a cache policy have a third source
    if row.kind is kinds.FENCE and len(row.sources) > 2:
        return ""
    if row.kind is kinds.FENCE:
        return "hint" if row.sources and row.sources[0].memory else "fence"
    return "load once" if row.base == "ldu" else _PURPOSES.get(row.kind, "")


_PURPOSES: dict[Kind, Purpose] = {
    kinds.WARP: "warp",
    kinds.LOAD: "load",
    kinds.STORE: "store",
    kinds.ATOMIC: "atomic",
    kinds.REDUCTION: "atomic",
    kinds.ASYNC_COPY: "copy",
    kinds.WARP_BARRIER: "warp barrier",
    kinds.CLUSTER_BARRIER: "cluster",
    kinds.CALL: "call",
    kinds.RETURN: "leave",
    kinds.EXIT: "leave",
    kinds.TRAP: "trap",
    kinds.INDEXED_BRANCH: "switch",
}
"""By kind of row, its purpose."""


def _purpose_of_pure(row: Row) -> Purpose:
    if row.base in ("isspacep", "mapa", "getctarank"):
        return "locate"
    specs = (*row.destinations, *row.sources)
    known = {*DTYPES, "T", "U", "B", "W", "number", "carry"}
    if row.base == "cvta" or any(spec.memory or spec.kind not in known for spec in specs):
        return ""
    gives, takes = ("carry" in [spec.kind for spec in part] for part in (row.destinations, row.sources))
    if gives or takes:
        certain = row.fidelity == "exact" or row.base in ("sub", "subc")
        return "" if not certain else "link" if gives and takes else "chain" if gives else "end"
    return "compute" if row.fidelity == "exact" or row.base in GUARDS.get(row.fidelity, {}) else ""


def _is_certain(opcode: str) -> bool:
    """True if compilers keep an opcode's meaning: they contract some opcodes, and take others for uniform."""
    _, form = find(opcode)
    base = opcode.split(".")[0]
    refused = (
        form.vector > 4,  # a register class has fewer than eight registers
        base == "cp" and form.has("L2::cache_hint"),  # programs have no cache policies
        base == "set" and form.T == "bf16",  # ptxas drops the conversion in kernels with a call
        base in ("brx", "call") and form.has("uni"),
        # the conversion would need 8-bit registers
        base == "cvt" and "bf16" in (form.T, form.U) and {"u8", "s8"} & {form.T, form.U},
        base in ("ld", "st") and "param::func" in form.modifiers,
        base == "st" and form.has("param"),
        base in ("add", "sub", "mul") and "f" in form.T and not _ROUNDINGS & set(form.modifiers),
    )
    return not any(refused)
