"""What chips themselves said: the record that ``simwarp probe --record`` writes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

RECORD = Path(__file__).with_name("observed.json")
"""``{"meta": {gpu, driver, date, command}, "forms": {opcode: [chip, …]}}``"""


@cache
def confirmations(record: Path = RECORD) -> dict[str, tuple[str, ...]]:
    """The chips whose own probe agreed with every operand of an instruction.

    Parameters
    ----------
    record : Path
        A file as ``simwarp probe --record`` writes it; without one, nothing is confirmed.

    Returns
    -------
    dict of str to tuple of str
        For each opcode, in its canonical spelling, chips such as "sm_90".

    Examples
    --------
    >>> confirmations(Path("no such file"))
    {}
    """
    if not record.exists():
        return {}
    forms: dict[str, list[str]] = json.loads(record.read_text(encoding="utf-8"))["forms"]
    return {opcode: tuple(chips) for opcode, chips in forms.items()}
