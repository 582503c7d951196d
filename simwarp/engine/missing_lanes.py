"""Who never came: lanes that are gone when others open a barrier, or compute across a warp, that names them.

A barrier without a count names all threads of its block; an aligned one, with or without a count, whole
warps; an operation of a warp the lanes of its member mask. Whoever exited cannot come, and hardware does not
wait. Whether a lane returned early, which is an idiom, or skipped what the others wait at, which is a bug,
say the ways it took (`simwarp.program.exits`): only where lanes part for good is anything noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import EarlyExit, KernelFault, SkippedBarrier, SkippedMember
from simwarp.lanes import WARP_SIZE, mask_word
from simwarp.program.exits import RETURNS, WORKS

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask

_BARRIER = "let every thread of the block come to the barrier: take it out of the condition"
_MEMBERS = "name the lanes that come, by __ballot_sync() before the branch, or let all of them come"


class _Gone:
    """What is known of the lanes of a chunk that left for good."""

    def __init__(self, chunk: Chunk, strict: bool) -> None:
        self._born, self._strict, self.shape = chunk.live, strict, chunk.live.shape
        self.settled: Mask | None = chunk.live
        """The live lanes, if nobody else need be asked for."""
        self._early: Mask | None = None
        self._told: Mask | None = None
        self._left_at: npt.NDArray[np.int32] | None = None

    def note(self, rows: Any, at: int, lanes: Mask, what: int) -> None:
        """Lanes took a way out."""
        if self._early is None or self._left_at is None:
            self._early = np.zeros_like(self._born)
            self._left_at = np.full(self._born.shape, -1, np.int32)
        left_at = self._left_at[rows]
        first = lanes & (left_at < 0)
        if what == RETURNS:
            self._early[rows] |= first
        else:
            self._early[rows] &= ~lanes
        if what != WORKS:
            self._left_at[rows] = np.where(first, at, left_at)

    def missing(self, chunk: Chunk, rows: Any) -> Mask | None:
        """The lanes that are gone and were not told of; None if there are none."""
        gone = self._born[rows] & ~chunk.live
        if self._told is not None:
            gone &= ~self._told[rows]
        if self._early is not None and not self._strict:
            gone &= ~self._early[rows]
        if gone.any():
            return gone
        self.settled = chunk.live
        return None

    def tell(self, rows: Any, lanes: Mask) -> None:
        """Do not speak of these lanes again."""
        if self._told is None:
            self._told = np.zeros_like(self._born)
        self._told[rows] |= lanes

    def early(self, rows: Any, shape: tuple[int, ...]) -> Mask:
        """Those that returned early."""
        return np.zeros(shape, np.bool_) if self._early is None else self._early[rows]

    def left_at(self, rows: Any, warp: int, lane: int) -> int:
        """The step where a lane parted from the others; -1 if it came to the end with them."""
        return -1 if self._left_at is None else int(self._left_at[rows][warp, lane])


class Attendance:
    """Who left, and who is missed at the barriers of a chunk's blocks and the operations of its warps."""

    def __init__(self, chunk: Chunk) -> None:
        checks = chunk.launch.checks
        strict = checks.action("exits") != "off"
        self.ways = chunk.program.ways_out
        self.block = _Gone(chunk, strict)
        self.warp = _Gone(chunk, strict)
        self.agreed: tuple[Any, Any] = (None, None)
        """Member masks that fit one another, and the lanes for which that was seen."""
        self._passed: dict[int, npt.NDArray[np.uint32]] = {}
        """For operations that lanes passed with another mask than some that wait there: that mask."""

    def part(self, chunk: Chunk, at: int, ways: Mapping[int, Mask]) -> None:
        """Lanes go different ways from a step, of which some lead out for good."""
        rows = _rows(chunk)
        for told, gone in zip(self.ways[at], (self.block, self.warp), strict=True):
            for way, lanes in ways.items():
                if way in told and lanes.any():
                    gone.note(rows, at, lanes, told[way])

    # ---- barriers --------------------------------------------------------------------------------------

    def at_barrier(
        self, chunk: Chunk, waiting: Mask, counted: Mask | None = None, aligned: Mask | None = None
    ) -> None:
        """Find whom a barrier missed that these lanes pass; the chunk is a whole one."""
        rows = slice(None)
        missing = self.block.missing(chunk, rows)
        if missing is None:
            return
        over = ~_of_blocks(chunk, chunk.live) & missing
        if over.any():  # blocks that are over wait for nobody
            self.block.tell(rows, over)
            missing &= ~over
        whole = waiting if aligned is None else waiting & aligned
        uncounted = waiting if counted is None else waiting & ~counted
        missed = missing & (_of_blocks(chunk, uncounted) | whole.any(axis=1, keepdims=True))
        self._tell(chunk, self.block, missed, waiting, _of_blocks)

    # ---- operations of a warp --------------------------------------------------------------------------

    def at_operation(self, chunk: Chunk, lanes: Mask, members: Any) -> None:
        """Find whom an operation missed that these lanes execute."""
        rows = _rows(chunk)
        missing = self.warp.missing(chunk, rows)
        if missing is None:
            return
        over = missing & ~chunk.live.any(axis=1, keepdims=True) & ~lanes.any(axis=1, keepdims=True)
        if over.any():
            self.warp.tell(rows, over)
            missing &= ~over
        named = np.where(lanes, members, 0)
        words = np.bitwise_or.reduce(named, axis=1, keepdims=True)
        missed = missing & (words >> np.arange(WARP_SIZE, dtype=np.uint32) & 1).astype(np.bool_)
        self._tell(chunk, self.warp, missed, lanes, _of_warps, members)

    def passed(self, chunk: Chunk, lanes: Mask, members: Any) -> None:
        """Lanes go on from an operation where others, with another mask, still wait for them."""
        at, rows = chunk.step.number, _rows(chunk)
        masks = self._passed.setdefault(at, np.zeros(self.warp.shape, np.uint32))
        masks[rows] = np.where(lanes, members, masks[rows])

    # ---- telling ---------------------------------------------------------------------------------------

    def _tell(
        self, chunk: Chunk, gone: _Gone, missed: Mask, waiting: Mask, group: Any, members: Any = None
    ) -> None:
        if not missed.any():
            return
        rows = _rows(chunk)
        gone.tell(rows, missed)
        early = missed & gone.early(rows, missed.shape)
        for some, returned in ((missed & ~early, False), (early, True)):
            if some.any():
                waits = waiting & group(chunk, some)
                fault = self._fault(chunk, gone, some, waits, members, returned)
                chunk.found(fault, int(waits.argmax()))

    def _fault(
        self, chunk: Chunk, gone: _Gone, missed: Mask, waits: Mask, members: Any, returned: bool
    ) -> KernelFault:
        """The fault of lanes that wait for some that never came."""
        waiting_warp = int(waits.argmax()) // WARP_SIZE
        here = missed[waiting_warp]
        warp = waiting_warp if here.any() else int(missed.argmax()) // WARP_SIZE
        lane = int(missed[warp].argmax())
        what, advice = "a barrier that threads of its block never came to", _BARRIER
        values = f"warp {int(chunk.warp_in_block[warp, 0])}, lanes {_numbers(missed[warp])}"
        if members is not None:
            word = int(np.broadcast_to(members, waits.shape).reshape(-1)[int(waits.argmax())])
            what, advice = f"{chunk.step.instruction.opcode}: lanes of its member mask never came", _MEMBERS
            values = f"member mask {word:#010x}; lanes {_numbers(missed[warp])}"
        rows, step = _rows(chunk), chunk.step
        at = gone.left_at(rows, warp, lane)
        thread = int(chunk.thread[warp, lane])
        left = chunk.place_of(thread, chunk.program.steps[at] if at >= 0 else step)
        if at < 0:
            values += " came to the end of the kernel, having been here less often"
            left = replace(left, line=None, source_file=None, source_line=None, text="")
        else:
            values += f" {'returned' if returned else 'went another way'} at " + str(
                replace(left, kernel="", block=None, warp=None)
            )
        passed = self._passed.get(step.number)
        if passed is not None and members is not None and (mask := int(passed[rows][warp, lane])):
            values += f"; they passed it with the mask {mask:#010x}"
        fault = (EarlyExit if returned else SkippedBarrier if members is None else SkippedMember)(
            what, values, advice
        )
        fault.left, fault.lanes = left, int(mask_word(missed)[warp, 0])
        return fault


def _rows(chunk: Chunk) -> Any:
    """Where the warps of a part stand in the whole chunk."""
    return chunk.warp[:, 0] if chunk.is_part else slice(None)


def _of_blocks(chunk: Chunk, lanes: Mask) -> Mask:
    """(warps, 1): the warps of the blocks that have one of these lanes."""
    some = lanes.reshape(chunk.blocks, -1).any(axis=1)
    return np.repeat(some, chunk.warps_per_block).reshape(-1, 1)


def _of_warps(_: Chunk, lanes: Mask) -> Mask:
    return np.asarray(lanes.any(axis=1, keepdims=True))


def _numbers(lanes: npt.NDArray[np.bool_]) -> str:
    """Lanes in words."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lanes.astype(np.int8), [0]]))).tolist()
    runs = [(first, end - 1) for first, end in zip(edges[::2], edges[1::2], strict=True)]
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
