"""Probes of instructions that work on registers: one lane at a time, or the lanes of a warp together."""

from __future__ import annotations

from simwarp.lab.evidence.probe import Probe, Writer
from simwarp.ptx.rows import Form, OperandSpec, Row

LOP3_TABLES = range(256)
"""All values of the immediate of ``lop3``."""


def pure(row: Row, form: Form) -> Probe:
    """Probe an instruction on registers; ``cvt`` also on 64-bit registers.

    PTX does not name the carry flag: an addition before the instruction sets it, one after it reads it.
    """
    # Between bytes and bf16 a register must be as wide as its type; elsewhere it may be wider.
    writer = Writer(form.opcode, least=8 if "convert" in row.traits and "bf16" in (form.T, form.U) else 16)
    sources = _sources(writer, row, form)
    kinds = {spec.kind for spec in row.sources}
    if "number" in kinds:
        return _tables(writer, row, form)
    if "carry" in kinds:
        writer.take("carry", "pred")
        writer.declare("b32 set")
        writer.line("selp.b32 %set, 1, 0, %carry; add.cc.u32 %set, %set, 0xFFFFFFFF;")
    results = [(spec.name, form.resolve(spec.kind)) for spec in row.destinations if spec.kind != "carry"]
    targets = [writer.register(*result) for result in results]
    writer.line(f"{form.opcode} {', '.join(['|'.join(targets), *sources])};")
    if len(results) < len(row.destinations):
        writer.line("addc.u32 %carry_out, 0, 0;")
        results.append(("carry_out", "u32"))
    for name, kind in results:
        writer.give(kind, name)
    if "convert" in row.traits and integer(form.T) and form.U != "bf16":
        source = "%a"
        if integer(form.U):
            source = writer.register("a_wide", "b64")
            writer.line(f"ld.global.b64 {source}, [%in];")
        writer.line(f"{form.opcode} %d_wide, {source};")
        writer.give("b64", "d_wide")
    return writer.probe()


def integer(kind: str) -> bool:
    """Whether a type is bits or integers; its values may be in wider registers."""
    return kind[0] in "bus" and kind[1:].isdigit()


def _present(row: Row, form: Form) -> list[OperandSpec]:
    """The source operands that a form of the row has."""
    return [spec for spec in row.sources if form.combines or not spec.optional]


def _sources(writer: Writer, row: Row, form: Form) -> list[str]:
    """Write loads of a form's register operands; return the names of their registers."""
    return [
        writer.take(spec.name, form.resolve(spec.kind), amount=spec.name in row.amounts)
        for spec in _present(row, form)
        if spec.kind not in ("carry", "number", "rank")
    ]


def _tables(writer: Writer, row: Row, form: Form) -> Probe:
    """Probe an instruction with every value of its immediate operand."""
    tables = LOP3_TABLES if len(row.destinations) == 1 else LOP3_TABLES[::5]
    names: list[tuple[str, str]] = []
    for table in tables:
        targets = [(f"{spec.name}{table}", form.resolve(spec.kind)) for spec in row.destinations]
        names += targets
        sources = [str(table) if spec.kind == "number" else f"%{spec.name}" for spec in _present(row, form)]
        registers = "|".join(writer.register(*target) for target in targets)
        writer.line(f"{form.opcode} {registers}, {', '.join(sources)};")
    for name, kind in names:
        writer.give(kind, name)
    return writer.probe(count=256)


def warp(row: Row, form: Form) -> Probe:
    """Probe a warp instruction in the lanes whose predicate ``active`` is true; the others have exited."""
    writer = Writer(form.opcode)
    sources = _sources(writer, row, form)
    writer.take("active", "pred")
    writer.line("@!%active bra DONE;")
    wanted = [(spec.name, form.resolve(spec.kind)) for spec in row.destinations]
    targets = "|".join(writer.register(*target) for target in wanted)
    writer.line(f"{form.opcode} {', '.join([part for part in [targets, *sources] if part])};")
    for name, kind in wanted:
        writer.give(kind, name)
    writer.line("DONE:")
    return writer.probe(count=2048)
