"""Detection of stores by which compilers copy structures with their padding, or set bit fields.

They may store undefined bits. They are found once per program, when it first stores an undefined value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simwarp.program.liveness import registers_in
from simwarp.ptx.kinds import BRANCH, CALL, FENCE, LOAD, PURE, STORE
from simwarp.ptx.syntax import Immediate, Register, Vector

if TYPE_CHECKING:
    from simwarp.program.program import Program, Step


class Copies(NamedTuple):
    """The stores of a program that copy structures or set bit fields.

    Attributes
    ----------
    stores : frozenset of int
        The numbers of stores that copy several loaded words, in sequence or in a loop.
    fields : frozenset of int
        The numbers of stores of a loaded word in which bits at literal positions were set.
    fills : frozenset of (int, int)
        Vector stores, and the indices of their elements that no instruction writes.
    """

    stores: frozenset[int]
    fields: frozenset[int]
    fills: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, program: Program) -> Copies:
        """The copies of a program, found on first use."""
        known = vars(program)
        if "_copies" not in known:
            stores = {n for block in _blocks(program) for n in _copied(block)}
            functions = [program.steps_of(routine) for routine in program.routines.values()]
            fields = {number for steps in functions for number in _fields(steps)}
            fills = {fill for steps in functions for fill in _fills(steps)}
            known["_copies"] = cls(frozenset(stores), frozenset(fields), frozenset(fills))
        return known["_copies"]


def _blocks(program: Program) -> list[list[Step]]:
    """The basic blocks of a program, each as its list of steps."""
    starts = {routine.first for routine in program.routines.values()}
    for step in program.steps:
        starts |= {step.target, *step.table}
        if not (step.kind.access or step.kind in (PURE, FENCE)):  # steps of other kinds may diverge
            starts.add(step.number + 1)
    cuts = sorted(start for start in starts if 0 <= start < len(program.steps))
    return [program.steps[a:b] for a, b in zip(cuts, [*cuts[1:], len(program.steps)], strict=True)]


def _copied(block: list[Step]) -> list[int]:
    """The numbers of a basic block's stores that copy loaded words."""
    loaded: set[str] = set()
    copies: list[int] = []
    words = 0
    for step in block:
        if step.kind is STORE:
            values = _values(step)
            if values and all(name in loaded for name in values):
                copies.append(step.number)
                words += len(values)
        elif step.row.destinations:
            written = set(registers_in(step.instruction.operands[:1]))
            loaded -= written
            if step.kind.loads and step.base is not None and step.space != "shared":
                loaded |= written
    again = block[-1].kind is BRANCH and block[-1].target == block[0].number
    return copies if words > 1 or again else []


def _values(step: Step) -> list[str]:
    """The names of the registers that a store writes to memory; empty if not all elements are registers."""
    operand = step.instruction.operands[-1]
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    names = [element.name for element in elements if isinstance(element, Register)]
    return names if len(names) == len(elements) else []


def _fields(steps: list[Step]) -> list[int]:
    """The numbers of a function's stores of words in which it set bits at literal positions."""
    kept: set[str] = set()
    with_fields: set[str] = set()
    before = -1
    while before != len(kept) + len(with_fields):
        before = len(kept) + len(with_fields)
        for step in steps:
            operands, traits = step.instruction.operands, step.row.traits
            if step.kind is LOAD and step.base is not None:
                kept |= set(registers_in(operands[:1]))
            elif traits & {"mask", "insert"}:
                masks = "mask" in traits
                beside, places = (operands[1:3], operands[1:3]) if masks else (operands[2:3], operands[3:])
                written, read = set(registers_in(operands[:1])), set(registers_in(operands[1:]))
                literal = [isinstance(operand, Immediate) for operand in places]
                placed = any(literal) if masks else all(literal)
                if (placed and set(registers_in(beside)) & (kept | with_fields)) or read & with_fields:
                    with_fields |= written
            elif traits & {"move", "convert"} and set(registers_in(operands[1:])) & with_fields:
                with_fields |= set(registers_in(operands[:1]))
    return [step.number for step in steps if step.kind is STORE and set(_values(step)) & with_fields]


def _fills(steps: list[Step]) -> list[tuple[int, int]]:
    """The vector stores of a function, with the indices of elements that no instruction writes."""
    written: set[str] = set()
    for step in steps:
        if step.row.destinations or step.kind is CALL:
            written |= set(registers_in(step.instruction.operands[: None if step.kind is CALL else 1]))
    return [
        (step.number, i)
        for step in steps
        if step.kind is STORE and step.form.vector > 1
        for i, name in enumerate(_values(step))
        if name not in written
    ]
