"""Lanes that exited before a barrier or a warp operation that should include them.

A barrier without a thread count includes all threads of its block; an aligned one, with or without a count,
whole warps; a warp operation the lanes of its member mask. Exited lanes cannot arrive, and hardware does not
wait for them. The branches a lane took (`simwarp.program.exits`) show whether it returned early, which is an
idiom, or skipped the barrier, which is a bug. Who returned early but was at the very barrier before, in an
earlier round of a loop, skipped it as well. Only branches by which lanes leave for good are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import EarlyExit, KernelFault, Place, SkippedBarrier, SkippedMember
from simwarp.lanes import WARP_SIZE, mask_word
from simwarp.program.exits import RETURNS, WORKS

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask
    from simwarp.program.program import Step

_BARRIER = "let every thread of the block reach the barrier: move it out of the condition"
_ROUNDS = "let every thread of the block go round the loop as often as the others, the last time without work"
_LEFT = "left the loop"
_MEMBERS = "name only lanes that reach it, by __ballot_sync() before the branch, or let all of them reach it"


class _Gone:
    """The lanes of a chunk that have left the other lanes of their warp or block, and cannot rejoin them."""

    def __init__(self, chunk: Chunk, strict: bool) -> None:
        self._born, self._strict, self.shape = chunk.live, strict, chunk.live.shape
        self.settled: Mask | None = chunk.live
        """The live lanes when no other lane was missing."""
        self._reported, self._early = np.zeros_like(self._born), np.zeros_like(self._born)
        self.met_somewhere = np.zeros_like(self._born)
        """The lanes that were at one of the barriers that are remembered."""
        self._left_at = np.zeros(self.shape, np.int32)
        """1 + the number of the step where each lane left the others; 0 if it did not."""

    def note(self, warps: Any, at: int, lanes: Mask, what: int) -> None:
        """Record that lanes took an edge out at step ``at``, with one of the meanings of `exits`."""
        left_at = self._left_at[warps]
        first = lanes & (left_at == 0)
        if what == RETURNS:
            self._early[warps] |= first
        else:
            self._early[warps] &= ~lanes
        if what != WORKS:
            self._left_at[warps] = np.where(first, at + 1, left_at)

    def missing(self, chunk: Chunk, warps: Any, met: Mask | None = None) -> Mask | None:
        """The exited lanes that have not been reported yet; None if there are none.

        Lanes that returned early count if they ``met`` the others here before.
        """
        gone = self._born[warps] & ~(chunk.live | self._reported[warps])
        elsewhere = False
        if not self._strict:
            early = gone & self._early[warps]
            gone &= ~early if met is None else ~early | met
            elsewhere = met is not None and bool((early & self.met_somewhere).any())
        if gone.any():
            return gone
        if not elsewhere:
            self.settled = chunk.live
        return None

    def report(self, warps: Any, lanes: Mask) -> Mask:
        """Exclude lanes from later reports; returns the lanes that returned early from the kernel."""
        self._reported[warps] |= lanes
        return lanes & self._early[warps]

    def left_at(self, warps: Any, warp: int, lane: int) -> int:
        """The step where a lane left its warp's other lanes; -1 if all ran to the end together."""
        return int(self._left_at[warps][warp, lane]) - 1


