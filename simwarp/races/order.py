"""Who is ordered after whom, among the warps that are in flight.

Within a warp that is `WarpOrder`; within a block, the last barrier that took all of it; everything else
(barriers of some warps, flags and locks with fences, clusters) is `Knowledge`, warp by warp.

Source: PTX ISA 9.0, sections 8.8 to 8.10 (release and acquire patterns, causality order).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.races.shadow import THREAD, Entries
from simwarp.races.vector_clocks import Knowledge, Publication, Signal
from simwarp.races.warp_order import WarpOrder

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk

Rows = npt.NDArray[np.intp]

_FEW = 4
"""Knowledge of so many warps is looked through."""
_WARP_BITS = WARP_SIZE.bit_length() - 1


class _Heard(NamedTuple):
    """What a warp read at a place, and will know at its next fence.

    ``before`` is what it knew when it read; if ``includes``, that is part of it. ``signal`` is the one that
    all of it came from, None if there were several.
    """

    signal: Signal | None
    from_all: Knowledge | None
    from_block: Knowledge | None
    before: Knowledge | None
    includes: bool


class Order:
    """The order among the warps of a chunk; rows number these.

    Parameters
    ----------
    chunk : Chunk
        All of it.
    signals : bool
        Whether the program has flags that threads may hear of each other by.

    Attributes
    ----------
    barrier : (warps,) int64
        When each warp last passed a barrier with all of its block.
    """

    def __init__(self, chunk: Chunk, signals: bool) -> None:
        self._signals = signals
        grid = chunk.launch.grid
        self._per_block = chunk.warps_per_block
        self._launch_warps = grid[0] * grid[1] * grid[2] * self._per_block
        self._warp = chunk.thread[:, 0] >> _WARP_BITS
        warps = self._warp.size
        self.barrier = np.ones(warps, np.int64)
        self._oldest_barrier = 1
        """The earliest of these among the warps that are live."""
        self._live = np.ones(warps, np.bool_)
        self.warps = WarpOrder(warps)
        self._known = np.full(warps, None, np.object_)
        self._learned: set[int] = set()
        """Rows that learned something since the last barrier of their block."""
        self._knows = self._stale = False
        self._past = 1
        self._heard: dict[int, dict[object, _Heard]] = {}
        """By row and place."""
        self._fence = np.zeros((2, warps), np.int64)
        """When each warp last executed a fence: [0] of any scope, [1] for more than its block."""
        self._fence_barrier = np.zeros((2, warps), np.int64)
        self._fence_known = np.full((2, warps), None, np.object_)
        self._published: dict[tuple[int, int], Publication] = {}

    # ---- the question -------------------------------------------------------------------------------

    def ordered(
        self, rows: npt.NDArray[np.int64], threads: npt.NDArray[np.int64], before: Entries
    ) -> npt.NDArray[np.bool_]:
        """Whether earlier accesses are ordered before what threads do now.

        Parameters
        ----------
        rows, threads : (n,) int64
            The later threads, and the rows of their warps.
        before : (n,) int64
            The entries of the earlier accesses.

        Returns
        -------
        (n,) bool
        """
        times, earlier = before >> 32, before & THREAD
        warp, earlier_warp = threads >> _WARP_BITS, earlier >> _WARP_BITS
        result = (times < self.barrier[rows]) & (earlier_warp // self._per_block == warp // self._per_block)
        near = np.flatnonzero(~result & (warp == earlier_warp))
        if near.size:
            lanes, others = threads[near] % WARP_SIZE, earlier[near] % WARP_SIZE
            result[near] = self.warps.ordered(rows[near], lanes, others, times[near])
        rest = np.flatnonzero(~result) if self._knows else near
        if self._knows and rest.size:
            result[rest] = times[rest] < self._known_times(rows[rest], earlier_warp[rest])
        return result

    def past(self, private: bool) -> int:
        """The time, from 1 on, before which all accesses are ordered before what comes next.

        As far as that is easily told. ``private``: of accesses to what only one block can reach.
        """
        if private:
            return self._oldest_barrier
        if self._stale:
            known = set(self._known[self._live].tolist())
            few = len(known) <= _FEW and None not in known
            self._past = max(1, min((int(one.times.min()) for one in known), default=1)) if few else 1
            self._stale = False
        return self._past

    def _known_times(
        self, rows: npt.NDArray[np.int64], warps: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        result = np.zeros(rows.size, np.int64)
        group_of_row = np.full(self._known.size, -1)
        groups: dict[Knowledge, int] = {}
        asking = np.zeros(self._known.size, np.bool_)
        asking[rows] = True
        for row in np.flatnonzero(asking).tolist():
            known: Any = self._known[row]
            if isinstance(known, Knowledge):
                group_of_row[row] = groups.setdefault(known, len(groups))
        group = group_of_row[rows]
        for known, number in groups.items():
            here = np.flatnonzero(group == number)
            result[here] = known.times[warps[here]]
        return result

    # ---- barriers -----------------------------------------------------------------------------------

    def pass_whole(self, rows: Rows, live: npt.NDArray[np.bool_], time: int) -> None:
        """All of some blocks pass a barrier together.

        ``live`` (warps,) are the warps of the chunk that are left.
        """
        self.barrier[rows] = time
        self.warps.forget(rows)
        left = self.barrier[live]
        self._oldest_barrier = int(left.min()) if left.size else time
        self._live, self._stale = live, self._knows
        if self._signals:
            self._fence_at(0, rows, time)
        if self._heard or self._learned:
            self._share(rows)

    def _share(self, rows: Rows) -> None:
        """What one warp of a block knows, the others know now, too."""
        passing = set(rows.tolist())
        for row in passing & self._heard.keys():
            self._hear_all(row, wide=False)
        together: dict[int, Knowledge] = {}
        for row in self._learned & passing:  # each knows what all knew at the last barrier
            block = row // self._per_block
            together[block] = self._known[row].joined(together.get(block))
        self._learned -= passing
        for block, known in together.items():
            self._known[block * self._per_block : (block + 1) * self._per_block] = known
        self._stale = True

    def pass_some(self, came: Rows, arrived: Iterable[tuple[int, Publication]], time: int) -> None:
        """Warps that waited pass a barrier: they know what those did who came or had arrived."""
        signals: dict[int, Signal] = {}
        known = [(row, self.now(row, time)) for row in came.tolist()]
        for row, published in (*known, *arrived):
            self.publish(signals.setdefault(row // self._per_block, Signal()), row, published, wide=True)
        for row in came.tolist():
            self.hear(row, signals[row // self._per_block])

    # ---- signals ------------------------------------------------------------------------------------

    def now(self, row: int, time: int) -> Publication:
        """What a warp knows, and what it did itself."""
        return self._publication(row, self._known[row], time, int(self.barrier[row]))

    def _publication(self, row: int, known: Knowledge | None, time: int, barrier: int) -> Publication:
        warp = int(self._warp[row])
        first = warp // self._per_block * self._per_block
        facts = (first, first + self._per_block, barrier), (warp, warp + 1, time)
        knowledge = Knowledge(self._launch_warps, () if known is None else (known,), facts)
        return Publication(knowledge, known)

    def at_fence(self, row: int, wide: bool) -> list[tuple[Publication, bool]]:
        """What a warp knew and did at its last fences, and whether that is for all blocks.

        A write that is not ``wide`` tells the own block only.
        """
        for_block, for_all = self._fence[:, row].tolist()
        found: list[tuple[Publication, bool]] = []
        if wide and for_all:
            found.append((self._at_fence(1, row), True))
        if for_block and (for_block > for_all or not wide):
            found.append((self._at_fence(0, row), False))
        return found

    def _at_fence(self, scope: int, row: int) -> Publication:
        if (scope, row) not in self._published:
            time, barrier = int(self._fence[scope, row]), int(self._fence_barrier[scope, row])
            known = self._fence_known[scope, row]
            self._published[scope, row] = self._publication(row, known, time, barrier)
        return self._published[scope, row]

    def publish(self, signal: Signal, row: int, publication: Publication, wide: bool) -> None:
        """A warp publishes."""
        warp = int(self._warp[row])
        signal.publish(warp, warp // self._per_block, publication, wide)

    def hear(self, row: int, signal: Signal, wide: bool = True) -> None:
        """A warp acquires what was published."""
        warp = int(self._warp[row])
        heard, known = signal.heard(warp // self._per_block, wide), self._known[row]
        if heard is not None:
            self._learn(row, signal, heard, wide and signal.includes(warp, known))

    def read(self, row: int, place: object, signal: Signal, wide: bool) -> None:
        """A warp reads a signal: it acquires what was published when it executes a fence."""
        warp = int(self._warp[row])
        block, known = warp // self._per_block, self._known[row]
        from_block = signal.heard(block, wide=False)
        from_all = signal.heard(block, wide=True) if wide else from_block
        includes = wide and signal.includes(warp, known)
        heard = _Heard(signal, from_all, from_block, known, includes)
        places = self._heard.setdefault(row, {})
        old = places.get(place)
        if old is not None and old.signal is not signal:
            from_all, from_block = _join(from_all, old.from_all), _join(from_block, old.from_block)
            heard = _Heard(None, from_all, from_block, known, includes)
        places[place] = heard

    def acquire(self, row: int, place: object, wide: bool) -> None:
        """A warp acquires what it read at a place before."""
        if place in self._heard.get(row, {}):
            self._hear(row, place, wide)

    def fence(self, rows: Rows, wide: bool, time: int) -> None:
        """Warps execute a fence; if not ``wide``, for their block only."""
        for row in self._heard.keys() & set(rows.tolist()) if self._heard else ():
            self._hear_all(row, wide)
        self._fence_at(0, rows, time)
        if wide:
            self._fence_at(1, rows, time)

    def _fence_at(self, scope: int, rows: Rows, time: int) -> None:
        self._fence[scope, rows], self._fence_barrier[scope, rows] = time, self.barrier[rows]
        self._fence_known[scope, rows] = self._known[rows]
        if self._published:
            for row in rows.tolist():
                self._published.pop((scope, row), None)

    def warp(self, row: int) -> int:
        """The number of a warp in the launch."""
        return int(self._warp[row])

    def has_published(self, rows: npt.NDArray[np.int64]) -> bool:
        """Whether any of these warps has executed a fence."""
        return bool(self._fence[0, rows].any())

    def _hear_all(self, row: int, wide: bool) -> None:
        for place in list(self._heard[row]):
            self._hear(row, place, wide)

    def _hear(self, row: int, place: object, wide: bool) -> None:
        heard = self._heard[row][place]
        if wide:
            del self._heard[row][place]
            if heard.from_all is not None:
                includes = heard.includes and heard.before is self._known[row]
                self._learn(row, heard.signal, heard.from_all, includes)
        elif heard.from_block is not None:
            self._heard[row][place] = heard._replace(from_block=None)
            self._learn(row, heard.signal, heard.from_block, False)

    def _learn(self, row: int, signal: Signal | None, heard: Knowledge, includes: bool) -> None:
        known: Any = self._known[row]
        if heard is known:
            return
        self._known[row] = heard if includes else heard.joined(known)
        if includes and signal is not None:
            signal.told(int(self._warp[row]), heard)
        self._learned.add(row)
        self._knows = self._stale = True


def _join(one: Knowledge | None, other: Knowledge | None) -> Knowledge | None:
    return other if one is None else one.joined(other)
