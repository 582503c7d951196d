"""Flags and locks: synchronisation by strong accesses that release and acquire.

A strong write after a fence publishes the vector clock that its warp had at the fence; one with ``.release``
the current clock. A strong read of that word acquires the clock, with ``.acquire`` at once, else at its next
fence.

Source: PTX ISA 9.0, section 8.8 (release and acquire patterns).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.races.order import Order
from simwarp.races.shadow import Shadow
from simwarp.races.vector_clocks import Publication, Signal

_ONE_BY_ONE = 2048
"""Most accesses of one instruction that are processed one by one; more share one signal."""
_MANY = -1
"""The offset of accesses that share one signal."""


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

    def exchange(self, warps: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        """Process the accesses of n lanes in order, given their warps and offsets."""
        shadow = self.shadow
        marked = shadow.signalled is not None and bool(shadow.signalled[offsets // shadow.unit].any())
        publishes = self.releases or bool(shadow.released) or self.order.has_fenced(warps)
        if (
            (self.writes and publishes)
            or (self.reads and (marked or self.acquires))
            or (marked and self.replaces)
        ):
            if warps.size <= _ONE_BY_ONE:
                for warp, offset in zip(warps.tolist(), offsets.tolist(), strict=True):
                    self._exchange(warp, offset)
            else:
                self._exchange_many(np.unique(warps).tolist(), np.unique(offsets).tolist())

    def _exchange(self, warp: int, offset: int) -> None:
        """Process the access of one lane."""
        signal = self.shadow.signals.get(offset)
        if self.reads:
            self._read(warp, offset, signal)
        if not self.writes:
            return
        publications = self._publications(warp, offset)
        if self.replaces or (signal is None and publications):
            signal = Signal() if publications else None
            self.shadow.signal(offset, signal)
        if signal is not None:
            for published, wide in publications:
                self.order.publish(signal, warp, published, wide)

    def _read(self, warp: int, offset: int, signal: Signal | None) -> None:
        """Acquire a signal and earlier reads of it now or, without ``.acquire``, at the next fence."""
        order, place = self.order, (self.shadow, offset)
        if self.acquires:
            order.acquire_read(warp, place, self.wide)
            order.acquire_read(warp, (self.shadow, _MANY), self.wide)
            if signal is not None:
                order.acquire(warp, signal, self.wide)
        elif signal is not None:
            order.read(warp, place, signal, self.wide)

    def _publications(self, warp: int, offset: int) -> list[tuple[Publication, bool]]:
        """The publications of a warp's strong write, each with whether it is for all blocks.

        A release publishes the current clock; another write the clocks of the last fence and of the last
        release at this offset.
        """
        place, released = (self.order.launch_warp(warp), offset), self.shadow.released
        if self.releases:
            released[place] = self.order.now(warp, self.time), self.wide
            return [released[place]]
        found = self.order.at_fence(warp, self.wide)
        if place in released:
            publication, wide = released[place]
            found.append((publication, wide and self.wide))
        return found

    def _exchange_many(self, warps: list[int], offsets: list[int]) -> None:
        """Process all accesses as if at one offset: clocks may become too large, but no order is missed."""
        signals = self.shadow.signals
        old = list({signals[offset]: None for offset in offsets if offset in signals})
        if self.reads:
            for warp in warps:
                for signal in old or (None,):
                    self._read(warp, _MANY, signal)
        if not self.writes:
            return
        together = old[0] if old and not self.replaces else Signal()
        for signal in () if self.replaces else old[1:]:
            together.add(signal)
        published = bool(old)
        for warp in warps:
            for publication, wide in self._publications(warp, _MANY):
                self.order.publish(together, warp, publication, wide)
                published = True
        for offset in offsets if published else ():
            self.shadow.signal(offset, together)
