"""Who read a unit of memory: the last thread, and of the others the one farthest from it.

Whoever writes there later was one of the two readers at most, and is ordered after a near one more often than
after a far one; so what the two do not show is seldom a race.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.races.access import Access
from simwarp.races.order import Order
from simwarp.races.shadow import THREAD, Entries, Shadow, Units

_FARTHEST = 3


def remember(order: Order, access: Access, shadow: Shadow, units: Units) -> None:
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
    entries = access.of_units(units)
    old = read.take(units) if shadow.last_read >= access.past else None
    read[units], shadow.last_read = entries, access.time
    last = read.take(units)
    several = last != entries  # lanes that read what another one reads at the same time
    if old is not None:
        several[access.suspects(old)] = True
    at = np.flatnonzero(several)
    if not at.size:
        return
    last, best, here = last[at], entries[at], units[at]
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
