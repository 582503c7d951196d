"""The steps of a kernel that are compiled, and the segments that they form.

A segment is a run of steps that the lanes at its first one all execute. It starts where a branch leads,
behind a branch, at an access to memory, and on both sides of a step that is not compiled, which is a
*foreign* segment of its own: every place where lanes can stop is the start of a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simwarp.compiled.expressions import UntraceableError, Value, cast, constant
from simwarp.compiled.lowering import lowered
from simwarp.compiled.meetings import KINDS, Meeting, meeting
from simwarp.program.operands import computation
from simwarp.program.program import Program
from simwarp.program.steps import Step
from simwarp.ptx.kinds import BARRIER, BRANCH, EXIT, LOAD, PURE, STORE, WARP
from simwarp.ptx.rows import DTYPES, storage
from simwarp.ptx.special_registers import CHANGING, TYPES

Key = tuple[str, Any]
"""An input: ("register", slot), ("special", name), or ("symbol", name) for a variable's address."""
LONGEST = 512
"""Steps of a segment: LLVM's time grows faster than its length."""
_WIDEST = 16
"""Bytes of the widest access."""


_SPACES = ("global", "shared", "local", "const", "generic")


@dataclass
class Access:
    """A load or store: its address, and the elements that it stores, one for each element of a vector.

    A load's elements are the values "loaded" of its step, numbered by ``about``.
    """

    step: Step
    address: Value
    dtype: Any
    stored: list[Value]

    @property
    def count(self) -> int:
        """The elements of the vector."""
        return self.step.form.vector

    @property
    def width(self) -> int:
        """Bytes that a lane accesses."""
        return self.dtype.itemsize * self.count


@dataclass
class Traced:
    """What a step computes: its guard, the registers that it writes, its inputs, and its access."""

    guard: Value | None
    writes: dict[int, Value]
    reads: set[Key]
    access: Access | None = None
    meeting: Meeting | None = None
    refused: Value | None = None
    """The lanes whose result has no meaning: those are NumPy's."""
    leaves: frozenset[bool] = frozenset()
    """At a branch, the values of its guard whose lanes leave the others for good: those are NumPy's."""

    @property
    def is_looked_at(self) -> bool:
        """Whether registers decide if NumPy executes the step: it is the first of its segment."""
        meets = self.meeting is not None and self.meeting.key is None
        return self.access is not None or bool(self.leaves) or meets or self.refused is not None


@dataclass
class Segment:
    """Steps that lanes execute together; a foreign one has a single step and no ``traced``.

    Attributes
    ----------
    first, end : int
        Its steps; the next segment starts at ``end``.
    branch : Step or None
        The branch that ends it.
    later : int
        The registers that steps behind it may read, one bit per slot.
    reads, writes : int
        Registers that it takes from before, and that it leaves to steps behind it; also those of all segments
        that follow it without a foreign one.
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
    later: int = 0
    reads: int = 0
    writes: int = 0
    inputs: frozenset[Key] = frozenset()
    loops: bool = False
    weight: int = 0

    @property
    def access(self) -> Access | None:
        """The access of its first step."""
        return self.traced[0].access if self.traced else None

    @property
    def meeting(self) -> Meeting | None:
        """What the lanes of its first step meet for."""
        return self.traced[0].meeting if self.traced else None

    @property
    def meetings(self) -> list[Meeting]:
        """What its lanes meet for; those behind the first step are decided by who executes it."""
        by_key = {
            one.meeting.key or one.meeting.step.number: one.meeting for one in self.traced if one.meeting
        }
        return list(by_key.values())

    @property
    def looks(self) -> bool:
        """Whether all warps are looked at before one executes it."""
        others = bool(self.meetings) or bool(self.leaves) or self.refused is not None
        return self.access is not None or others

    @property
    def refused(self) -> Value | None:
        """The lanes of its first step that are NumPy's."""
        return self.traced[0].refused if self.traced else None

    @property
    def leaves(self) -> frozenset[bool]:
        """The values of the guard of its only step whose lanes are NumPy's."""
        return self.traced[0].leaves if self.traced else frozenset()

    @property
    def prepared(self) -> Step | None:
        """The first step, if all warps are prepared for it before one executes it."""
        if self.access is not None:
            return self.access.step
        meeting = self.meeting
        return meeting.step if meeting is not None and meeting.step.kind is not WARP else None


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
        self.registers = self.launch = self
        self.symbols = _Symbols(self)
        self.refused: Value | None = None

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
        """Note the lanes that divide by zero."""
        self.refused = lanes


