"""Compiled kernels: they are entered from the state of a scheduler, and give it back.

A kernel is entered at a segment that loops, or is long, without a foreign step. All groups are handed over,
with the registers that the reachable segments read and write. What is unusual is left to NumPy: a register
that may be unwritten, an asynchronous product in flight, an observer of steps, the end of a budget.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from simwarp.compiled.code import Code, llvm
from simwarp.compiled.driver import AT_CURRENT, CONTEXT, IDLE, LATER, READY
from simwarp.compiled.segments import Key, Segment, register_types, segments_of
from simwarp.compiled.text import module
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from simwarp.compiled.state import Chunk, Mask, Scheduler
    from simwarp.program.program import Program

_QUOTA = 1 << 22
"""Steps of warps until Python looks for Ctrl-C: a few hundredths of a second."""
_LONG = 24
"""Steps without a loop that are worth an entry."""
_TRIES = 16
"""Entries at a segment before it is known whether they pay."""
_OVERHEAD = 16
"""Steps that NumPy executes while a kernel is entered and left."""
_MOST_STEPS = 4000
"""A longer kernel stays with NumPy: LLVM would take seconds."""
_EXECUTED, _STEPS, _LEFT, _BUDGET, _SEGMENT, _REASON, _LOOPS, _WARPS, _SPLITS = range(len(CONTEXT))


class Kernel:
    """A program's compiled segments, and the steps at which they may be entered."""

    def __init__(self, program: Program) -> None:
        self.types = register_types(program)
        self.segments: list[Segment] = []
        if len(program.routines) == 1 and len(program.steps) <= _MOST_STEPS and llvm() is not None:
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

    @cached_property
    def code(self) -> Code | None:
        """The machine code, made when it is first needed; None if LLVM refuses it."""
        try:
            return Code(module(self.segments, self.types, self.inputs, self.live))
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
        if not self._are_defined(scheduler, pc, reads | writes):
            return self._stays(pc)
        state = _State(self, scheduler, pc, before)
        slots, kept = self._slots(chunk, reads, writes)
        pointers, more = self._inputs(chunk, inputs)
        if not state.run(code, slots, pointers):
            return self._stays(pc)
        del more  # the arrays behind the pointers
        for slot, value in kept.items():
            if writes >> slot & 1:
                chunk.registers[slot] = value
                chunk.partial.pop(slot, None)
                chunk.bits.pop(slot, None)
        chunk.executed += int(state.context[_EXECUTED])
        steps = int(state.context[_STEPS])
        self.went(pc, steps)
        scheduler.spend(before + steps)
        return True, state.give_back()

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

    def _are_defined(self, scheduler: Scheduler, pc: int, slots: int) -> bool:
        """Whether every lane has a value in all registers of ``slots`` that it may still read."""
        chunk = scheduler.chunk
        lanes: list[tuple[int, Mask]] = [
            (pc, chunk.mask),
            *((at, group.mask) for at, group in scheduler.groups.items()),
            *scheduler.parked.items(),
        ]
        live = 0
        for at, _ in lanes:
            live |= self.live[at]
        for slot in _bits(slots & live):
            if chunk.registers[slot] is None:
                return False
            defined = chunk.partial.get(slot)
            if defined is not None and any(
                self.live[at] >> slot & 1 and (mask & ~defined).any() for at, mask in lanes
            ):
                return False
        return True

    def _slots(self, chunk: Chunk, reads: int, writes: int) -> tuple[Any, dict[int, Any]]:
        """The addresses of registers, by slot, and their arrays; those that are written are copies."""
        shape = chunk.live.shape
        table = np.zeros(len(self.types), np.uint64)
        kept: dict[int, Any] = {}
        for slot in _bits(reads | writes):
            value, dtype = chunk.registers[slot], self.types[slot]
            if writes >> slot & 1 or value is None:
                array = np.zeros(shape, dtype) if value is None else np.empty(shape, dtype)
                if value is not None:
                    array[...] = value
            else:
                array = np.ascontiguousarray(np.broadcast_to(value, shape))
            kept[slot] = array
            table[slot] = array.ctypes.data
        return table, kept

    def _inputs(self, chunk: Chunk, keys: frozenset[Key]) -> tuple[Any, list[Any]]:
        """The addresses of special registers, and their arrays."""
        table, kept = np.zeros(max(len(self.inputs), 1), np.uint64), list[Any]()
        for key in keys:
            value = chunk.special(key[1])
            array = np.ascontiguousarray(np.broadcast_to(value, chunk.live.shape))
            kept.append(array)
            table[self.inputs[key]] = array.ctypes.data
        return table, kept


