"""Tables of fragment maps and of instructions, as text that people read.

A line of *maps* says of one operand (``c`` stands for the accumulator, C and D) its extents, its element
types and the digits of slot, lane and register (`simwarp.fragments.digits`)::

    a 16x16 | f16 bf16 | 2:c1 | 4:c2 8:r1 | 2:r8 2:c8

Words after the extents name a variant: ``a 8x4 row``. In the tables of wgmma, ``n/8`` is the size of a digit.

A line of *forms* is a section of the PTX ISA and a spelling, where ``<x|y>`` stands for each of its choices::

    9.7.14.5.8  mma.sync.aligned.m16n8k16.row.col.<f16|f32>.f16.f16.f32
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

TYPE_BITS = {
    "b1": 1,
    **dict.fromkeys(("s4", "u4"), 4),
    **dict.fromkeys(("s8", "u8", "e4m3", "e5m2"), 8),
    **dict.fromkeys(("b16", "f16", "bf16"), 16),
    **dict.fromkeys(("s32", "f32", "tf32"), 32),
    "f64": 64,
}
"""The bits of an element of each type."""
SHAPE = r"m\d+n\d+(k\d+)?"
"""How a shape is spelled."""


@dataclass(frozen=True)
class Map:
    """A line of a table of maps.

    Attributes
    ----------
    operand : str
        "a", "b", "c" or "r", with the words of its variant: "a row".
    rows, columns : str
        As written: numbers, or "n".
    types : tuple of str
    digits : str
        In the notation of `simwarp.fragments.digits`.
    """

    operand: str
    rows: str
    columns: str
    types: tuple[str, ...]
    digits: str


def read_maps(text: str) -> tuple[Map, ...]:
    """The lines of a table of maps.

    Examples
    --------
    >>> read_maps("a 16x16 | f16 bf16 | 2:c1 | 4:c2 8:r1 | 2:r8 2:c8")[0].digits
    'slot 2:c1  lane 4:c2 8:r1  register 2:r8 2:c8'
    """
    maps: list[Map] = []
    for line in filter(str.strip, text.splitlines()):
        head, types, slot, lane, register = (part.strip() for part in line.split("|"))
        operand, extents, *variant = head.split()
        rows, columns = extents.split("x")
        digits = f"slot {slot}  lane {lane}  register {register}"
        maps.append(Map(" ".join((operand, *variant)), rows, columns, tuple(types.split()), digits))
    return tuple(maps)


def read_forms(text: str) -> dict[str, str]:
    """Every spelling of a table of forms, with the section of the PTX ISA that describes it.

    Examples
    --------
    >>> list(read_forms("9.7.14.5.15  ldmatrix.sync.aligned.m8n8.x1<|.trans>.b16"))
    ['ldmatrix.sync.aligned.m8n8.x1.b16', 'ldmatrix.sync.aligned.m8n8.x1.trans.b16']
    """
    forms: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        section, spelling = line.split()
        parts = re.split(r"<(.*?)>", spelling)
        choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
        for chosen in itertools.product(*choices):
            forms["".join(chosen)] = section
    return forms
