"""Barriers of a block and of a cluster (PTX ISA 9.7.13.1 and 9.7.13.4): arrivals and completion.

A block has sixteen barriers. Threads may wait for the same barrier at different instructions; ``arrive``
counts a thread without making it wait. A barrier with a thread count is complete when that many threads have
arrived, one without a count when all live threads of the block have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.faults import BarrierFault
from simwarp.lanes import WARP_SIZE
from simwarp.program.program import BARRIERS

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask
    from simwarp.program.program import Step

_NONE = -1
_Counts = npt.NDArray[np.int64]


class Opening(NamedTuple):
    """The complete barriers of one number, at most one per block.

    Attributes
    ----------
    waiting, arrived : (warps, 32) bool
        The lanes that pass now, and those that arrived without waiting.
    whole : bool
        Whether every live thread of these blocks waits there.
    """

    waiting: Mask
    arrived: Mask
    whole: bool


class _Uses:
    """The last use of a barrier by each warp: the thread count (0: no use yet), the time, and the step."""

    def __init__(self, warps: int) -> None:
        self.counts, self.times = np.zeros(warps, np.int64), np.zeros(warps, np.int64)
        self.steps = np.full(warps, None, np.object_)


class Barriers:
    """The numbered barriers (``barrier.sync``) of the blocks in a chunk, and the lanes that wait at each.

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
        self.arrived: dict[int, _Counts] = {}
        self._promised: dict[int, _Counts] = {}
        self._opened = self.waits_at
        self._uses: dict[int, _Uses] = {}
        """By barrier, of those that the program may use with several counts."""

    def come(self, step: Step, mask: Mask) -> None:
        """Record that the lanes of ``mask`` execute a barrier instruction."""
        number, count = self._operands(step)
        for which in self.chunk.program.mixed_barriers.intersection(np.unique(number[mask]).tolist()):
            self._compare_counts(step, which, mask & (number == which), count)
        if step.form.has("arrive"):
            for which in np.unique(number[mask]).tolist():
                here = mask & (number == which)
                self.arrived[which] = self.arrived.get(which, 0) + here.astype(np.int64)
                self._promised[which] = np.where(here, count, self._promised.get(which, 0))
            return
        self.waits_at = np.where(mask, number, self.waits_at)
        self.expects = np.where(mask, count, self.expects)

    def complete(self) -> list[Opening]:
        """Return the barriers that are complete and mark their lanes as no longer waiting."""
        chunk = self.chunk
        free, opened = np.zeros(chunk.mask.shape, np.bool_), list[Opening]()
        for which in {*np.unique(self.waits_at[self.waits_at != _NONE]).tolist(), *self.arrived}:
            waiting, arrived = self.waits_at == which, self.arrived.get(which, np.zeros_like(self.expects))
            came = waiting + arrived
            promised = np.where(arrived > 0, self._promised.get(which, 0), 0)
            expected = self._by_block(np.where(waiting, self.expects, promised), np.maximum.reduce)
            absent = self._by_block((chunk.live & (came == 0)).astype(np.int64))
            counted = self._by_block(self._threads(came))
            self._check_count(which, waiting | (arrived > 0), expected, counted)
            done = np.where(expected > 0, counted >= expected, absent == 0)
            here = self._everywhere(done)
            passing = waiting & here
            everybody = self._everywhere(self._by_block((chunk.live & ~passing).astype(np.int64)) == 0)
            for blocks, whole in ((everybody, True), (~everybody, False)):
                if (passing & blocks).any():
                    opened.append(Opening(passing & blocks, here & blocks & (arrived > 0), whole))
            if which in self.arrived:
                self.arrived[which] = np.where(here, 0, arrived)
            free |= passing
        self._opened = np.where(free, self.waits_at, _NONE)
        self.waits_at = np.where(free, _NONE, self.waits_at)
        return opened

    def _check_count(self, which: int, there: Mask, expected: _Counts, counted: _Counts) -> None:
        """Report a barrier at which more threads arrived than its thread count."""
        over = there & self._everywhere((expected > 0) & (counted > expected))
        if over.any():
            block = int(over.any(axis=1).argmax()) // self.chunk.warps_per_block
            fault = BarrierFault(
                f"more threads at barrier {which} than its thread count",
                f"{counted[block]} came, it takes {expected[block]}",
                "let as many threads reach the barrier as its count",
            )
            self.chunk.found(fault, int(over.argmax()))

    def _everywhere(self, of_block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat a value per block, (blocks,), for each of its warps: (warps, 1)."""
        return np.repeat(of_block, self.chunk.warps_per_block).reshape(-1, 1)

    def reduce(self, operation: str, predicate: Any, lanes: Mask) -> Any:
        """``bar.red``: reduce the predicates of the lanes that pass a barrier together."""
        holds = np.broadcast_to(predicate, lanes.shape) & lanes
        result = np.zeros(lanes.shape, np.uint32 if operation == "popc" else np.bool_)
        for which in np.unique(self._opened[lanes]).tolist():
            there = lanes & (self._opened == which)
            ones = self._by_block((holds & there).astype(np.int64))
            if operation == "popc":
                each = ones.astype(np.uint32)
            else:
                each = ones > 0 if operation == "or" else ones == self._by_block(there.astype(np.int64))
            result = np.where(there, self._everywhere(each), result)
        return result

    def _operands(self, step: Step) -> tuple[_Counts, _Counts]:
        """Read and check the barrier number and thread count of each lane."""
        chunk, shape = self.chunk, self.chunk.mask.shape
        values = [np.broadcast_to(read(chunk), shape) for read in step.sources]
        words = [v.astype(np.int64) for v in values if v.dtype != np.bool_]
        number = words[0]
        count = words[1] if len(words) > 1 else np.zeros(shape, np.int64)
        for bad, what in (
            ((number >= BARRIERS) & chunk.mask, f"barrier number past {BARRIERS - 1}"),
            ((count % WARP_SIZE != 0) & chunk.mask, f"thread count that is not a multiple of {WARP_SIZE}"),
        ):
            if bad.any():
                lane = int(bad.argmax())
                values_there = f"barrier {number.reshape(-1)[lane]}, {count.reshape(-1)[lane]} threads"
                advice = f"a block has barriers 0 to {BARRIERS - 1}; count whole warps"
                chunk.found(BarrierFault(what, values_there, advice), lane)
        return number % BARRIERS, -(-count // WARP_SIZE) * WARP_SIZE

    def _compare_counts(self, step: Step, which: int, mask: Mask, count: _Counts) -> None:
        """Report threads whose thread count for a barrier differs from that of threads arriving with them.

        They wait there, have arrived, or used it at a moment that nothing orders before this one.
        """
        chunk, races = self.chunk, self.chunk.launch.races
        uses = self._uses.setdefault(which, _Uses(chunk.warps))
        here = np.flatnonzero(mask.any(axis=1))
        counts = np.where(mask, count, 0).max(axis=1)
        uses.counts[here] = np.where(counts == 0, chunk.warps_per_block * WARP_SIZE, counts)[here]
        uses.times[here] = 0 if races is None else races.moment(step)
        uses.steps[here] = step
        same_block = here[:, None] // chunk.warps_per_block == np.arange(chunk.warps) // chunk.warps_per_block
        differ = same_block & (uses.counts > 0) & (uses.counts != uses.counts[here][:, None])
        if not differ.any():
            return
        arrived = self.arrived.get(which, np.zeros_like(self.expects)) > 0
        there = ((self.waits_at == which) | arrived | mask).any(axis=1)
        row, other = np.nonzero(differ)
        together = there[other]
        if races is not None:
            together |= ~races.follows(here[row], other, uses.times[other])
        if together.any():
            at = int(together.argmax())
            self._report_counts(which, mask, int(here[row[at]]), int(other[at]), uses)

    def _report_counts(self, which: int, mask: Mask, warp: int, other: int, uses: _Uses) -> None:
        """Report a warp that uses a barrier with another thread count than warp ``other`` does."""
        chunk, lane = self.chunk, warp * WARP_SIZE + int(mask[warp].argmax())
        place = chunk.place_of(int(chunk.thread[other, 0]), uses.steps[other])
        fault = BarrierFault(
            f"threads at barrier {which} give different thread counts",
            f"{uses.counts[warp]} here, {uses.counts[other]} in warp {other % chunk.warps_per_block}, "
            "and nothing orders the two",
            "give all instructions of one barrier the same thread count, or let all its threads meet between",
            other=place,
        )
        fault.note("used with another count here by", place)
        chunk.found(fault, lane)

    def _threads(self, came: _Counts) -> _Counts:
        """Arrivals per lane; an exited lane has at least as many as every live lane of its warp."""
        live = self.chunk.live
        least: Any = np.where(live, came, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        most: Any = came.max(axis=1, keepdims=True)
        whole = np.asarray(np.where(live.any(axis=1, keepdims=True), least, most), np.int64)
        return np.where(live, came, np.maximum(came, whole))

    def _by_block(self, values: _Counts, combine: Any = np.add.reduce) -> _Counts:
        """Combine the values of all lanes of each block: (warps, 32) to (blocks,)."""
        return combine(values.reshape(self.chunk.blocks, -1), axis=1)


class ClusterBarrier:
    """``barrier.cluster``: each thread of a cluster arrives, and later waits until all have arrived."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._arrived = np.zeros(chunk.mask.shape, np.bool_)
        self._waits = np.zeros(chunk.mask.shape, np.bool_)
        """The lanes that arrived and have not passed their wait."""

    @property
    def arrived(self) -> Mask:
        """The lanes that arrived at a barrier that is still incomplete, exited lanes not counted."""
        self.settle()
        return self._arrived

    def arrive(self, mask: Mask, step: Step) -> None:
        """Record arrivals at a step; the lanes of a complete cluster may then pass their wait."""
        twice = "barrier.cluster.arrive twice without a wait between"
        self._find(self._waits & mask, twice, "let each arrive be followed by a wait")
        self._arrived, self._waits = self.arrived | mask, self._waits | mask
        if self.chunk.launch.races is not None:
            self.chunk.launch.races.cluster_arrive(self.chunk, mask, step.form.has("relaxed"))
        self.settle()

    def check_wait(self, mask: Mask) -> None:
        """Report lanes at ``barrier.cluster.wait`` without a ``barrier.cluster.arrive`` before."""
        alone = "barrier.cluster.wait without an arrive before it"
        self._find(mask & ~self._waits, alone, "let each thread arrive before it waits")

    def _find(self, lanes: Mask, what: str, advice: str) -> None:
        if lanes.any():
            self.chunk.found(BarrierFault(what, "", advice), int(lanes.argmax()))

    def pass_(self, mask: Mask) -> None:
        """Record that lanes pass ``barrier.cluster.wait``."""
        self._waits = self._waits & ~mask
        if self.chunk.launch.races is not None:
            self.chunk.launch.races.cluster_wait(self.chunk, mask)

    def settle(self) -> None:
        """Open the barrier of each cluster whose live threads have all arrived."""
        chunk = self.chunk
        clusters = chunk.blocks // chunk.launch.blocks_per_cluster
        missing = (chunk.live & ~self._arrived).reshape(clusters, -1).any(axis=1)
        lanes_each = chunk.warps // clusters
        self._arrived &= np.repeat(missing, lanes_each).reshape(-1, 1)
