"""Flags and locks: synchronisation by strong accesses that release and acquire.

A strong write after a fence publishes the vector clock that its warp had at the fence; one with ``.release``
the current clock. A strong read of that word acquires the clock, with ``.acquire`` at once, else at its next
fence. A barrier of the block is a fence, too, but what it publishes the block already knows.

The lanes of an instruction are processed in *runs*: neighbours of one warp that find the same signal.

Source: PTX ISA 9.0, section 8.8 (release and acquire patterns).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.ptx.same_address import all_differ
from simwarp.races.order import Order
from simwarp.races.shadow import Shadow, is_set
from simwarp.races.vector_clocks import Publication, Signal

_ONE_BY_ONE = 2048
"""Most updates of one instruction that are processed one by one; more share one signal."""
_MANY = -1
"""The offset of updates that share one signal."""

_Numbers = npt.NDArray[np.int64]
_Published = tuple[Publication, bool]
"""A publication, and whether it is for all blocks."""


class StrongAccess(NamedTuple):
    """A strong access to an allocation, and its effect on the signals in the allocation's shadow.

    ``replaces``: a store replaces the signal at its offset; an atomic operation adds to it.
    """

    order: Order
    shadow: Shadow
    time: int
    reads: bool
    writes: bool
    replaces: bool
    acquires: bool
    releases: bool
    wide: bool

    def exchange(self, warps: _Numbers, offsets: _Numbers) -> None:
        """Process the accesses of n lanes in order, given their warps and offsets."""
        shadow = self.shadow
        signals = shadow.signals_at(offsets)
        publishes = self.releases or bool(shadow.released) or self.order.has_fenced(warps)
        if self.replaces and not (self.releases or shadow.released):
            if publishes or signals is not None:
                self._put(offsets, self.order.signals_at_fences(warps, self.wide))
        elif (self.writes and publishes) or (self.reads and (signals is not None or self._ends_reads(warps))):
            polled = shadow, self[3:], warps.tobytes(), offsets.tobytes()
            if self.order.was_repeated(polled):
                return
            changes = self.order.changes
            if self.replaces or not self.writes or all_differ(offsets.view(np.uint64)):
                self._exchange_runs(warps, offsets, signals)
            else:
                self._exchange_in_turn(warps, offsets)
            if self.order.changes == changes:
                self.order.note_repeated(polled)

    def _ends_reads(self, warps: _Numbers) -> bool:
        """Whether any of these warps read a signal before and acquires it now."""
        return self.acquires and bool(self.order.have_pending(warps).any())

    def _exchange_runs(self, warps: _Numbers, offsets: _Numbers, signals: npt.NDArray[Any] | None) -> None:
        """Process independent lanes, run by run."""
        released = self._released(warps, offsets)
        changes = np.diff(warps, prepend=-1) != 0
        for facts in (signals, released):
            if facts is not None:
                changes |= np.diff(np.fromiter(map(id, facts), np.int64, warps.size), prepend=-1) != 0
        starts = np.flatnonzero(changes)
        ends = np.append(starts[1:], warps.size)
        if not self.writes:
            some = self._learning(warps[starts], None if signals is None else signals[starts])
            starts, ends = starts[some], ends[some]
        for start, end, warp in zip(starts.tolist(), ends.tolist(), warps[starts].tolist(), strict=True):
            signal = None if signals is None else signals[start]
            before = None if released is None else released[start]
            self._exchange(warp, offsets[start:end], signal, before)

    def _learning(self, warps: _Numbers, signals: npt.NDArray[Any] | None) -> npt.NDArray[np.bool_]:
        """Which reads may change a clock: of a signal, or by a warp that read one before and acquires now."""
        some = np.zeros(warps.size, np.bool_) if signals is None else is_set(signals)
        return some | self.order.have_pending(warps) if self.acquires else some

    def _exchange_in_turn(self, warps: _Numbers, offsets: _Numbers) -> None:
        """Process updates of offsets that several lanes share, one after another.

        A warp's second update of a word reads what its first one published; more change nothing.
        """
        starts = np.flatnonzero((np.diff(warps, prepend=-1) != 0) | (np.diff(offsets, prepend=-1) != 0))
        if starts.size > _ONE_BY_ONE:
            self._exchange_many(np.unique(warps).tolist(), np.unique(offsets))
            return
        counts = np.diff(starts, append=warps.size)
        for start, count, warp in zip(starts.tolist(), counts.tolist(), warps[starts].tolist(), strict=True):
            at = offsets[start : start + 1]
            for _ in range(min(count, 2)):
                signals = self.shadow.signals_at(at)
                signal = None if signals is None else signals[0]
                self._exchange(warp, at, signal, self._before(warp, int(at[0])))

    def _exchange(
        self, warp: int, offsets: _Numbers, signal: Signal | None, before: _Published | None
    ) -> None:
        """Process a warp's accesses to offsets that have the same signal and the same earlier release."""
        if self.reads:
            self._read(warp, offsets, signal)
        if not self.writes:
            return
        publications = self._publications(warp, offsets, before)
        if self.replaces:
            self._put(offsets, self.order.signal_of(warp, publications) if publications else None)
        elif publications:
            if signal is None or signal.shared or offsets.size > 1:
                signal = Signal() if signal is None else signal.copy()
                signal.shared = offsets.size > 1
                self._put(offsets, signal)
            for published, wide in publications:
                self.order.publish(signal, warp, published, wide)

    def _put(self, offsets: _Numbers, signals: npt.NDArray[Any] | Signal | None) -> None:
        """Set the signals at offsets."""
        self.order.changes += 1
        self.shadow.signal(offsets, signals)

    def _read(self, warp: int, offsets: _Numbers, signal: Signal | None) -> None:
        """Acquire a signal and earlier reads of it now or, without ``.acquire``, at the next fence."""
        order = self.order
        if self.acquires:
            if order.has_pending(warp):
                order.acquire_read(warp, self.shadow, np.append(offsets, _MANY), self.wide)
            if signal is not None:
                order.acquire(warp, signal, self.wide)
        elif signal is not None:
            order.read(warp, self.shadow, offsets, signal, self.wide)

    def _publications(self, warp: int, offsets: _Numbers, before: _Published | None) -> list[_Published]:
        """The clocks that a warp's strong write publishes, each with whether all blocks may acquire it.

        A release publishes the current clock; another write the clocks of the last fence and of the last
        release at these offsets.
        """
        if self.releases:
            now, launch_warp = (self.order.now(warp, self.time), self.wide), self.order.launch_warp(warp)
            self.order.changes += 1
            self.shadow.released.update({(launch_warp, offset): now for offset in offsets.tolist()})
            return [now]
        found = self.order.at_fence(warp, self.wide)
        if before is not None:
            publication, wide = before
            found.append((publication, wide and self.wide))
        return found

    def _released(self, warps: _Numbers, offsets: _Numbers) -> list[_Published | None] | None:
        """The last release of each lane's warp at its offset; None if the warp released nothing there."""
        if self.releases or not self.writes or not self.shadow.released:
            return None
        return list(map(self._before, warps.tolist(), offsets.tolist()))

    def _before(self, warp: int, offset: int) -> _Published | None:
        """The last release of a warp at an offset."""
        return self.shadow.released.get((self.order.launch_warp(warp), offset))

    def _exchange_many(self, warps: list[int], offsets: _Numbers) -> None:
        """Process all updates as if at one offset: clocks may become too large, but no ordering is lost."""
        found = self.shadow.signals_at(offsets)
        old = [] if found is None else [signal for signal in dict.fromkeys(found) if signal is not None]
        many = np.array([_MANY])
        if self.reads:
            for warp in warps:
                for signal in old or (None,):
                    self._read(warp, many, signal)
        together = Signal()
        together.shared = True
        for signal in old:
            together.add(signal)
        published = bool(old)
        for warp in warps:
            for publication, wide in self._publications(warp, many, self._before(warp, _MANY)):
                self.order.publish(together, warp, publication, wide)
                published = True
        if published:
            self._put(offsets, together)
