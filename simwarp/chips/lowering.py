"""Lowering: the number of machine instructions that ``ptxas`` emits for a matrix instruction, by chip.

A tensor core multiplies some types natively; for others ``ptxas`` emits a sequence. On sm_90 a b1
``.xor`` product is two ``.and`` products, s4 is unpacked to s8, e4m3 to f16, and the m8n8k4 product of f16
uses no tensor core at all. Results of bits and integers are the same, at another cost; floats are rounded
wherever these steps round.

Every number here was measured: one kernel for each form, with and without the instruction between its loads
and stores, was assembled by ptxas 13.0.88 for sm_75, sm_80, sm_86, sm_87, sm_88, sm_89, sm_90 and sm_90a, and
the difference of the two counted in the output of cuobjdump. Moves, calls, returns and address computations
are not counted. An addition or a shift counts as ``IADD3`` or ``SHF`` also where ptxas writes it as a
multiplication, which it does to balance the units.

The numbers are in the table of chips (`simwarp.chips.chips`), as lines ``family | instructions`` or ``family:
variant | instructions``, each count once or ``per`` register of a kind. A chip has the lines of its own entry
and those lines of earlier entries that it does not replace. A paragraph may start with a note on its
products, with "!" where the tensor core does not multiply them in their own type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from reference.errors import SchemeError
from simwarp.chips.chips import CAPABILITIES, Capability, chip_name, chip_of
from simwarp.fragments import Fragments, fragments_of


@dataclass(frozen=True)
class Lowering:
    """The machine instructions into which a chip's compiler translates one matrix instruction.

    ``instructions`` counts tensor core instructions with all their modifiers, others by their base name.
    """

    family: str  # the kind of product: "b1 xor", "s4 and u4" …
    instructions: Mapping[str, int]
    native: bool = True  # whether the tensor core multiplies the operands in their own type
    note: str = ""  # the cost and a cheaper instruction; "" where it is native


class _Fact(NamedTuple):
    """A line of ``Chip.lowering``; ``parts`` are tuples (count, instruction, kind of register or "")."""

    family: str
    variant: str
    parts: list[tuple[str, str, str]]
    native: bool
    note: str


def _read(table: str) -> Iterator[_Fact]:
    """Yield the facts in the lines of a chip's lowering table."""
    """Yield the lines of a chip's table."""
    for paragraph in filter(None, table.strip().split("\n\n")):
        lines = paragraph.replace("\n    ", " ").strip().splitlines()
        note = lines.pop(0) if "|" not in lines[0] else ""
        for line in lines:
            head, made = line.split("|")
            family, _, variant = head.strip().partition(": ")
            parts = re.findall(r"(\d+) ([^ ,]+)(?: per ([^,]+))?", made)
            yield _Fact(family, variant, parts, not note.startswith("!"), note.lstrip("! "))


@cache
def _facts(cc: Capability) -> tuple[_Fact, ...]:
    """The lowering lines for a chip, its own before those of earlier chips; () if ptxas was not examined."""
    if chip_of(cc).lowering is None:
        return ()
    until = [chip for chip in CAPABILITIES.values() if chip.cc <= cc]
    return tuple(fact for chip in reversed(until) for fact in _read(chip.lowering or ""))


def lowering(opcode: str, cc: Capability) -> Lowering:
    """The lowering, by ``ptxas`` 13.0 for a chip, of an ``mma``, ``wmma.mma`` or ``movmatrix`` opcode."""
    words, fragments = opcode.split("."), fragments_of(opcode)
    if words[0] not in ("mma", "movmatrix") and words[:2] != ["wmma", "mma"]:
        raise SchemeError(
            f"{opcode} has no lowering in the table\nwgmma and moves of fragments are one instruction each\n"
            "give an opcode of mma, wmma.mma or movmatrix"
        )
    types = {name: operand.type for name, operand in fragments.operands.items()}
    family = _family(words, fragments, types)
    accumulators = f"{types.get('d')} {types.get('c')}"
    variants = ("", f"{accumulators} row.col" if ".row.col." in opcode else accumulators)
    for fact in _facts(cc) if divmod(fragments.minimum_sm, 10) <= cc else ():
        if fact.family == family and fact.variant in variants:
            return Lowering(family, _count(fact, words, fragments), fact.native, fact.note)
    raise SchemeError(
        f"unknown lowering of {opcode} on {chip_name(cc)}\n"
        f"ptxas was examined for {_examined()}; this instruction needs {fragments.target}\n"
        "give the compute capability of such a chip, as (9, 0)"
    )


def _family(words: list[str], fragments: Fragments, types: Mapping[str, str]) -> str:
    """The name of an opcode's product in the table."""
    a = types["a"]
    if words[0] == "movmatrix":
        return "transposition"
    if a == "b1":
        return "b1 xor" if "xor" in words else "b1 and"
    if fragments.shape == (8, 8, 4) and a == "f16":
        return "m8n8k4 f16"
    kind = next((pair for pair in ("s4 and u4", "s8 and u8", "e4m3 and e5m2") if a in pair.split()), a)
    if words[0] == "mma" or a in ("s4", "u4", "f64"):
        return kind
    odd = {("f16", "f32"): ", c f32", ("f32", "f16"): ", d f32"}
    return f"wmma {kind}{odd.get((types['d'], types['c']), '')}"


def _examined() -> str:
    """The names of the chips with a table, for a message."""
    """The names of the chips with a table, for a message."""
    return ", ".join(chip.name for chip in CAPABILITIES.values() if chip.lowering is not None)


def _count(fact: _Fact, words: list[str], fragments: Fragments) -> dict[str, int]:
    """The counts of a line for an opcode: fill in names in braces, multiply by the registers of each kind."""
    (m, n, k), saturates = fragments.shape, "satfinite" in words
    names = {"m": m, "n": n, "k": k, "shape": f"{m}{n}{k}", "half": f"{m}{n}{k // 2}"}
    rounding = "".join(f".{word.upper()}" for word in words if word in ("rz", "rm", "rp"))
    names |= {"rounding": rounding, "sat": ".SAT" * saturates}
    registers = Counter({"": 1})
    for name, operand in fragments.operands.items():
        kind, count = operand.type, operand.layout.registers
        names |= {name: kind.upper(), f"{name}8": kind.upper().replace("4", "8")}
        if name in "ab":
            registers.update({"operand": count, kind: count})
        elif name == "d":
            limits = "saturating" if saturates else "wrapping"
            each = "accumulator", f"{limits} accumulator", f"{kind} accumulator"
            registers.update(dict.fromkeys(each, count) | {"pair of accumulators": count // 2})
    found: Counter[str] = Counter()
    for count, name, each in fact.parts:
        found[name.format(**names)] += int(count) * registers[each]
    return {name: count for name, count in found.items() if count}