def kernel_of(program: Program, make: bool) -> Kernel | None:
    """A program's kernel; if it has none yet, a new one if ``make``, else None."""
    found = _KERNELS.get(program)
    if found is None and make:
        found = _KERNELS[program] = Kernel(program)
    return found


_KERNELS: WeakKeyDictionary[Program, Kernel] = WeakKeyDictionary()


class _State:
    """A scheduler's groups as the driver has them: lanes, states and rounds by segment."""

    def __init__(self, kernel: Kernel, scheduler: Scheduler, pc: int, before: int) -> None:
        self._kernel, self._scheduler = kernel, scheduler
        count, warps = len(kernel.segments) + 1, len(scheduler.chunk.live)
        self.masks = np.zeros((count, warps), np.uint32)
        self.states = np.zeros(count, np.uint8)
        self.rounds = np.zeros(count, np.int64)
        self.flags = np.zeros(count, np.uint8)
        self.turns: dict[int, int] = {}
        launch = scheduler.launch
        self.context = np.zeros(len(CONTEXT), np.int64)
        first = kernel.at[pc].number
        self.masks[first] = _words(scheduler.chunk.mask)
        for at, group in scheduler.groups.items():
            number = kernel.at[at].number
            self.masks[number] |= _words(group.mask)
            self.states[number] = READY if group.turns == scheduler.turns else LATER
            self.rounds[number], self.flags[number] = group.rounds, group.loops
            self.turns[number] = group.turns
        self.context[_LEFT] = _QUOTA
        self.context[_BUDGET] = min(launch.steps_left - before, 1 << 62)
        self.context[_SEGMENT], self.context[_LOOPS] = first, scheduler.loops
        self.context[_WARPS] = warps
        self.context[_SPLITS] = warps >= 2 * 4

    def run(self, code: Code, slots: Any, inputs: Any) -> int:
        """Run the driver until something is NumPy's; returns the number of steps."""
        drive, context = code.drive, self.context
        tables = (slots, inputs, self.masks, self.states, self.rounds, self.flags, context)
        places = [table.ctypes.data for table in tables]
        while True:
            reason = drive(*places)
            if reason != AT_CURRENT or context[_LEFT] > 0:
                return int(context[_STEPS])
            context[_LEFT] = _QUOTA  # Python has looked for Ctrl-C

    def give_back(self) -> int | None:
        """Give the groups back to the scheduler; returns the step of the current group."""
        scheduler, segments = self._scheduler, self._kernel.segments
        groups: dict[int, tuple[Mask, int, bool, int]] = {}
        for number in np.flatnonzero(self.states != IDLE).tolist():
            turns = self.turns[number] if self.states[number] == LATER else scheduler.turns
            loops, rounds = bool(self.flags[number]), int(self.rounds[number])
            groups[segments[number].first] = _mask(self.masks[number]), turns, loops, rounds
        scheduler.take_over(groups)
        if self.context[_REASON] != AT_CURRENT:
            return None
        number = int(self.context[_SEGMENT])
        scheduler.loops = int(self.context[_LOOPS])
        scheduler.enter(_mask(self.masks[number]))
        return segments[number].first


def _bits(word: int) -> list[int]:
    """The numbers of the bits that are 1."""
    found = list[int]()
    while word:
        low = word & -word
        found.append(low.bit_length() - 1)
        word ^= low
    return found


def _words(mask: Mask) -> npt.NDArray[np.uint32]:
    """(warps,): a mask's lanes as the bits of a word for each warp."""
    return np.packbits(mask, axis=1, bitorder="little").view(np.uint32)[:, 0]


def _mask(words: npt.NDArray[np.uint32]) -> Mask:
    """(warps, 32): the lanes whose bits are 1."""
    bits = np.unpackbits(words[:, None].view(np.uint8), axis=1, bitorder="little")
    return bits.reshape(-1, WARP_SIZE).view(np.bool_)
