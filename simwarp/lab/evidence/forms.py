"""What is known of each form: what hardware it was held against, and whether nvcc is known to emit it.

The facts are two files beside this module. ``evidence.json`` is written on hardware by
``simwarp record 'ptx-*'``, chip by chip; ``census.txt`` holds the forms that nvcc 13.0 emits for
99 of 100 public CUDA kernels, without textures, surfaces and asynchronous copies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from simwarp.chips.chips import RECORDED
from simwarp.ptx.forms import forms
from simwarp.ptx.instructions import ROWS, TABLE
from simwarp.ptx.rows import Row

CAPABILITY = RECORDED.sm
"""The compute capability, times ten, of the hardware that answers."""
RECORD = Path(__file__).with_name("evidence.json")
"""``{"meta": {chip: {gpu, driver, date, command}}, "forms": {form: {chip: {golden, sets, …}}}}``"""
_CHIP = f"sm_{CAPABILITY}"


@dataclass(frozen=True)
class Evidence:
    """How a form was held against hardware.

    Attributes
    ----------
    golden : str
        The golden that holds the answers.
    sets : int
        How many sets of operands were asked.
    largest_error : float or None
        Of a bounded form, between hardware and simulator, in the unit of the row's bound.
    """

    golden: str
    sets: int
    largest_error: float | None = None


@cache
def evidence() -> dict[str, Evidence]:
    """The evidence of each recorded form: of the `CAPABILITY`, or of another chip that answered.

    Examples
    --------
    >>> all(found.sets > 0 for found in evidence().values())
    True
    """
    recorded: dict[str, dict[str, Any]] = _recorded()["forms"]
    return {
        form: Evidence(**chips.get(_CHIP, next(iter(chips.values())))) for form, chips in recorded.items()
    }


def unwitnessed() -> list[str]:
    """The forms of rows that no recording of hardware has; a release is refused while there are any.

    Examples
    --------
    >>> unwitnessed()
    []
    """
    rows = (row for row in ROWS.values() if row.fidelity != "unsupported")
    return [form for row in rows for form in required(row) or forms(row) if form not in evidence()]


def witness() -> dict[str, Any]:
    """The device that answered: ``gpu`` (name, uuid), ``driver``, ``date``; empty before any recording.

    Examples
    --------
    >>> "forms" in witness()
    False
    """
    meta: dict[str, Any] = _recorded()["meta"].get(_CHIP, {})
    return {key: value for key, value in meta.items() if key != "command"}


@cache
def census() -> tuple[str, ...]:
    """The forms that nvcc emits, those that most kernels need first.

    Examples
    --------
    >>> census()[:3]
    ('ret', 'mov.u32', 'ld.param.u64')
    """
    return tuple(Path(__file__).with_name("census.txt").read_text().split())


@cache
def required(row: Row) -> tuple[str, ...]:
    """The forms of a row that need evidence: none that the hardware lacks.

    Besides `simwarp.ptx.forms.forms`, every form of the census.

    Examples
    --------
    >>> from simwarp.ptx.instructions import ROWS
    >>> required(ROWS["popc"])
    ('popc.b32', 'popc.b64')
    """
    if row.minimum_sm > CAPABILITY or row.fidelity == "unsupported":
        return ()
    return tuple(dict.fromkeys([*forms(row), *_emitted().get(row.name, ())]))


@cache
def _emitted() -> dict[str, list[str]]:
    """The forms of the census by row."""
    by_row: dict[str, list[str]] = {}
    for opcode in census():
        found = TABLE.find(opcode)
        if found is not None:
            by_row.setdefault(found[0].name, []).append(opcode)
    return by_row


@cache
def _recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text())
