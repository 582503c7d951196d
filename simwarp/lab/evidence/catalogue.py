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
from simwarp.ptx import kinds
from simwarp.ptx.instructions import ROWS
from simwarp.ptx.kinds import Kind
from simwarp.ptx.rows import Row

AUTOMATIC: dict[Kind, Make] = {
    kinds.PURE: registers.pure,
    kinds.WARP: registers.warp,
    kinds.LOAD: memory.load,
    kinds.STORE: memory.store,
    kinds.MATRIX: matrix.product,
    kinds.MATRIX_LOAD: matrix.load,
    kinds.MATRIX_STORE: matrix.store,
}
"""By kind of row, the function that writes its probes from the row's syntax alone."""


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
            f"the row {row.name!r} (kind {row.kind.name!r}) has no probe\n"
            "write one in simwarp/lab/evidence/control.py"
        )
    return make(row, form)


def maker(row: Row) -> Make | None:
    """The function that writes a row's probes, by the row's name or kind; None if there is none."""
    made = control.BY_NAME.get(row.name) or AUTOMATIC.get(row.kind) or control.BY_KIND.get(row.kind)
    return made or (memory.atomic if row.kind.access else None)


@cache
def operands_of(probe: Probe) -> Words:
    """The operand tuples of a probe: uint64 (tuples, operands)."""
    row, form = find(probe.form)
    if row.kind is kinds.WARP and maker(row) is registers.warp:
        return warps.operands(probe, form)
    if row.kind is kinds.WARPGROUP_PRODUCT:
        return warpgroups.operands(probe, form)
    if row.kind.fragments:
        return matrix.operands(probe, form)
    if probe.baked:
        return memory.constant_operands(probe)
    drawn = operands.tuples(probe.operands, probe.form, probe.count)
    return memory.matching_swaps(form, drawn) if row.kind.is_atomic else drawn