class _Symbols:
    """The addresses of the module's variables, while a step is traced."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getitem__(self, name: str) -> Value:
        return self._recorder.input(("symbol", name), np.uint64)


def register_types(program: Program) -> list[Any]:
    """The dtype in which each register is stored."""
    return [storage(kind) for kind in program.types]


def trace(step: Step, types: Sequence[Any]) -> Traced | None:
    """What a step computes; None for one that is not compiled."""
    if step.kind not in (PURE, BRANCH, LOAD, STORE, *KINDS):
        return None
    recorder: Any = Recorder(types)
    access = met = None
    try:
        guard = None if step.guard is None else step.guard(recorder)
        if guard is not None and not isinstance(guard, Value):
            return None
        if step.kind in (LOAD, STORE):
            access = _access(step, recorder)
        if step.kind in KINDS:
            met = meeting(step, recorder)
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
    return Traced(guard, recorder.writes, recorder.reads, access, met, recorder.refused)


def _access(step: Step, recorder: Any) -> Access:
    """A load or store of one state space, whose values are whole words of its type."""
    form = step.form
    if step.base is None or step.space not in _SPACES or form.is_strong:
        raise UntraceableError("an access")
    dtype, address = DTYPES[form.T], cast(step.base(recorder), np.dtype(np.uint64))
    if form.vector * dtype.itemsize > _WIDEST or dtype == np.float16:
        raise UntraceableError("a wide access")
    if step.kind is STORE:
        given = step.sources[0](recorder)
        stored = [_element(x, dtype) for x in (given if form.vector > 1 else [given])]
        return Access(step, address, dtype, stored)
    write, loaded = step.destinations[0], [Value("loaded", dtype, about=i) for i in range(form.vector)]
    if write is not None:
        write(recorder, loaded if form.vector > 1 else loaded[0])
    return Access(step, address, dtype, [])


def _element(x: Any, dtype: np.dtype[Any]) -> Value:
    """A stored element: its type is the access's, or has its width."""
    if not isinstance(x, Value):
        return constant(x, dtype)
    if x.dtype.itemsize != dtype.itemsize or x.dtype == np.bool_:
        raise UntraceableError("an element of another width")
    return x


def segments_of(program: Program, ways_out: Any) -> list[Segment]:
    """The segments of a kernel without device functions, in the order of their steps."""
    steps, types = program.steps, register_types(program)
    traced = [_compilable(step, program, types, ways_out) for step in steps]
    starts = {0, program.start, *(step.target for step in steps if step.kind is BRANCH)}
    for step in steps:
        starts |= set(step.table)
        one = traced[step.number]
        if one is None or one.is_looked_at:
            starts.add(step.number)
        if one is None or step.kind is BRANCH:
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
    for segment in found:
        _look_up(segment, program.live)
    _close(found)
    return found


def _compilable(step: Step, program: Program, types: Sequence[Any], ways_out: Any) -> Traced | None:
    """What a step computes, unless the scheduler treats it in a way of its own."""
    if step.kind is BARRIER and step.number not in program.whole_barriers:
        return None
    traced = trace(step, types)
    if traced is not None and step.kind is BRANCH:
        target, edges = program.steps[step.target], ways_out.get(step.number, ())
        ends = target.kind is EXIT and target.guard is None and step.guard is not None
        ways = {True: step.target, False: step.number + 1}
        leaves = {taken for taken, way in ways.items() if any(way in some for some in edges)}
        traced.leaves = frozenset(leaves | ({True} if ends else set()))
        if step.guard is None and True in traced.leaves:
            return None
    return traced


def _look_up(segment: Segment, live: Sequence[int]) -> None:
    """Find what a segment reads from outside, and which of the registers that it writes are read later."""
    later = live[segment.end]
    if segment.branch is not None:
        later |= live[segment.branch.target]
    written = 0
    for one in segment.traced:
        for kind, slot in one.reads:
            if kind == "register":
                segment.reads |= 1 << slot & ~written
            else:
                segment.inputs |= {(kind, slot)}
        for slot in one.writes:
            if one.guard is not None:  # the other lanes keep their value
                segment.reads |= 1 << slot & ~written
            written |= 1 << slot
    segment.later = later
    segment.writes = written & later
    segment.weight = segment.end - segment.first if segment.traced else 0


def _close(found: list[Segment]) -> None:
    """Find what each segment reads and writes with those that follow it, and whether it loops."""
    at = {segment.first: segment.number for segment in found}
    behind = [[at[pc] for pc in _ways(segment) if pc in at] for segment in found]
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
