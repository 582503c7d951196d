"""Loops, and the backward slice of the steps that decide whether lanes leave them.

The slice of a loop begins with the branches that leave it, the addresses of its accesses, which may be
wrong, and operations of a warp. It contains every step that computes what one of its steps reads, and every
branch that decides which of its steps comes next; a branch whose ways meet before that is not part of it. So
each step of the slice, given its registers and the memory that its loads read, fixes which one comes next, or
that none does. Lanes that come to a step of the loop again with the same registers, while that memory does
not change, never leave.

Sources: Weiser, "Program slicing" (IEEE TSE, 1984); Danicic et al., "A unifying theory of control dependence
and its application to arbitrary program structures" (TCS, 2011): weak control closure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from simwarp.program.graphs import reachable, reverse
from simwarp.program.liveness import registers_in
from simwarp.ptx.kinds import BRANCH, EXIT, FENCE, INDEXED_BRANCH, MBARRIER, RETURN, TRAP, WARP, WARP_BARRIER
from simwarp.ptx.syntax import Address, Operand

if TYPE_CHECKING:
    from simwarp.program.program import Program, Routine, Step

_MOST_STEPS = 4096
"""Most steps of a loop that is analysed."""
_CLOCKS = ("%clock", "%globaltimer", "%pm")
_CARRY = "%carry"
_COME_BACK = ("vprintf", "malloc", "free")
"""The functions of the host after which a lane goes on."""
_KNOWN = (BRANCH, INDEXED_BRANCH, EXIT, RETURN, TRAP, FENCE, WARP, WARP_BARRIER)
"""The kinds of step, beyond accesses and those that compute registers, whose effects the slice knows."""


class Loop(NamedTuple):
    """A loop around a step: all steps that the step can reach and that can reach the step.

    Attributes
    ----------
    leaves : bool
        Whether any step leaves it.
    is_known : bool
        Whether the slice is exact: nothing in it reads a clock or depends on the schedule, and the effects of
        all steps of the loop are known.
    registers : int
        The registers that steps of the slice read, as one bit per slot.
    loads : frozenset of int
        The loads and atomic operations in the slice whose results other steps of it read.
    """

    leaves: bool
    is_known: bool
    registers: int
    loads: frozenset[int]


def loop_at(program: Program, number: int, followed: frozenset[int]) -> Loop | None:
    """The loop around a step; None if there is none. Data of the stores in ``followed`` count as read."""
    known: dict[tuple[int, frozenset[int]], Loop | None] = vars(program).setdefault("_loops", {})
    if (number, followed) not in known:
        routine = program.routine_at(number)
        inside = _around(program, routine, number)
        known[number, followed] = _Slice(program, routine, inside, followed).loop() if inside else None
    return known[number, followed]


def _around(program: Program, routine: Routine, number: int) -> set[int]:
    """The numbers of the steps in the loop around a step; empty if there is none, or it is too large."""
    steps = program.steps_of(routine)
    end = routine.first + len(steps)
    following = [[at - routine.first for at in step.following if routine.first <= at < end] for step in steps]
    before, start = reverse(following), number - routine.first
    inside = reachable(following[start], following.__getitem__) & reachable(before[start], before.__getitem__)
    return {at + routine.first for at in inside} if len(inside) <= _MOST_STEPS else set()


class _Slice:
    """The slice of a loop: steps that decide whether lanes leave it, or whose effects others observe."""

    def __init__(
        self, program: Program, routine: Routine, inside: set[int], followed: frozenset[int]
    ) -> None:
        self._steps = {number: program.steps[number] for number in sorted(inside)}
        self._program, self._followed = program, followed
        self._slots = {program.registers[slot]: slot for slot in routine.slots}
        self._ways = {n: [at for at in step.following if at in inside] for n, step in self._steps.items()}
        self._exits = [n for n, step in self._steps.items() if self._leaves(step)]
        self._writers: dict[str, list[int]] = {}
        for n, step in self._steps.items():
            for name in _written(step):
                self._writers.setdefault(name, []).append(n)
        self._chosen = {n for n, step in self._steps.items() if _matters(step)} | set(self._exits)
        self._read: set[str] = set()

    def loop(self) -> Loop:
        """Add the steps that the slice depends on until none is missing; returns the loop."""
        size = -1
        while size != len(self._chosen) + len(self._read):
            size = len(self._chosen) + len(self._read)
            for n in list(self._chosen):
                self._read.update(self._reads(self._steps[n]))
            for name in self._read:
                self._chosen.update(self._writers.get(name, ()))
            if size == len(self._chosen) + len(self._read):
                self._chosen |= self._undecided()
        known = all(
            step.compute is not None or step.kind in _KNOWN or _accesses(step)
            for step in self._steps.values()
        )
        known &= all(step.kind is not MBARRIER or _is_test(step) for step in self._steps.values())
        chosen = [self._steps[n] for n in self._chosen]
        known &= not any(step.kind is WARP and step.row.fidelity == "open" for step in chosen)
        known &= not any(name.startswith(_CLOCKS) for name in self._read)
        loads = frozenset(step.number for step in chosen if self._is_relevant_load(step))
        bits = sum(1 << self._slots[name] for name in self._read if name in self._slots)
        return Loop(bool(self._exits), known, bits, loads)

    def _leaves(self, step: Step) -> bool:
        """Whether a lane may leave the loop at a step, or end in a function called there."""
        if len(self._ways[step.number]) < len(step.following) or _ends(step):
            return True
        return step.call is not None and _may_end(self._program, step.call.function)

    def _is_relevant_load(self, step: Step) -> bool:
        """Whether a step is a load whose result other steps of the slice read."""
        return _accesses(step) and not self._read.isdisjoint(_written(step))

    def _reads(self, step: Step) -> Iterator[str]:
        """The registers that a step of the slice reads for it."""
        instruction = step.instruction
        operands = instruction.operands[1:] if step.row.destinations else instruction.operands
        data = step.number in self._followed or self._is_relevant_load(step)
        if _accesses(step) and not data:
            operands = tuple(operand for operand in operands if isinstance(operand, Address))
        yield from registers_in((*operands, instruction.guard))
        if (
            step.guard is not None and step.row.destinations
        ):  # lanes whose guard does not hold keep the old value
            yield from registers_in(instruction.operands[:1])
        if _CARRY in self._slots:
            yield _CARRY

    def _undecided(self) -> set[int]:
        """The branches outside the slice that decide which step of the slice comes next."""
        first: dict[int, frozenset[int]] = dict.fromkeys(self._steps, frozenset())
        before: dict[int, list[int]] = {n: [] for n in self._steps}
        for n, ways in self._ways.items():
            for at in ways:
                before[at].append(n)
        todo = list(self._chosen)
        for n in todo:
            first[n] = frozenset((n,))
        while todo:
            n = todo.pop()
            for at in before[n]:
                if at not in self._chosen and not first[n] <= first[at]:
                    first[at] |= first[n]
                    todo.append(at)
        return {
            n
            for n, ways in self._ways.items()
            if n not in self._chosen and len({first[at] for at in ways}) > 1
        }


def _accesses(step: Step) -> bool:
    return step.kind.access or step.kind is MBARRIER


def _ends(step: Step) -> bool:
    """Whether a step may end a lane or the launch, or leave the function."""
    return step.kind.ends in ("call", "kernel")


def _may_end(program: Program, function: str) -> bool:
    """Whether a lane may not return from a call of a function; "" stands for any function."""
    if function not in program.routines:
        return function not in _COME_BACK

    def called(name: str) -> list[str]:
        known = program.routines.get(name)
        calls = () if known is None else (step.call for step in program.steps_of(known))
        return [call.function for call in calls if call is not None]

    names = reachable((function,), called)
    steps = (
        step for name in names & program.routines.keys() for step in program.steps_of(program.routines[name])
    )
    return bool(names - program.routines.keys() - {*_COME_BACK}) or any(
        step.kind.ends == "kernel" for step in steps
    )


def _matters(step: Step) -> bool:
    """Whether a step may stop a lane: by an invalid address, or by a wait for other lanes."""
    return step.base is not None or step.kind.masked or _CARRY in _written(step)


def _is_test(step: Step) -> bool:
    return step.form.has("test_wait") or step.form.has("try_wait")


def _written(step: Step) -> set[str]:
    """The registers that a step writes, with the carry flag."""
    operands: Iterable[Operand | None] = step.instruction.operands[:1] if step.row.destinations else ()
    carry = {_CARRY} if ".cc" in step.instruction.opcode else set[str]()
    return {*registers_in(operands), *carry}
