"""Barriers of a block and of a cluster (PTX ISA 9.7.13.1 and 9.7.13.4): who is there, who is missing.

A block has sixteen barriers. Threads that wait stand at any instruction of the same barrier;
``arrive`` counts without waiting. A barrier with a count is complete when that many threads came, one
without when all threads of the block did that have not exited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import BarrierFault
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from simwarp.ptx.chunk import Chunk, Mask
    from simwarp.ptx.program import Step

BARRIERS = 16
_NONE = -1


class Barriers:
    """The barriers of the blocks in a chunk.

    Attributes
    ----------
    waits_at : (warps, 32) int
        The barrier that each lane waits at; -1 if it does not wait.
    expects : (warps, 32) int
        How many threads that barrier takes; 0 for all.
    arrived : dict of int to (warps, 32) int
        For each barrier, how often each lane arrived without waiting.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.waits_at = np.full(chunk.mask.shape, _NONE, np.int64)
        self.expects = np.zeros(chunk.mask.shape, np.int64)
        self.arrived: dict[int, npt.NDArray[np.int64]] = {}
        self._promised: dict[int, npt.NDArray[np.int64]] = {}
        self._opened = self.waits_at

    def come(self, step: Step, mask: Mask) -> None:
        """Lanes execute a barrier instruction: note it."""
        number, count = self._operands(step)
        if step.form.has("arrive"):
            for which in np.unique(number[mask]).tolist():
                here = mask & (number == which)
                self._expect(which, here, count)
                self.arrived[which] = self.arrived.get(which, 0) + here.astype(np.int64)
                self._promised[which] = np.where(here, count, self._promised.get(which, 0))
            return
        self.waits_at = np.where(mask, number, self.waits_at)
        self.expects = np.where(mask, count, self.expects)

    def complete(self) -> Mask:
        """The waiting lanes whose barrier is complete; they stop waiting."""
        chunk = self.chunk
        free = np.zeros(chunk.mask.shape, np.bool_)
        for which in {*np.unique(self.waits_at[self.waits_at != _NONE]).tolist(), *self.arrived}:
            waiting, arrived = self.waits_at == which, self.arrived.get(which, np.zeros_like(self.expects))
            came = waiting + arrived
            promised = np.where(arrived > 0, self._promised.get(which, 0), 0)
            expected = self._by_block(np.where(waiting, self.expects, promised), np.maximum.reduce)
            absent = self._by_block((chunk.live & (came == 0)).astype(np.int64))
            counted = self._by_block(self._threads(came))
            done = np.where(expected > 0, counted >= expected, absent == 0)
            here = np.repeat(done, chunk.warps_per_block).reshape(-1, 1)
            if which in self.arrived:
                self.arrived[which] = np.where(here, 0, arrived)
            free |= waiting & here
        self._opened = np.where(free, self.waits_at, _NONE)
        self.waits_at = np.where(free, _NONE, self.waits_at)
        return free

    def reduce(self, operation: str, predicate: Any, lanes: Mask) -> Any:
        """``bar.red``: what the predicates of the lanes that come through a barrier together give."""
        holds = np.broadcast_to(predicate, lanes.shape) & lanes
        result = np.zeros(lanes.shape, np.uint32 if operation == "popc" else np.bool_)
        for which in np.unique(self._opened[lanes]).tolist():
            there = lanes & (self._opened == which)
            ones = self._by_block((holds & there).astype(np.int64))
            if operation == "popc":
                each = ones.astype(np.uint32)
            else:
                each = ones > 0 if operation == "or" else ones == self._by_block(there.astype(np.int64))
            result = np.where(there, np.repeat(each, self.chunk.warps_per_block).reshape(-1, 1), result)
        return result

    def _operands(self, step: Step) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The barrier's number and thread count for each lane, checked."""
        chunk, shape = self.chunk, self.chunk.mask.shape
        values = [np.broadcast_to(read(chunk), shape) for read in step.sources]
        words = [v.astype(np.int64) for v in values if v.dtype != np.bool_]
        number = words[0]
        count = words[1] if len(words) > 1 else np.zeros(shape, np.int64)
        for bad, what in (
            ((number >= BARRIERS) & chunk.mask, f"barrier number past {BARRIERS - 1}"),
            ((count % WARP_SIZE != 0) & chunk.mask, f"thread count that is no multiple of {WARP_SIZE}"),
        ):
            if bad.any():
                lane = int(bad.argmax())
                values_there = f"barrier {number.reshape(-1)[lane]}, {count.reshape(-1)[lane]} threads"
                advice = f"a block has barriers 0 to {BARRIERS - 1}; count whole warps"
                raise chunk.placed(BarrierFault(what, values_there, advice), lane)
        return number, count

    def _expect(self, which: int, mask: Mask, count: npt.NDArray[np.int64]) -> None:
        """An arrival says how many threads those who wait there must be, too."""
        expected = self._by_block(np.where(mask, count, 0), np.maximum.reduce)
        everywhere = np.repeat(expected, self.chunk.warps_per_block).reshape(-1, 1)
        waiting = (self.waits_at == which) & (self.expects > 0)
        bad = waiting & (everywhere > 0) & (everywhere != self.expects)
        if bad.any():
            lane = int(bad.argmax())
            fault = BarrierFault(
                f"threads that wait at barrier {which} and threads that arrive count differently",
                f"{self.expects.reshape(-1)[lane]} threads here, {int(expected.max())} there",
                "give all instructions of one barrier the same thread count",
            )
            raise self.chunk.placed(fault, lane)

    def _threads(self, came: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How often each lane counts: one that is not live, as often as all others of its warp."""
        live = self.chunk.live
        whole = np.where(live, came, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        return np.where(live | ~live.any(axis=1, keepdims=True), came, np.maximum(came, whole))

    def _by_block(self, values: npt.NDArray[np.int64], combine: Any = np.add.reduce) -> npt.NDArray[np.int64]:
        return combine(values.reshape(self.chunk.blocks, -1), axis=1)


class ClusterBarrier:
    """``barrier.cluster``: each thread of a cluster arrives, and later waits for the others' arrival."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._arrived = np.zeros(chunk.mask.shape, np.bool_)

    @property
    def arrived(self) -> Mask:
        """The lanes that arrived at a barrier that is not complete, now that some may have exited."""
        self.settle()
        return self._arrived

    def arrive(self, mask: Mask) -> None:
        """Lanes arrive; the lanes of a cluster that is complete may pass their wait."""
        twice = self.arrived & mask
        if twice.any():
            fault = BarrierFault(
                "barrier.cluster.arrive twice without a wait between",
                "",
                "let each arrive be followed by a wait",
            )
            raise self.chunk.placed(fault, int(twice.argmax()))
        self._arrived = self.arrived | mask
        self.settle()

    def settle(self) -> None:
        """Open the barrier of each cluster whose live threads have all arrived."""
        chunk = self.chunk
        clusters = chunk.blocks // chunk.launch.blocks_per_cluster
        missing = (chunk.live & ~self._arrived).reshape(clusters, -1).any(axis=1)
        lanes_each = chunk.warps // clusters
        self._arrived &= np.repeat(missing, lanes_each).reshape(-1, 1)
