"""The loads from shared memory that may race with a store, as no barrier lies between them.

A *region* is the steps from a barrier, or the kernel's start, to the next barriers. If all threads of a block
pass the same barrier instructions, they are in the same region at any time. A load in a region without a
store cannot race.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from simwarp.program.graphs import reachable
from simwarp.ptx.syntax import Immediate

if TYPE_CHECKING:
    from simwarp.program.program import Program


def meeting(program: Program, loads: Container[int], stores: Container[int]) -> set[int]:
    """The step numbers of the loads that share a region with a store."""
    barriers = _barriers(program)
    following = [step.following for step in program.steps] + [[]]
    found: set[int] = set()
    for start in (program.start, *(number + 1 for number in barriers)):
        region = reachable([start], lambda at: () if at in barriers else following[at])
        if any(number in stores for number in region):
            found |= {number for number in region if number in loads}
    return found


def _barriers(program: Program) -> set[int]:
    """The barrier steps that all threads of a block pass together; none if others may mix with them."""
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
