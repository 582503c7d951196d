"""Tests of mbarriers whose result the program ignores, or passes although it is false.

``mbarrier.test_wait`` and ``.try_wait`` answer whether a phase is complete, and may answer no at any time. An
answer that nothing uses is *ignored*. A test is *passed* if the program goes on to the same accesses whether
the answer is yes or no, as after a fixed number of attempts; a loop that ends by the answer alone is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from simwarp.program.graphs import reachable
from simwarp.program.liveness import live_registers, registers_in
from simwarp.ptx.kinds import BRANCH, FENCE, INDEXED_BRANCH, MBARRIER, TRAP
from simwarp.ptx.syntax import Immediate, Operand, Register

if TYPE_CHECKING:
    from simwarp.program.steps import Linked, Step

_MOST_STATES = 20_000
"""States of one walk, after which a test counts as heeded."""
_BETWEEN = frozenset((BRANCH, INDEXED_BRANCH, FENCE, TRAP, MBARRIER))
"""Kinds of step, beside computations, that access no data."""

_Known = frozenset[tuple[str, int]]
_State = tuple[int, _Known]


class Unheeded(NamedTuple):
    """The mbarrier tests whose result is not used, and the tests that lanes pass after a false result."""

    ignored: frozenset[int] = frozenset()
    passed: frozenset[int] = frozenset()


def is_test(step: Step) -> bool:
    """Whether a step tests a phase of a barrier in shared memory."""
    return step.kind is MBARRIER and (step.form.has("test_wait") or step.form.has("try_wait"))


def unheeded(program: Linked) -> Unheeded:
    """The mbarrier tests whose result a program ignores; empty for programs with device functions."""
    tests = [step.number for step in program.steps if is_test(step)]
    if not tests or len(program.routines) > 1:
        return Unheeded()
    slots = {name: 1 << slot for slot, name in enumerate(program.registers)}
    used = live_registers(program.steps, program.registers, used=True)
    ignored = {at for at in tests if not slots.get(_answer(program.steps[at]), 0) & used[at + 1]}
    heeded = set(tests) - ignored
    while passed := {at for at in heeded if _Paths(program, slots, heeded).meet(at)}:
        heeded -= passed
    return Unheeded(frozenset(ignored), frozenset(set(tests) - ignored - heeded))


class _Paths:
    """The paths after a test, up to the next relevant tests, with the register values that it decides."""

    def __init__(self, program: Linked, slots: dict[str, int], heeded: set[int]) -> None:
        self._steps, self._live, self._slots, self._heeded = program.steps, program.live, slots, heeded

    def meet(self, test: int) -> bool:
        """Whether the same access can be reached after both results of a test."""
        after_no = self._accesses(test, 0)
        return bool(after_no) and not after_no.isdisjoint(self._accesses(test, 1))

    def _accesses(self, test: int, answer: int) -> set[int]:
        """The accesses and exits that can be reached after a result; empty if there are too many states."""
        count = 0

        def following(state: _State) -> list[_State]:
            nonlocal count
            count += 1
            return list(self._following(state)) if count < _MOST_STATES else []

        start = self._kept(test + 1, {_answer(self._steps[test]): answer})
        reached = {at for at, _ in reachable([start], following) if at < len(self._steps)}
        if count >= _MOST_STATES:
            return set()
        return {
            at for at in reached if self._steps[at].compute is None and self._steps[at].kind not in _BETWEEN
        }

    def _following(self, state: _State) -> Iterator[_State]:
        """Yield the possible states of the program after one more step."""
        at, pairs = state
        if at >= len(self._steps) or at in self._heeded:
            return
        step, known = self._steps[at], dict(pairs)
        guard = step.instruction.guard
        holds = None if guard is None else _read(guard, known)
        ways = step.following
        if step.kind is BRANCH and holds is not None:
            ways = [step.target if holds else at + 1]
        if step.row.destinations and step.instruction.operands:
            _compute(step, known, holds)
        for way in ways:
            yield self._kept(way, known)

    def _kept(self, at: int, known: dict[str, int]) -> _State:
        """The state at a step: the known values of registers that may still be read."""
        live = self._live[at] if at < len(self._live) else 0
        return at, frozenset(
            (name, value) for name, value in known.items() if self._slots.get(name, 0) & live
        )


def _answer(step: Step) -> str:
    """The register of a test's result; "" for ``_``."""
    first = step.instruction.operands[0]
    return first.name if isinstance(first, Register) else ""


def _compute(step: Step, known: dict[str, int], holds: int | None) -> None:
    """Update the known registers by a step whose guard is true (1), false (0) or unknown (None)."""
    target, *sources = step.instruction.operands
    if holds == 0:
        return
    certain = step.instruction.guard is None or holds == 1
    value = _result(step, sources, known) if certain and isinstance(target, Register) else None
    for name in registers_in([target]):
        known.pop(name, None)
    if value is not None and isinstance(target, Register):
        known[target.name] = value


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    **{"eq": int.__eq__, "ne": int.__ne__},
    **{"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__},
}


def _result(step: Step, sources: list[Operand], known: dict[str, int]) -> int | None:
    """The value that a step computes, if its kind is simulated here and its operands are known."""
    operation, *words = step.instruction.opcode.split(".")
    values = [_read(one, known) for one in sources]
    if operation == "selp" and values[2] is not None:
        return values[0] if values[2] else values[1]
    if operation in ("mov", "cvt"):
        return values[0]
    if operation == "not" and words == ["pred"]:
        return None if values[0] is None else 1 - values[0]
    if operation not in ("and", "or", "xor", "setp") or len(values) != 2:
        return None
    one, other = values
    if operation == "and" and 0 in values:
        return 0
    if operation == "or" and words == ["pred"] and 1 in values:
        return 1
    if one is None or other is None:
        return None
    if operation == "setp":
        compare = _COMPARISONS.get(words[0])
        return None if compare is None else int(compare(one, other))
    return one & other if operation == "and" else one | other if operation == "or" else one ^ other


def _read(operand: Operand, known: dict[str, int]) -> int | None:
    """The value of an operand, if it is a constant or a register of known value; else None."""
    if isinstance(operand, Immediate):
        return None if operand.float_bits else operand.value
    if isinstance(operand, Register) and operand.name in known:
        return 1 - known[operand.name] if operand.negated else known[operand.name]
    return None
