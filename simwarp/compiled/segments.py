"""The steps of a kernel that are compiled, and the segments that they form.

A segment is a run of steps that the lanes at its first one all execute. It starts where a branch leads,
behind a branch, and on both sides of a step that is not compiled, which is a *foreign* segment of its own:
every place where lanes can stop is the start of a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simwarp.compiled.expressions import UntraceableError, Value, constant
from simwarp.compiled.lowering import lowered
from simwarp.program.operands import computation
from simwarp.program.program import Program
from simwarp.program.steps import Step
from simwarp.ptx.kinds import BRANCH, EXIT, PURE
from simwarp.ptx.rows import DTYPES, storage
from simwarp.ptx.special_registers import CHANGING, TYPES

Key = tuple[str, Any]
"""An input: ("register", slot) or ("special", name)."""
LONGEST = 512
"""Steps of a segment: LLVM's time grows faster than its length."""


@dataclass
class Traced:
    """What a step computes: its guard, the registers that it writes, and its inputs."""

    guard: Value | None
    writes: dict[int, Value]
    reads: set[Key]


@dataclass
class Segment:
    """Steps that lanes execute together; a foreign one has a single step and no ``traced``.

    Attributes
    ----------
    first, end : int
        Its steps; the next segment starts at ``end``.
    branch : Step or None
        The branch that ends it.
    reads, writes : int
        Registers, one bit per slot: of it and of all segments that follow it without a foreign one.
    inputs : set of Key
        Special registers, likewise.
    loops : bool
        Whether it can come back to itself, or to a segment behind it that can, without a foreign one.
    weight : int
        The most steps up to the next foreign segment, without loops.
    """

    number: int
    first: int
    end: int
    traced: list[Traced] = field(default_factory=list[Traced])
    branch: Step | None = None
    foreign: bool = False
    reads: int = 0
    writes: int = 0
    inputs: frozenset[Key] = frozenset()
    loops: bool = False
    weight: int = 0


class Recorder:
    """Stands for a chunk while a step is traced: its registers are inputs, and it keeps what is written."""

    alone = True
    undefined = None
    part_written = 0
    partial: dict[int, Any] = {}  # noqa: RUF012 - never changed

    def __init__(self, types: Sequence[Any]) -> None:
        self._types = types
        self.reads: set[Key] = set()
        self.writes: dict[int, Value] = {}
        self.registers = self

    def __getitem__(self, slot: int) -> Value:
        """A register: what the step wrote, or its value before."""
        return self.writes[slot] if slot in self.writes else self.input(("register", slot), self._types[slot])

    def __setitem__(self, slot: int, value: Any) -> None:
        if not isinstance(value, Value):
            value = constant(value, self._types[slot])
        if value.dtype != self._types[slot]:
            raise UntraceableError("a value of another type")
        self.writes[slot] = value

    def input(self, key: Key, dtype: Any) -> Value:
        """A value from outside of the step."""
        self.reads.add(key)
        return Value("input", dtype, about=key)

    def special(self, name: str) -> Value:
        """A special register that does not change while the chunk runs."""
        if name in CHANGING:
            raise UntraceableError(name)
        return self.input(("special", name), DTYPES[TYPES[name]])

    @property
    def frame(self) -> Any:
        """The stack frame, which changes with calls."""
        raise UntraceableError("frame")

    def write(self, slot: int, value: Any) -> None:
        """Write a register."""
        self[slot] = value

    def has_no_value(self, lanes: Any) -> None:
        """A division by zero is a finding."""
        raise UntraceableError("unspecified")


def register_types(program: Program) -> list[Any]:
    """The dtype in which each register is stored."""
    return [storage(kind) for kind in program.types]


def trace(step: Step, types: Sequence[Any]) -> Traced | None:
    """What a step computes; None for one that is not compiled."""
    if step.kind is not PURE and step.kind is not BRANCH:
        return None
    recorder: Any = Recorder(types)
    try:
        guard = None if step.guard is None else step.guard(recorder)
        if guard is not None and not isinstance(guard, Value):
            return None
        if step.kind is PURE:
            function = lowered(step.row, step.form)
            compute = step.compute
            if function is not None:
                form = step.form
                core = function

                def call(*operands: Any) -> Any:
                    return core(form, *operands)

                compute = computation(call, step.sources, step.destinations, len(step.row.destinations))
            if compute is None:
                return None
            compute(recorder)
    except (UntraceableError, TypeError, ValueError, AttributeError, IndexError, KeyError, OverflowError):
        return None
    return Traced(guard, recorder.writes, recorder.reads)


def segments_of(program: Program, ways_out: Any) -> list[Segment]:
    """The segments of a kernel without device functions, in the order of their steps."""
    steps, types = program.steps, register_types(program)
    traced = [_compilable(step, steps, types, ways_out) for step in steps]
    starts = {0, program.start, *(step.target for step in steps if step.kind is BRANCH)}
    for step in steps:
        starts |= set(step.table)
        if traced[step.number] is None:
            starts |= {step.number, step.number + 1}
        elif step.kind is BRANCH:
            starts.add(step.number + 1)
    ordered = sorted(at for at in starts if 0 <= at < len(steps))
    cut: list[int] = []
    for at, end in zip(ordered, [*ordered[1:], len(steps)], strict=True):
        cut += range(at, end, LONGEST)
    found: list[Segment] = []
    for at, end in zip(cut, [*cut[1:], len(steps)], strict=True):
        here = traced[at:end]
        if here[0] is None:
            found.append(Segment(len(found), at, end, foreign=True))
        else:
            last = steps[end - 1]
            kept = [one for one in here if one is not None]
            found.append(Segment(len(found), at, end, kept, last if last.kind is BRANCH else None))
    _close(found)
    return found


def _compilable(step: Step, steps: Sequence[Step], types: Sequence[Any], ways_out: Any) -> Traced | None:
    """What a step computes, unless the scheduler treats it in a way of its own."""
    if step.kind is BRANCH:
        target = steps[step.target]
        ends = target.kind is EXIT and target.guard is None
        if step.number in ways_out or (ends and step.guard is not None):
            return None
    return trace(step, types)


def _close(found: list[Segment]) -> None:
    """Find what each segment reads and writes with those that follow it, and whether it loops."""
    at = {segment.first: segment.number for segment in found}
    behind = [[at[pc] for pc in _ways(segment) if pc in at] for segment in found]
    for segment in found:
        for one in segment.traced:
            for kind, slot in one.reads:
                if kind == "register":
                    segment.reads |= 1 << slot
                else:
                    segment.inputs |= {(kind, slot)}
            for slot in one.writes:
                segment.writes |= 1 << slot
        segment.weight = segment.end - segment.first if segment.traced else 0
    own = [segment.weight for segment in found]
    changed = True
    while changed:
        changed = False
        for segment in reversed(found):
            if segment.foreign:
                continue
            before = segment.reads, segment.writes, segment.inputs, segment.loops, segment.weight
            for number in behind[segment.number]:
                other = found[number]
                if other.foreign:
                    continue
                segment.reads |= other.reads
                segment.writes |= other.writes
                segment.inputs |= other.inputs
                back = number <= segment.number
                segment.loops |= other.loops or back
                if not back:
                    segment.weight = max(segment.weight, own[segment.number] + other.weight)
            now = segment.reads, segment.writes, segment.inputs, segment.loops, segment.weight
            changed |= before != now


def _ways(segment: Segment) -> list[int]:
    """The steps where the lanes of a segment go on."""
    if segment.branch is None:
        return [segment.end]
    return [segment.branch.target] + ([segment.end] if segment.branch.guard is not None else [])