class Attendance:
    """Detects lanes that are missing at barriers of blocks and at operations of warps."""

    def __init__(self, chunk: Chunk) -> None:
        checks = chunk.launch.checks
        strict = checks.action("exits") != "off"
        self.ways = chunk.program.ways_out
        self.block = _Gone(chunk, strict)
        self.warp = _Gone(chunk, strict)
        self.agreed: tuple[Any, Any] = (None, None)
        """Member masks that agree across their lanes, and the live lanes at that time."""
        self._debug = chunk.program.debug
        """With ``-G`` nothing is unrolled, and what is inlined has its own lines only."""
        self._met: dict[Any, Mask] = {}
        """Place of a barrier in the source → the lanes that passed it."""
        returns = any(RETURNS in block.values() for block, _ in self.ways.values())
        self._kernel = (
            chunk.program.routines[chunk.program.name].first if returns else len(chunk.program.steps)
        )
        """The first step whose barriers are remembered: those of functions have several callers."""
        self._passed: dict[int, npt.NDArray[np.uint32]] = {}
        """Step → the member mask with which each lane passed it, where others wait with another mask."""

    def part(self, chunk: Chunk, at: int, ways: Mapping[int, Mask]) -> None:
        """Record the lanes that leave the others for good at a branch, by branch target."""
        warps = _warps(chunk)
        for exits, gone in zip(self.ways[at], (self.block, self.warp), strict=True):
            for way, lanes in ways.items():
                if way in exits and lanes.any():
                    gone.note(warps, at, lanes, exits[way])

    # ---- barriers --------------------------------------------------------------------------------------

    def at_barrier(
        self, chunk: Chunk, waiting: Mask, counted: Mask | None = None, aligned: Mask | None = None
    ) -> None:
        """Report lanes missing at a barrier that the ``waiting`` lanes of a whole chunk pass.

        ``counted`` lanes (None: none) are at a barrier with a thread count, ``aligned`` lanes (None: all) at
        an aligned barrier, which takes whole warps.
        """
        met = self._met.get(self._site(chunk.step), np.zeros_like(waiting)) if self._met else None
        missing = self.block.missing(chunk, slice(None), met)
        if missing is None:
            return
        over = ~_of_blocks(chunk, chunk.live) & missing
        if over.any():  # a block without live lanes does not wait for any lane
            self.block.report(slice(None), over)
            missing &= ~over
        whole = waiting if aligned is None else waiting & aligned
        uncounted = waiting if counted is None else waiting & ~counted
        missed = missing & (_of_blocks(chunk, uncounted) | whole.any(axis=1, keepdims=True))
        self._report(chunk, self.block, missed, waiting, _of_blocks, met=met)

    def meet(self, step: Step, lanes: Mask) -> None:
        """Remember that lanes pass a barrier, if others may return to it from a loop."""
        if step.number >= self._kernel:
            site = self._site(step)
            self._met[site] = self._met[site] | lanes if site in self._met else lanes
            self.block.met_somewhere |= lanes

    def _site(self, step: Step) -> Any:
        """The source location of a barrier, shared by all copies of an unrolled loop; else its step."""
        line, site = None if self._debug else step.instruction.source, list[tuple[str, int, int]]()
        while line is not None:
            site.append((line.file, line.line, line.column))
            line = line.caller
        return tuple(site) or step.number

    # ---- operations of a warp --------------------------------------------------------------------------

    def at_operation(self, chunk: Chunk, lanes: Mask, members: Any) -> None:
        """Report members missing at a warp operation that ``lanes`` execute."""
        warps = _warps(chunk)
        missing = self.warp.missing(chunk, warps)
        if missing is None:
            return
        over = missing & ~chunk.live.any(axis=1, keepdims=True) & ~lanes.any(axis=1, keepdims=True)
        if over.any():
            self.warp.report(warps, over)
            missing &= ~over
        named = np.where(lanes, members, 0)
        words = np.bitwise_or.reduce(named, axis=1, keepdims=True)
        missed = missing & (words >> np.arange(WARP_SIZE, dtype=np.uint32) & 1).astype(np.bool_)
        self._report(chunk, self.warp, missed, lanes, _of_warps, members)

    def passed(self, chunk: Chunk, lanes: Mask, members: Any) -> None:
        """Record member masks of lanes that pass a warp operation while lanes with other masks still wait."""
        masks = self._passed.setdefault(chunk.step.number, np.zeros(self.warp.shape, np.uint32))
        warps = _warps(chunk)
        masks[warps] = np.where(lanes, members, masks[warps])

    # ---- faults ----------------------------------------------------------------------------------------

    def _report(
        self,
        chunk: Chunk,
        gone: _Gone,
        missed: Mask,
        waiting: Mask,
        group: Any,
        members: Any = None,
        met: Mask | None = None,
    ) -> None:
        """Report lanes that missed a barrier or warp operation: skipped it, or returned early."""
        if not missed.any():
            return
        early = gone.report(_warps(chunk), missed)
        again = early & met if met is not None else np.zeros_like(early)
        for some, how in (
            (missed & ~early, "went another way"),
            (again, _LEFT),
            (early & ~again, "returned"),
        ):
            if some.any():
                waits = waiting & group(chunk, some)
                fault = self._fault(chunk, gone, some, waits, members, how)
                chunk.found(fault, int(waits.argmax()))

    def _fault(
        self, chunk: Chunk, gone: _Gone, missed: Mask, waits: Mask, members: Any, how: str
    ) -> KernelFault:
        """The fault of lanes that wait for ``missed`` lanes: how and where the missed lanes left."""
        waiting_warp, warps, step = int(waits.argmax()) // WARP_SIZE, _warps(chunk), chunk.step
        warp = waiting_warp if missed[waiting_warp].any() else int(missed.argmax()) // WARP_SIZE
        lane = int(missed[warp].argmax())
        what, advice = "a barrier that threads of its block never reached", _BARRIER
        if how == _LEFT:
            what, advice = "a barrier that threads of its block passed before and left behind", _ROUNDS
        values = f"warp {int(chunk.warp_in_block[warp, 0])}, lanes {_numbers(missed[warp])}"
        if members is not None:
            word = int(np.broadcast_to(members, waits.shape).reshape(-1)[int(waits.argmax())])
            what, advice = f"{step.instruction.opcode}: lanes of its member mask never reached it", _MEMBERS
            values = f"member mask {word:#010x}; lanes {_numbers(missed[warp])}"
        at = gone.left_at(warps, warp, lane)
        left = chunk.place_of(int(chunk.thread[warp, lane]), chunk.program.steps[at] if at >= 0 else step)
        if at < 0:
            values += " reached the end of the kernel after fewer passes here"
            left = Place(left.kernel, left.block, left.warp, left.lane, left.thread)
        else:
            values += f" {how}"
        passed = self._passed.get(step.number)
        if passed is not None and members is not None and (mask := int(passed[warps][warp, lane])):
            values += f"; they passed it with the mask {mask:#010x}"
        kind = EarlyExit if how == "returned" else SkippedBarrier if members is None else SkippedMember
        fault = kind(what, values, advice, left=left, lanes=int(mask_word(missed)[warp, 0]))
        if at >= 0:
            fault.note(f"the first one {how} here:", left)
        return fault


def _warps(chunk: Chunk) -> Any:
    """Indices of the chunk's warps in the whole chunk, of which this may be a part."""
    return chunk.warp[:, 0] if chunk.is_part else slice(None)


def _of_blocks(chunk: Chunk, lanes: Mask) -> Mask:
    """(warps, 1): whether the warp's block has one of these lanes."""
    some = lanes.reshape(chunk.blocks, -1).any(axis=1)
    return np.repeat(some, chunk.warps_per_block).reshape(-1, 1)


def _of_warps(_: Chunk, lanes: Mask) -> Mask:
    """(warps, 1): whether the warp has one of these lanes."""
    return np.asarray(lanes.any(axis=1, keepdims=True))


def _numbers(lanes: npt.NDArray[np.bool_]) -> str:
    """Lane numbers for a message, such as "1, 4-6, 31"."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lanes.astype(np.int8), [0]]))).tolist()
    runs = [(first, end - 1) for first, end in zip(edges[::2], edges[1::2], strict=True)]
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
