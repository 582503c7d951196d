"""Compiled kernels: they are entered from the state of a scheduler, and give it back.

A kernel is entered at a segment that loops, or is long, without a foreign step. All groups are handed over,
with the registers that the reachable segments read and write. What is unusual is left to NumPy: a register
that may be unwritten, an asynchronous product in flight, an observer of steps, the end of a budget.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from simwarp.compiled.groups import Groups
from simwarp.compiled.memory import Memory, shared_code
from simwarp.compiled.registers import Registers
from simwarp.compiled.segments import Key, Segment, register_types, segments_of
from simwarp.compiled.tables import Context
from simwarp.compiled.text import module
from simwarp.llvm import MachineCode, code_of, llvm

if TYPE_CHECKING:
    from simwarp.compiled.state import Chunk, Scheduler
    from simwarp.program.program import Program

_LONG = 24
"""Steps without a loop that are worth an entry."""
_TRIES = 16
"""Entries at a segment before it is known whether they pay."""
_OVERHEAD = 16
"""Steps that NumPy executes while a kernel is entered and left."""
_MOST_STEPS = 4000
"""A longer kernel stays with NumPy: LLVM would take seconds."""


class Kernel:
    """A program's compiled segments, and the steps at which they may be entered."""

    def __init__(self, program: Program) -> None:
        self.types = register_types(program)
        self.segments: list[Segment] = []
        if len(program.routines) == 1 and len(program.steps) <= _MOST_STEPS and llvm() is not None:
            with np.errstate(all="ignore"):  # rows compute what is constant
                self.segments = segments_of(program, program.ways_out)
        self.live = program.live
        self.at = {segment.first: segment for segment in self.segments}
        own = [segment for segment in self.segments if not segment.foreign]
        self.every = {segment.first for segment in own}
        """The steps where it can be entered."""
        self.paying = {segment.first for segment in own if segment.loops or segment.weight >= _LONG}
        """Those where that may pay; where it did not, they are taken out."""
        self._tried: dict[int, list[int]] = {}
        keys = sorted({key for segment in self.segments for key in segment.inputs})
        self.inputs: dict[Key, int] = {key: i for i, key in enumerate(keys)}
        self.prepared = [segment for segment in self.segments if segment.prepared is not None]

    @cached_property
    def code(self) -> MachineCode | None:
        """The machine code, made when it is first needed; None if LLVM refuses it."""
        try:
            shared_code()
            return code_of(module(self.segments, self.types, self.inputs))
        except RuntimeError:
            self.every.clear()
            self.paying.clear()
            return None

    def went(self, pc: int, steps: int) -> None:
        """Note how many steps an entry was good for; take out a place where it does not pay."""
        tried = self._tried.setdefault(pc, [0, 0])
        tried[0] += 1
        tried[1] += steps
        if tried[0] >= _TRIES:
            if tried[1] < tried[0] * _OVERHEAD:
                self.paying.discard(pc)
            tried[:] = [0, 0]

    # ---- entering --------------------------------------------------------------------------------------

    def go(self, scheduler: Scheduler, pc: int, before: int) -> tuple[bool, int | None]:
        """Run from the current group's step on, as far as it goes.

        Returns whether anything was run, and the step where the current group, perhaps another one, goes on
        in NumPy; None if none is current. The group has executed ``before`` steps that are not spent yet.
        """
        chunk = scheduler.chunk
        ready = [pc, *(at for at, group in scheduler.groups.items() if group.turns == scheduler.turns)]
        code = self.code
        if code is None or not self._may_enter(scheduler, ready):
            return self._stays(pc)
        reads = writes = 0
        inputs = frozenset[Key]()
        for at in ready:
            segment = self.at[at]
            reads, writes, inputs = reads | segment.reads, writes | segment.writes, inputs | segment.inputs
        tables = self._tables(chunk)
        lanes = [
            (self.live[pc], chunk.mask),
            *((self.live[at], group.mask) for at, group in scheduler.groups.items()),
            *((self.live[at], mask) for at, mask in scheduler.parked.items()),
        ]
        if not tables.registers.are_defined(reads | writes, lanes):
            return self._stays(pc)
        context = tables.context
        context[:] = 0
        tables.groups.enter(scheduler, pc, before, context)
        tables.registers.enter(reads, writes, inputs)
        if tables.memory is not None:
            tables.memory.enter(context, scheduler)
        tables.groups.run(code, tables.registers.table, tables.registers.inputs, context)
        if tables.memory is not None:
            tables.memory.leave(context)
        steps = int(context[Context.STEPS])
        if not steps:
            tables.groups.forget()
            return self._stays(pc)
        tables.registers.leave(writes)
        chunk.executed += int(context[Context.EXECUTED])
        self.went(pc, steps)
        scheduler.spend(before + steps)
        return True, tables.groups.leave(scheduler, context)

    def _tables(self, chunk: Chunk) -> Tables:
        """What compiled code shares with a chunk, or a part of one, made at its first entry."""
        if chunk.tables is None or chunk.tables.chunk is not chunk:
            chunk.tables = Tables(self, chunk)
        return chunk.tables

    def _stays(self, pc: int) -> tuple[bool, int]:
        """What `go` returns if nothing was run."""
        self.went(pc, 0)
        return False, pc

    def _may_enter(self, scheduler: Scheduler, ready: list[int]) -> bool:
        """Whether the scheduler's state has nothing that compiled code does not know."""
        chunk, launch = scheduler.chunk, scheduler.launch
        if launch.on_step or chunk.order is not None or not math.isinf(launch.units_left):
            return False
        if chunk.products is not None and chunk.products.in_flight:
            return False
        if any(at not in self.at for at in (*ready, *scheduler.groups)):
            return False
        return all(group.turns >= scheduler.turns for group in scheduler.groups.values())


class Tables:
    """What compiled code shares with a chunk: its registers, groups and memory."""

    def __init__(self, kernel: Kernel, chunk: Chunk) -> None:
        self.chunk = chunk
        self.context = np.zeros(len(Context), np.int64)
        self.registers = Registers(chunk, kernel.types, kernel.inputs)
        self.groups = Groups(kernel.segments, kernel.at, len(chunk.live))
        looks = any(segment.looks for segment in kernel.segments)
        self.memory = Memory(chunk, kernel.prepared) if looks else None


def kernel_of(program: Program, make: bool) -> Kernel | None:
    """A program's kernel; if it has none yet, a new one if ``make``, else None."""
    found = _KERNELS.get(program)
    if found is None and make:
        found = _KERNELS[program] = Kernel(program)
    return found


_KERNELS: WeakKeyDictionary[Program, Kernel] = WeakKeyDictionary()
