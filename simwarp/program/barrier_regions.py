"""Which shared loads can meet a store: those that lie between the same two barriers as one.

Threads of a block that all pass one barrier instruction go through the same *regions* side by side: the
steps from a barrier (or the kernel's start) to the next. A load in a region without a store cannot race.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from simwarp.ptx.syntax import Immediate

if TYPE_CHECKING:
    from simwarp.program.program import Program


def meeting(program: Program, loads: Container[int], stores: Container[int]) -> set[int]:
    """The loads that share a region with a store."""
    barriers = _barriers(program)
    found: set[int] = set()
    for start in (program.start, *(number + 1 for number in barriers)):
        region = _region(program, start, barriers)
        if any(number in stores for number in region):
            found |= {number for number in region if number in loads}
    return found


def _barriers(program: Program) -> set[int]:
    """The barriers that all threads of a block pass together; none, if others may mix with them."""
    whole: dict[int, int] = {}
    others: list[int | None] = []
    for step in program.steps:
        if step.kind != "barrier":
            continue
        operands = step.instruction.operands[len(step.row.destinations) :]
        number = operands[0].value if isinstance(operands[0], Immediate) else None
        counted = len(operands) > (2 if step.form.has("red") else 1)
        if number is None or counted or step.guard is not None or step.form.has("arrive"):
            others.append(number)
        else:
            whole[step.number] = number
    mixes = None in others or bool(set(others) & set(whole.values()))
    return set() if mixes else set(whole)


def _region(program: Program, start: int, barriers: set[int]) -> set[int]:
    """The steps that are reached from one without passing a barrier."""
    todo, seen = [start], set[int]()
    while todo:
        at = todo.pop()
        if at not in seen and at < len(program.steps):
            seen.add(at)
            todo += () if at in barriers else program.steps[at].following
    return seen
