"""Two recorded readers or writers per unit of memory: the last thread, and the thread farthest from it.

A later writer is at most one of the two, and is ordered after a near thread more often than after a far one;
so a race is rarely missed. A second writer matters where two write the same bits, which is not a race, and a
third write changes them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.races.access import Access
from simwarp.races.order import Order
from simwarp.races.shadow import THREAD, Entries, Shadow, Units, put

_FARTHEST = 3


def remember_readers(order: Order, access: Access, shadow: Shadow, units: Units) -> None:
    """Record the n lanes that read ``units``, (n,) or (k * n,)."""
    read, also = shadow.readers()
    old = read.take(units) if shadow.last_read >= access.past else None
    entries = access.of_units(units)
    put(read, units, entries)
    shadow.last_read = access.time
    # Units that several lanes of this access read:
    several = read.take(units) != entries if entries.size > 1 else np.zeros(units.size, np.bool_)
    if old is not None:
        several[access.suspects(old)] = True
    at = np.flatnonzero(several)
    if at.size:
        _remember_farthest(order, access, units, at, old, read, also)


def remember_writers(
    order: Order, access: Access, shadow: Shadow, units: Units, old: Entries | None
) -> npt.NDArray[np.intp]:
    """Record the lanes that write ``units``; returns positions where another lane of the step writes last.

    ``old`` are the entries of the last writers; None if all of them are ordered before.
    """
    entries = access.of_units(units)
    shadow.write(units, entries, access.time)
    several = shadow.written.take(units) != entries
    missed = np.flatnonzero(several)
    if old is not None:
        several[access.suspects(old)] = True
    at = np.flatnonzero(several)
    if at.size:
        _remember_farthest(order, access, units, at, old, shadow.written, shadow.other_writers())
        shadow.last_also = access.time
    return missed


def _remember_farthest(
    order: Order,
    access: Access,
    units: Units,
    at: npt.NDArray[np.intp],
    old: Entries | None,
    lasts: Entries,
    also: Entries,
) -> None:
    """Record in ``also`` the thread farthest from the last one, for the units at the positions ``at``."""
    entries, here = np.broadcast_to(access.of_units(units), units.shape)[at], units[at]
    last, best = lasts.take(here), entries
    worth = _distance(best, last, access.chunk.warps_per_block)
    if old is not None:
        lanes = at % access.lanes.size
        warps, threads = access.warps(lanes), access.threads[lanes]
        for other in (old[at], also[here]):
            far = _distance(other, last, access.chunk.warps_per_block)
            far[(other == 0) | order.ordered(warps, threads, other)] = 0
            best, worth = np.where(far > worth, other, best), np.maximum(far, worth)
    for distance in range(1, _FARTHEST + 1):  # the largest distance is written last, and stays
        chosen = worth == distance
        also[here[chosen]] = best[chosen]


def _distance(one: Entries, other: Entries, warps_per_block: int) -> npt.NDArray[np.int64]:
    """The distance of two threads: 0 same thread, 1 same warp, 2 same block, 3 different blocks."""
    result = np.zeros(one.size, np.int64)
    for lanes in (1, WARP_SIZE, WARP_SIZE * warps_per_block):
        result += (one & THREAD) // lanes != (other & THREAD) // lanes
    return result
