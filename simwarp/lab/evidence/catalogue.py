"""Which probe each form has, and with which operands it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from reference.errors import SchemeError
from simwarp.lab.evidence import control, matrix, memory, operands, registers, warps
from simwarp.lab.evidence.forms import required
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import Probe
from simwarp.ptx.instructions import ROWS, TABLE
from simwarp.ptx.rows import Form, Row

Make = Callable[[Row, Form], Probe]

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
"""The probe of each kind of row that is derived from the row's syntax."""
MATRIX = ("matrix", "matrix load", "matrix store")
"""The kinds whose operands are fragments of matrices."""


def probes(rows: Iterable[Row] = ROWS.values()) -> list[Probe]:
    """The probes of all forms of these rows, in their order.

    Examples
    --------
    >>> [probe.form for probe in probes([ROWS["popc"]])]
    ['popc.b32', 'popc.b64']
    """
    return [probe_of(opcode) for row in rows for opcode in required(row)]


@cache
def probe_of(opcode: str) -> Probe:
    """The kernel that asks a device what a form does.

    Parameters
    ----------
    opcode : str
        A full spelling.

    Raises
    ------
    SchemeError
        If it is no form of any row, or its row has no probe.

    Examples
    --------
    >>> probe_of("popc.b64").results
    (Column(name='d', type='u32', amount=False),)
    >>> probe_of("pop.b64")
    Traceback (most recent call last):
    ...
    reference.errors.SchemeError: no row has the form 'pop.b64'
    simwarp coverage --forms lists all forms
    """
    found = TABLE.find(opcode)
    if found is None:
        raise SchemeError(f"no row has the form {opcode!r}\nsimwarp coverage --forms lists all forms")
    row, form = found
    make = maker(row)
    if make is None:
        raise SchemeError(
            f"the row {row.name!r} (kind {row.kind!r}) has no probe\n"
            "write one in simwarp/lab/evidence/control.py"
        )
    return make(row, form)


def maker(row: Row) -> Make | None:
    """What writes the probes of a row: by its name, else by its kind; None where nothing does.

    Examples
    --------
    >>> maker(ROWS["popc"]) is registers.pure, maker(ROWS["bra"]) is control.branch
    (True, True)
    """
    return control.BY_NAME.get(row.name) or AUTOMATIC.get(row.kind) or control.BY_KIND.get(row.kind)


@cache
def operands_of(probe: Probe) -> Words:
    """The sets of operands of a probe: uint64 (sets, operands).

    Examples
    --------
    >>> operands_of(probe_of("popc.b32"))[:3, 0].tolist()
    [0, 4294967295, 4294967294]
    """
    row, form = TABLE.find(probe.form) or (None, None)
    if row is None or form is None:
        raise SchemeError(f"no row has the form {probe.form!r}\nsimwarp coverage --forms lists all forms")
    if row.kind == "warp" and maker(row) is registers.warp:
        return warps.operands(probe, form)
    if row.kind in MATRIX:
        return matrix.operands(probe, form)
    if probe.baked:
        return memory.baked(probe)
    drawn = operands.sets(probe.operands, probe.form, probe.count)
    return memory.meeting_values(form, drawn) if row.kind in ("atomic", "reduction") else drawn
