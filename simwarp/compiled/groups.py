"""A scheduler's groups as the driver has them: the lanes at each segment, their states and rounds."""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.compiled.driver import AT_CURRENT, IDLE, LATER, READY
from simwarp.compiled.registers import address
from simwarp.compiled.tables import Context
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simwarp.compiled.segments import Segment
    from simwarp.compiled.state import Mask, Scheduler, Table
    from simwarp.llvm import MachineCode

_QUOTA = 1 << 19
"""Steps of warps until Python looks for Ctrl-C: at most a tenth of a second."""
_SPLITS = 8
"""Warps of a chunk that may run on a compact copy; see `simwarp.engine.schedule.scheduler`."""


class Groups:
    """The groups of a chunk, between entries empty."""

    def __init__(self, segments: Sequence[Segment], at: Mapping[int, Segment], warps: int) -> None:
        self._segments, self._at = segments, at
        count = len(segments) + 1
        self._masks = np.zeros((count, warps), np.uint32)
        self._states = np.zeros(count, np.uint8)
        self._rounds = np.zeros(count, np.int64)
        self._flags = np.zeros(count, np.uint8)
        self._turns: dict[int, int] = {}
        self._tables = [address(t) for t in (self._masks, self._states, self._rounds, self._flags)]

    def enter(self, scheduler: Scheduler, pc: int, before: int, context: Table) -> None:
        """Take the scheduler's groups; the current one stands at ``pc``, ``before`` steps after its last."""
        chunk, first = scheduler.chunk, self._at[pc].number
        warps = len(chunk.live)
        self._masks[first] = words(chunk.mask)
        self._turns.clear()
        for at, group in scheduler.groups.items():
            number = self._at[at].number
            self._masks[number] |= words(group.mask)
            self._states[number] = READY if group.turns == scheduler.turns else LATER
            self._rounds[number], self._flags[number] = group.rounds, group.loops
            self._turns[number] = group.turns
        context[Context.QUOTA] = _QUOTA
        context[Context.BUDGET] = min(scheduler.launch.steps_left - before, 1 << 62)
        context[Context.SEGMENT], context[Context.LOOPS] = first, scheduler.loops
        context[Context.WARPS], context[Context.SPLITS] = warps, warps >= _SPLITS

    def run(self, code: MachineCode, registers: Table, inputs: Table, context: Table) -> None:
        """Run the driver until something is NumPy's."""
        tables = address(registers), address(inputs), *self._tables, address(context)
        drive = code.function("drive", c_int64, *[c_void_p] * len(tables))
        while drive(*tables) == AT_CURRENT and context[Context.QUOTA] <= 0:
            context[Context.QUOTA] = _QUOTA  # Python has looked for Ctrl-C

    def leave(self, scheduler: Scheduler, context: Table) -> int | None:
        """Give the groups back to the scheduler; returns the step of the current group."""
        groups: dict[int, tuple[Mask, int, bool, int]] = {}
        for number in np.flatnonzero(self._states != IDLE).tolist():
            turns = self._turns[number] if self._states[number] == LATER else scheduler.turns
            loops, rounds = bool(self._flags[number]), int(self._rounds[number])
            groups[self._segments[number].first] = self._take(number), turns, loops, rounds
        self._states[:] = IDLE
        scheduler.take_over(groups)
        if context[Context.REASON] != AT_CURRENT:
            return None
        number = int(context[Context.SEGMENT])
        scheduler.loops = int(context[Context.LOOPS])
        scheduler.enter(self._take(number))
        return self._segments[number].first

    def forget(self) -> None:
        """Drop the groups of an entry that ran nothing."""
        self._masks[:] = 0
        self._states[:] = IDLE

    def _take(self, number: int) -> Mask:
        """The lanes at a segment, which are then gone."""
        mask = _mask(self._masks[number])
        self._masks[number] = 0
        return mask


def words(mask: Mask) -> npt.NDArray[np.uint32]:
    """(warps,): a mask's lanes as the bits of a word for each warp."""
    return np.packbits(mask, axis=1, bitorder="little").view(np.uint32)[:, 0]


def _mask(words: npt.NDArray[np.uint32]) -> Mask:
    """(warps, 32): the lanes whose bits are 1."""
    bits = np.unpackbits(words[:, None].view(np.uint8), axis=1, bitorder="little")
    return bits.reshape(-1, WARP_SIZE).view(np.bool_)
