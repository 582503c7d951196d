"""Who read or wrote a unit of memory: the last thread, and of the others the one farthest from it.

A later writer was one of the two at most, and is ordered after a near one more often than after a far one; so
a race that the two do not show is rare. Two writers matter where they write the same bits, which is not a
race, and a third write changes them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.races.access import Access
from simwarp.races.order import Order
from simwarp.races.shadow import THREAD, Entries, Shadow, Units

_FARTHEST = 3


def remember_readers(order: Order, access: Access, shadow: Shadow, units: Units) -> None:
    """Lanes have read units.

    Parameters
    ----------
    order : Order
    access : Access
        The n lanes.
    shadow : Shadow
    units : (n,) or (k * n,) int64

    Examples
    --------
    A word is read by lane 1, then by lane 0, which writes it: the race is with the read of lane 1.

    >>> import simwarp
    >>> device = simwarp.Device(checks="report")
    >>> kernel = device.load('''.version 9.0 .target sm_90 .address_size 64
    ... .entry k(.param .u64 x) { .reg .b32 %r<2>; .reg .b64 %a; .reg .pred %p;
    ...     ld.param.u64 %a, [x]; mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 1;
    ...     @%p ld.global.u32 %r1, [%a]; @%p exit;
    ...     ld.global.u32 %r1, [%a]; add.u32 %r1, %r1, 1; st.global.u32 [%a], %r1; ret; }''').kernel("k")
    >>> kernel((1, 1, 1), (2, 1, 1), device.upload(np.zeros(1, np.uint32)))
    >>> [(race.earlier, race.other.lane, race.later, race.place.lane) for race in device.faults]
    [('read', 1, 'write', 0)]
    """
    read, also = shadow.readers()
    old = read.take(units) if shadow.last_read >= access.past else None
    entries = access.of_units(units)
    read[units], shadow.last_read = entries, access.time
    several = read.take(units) != entries  # lanes that read what another one reads at the same time
    if old is not None:
        several[access.suspects(old)] = True
    at = np.flatnonzero(several)
    if at.size:
        _remember_farthest(order, access, units, at, old, read, also)


def remember_writers(
    order: Order, access: Access, shadow: Shadow, units: Units, old: Entries | None
) -> npt.NDArray[np.intp]:
    """Lanes write units; ``old`` are the entries of the last writers, None if all are ordered before.

    Returns
    -------
    array of int
        The positions in ``units`` where another lane's write, of the same instruction, stays.

    Examples
    --------
    Both lanes write 0, then lane 1 writes 5: nothing says that lane 0 comes first.

    >>> import simwarp
    >>> device = simwarp.Device(checks="report")
    >>> kernel = device.load('''.version 9.0 .target sm_90 .address_size 64
    ... .entry k(.param .u64 x) { .reg .b32 %r<2>; .reg .b64 %a; .reg .pred %p;
    ...     ld.param.u64 %a, [x]; mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 1;
    ...     st.global.u32 [%a], 0; @%p st.global.u32 [%a], 5; ret; }''').kernel("k")
    >>> kernel((1, 1, 1), (2, 1, 1), device.upload(np.zeros(1, np.uint32)))
    >>> [(race.earlier, race.other.lane, race.later, race.place.lane) for race in device.faults]
    [('write', 0, 'write', 1)]
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
    """Keep in ``also`` who, besides the last thread, accessed the units at the positions ``at``."""
    entries, here = access.of_units(units)[at], units[at]
    last, best = lasts.take(here), entries
    worth = _distance(best, last, access.chunk.warps_per_block)
    if old is not None:
        lanes = at % access.entries.size
        rows, threads = access.rows(lanes), access.threads[lanes]
        for other in (old[at], also[here]):
            far = _distance(other, last, access.chunk.warps_per_block)
            far[(other == 0) | order.ordered(rows, threads, other)] = 0
            best, worth = np.where(far > worth, other, best), np.maximum(far, worth)
    for distance in range(1, _FARTHEST + 1):  # where several lanes leave one, the farthest stays
        chosen = worth == distance
        also[here[chosen]] = best[chosen]


def _distance(one: Entries, other: Entries, warps_per_block: int) -> npt.NDArray[np.int64]:
    """0: the same thread; 1: of the same warp; 2: of the same block; 3: neither."""
    result = np.zeros(one.size, np.int64)
    for lanes in (1, WARP_SIZE, WARP_SIZE * warps_per_block):
        result += (one & THREAD) // lanes != (other & THREAD) // lanes
    return result
