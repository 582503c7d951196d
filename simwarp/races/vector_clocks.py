"""Vector clocks of warps, their publication and their joining.

Time counts the watched accesses of a launch. A clock holds a time for each warp of the launch: that warp's
accesses before the time are ordered before the next accesses of the clock's owner.

Source: Mattern, Virtual Time and Global States of Distributed Systems (1989); PTX ISA 9.0, section 8.9.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

_DEEPEST = 32
"""The longest chain of parents before a clock is evaluated."""

Fact: TypeAlias = tuple[int, int, int]
"""A range of warps (first, end), and a lower bound of their times."""


class VectorClock:
    """A vector clock: the maximum of its parents' clocks and new times, evaluated when it is read.

    Beside it goes a second clock, of what a proxy fence has followed: the maximum of its parents' second
    clocks and of the first clocks of ``fences``, those of the warps that executed one.
    """

    def __init__(
        self,
        warps: int,
        parents: tuple[VectorClock, ...] = (),
        facts: tuple[Fact, ...] = (),
        fences: tuple[VectorClock, ...] = (),
    ) -> None:
        self._warps, self._parents, self._facts, self._fences = warps, parents, facts, fences
        self._times: npt.NDArray[np.int64] | None = None
        self._fenced: npt.NDArray[np.int64] | None = None
        self._depth = 1 + max((one._depth for one in (*parents, *fences)), default=0)
        if self._depth > _DEEPEST:
            self._evaluate()

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """(warps,) int64: the clock's time for each warp of the launch, then for each agent it knows."""
        return self._evaluate()

    @property
    def fenced(self) -> npt.NDArray[np.int64]:
        """(warps,) int64: per warp the time up to which a proxy fence followed; empty if there was none."""
        self._evaluate()
        return np.zeros(0, np.int64) if self._fenced is None else self._fenced

    def joined(self, other: VectorClock | None) -> VectorClock:
        """The element-by-element maximum of two vector clocks."""
        if other is None or other is self or other in self._parents:
            return self
        return other if self in other._parents else VectorClock(max(self._warps, other._warps), (self, other))

    def _evaluate(self) -> npt.NDArray[np.int64]:
        """Compute the times from all ancestors, then forget these."""
        if self._times is None:
            times = np.zeros(self._warps, np.int64)  # no ancestor has more warps
            fenced: list[npt.NDArray[np.int64]] = []
            todo: list[VectorClock] = [self]
            seen: set[VectorClock] = {self}
            while todo:
                one = todo.pop()
                if one._times is not None:
                    known = times[: one._times.size]
                    np.maximum(known, one._times, out=known)
                fenced += [fence.times for fence in one._fences]
                fenced += [] if one._fenced is None else [one._fenced]
                for first, end, time in one._facts:
                    np.maximum(times[first:end], time, out=times[first:end])
                new = set(one._parents) - seen
                seen |= new
                todo += new
            if fenced:
                self._fenced = np.zeros(self._warps, np.int64)
                for one in fenced:
                    np.maximum(self._fenced[: one.size], one, out=self._fenced[: one.size])
            self._times, self._parents, self._facts, self._fences, self._depth = times, (), (), (), 0
        return self._times


class Publication(NamedTuple):
    """A clock that a warp publishes, and the warp's clock ``before``, which it includes."""

    clock: VectorClock
    before: VectorClock | None = None


class Signal:
    """The clocks published at one flag or lock in memory, or at a barrier.

    Warps are numbered in the launch. Only the warps of its block acquire a publication of block scope
    (``.cta``).

    Attributes
    ----------
    shared : bool
        Whether it stands at several offsets: one of them gets a copy before a clock is added there.
    """

    def __init__(self) -> None:
        self.shared = False
        self._everywhere: VectorClock | None = None
        self._by_block: dict[int, VectorClock] = {}
        self._narrow: set[int] = set()
        """The blocks that have publications of block scope."""
        self._included: dict[int, VectorClock | None] = {}
        """Warp → a clock of the warp that the signal's clock includes."""

    def publish(self, warp: int, block: int, publication: Publication, wide: bool) -> None:
        """Add a warp's clock; for all blocks if ``wide``, else for its own block."""
        clock = publication.clock
        self._by_block[block] = clock.joined(self._by_block.get(block))
        if wide:
            self._everywhere = clock.joined(self._everywhere)
            self._included[warp] = publication.before
        else:
            self._narrow.add(block)

    def copy(self) -> Signal:
        """A signal with the same clocks, which is not shared."""
        other = Signal()
        other._everywhere, other._by_block = self._everywhere, dict(self._by_block)
        other._narrow, other._included = set(self._narrow), dict(self._included)
        return other

    def add(self, other: Signal) -> None:
        """Add all clocks that another signal holds."""
        if other._everywhere is not None:
            self._everywhere = other._everywhere.joined(self._everywhere)
        for block, clock in other._by_block.items():
            self._by_block[block] = clock.joined(self._by_block.get(block))
        self._narrow |= other._narrow

    def acquired(self, block: int, wide: bool) -> VectorClock | None:
        """The clock that a warp of a block acquires; if not ``wide``, only from its own block."""
        own = self._by_block.get(block)
        if not wide:
            return own
        if own is None or block not in self._narrow:
            return self._everywhere
        return own.joined(self._everywhere)

    def includes(self, warp: int, known: VectorClock | None) -> bool:
        """Whether the signal's clock includes a warp's clock."""
        return known is None or self._included.get(warp) is known

    def include(self, warp: int, known: VectorClock) -> None:
        """Record that the signal's clock includes a warp's clock."""
        self._included[warp] = known
