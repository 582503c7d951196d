"""Finds the probe of each instruction form, and the operands of each probe."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from reference.errors import SchemeError
from simwarp.lab.evidence import control, matrix, memory, operands, registers, warpgroups, warps
from simwarp.lab.evidence.control import Make
from simwarp.lab.evidence.forms import required
from simwarp.lab.evidence.judge import find
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import Probe
from simwarp.ptx.instructions import ROWS
from simwarp.ptx.rows import Row

AUTOMATIC: dict[str, Make] = {
    "pure": registers.pure,
    "warp": registers.warp,
    "load": memory.load,
    "store": memory.store,
    "atomic": memory.atomic,
    "reduction": memory.atomic,
    "matrix": matrix.product,
    "matrix load": matrix.load,
    "matrix store": matrix.store,
}
"""By kind of row, the function that writes its probes from the row's syntax alone."""
MATRIX = ("matrix", "matrix load", "matrix store")
"""The kinds of rows with matrix fragments as operands."""


def probes(rows: Iterable[Row] = ROWS.values()) -> list[Probe]:
    """The probes of all forms of some rows, in order."""
    return [probe_of(opcode) for row in rows for opcode in required(row)]


@cache
def probe_of(opcode: str) -> Probe:
    """The probe of an opcode, which must be spelled in full."""
    row, form = find(opcode)
    make = maker(row)
    if make is None:
        raise SchemeError(
            f"the row {row.name!r} (kind {row.kind!r}) has no probe\n"
            "write one in simwarp/lab/evidence/control.py"
        )
    return make(row, form)


def maker(row: Row) -> Make | None:
    """The function that writes a row's probes, found by its name, else its kind; None without one."""
    return control.BY_NAME.get(row.name) or AUTOMATIC.get(row.kind) or control.BY_KIND.get(row.kind)


@cache
def operands_of(probe: Probe) -> Words:
    """The operand tuples of a probe: uint64 (tuples, operands)."""
    row, form = find(probe.form)
    if row.kind == "warp" and maker(row) is registers.warp:
        return warps.operands(probe, form)
    if row.kind == "warpgroup product":
        return warpgroups.operands(probe, form)
    if row.kind in MATRIX:
        return matrix.operands(probe, form)
    if probe.baked:
        return memory.constant_operands(probe)
    drawn = operands.tuples(probe.operands, probe.form, probe.count)
    return memory.matching_swaps(form, drawn) if row.kind in ("atomic", "reduction") else drawn
