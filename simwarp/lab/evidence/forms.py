"""The hardware evidence of each instruction form, and the forms that nvcc emits.

Two files beside this module hold the facts. ``simwarp record 'ptx-*'`` writes ``evidence.json`` on hardware,
chip by chip; ``census.txt`` lists the forms that nvcc 13.0 emits for 99 of 100 public CUDA kernels, without
asynchronous copies.
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
"""The compute capability, times ten, of the recorded hardware."""
RECORD = Path(__file__).with_name("evidence.json")
"""The recorded evidence.

``{"meta": {chip: {gpu, driver, date, command}}, "forms": {form: {chip: {golden, sets, …}}}}``
"""
_CHIP = f"sm_{CAPABILITY}"


@dataclass(frozen=True)
class Evidence:
    """The recorded results of hardware for the probes of one instruction form.

    Attributes
    ----------
    golden : str
        The recording that holds the answers.
    sets : int
        The number of operand tuples.
    largest_error : float or None
        For a bounded form, the largest error between hardware and simulator, in the unit of its bound.
    """

    golden: str
    sets: int
    largest_error: float | None = None


@cache
def evidence() -> dict[str, Evidence]:
    """The evidence of each recorded form, from the chip of `CAPABILITY` or else another recorded chip.

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
    """The forms of rows without a hardware recording; a release must have none.

    Examples
    --------
    >>> "popc.b32" in unwitnessed()
    False
    """
    rows = (row for row in ROWS.values() if row.fidelity != "unsupported")
    return [form for row in rows for form in required(row) or forms(row) if form not in evidence()]


def witness() -> dict[str, Any]:
    """The recorded device: ``gpu`` (name, uuid), ``driver``, ``date``; empty before any recording.

    Examples
    --------
    >>> "forms" in witness()
    False
    """
    meta: dict[str, Any] = _recorded()["meta"].get(_CHIP, {})
    return {key: value for key, value in meta.items() if key != "command"}


@cache
def census() -> tuple[str, ...]:
    """The forms that nvcc emits, most frequently needed first.

    Examples
    --------
    >>> census()[:3]
    ('ret', 'mov.u32', 'ld.param.u64')
    """
    return tuple(Path(__file__).with_name("census.txt").read_text().split())


@cache
def required(row: Row) -> tuple[str, ...]:
    """The forms of a row that need evidence; none if the recorded hardware lacks the row.

    They are those of `simwarp.ptx.forms.forms` and those of the census.

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
    """The forms of the census by name of their row."""
    by_row: dict[str, list[str]] = {}
    for opcode in census():
        found = TABLE.find(opcode)
        if found is not None:
            by_row.setdefault(found[0].name, []).append(opcode)
    return by_row


@cache
def _recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text())
