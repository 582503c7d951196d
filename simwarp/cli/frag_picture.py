"""The pictures of ``simwarp frag``: fragment maps of `simwarp.fragments` as pictures of `simwarp.draw`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reference.errors import SchemeError
from simwarp.draw.fragment import (
    WHOLE,
    Most,
    held_of,
    holders_picture,
    instruction_picture,
    registers_picture,
)
from simwarp.draw.picture import Picture
from simwarp.fragments import Fragments, Operand, fragments_of

_SHOWN = (64, 32)
"""The most rows and columns of cells in the picture of a product."""


def picture_of(
    instruction: str, operand: str | None = None, *, registers: bool = False, most: Most = WHOLE
) -> Picture:
    """The picture of one operand, cut to ``most`` rows and columns of cells, or of the whole product."""
    found = fragments_of(instruction)
    held = [held_of(one) for one in chosen(found, operand)]
    if registers or len(held) == 1 or not found.shape.k:
        pictures = [(registers_picture if registers else holders_picture)(one, most) for one in held]
        return pictures[0] if len(pictures) == 1 else _joined(found.opcode, pictures)
    return instruction_picture(found, _SHOWN)


def _joined(title: str, pictures: Sequence[Picture]) -> Picture:
    """Several pictures joined into one, from top to bottom; their titles move to the grids."""
    lines = (
        tuple(replace(grid, title=f"{picture.title}{f', {grid.title}' * bool(grid.title)}") for grid in line)
        for picture in pictures
        for line in picture.lines
    )
    notes = dict.fromkeys(note for picture in pictures for note in picture.notes)
    return Picture(title, tuple(lines), tuple(notes))


def chosen(found: Fragments, name: str | None) -> list[Operand]:
    """The operand with this name, in a list; all operands for None."""
    if name is None:
        return list(found.operands.values())
    if name.lower() not in found.operands:
        raise SchemeError(
            f"there is no operand {name!r}\n{found.opcode} has {', '.join(found.operands)} in registers\n"
            "give one of these"
        )
    return [found.operands[name.lower()]]
