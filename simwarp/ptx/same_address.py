"""Atomic operations of lanes that share an address, sorted into runs, one per address.

The old value of a lane depends on the lanes before it. For an associative operation a scan computes all lanes
at once; otherwise the first lanes of all runs execute together, then the second lanes, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt


def all_differ(addresses: npt.NDArray[np.uint64]) -> bool:
    """Whether the addresses are pairwise different."""
    if (addresses[1:] > addresses[:-1]).all():
        return True
    ordered = np.sort(addresses)
    return not (ordered[1:] == ordered[:-1]).any()


class Runs:
    """Accesses sorted by address; a run contains the accesses to one address, in order of execution.

    Attributes
    ----------
    position : (n,) int
        The index of the access at each sorted place.
    starts : (k,) int
        The place where each run starts.
    of : (n,) int
        The run of each place.
    rank : (n,) int
        The position of each place in its run, from 0.
    longest : int
        Length of the longest run.
    """

    def __init__(self, addresses: npt.NDArray[np.uint64], order: Any = None) -> None:
        position = np.arange(addresses.size) if order is None else order
        self.position: npt.NDArray[np.intp] = position[np.argsort(addresses[position], kind="stable")]
        ordered = addresses[self.position]
        is_start = np.r_[True, ordered[1:] != ordered[:-1]]
        self.starts = np.flatnonzero(is_start)
        self.of = np.cumsum(is_start) - 1
        self.rank = np.arange(addresses.size) - self.starts[self.of]
        self.longest = int(self.rank.max(initial=0)) + 1

    @cached_property
    def ends(self) -> npt.NDArray[np.intp]:
        """(k,): the position of the last element of each run."""
        return np.r_[self.starts[1:], self.of.size] - 1

    def scan(self, combine: Callable[[Any, Any], Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Inclusive scan of ``values`` within each run, from left to right.

        ``combine`` must be associative. After Hillis and Steele, "Data parallel algorithms" (1986).
        """
        result, distance = values.copy(), 1
        while distance < self.longest:
            later = np.flatnonzero(self.rank >= distance)
            result[later] = combine(result[later - distance], result[later])
            distance *= 2
        return result

    def all_equal(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """(k,): whether all values of each run are equal."""
        return np.logical_and.reduceat(values == values[self.starts][self.of], self.starts)

    def turns(self, places: npt.NDArray[np.bool_] | None = None) -> Iterator[npt.NDArray[np.intp]]:
        """Yield the first access of each run, then the second, and so on; ``places`` (n,) selects some."""
        chosen = np.arange(self.of.size) if places is None else np.flatnonzero(places)
        if chosen.size:
            rank = self.rank[chosen]
            by_rank = chosen[np.argsort(rank, kind="stable")]
            yield from np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])
