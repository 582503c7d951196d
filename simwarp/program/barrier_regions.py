"""Loads from shared memory without a barrier between them and a store; thread counts of barriers.

A *region* is the steps from a barrier, or the kernel's start, to the next barriers. If all threads of a block
pass the same barrier instructions, they are in the same region at any time. A load in a region without a
store cannot race.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from simwarp.program.graphs import reachable
from simwarp.ptx.kinds import BARRIER
from simwarp.ptx.syntax import Immediate

if TYPE_CHECKING:
    from simwarp.program.steps import Linked, Step


def meeting(program: Linked, loads: Container[int], stores: Container[int]) -> set[int]:
    """The step numbers of the loads that share a region with a store."""
    barriers = _barriers(program)
    following = [step.following for step in program.steps] + [[]]
    racing: set[int] = set()
    for start in (program.start, *(number + 1 for number in barriers)):
        region = reachable([start], lambda at: () if at in barriers else following[at])
        if any(number in stores for number in region):
            racing |= {number for number in region if number in loads}
    return racing


def with_several_counts(program: Linked) -> frozenset[int]:
    """The barriers that a program may use with several thread counts; 0 counts all threads."""
    uses: dict[int | None, set[int | None]] = {}
    for step in program.steps:
        if step.kind is BARRIER:
            number, *counts = _operands(step)
            uses.setdefault(number, set()).update(counts or [0])
    anywhere = uses.pop(None, set())
    numbers = range(16) if anywhere else [one for one in uses if one is not None]
    counts = {one: uses.get(one, set()) | anywhere for one in numbers}
    return frozenset(one for one, some in counts.items() if len(some) > 1 or None in some)


def _operands(step: Step) -> list[int | None]:
    """The number and the thread count (if present) of a barrier instruction; None for a register operand."""
    operands = step.instruction.operands[len(step.row.destinations) :]
    operands = operands[:-1] if step.form.has("red") else operands
    return [one.value if isinstance(one, Immediate) else None for one in operands]


def _barriers(program: Linked) -> set[int]:
    """The barrier steps that all threads of a block pass together; empty if others may mix with them."""
    whole: dict[int, int] = {}
    others: list[int | None] = []
    for step in program.steps:
        if step.kind is not BARRIER:
            continue
        number, *counts = _operands(step)
        if number is None or counts or step.guard is not None or step.form.has("arrive"):
            others.append(number)
        else:
            whole[step.number] = number
    mixes = None in others or bool(set(others) & set(whole.values()))
    return set() if mixes else set(whole)
