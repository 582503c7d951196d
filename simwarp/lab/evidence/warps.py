"""Operands of warp instructions: member masks of one or two teams of lanes, legal shuffle sources."""

from __future__ import annotations

import numpy as np

from simwarp.lab.evidence.operands import Column, Words, edges, width
from simwarp.lab.evidence.probe import Probe
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.rows import Form
from simwarp.verify.draw import Draw

_ALL = 0xFFFFFFFF
_TEAMS = (_ALL, 1, 1 << 31, 0xFFFF, 0xAAAAAAAA)


def operands(probe: Probe, form: Form) -> Words:
    """Operand tuples for whole warps; all lanes execute, or one team (the others exited), or two teams.

    ``m`` is the member mask, ``active`` the last operand. The PTX ISA defines the result of every lane.
    """
    draw = Draw(0, f"warps of {probe.form}", 0)
    warps = [_warp(draw, probe, form, k) for k in range(probe.count // WARP_SIZE)]
    return np.concatenate(warps)


def _warp(draw: Draw, probe: Probe, form: Form, k: int) -> Words:
    masks, active = _teams(draw, two=k % 5 < 2 and "m" in {c.name for c in probe.operands})
    columns = [
        [int(on) for on in active] if c.name == "active" else _operand(draw, c, form, masks, active)
        for c in probe.operands
    ]
    return np.array(columns, np.uint64).T


def _teams(draw: Draw, two: bool) -> tuple[list[int], list[bool]]:
    """Draw each lane's member mask, and whether the lane executes."""
    any_word = int(draw.words(1)[0]) & _ALL | 1 << draw.integer(0, 31)
    word = draw.choice((*_TEAMS, any_word, any_word))
    inside = [bool(word >> lane & 1) for lane in range(WARP_SIZE)]
    if two:
        return [word if on else word ^ _ALL for on in inside], [True] * WARP_SIZE
    return [word] * WARP_SIZE, inside


def _operand(draw: Draw, column: Column, form: Form, masks: list[int], active: list[bool]) -> list[int]:
    if column.name == "m":
        return masks
    if form.opcode.startswith("shfl") and column.name in ("b", "c"):
        return (_sources if column.name == "b" else _segments)(draw, form, masks, active)
    return _few_values(draw, column)


def _few_values(draw: Draw, column: Column) -> list[int]:
    """32 operands with few different values, so that ``match`` finds equal lanes."""
    if column.type == "pred":
        return draw.choice(([0] * WARP_SIZE, [1] * WARP_SIZE, [int(w) & 1 for w in draw.words(WARP_SIZE)]))
    ones = (1 << width(column.type)) - 1
    values = [int(word) & ones for word in draw.words(draw.choice((1, 1, 2, WARP_SIZE)))]
    values += [draw.choice(edges(column.type)) for _ in range(draw.integer(0, 3))]
    return [draw.choice(values) for _ in range(WARP_SIZE)]


def _is_whole_warp(masks: list[int], active: list[bool]) -> bool:
    return len(set(masks)) == 1 and all(active)


def _sources(draw: Draw, form: Form, masks: list[int], active: list[bool]) -> list[int]:
    """Operand b of a shuffle: source lanes, in the lane's own team unless that is the whole warp."""
    if _is_whole_warp(masks, active):
        return [draw.choice((draw.integer(0, 31), int(draw.words(1)[0]) & _ALL)) for _ in masks]
    if form.has("idx"):
        return [draw.choice([j for j in range(WARP_SIZE) if mask >> j & 1]) for mask in masks]
    return [0] * WARP_SIZE


def _segments(draw: Draw, form: Form, masks: list[int], active: list[bool]) -> list[int]:
    """Operand c of a shuffle: clamp value and segment mask."""
    segment = 1 << draw.integer(0, 5)
    if _is_whole_warp(masks, active):
        return [draw.choice((32 - segment << 8 | 31, draw.integer(0, (1 << 13) - 1)))] * WARP_SIZE
    return [0 if form.has("up") else 0x1F] * WARP_SIZE
