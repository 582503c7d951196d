"""Live registers: those that a later step may still read.

Lanes that diverged share a register's array. Where the other lanes will not read their part before they write
it, the executing lanes may replace the whole array, which is much cheaper than to merge old and new values
lane by lane.

Source: Aho, Lam, Sethi and Ullman, Compilers (2nd edition), section 9.2.5 (live variables).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from simwarp.ptx.syntax import Address, Group, Operand, Pair, Register, Vector

if TYPE_CHECKING:
    from simwarp.program.steps import Step

EVERY_REGISTER = -1
"""The set of all registers, as one bit per slot."""


def live_registers(steps: Sequence[Step], registers: Sequence[str], used: bool = False) -> list[int]:
    """The live registers at each step of a kernel without device functions, as one bit per slot.

    With ``used``, a register whose value only reaches registers that nobody uses is not live.
    """
    slots = {name: 1 << slot for slot, name in enumerate(registers)}
    flow = [(_read(step, slots), ~_written(step, slots), step.following) for step in steps]
    results = [_results(step, slots) if used else 0 for step in steps]
    live = [0] * (len(steps) + 1)
    changed = True
    while changed:
        changed = False
        for at in range(len(steps) - 1, -1, -1):
            read, kept, following = flow[at]
            behind = 0
            for other in following:
                behind |= live[other]
            now = (read if not results[at] or behind & results[at] else 0) | (behind & kept)
            if now != live[at]:
                live[at], changed = now, True
    return live


def _written(step: Step, slots: dict[str, int]) -> int:
    """The registers that a step writes in all lanes that execute it, as one bit per slot."""
    operands = step.instruction.operands
    if not step.row.destinations or step.guard is not None or not operands:
        return 0
    return _set(operands[:1], slots)


def _results(step: Step, slots: dict[str, int]) -> int:
    """The registers, one bit per slot, that a step computes; 0 if the step may have other effects."""
    if step.compute is None or not step.row.destinations:
        return 0
    return _set(step.instruction.operands[:1], slots) | slots.get("%carry", 0)


def _read(step: Step, slots: dict[str, int]) -> int:
    """The registers that a step may read, as one bit per slot; always the implicit carry flag."""
    instruction = step.instruction
    sources = instruction.operands[1:] if step.row.destinations else instruction.operands
    guard = () if instruction.guard is None else (instruction.guard,)
    return _set((*sources, *guard), slots) | slots.get("%carry", 0)


def _set(operands: Iterable[Operand | None], slots: dict[str, int]) -> int:
    """The registers within operands, as one bit per slot."""
    bits = 0
    for name in registers_in(operands):
        bits |= slots.get(name, 0)
    return bits


def registers_in(operands: Iterable[Operand | None]) -> Iterator[str]:
    """Yield the names of the registers within operands."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Address):
            yield from registers_in((operand.base, *operand.more))
        elif isinstance(operand, Pair):
            yield from registers_in((operand.first, operand.second))
        elif isinstance(operand, Vector | Group):
            yield from registers_in(operand.elements)
