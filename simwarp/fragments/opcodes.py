"""Find the fragments of an instruction's operands by its opcode."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from types import MappingProxyType

from simwarp.fragments.forms import SECTIONS, SHAPE, TYPE_BITS, by_words, words_of
from simwarp.fragments.layout import Layout
from simwarp.fragments.maps import MAPS, Map
from simwarp.fragments.operand import Fragments, Operand, Provenance, Shape
from simwarp.fragments.suggestions import no_such_instruction

RECORD = Path(__file__).with_name("observed.json")
"""The file of ``simwarp record probe``: ``{"meta": {chip: {gpu, …}}, "forms": {opcode: {chip: true}}}``."""


def all_opcodes() -> tuple[str, ...]:
    """One spelling of each matrix instruction, without state space or rounding.

    Examples
    --------
    >>> len(all_opcodes()), [o for o in all_opcodes() if o.startswith("ldmatrix")][:2]
    (889, ['ldmatrix.sync.aligned.m8n8.x1.b16', 'ldmatrix.sync.aligned.m8n8.x1.trans.b16'])
    """
    return tuple(opcode for opcode, _ in by_words().values())


@cache
def fragments_of(opcode: str) -> Fragments:
    """The fragments of an instruction's operands.

    Parameters
    ----------
    opcode : str
        The full spelling. Modifiers may be in any order, as in ptxas, except that layouts are in the order of
        A and B, and types in that of D, A, B and C.

    Raises
    ------
    FragmentError
        For an unknown instruction; the message has the known shapes, types and layouts, and the section.

    Examples
    --------
    >>> found = fragments_of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> for operand in found.operands.values():
    ...     print(operand.name, operand.type, operand.layout)
    d f32 lane 4:c2 8:r1  register 2:c1 2:r8
    a f16 slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8
    b f16 slot 2:r1  lane 4:r2 8:c1  register 2:r8
    c f32 lane 4:c2 8:r1  register 2:c1 2:r8
    >>> found.operands["a"].layout.holder(row=9, column=3), found.operands["a"].provenance.source
    (Holder(lane=5, register=1, bit=16), 'PTX ISA 9.7.14.5.8')
    """
    found = by_words().get(words_of(opcode))
    if found is None:
        raise no_such_instruction(opcode, all_opcodes())
    canonical, group = found
    if canonical != opcode:
        return fragments_of(canonical)
    words = opcode.split(".")
    base, shape = words[0], _shape(opcode)
    types = _operand_types(opcode)
    lines = {name: _line(base, name, kind, shape, _variant(opcode, name)) for name, kind in types.items()}
    section = "9.7.14.4.1" if base == "wmma" else lines["a"].section if shape.k else SECTIONS[base]
    source = "observed" if base == "wmma" else f"PTX ISA {section}"
    provenance = Provenance(source, confirmations().get(opcode, ()))
    memory = next((w for w in words if w in ("row", "col")), "") if words[1] in ("load", "store") else ""
    operands = {
        name: Operand(name, kind, _layout(lines[name].digits, kind, shape.n), section, provenance, memory)
        for name, kind in types.items()
    }
    return Fragments(opcode, shape, MappingProxyType(operands), group.target)


@cache
def confirmations(record: Path = RECORD) -> dict[str, tuple[str, ...]]:
    """Opcode → the chips, such as "sm_90", on which a probe confirmed the maps of all operands."""
    if not record.exists():
        return {}
    forms: dict[str, dict[str, bool]] = json.loads(record.read_text(encoding="utf-8"))["forms"]
    return {opcode: tuple(chips) for opcode, chips in forms.items()}


def _shape(opcode: str) -> Shape:
    word = next(word for word in opcode.split(".") if re.fullmatch(SHAPE, word))
    m, n, k = (int(number) for number in re.findall(r"\d+", word + "k0")[:3])
    return Shape(m, n, k)


def _operand_types(opcode: str) -> dict[str, str]:
    """From operand, in the order of the instruction, to its element type."""
    words = opcode.split(".")
    types = [w for w in words if w in TYPE_BITS]
    if words[0] in ("ldmatrix", "stmatrix"):
        return {"r": types[0]}
    if words[0] == "movmatrix":
        return {"d": types[0], "a": types[0]}
    if words[1] in ("load", "store"):
        return {words[2]: types[0]}
    if words[0] == "wgmma":
        return dict(zip("da", types, strict=False))
    if len(types) == 2:  # wmma.mma of f16 names only D and C
        types = [types[0], "f16", "f16", types[1]]
    return dict(zip("dabc", types, strict=True))


def _variant(opcode: str, operand: str) -> str:
    """The modifiers that distinguish maps of equal extents and type."""
    words = opcode.split(".")
    if words[0] in ("ldmatrix", "stmatrix"):
        return " ".join(w for w in words if w in ("x1", "x2", "x4", "trans"))
    if ".m8n8k4." in opcode and words[0] == "mma" and "f64" not in words and operand in "ab":
        return [w for w in words if w in ("row", "col")]["ab".index(operand)]
    return ""


@cache
def _layout(digits: str, kind: str, n: int) -> Layout:
    bits = TYPE_BITS[kind]
    return Layout.of(digits.replace("n/8", str(n // 8)), bits, register_bits=max(bits, 32))


def _line(base: str, operand: str, type_name: str, shape: Shape, variant: str) -> Map:
    m, n, k = map(str, shape)
    extents = {"a": (m, k), "b": (k, n)}.get(operand, (m, n)) if shape.k else (m, n)
    names = [f"{name} {variant}".strip() for name in (operand, "c" if operand == "d" else operand)]
    return next(
        line
        for line in MAPS[base]
        if line.operand in names
        and type_name in line.types
        and (line.rows, line.columns) in (extents, (m, "n"))
    )
