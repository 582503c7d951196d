"""What a warp knows to have happened, and how that gets from one warp to another.

Time counts the watched accesses of a launch. What is known is a time for each warp of the launch: all its
accesses before that time are ordered before what comes next here.

Source: Mattern, Virtual Time and Global States of Distributed Systems (1989); PTX ISA 9.0, section 8.9.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

_DEEPEST = 32
"""How many steps knowledge may lie back before it is written down."""

Fact: TypeAlias = tuple[int, int, int]
"""A range of warps, first and end, and the time before which their accesses are known."""


class Knowledge:
    """For each warp of a launch, the time before which its accesses are known.

    It is written down only when it is asked for; until then it is what its parents know, and some facts.

    Parameters
    ----------
    warps : int
        Of the launch.
    parents : tuple of Knowledge
    facts : tuple of (first warp, end, time)

    Examples
    --------
    >>> one = Knowledge(4, (), ((0, 2, 7),))
    >>> Knowledge(4, (one,), ((1, 2, 9),)).times.tolist()
    [7, 9, 0, 0]
    """

    def __init__(self, warps: int, parents: tuple[Knowledge, ...] = (), facts: tuple[Fact, ...] = ()) -> None:
        self._warps, self._parents, self._facts = warps, parents, facts
        self._times: npt.NDArray[np.int64] | None = None
        self._depth = 1 + max((parent._depth for parent in parents), default=0)
        if self._depth > _DEEPEST:
            self._write_down()

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """(warps,) int64."""
        return self._write_down()

    def joined(self, other: Knowledge | None) -> Knowledge:
        """What both know.

        Examples
        --------
        >>> one, other = Knowledge(2, (), ((0, 1, 3),)), Knowledge(2, (), ((1, 2, 4),))
        >>> one.joined(other).times.tolist(), one.joined(None) is one
        ([3, 4], True)
        """
        if other is None or other is self or other in self._parents:
            return self
        return other if self in other._parents else Knowledge(self._warps, (self, other))

    def _write_down(self) -> npt.NDArray[np.int64]:
        if self._times is None:
            times = np.zeros(self._warps, np.int64)
            todo: list[Knowledge] = [self]
            seen: set[Knowledge] = {self}
            while todo:
                one = todo.pop()
                if one._times is not None:
                    np.maximum(times, one._times, out=times)
                for first, end, time in one._facts:
                    np.maximum(times[first:end], time, out=times[first:end])
                new = set(one._parents) - seen
                seen |= new
                todo += new
            self._times, self._parents, self._facts, self._depth = times, (), (), 0
        return self._times


class Publication(NamedTuple):
    """What a warp publishes; it includes what the warp knew ``before``."""

    knowledge: Knowledge
    before: Knowledge | None = None


class Signal:
    """What threads have published at one place: a word that others read, or a barrier.

    Who publishes for its own block only (``.cta``) is heard there alone.

    Examples
    --------
    >>> signal = Signal()
    >>> signal.publish(0, 0, Publication(Knowledge(4, (), ((0, 1, 5),))), wide=False)
    >>> signal.publish(2, 1, Publication(Knowledge(4, (), ((2, 3, 6),))), wide=True)
    >>> [signal.heard(block, wide=True).times.tolist() for block in (0, 1)]
    [[5, 0, 6, 0], [0, 0, 6, 0]]
    >>> signal.heard(0, wide=False).times.tolist()
    [5, 0, 0, 0]
    """

    def __init__(self) -> None:
        self._everywhere: Knowledge | None = None
        self._by_block: dict[int, Knowledge] = {}
        self._narrow: set[int] = set()
        """The blocks in which somebody published for the block only."""
        self._included: dict[int, Knowledge | None] = {}
        """Of each warp, what it knew at some time that was published here."""

    def publish(self, warp: int, block: int, publication: Publication, wide: bool) -> None:
        """A warp publishes; to all blocks if ``wide``."""
        knowledge = publication.knowledge
        self._by_block[block] = knowledge.joined(self._by_block.get(block))
        if wide:
            self._everywhere = knowledge.joined(self._everywhere)
            self._included[warp] = publication.before
        else:
            self._narrow.add(block)

    def add(self, other: Signal) -> None:
        """Publish what was published at another place, too."""
        if other._everywhere is not None:
            self._everywhere = other._everywhere.joined(self._everywhere)
        for block, knowledge in other._by_block.items():
            self._by_block[block] = knowledge.joined(self._by_block.get(block))
        self._narrow |= other._narrow

    def heard(self, block: int, wide: bool) -> Knowledge | None:
        """What a warp of a block hears; if not ``wide``, of its own block only."""
        own = self._by_block.get(block)
        if not wide:
            return own
        if own is None or block not in self._narrow:
            return self._everywhere
        return own.joined(self._everywhere)

    def includes(self, warp: int, known: Knowledge | None) -> bool:
        """Whether all that ``warp`` knows was published here."""
        return known is None or self._included.get(warp) is known

    def told(self, warp: int, known: Knowledge) -> None:
        """All that ``warp`` knows now, it heard here."""
        self._included[warp] = known
