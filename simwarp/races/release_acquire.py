"""Flags and locks: strong accesses through which threads publish, and hear, what happened before.

A strong write after a fence, or one with ``.release``, publishes what its warp knew at the fence, or knows
now; who reads that word strongly hears it, at once with ``.acquire``, else at its next fence.

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
"""Accesses of one instruction that are looked at each by itself; more of them share one signal."""
_MANY = -1
"""The place of accesses that share one."""


class Strong(NamedTuple):
    """What a strong access does to signals.

    ``replaces``: a store ends what others published there; an atomic operation adds to it.
    """

    reads: bool
    writes: bool
    replaces: bool
    acquires: bool
    releases: bool
    wide: bool


def exchange(
    order: Order,
    shadow: Shadow,
    what: Strong,
    rows: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    time: int,
) -> None:
    """Strong accesses of n lanes to a shadow's allocation, in their order.

    Parameters
    ----------
    rows, offsets : (n,) int64
        Their warps, and where they access.
    time : int

    Examples
    --------
    Block 0 writes a word and then a flag; block 1 waits for the flag and reads the word. It may, if fences
    stand on both sides:

    >>> import simwarp
    >>> def races(fence):
    ...     device = simwarp.Device(checks="report")
    ...     kernel = device.load(f'''.version 9.0 .target sm_90 .address_size 64
    ...     .entry k(.param .u64 x) {{ .reg .b32 %r<2>; .reg .b64 %a; .reg .pred %p;
    ...         ld.param.u64 %a, [x]; mov.u32 %r0, %ctaid.x; setp.eq.u32 %p, %r0, 1; @%p bra WAIT;
    ...         st.global.u32 [%a], 7; {fence} st.relaxed.gpu.global.u32 [%a+4], 1; ret;
    ...         WAIT: ld.relaxed.gpu.global.u32 %r1, [%a+4]; setp.eq.u32 %p, %r1, 0; @%p bra WAIT;
    ...         {fence} ld.global.u32 %r1, [%a]; ret; }}''').kernel("k")
    ...     kernel((2, 1, 1), (1, 1, 1), device.upload(np.zeros(2, np.uint32)))
    ...     return len(device.faults)
    >>> races("fence.acq_rel.gpu;"), races(""), races("fence.acq_rel.cta;")
    (0, 1, 1)
    """
    marked = shadow.signalled is not None and bool(shadow.signalled[offsets // shadow.unit].any())
    publishes = what.writes and (what.releases or bool(shadow.released) or order.has_published(rows))
    heard = what.reads and (marked or what.acquires)
    if not publishes and not heard and not (marked and what.replaces):
        return
    if rows.size <= _ONE_BY_ONE:
        for row, offset in zip(rows.tolist(), offsets.tolist(), strict=True):
            _exchange_one(order, shadow, what, row, offset, time)
    else:
        _exchange_many(order, shadow, what, rows, offsets, time)


def _exchange_one(order: Order, shadow: Shadow, what: Strong, row: int, offset: int, time: int) -> None:
    signal = shadow.signals.get(offset)
    if what.reads:
        _read(order, shadow, offset, signal, what, row)
    if not what.writes:
        return
    publications = _publications(order, shadow, what, row, offset, time)
    if what.replaces:
        signal = Signal() if publications else None
        shadow.signal(offset, signal)
    elif signal is None and publications:
        signal = Signal()
        shadow.signal(offset, signal)
    if signal is not None:
        for published, wide in publications:
            order.publish(signal, row, published, wide)


def _read(order: Order, shadow: Shadow, offset: int, signal: Signal | None, what: Strong, row: int) -> None:
    """Hear a signal now, and what was read at its place before; or at the next fence."""
    place = shadow, offset
    if what.acquires:
        order.acquire(row, place, what.wide)
        order.acquire(row, (shadow, _MANY), what.wide)
        if signal is not None:
            order.hear(row, signal, what.wide)
    elif signal is not None:
        order.read(row, place, signal, what.wide)


def _publications(
    order: Order, shadow: Shadow, what: Strong, row: int, offset: int, time: int
) -> list[tuple[Publication, bool]]:
    """What a strong write of a warp publishes, and whether to all blocks.

    That is what it knows now, if it releases; else what it knew at its last fence, and at its last release
    at this place.
    """
    place = order.warp(row), offset
    if what.releases:
        shadow.released[place] = order.now(row, time), what.wide
        return [shadow.released[place]]
    found = order.at_fence(row, what.wide)
    if place in shadow.released:
        publication, wide = shadow.released[place]
        found.append((publication, wide and what.wide))
    return found


def _exchange_many(
    order: Order,
    shadow: Shadow,
    what: Strong,
    rows: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    time: int,
) -> None:
    """All as if to one place: what is known then is rather too much, and no order is overlooked."""
    places = np.unique(offsets).tolist()
    old = list({shadow.signals[place]: None for place in places if place in shadow.signals})
    warps = np.unique(rows).tolist()
    if what.reads:
        for row in warps:
            for signal in old or (None,):
                _read(order, shadow, _MANY, signal, what, row)
    if not what.writes:
        return
    together = old[0] if old and not what.replaces else Signal()
    for signal in () if what.replaces else old[1:]:
        together.add(signal)
    published = bool(old)
    for row in warps:
        for publication, wide in _publications(order, shadow, what, row, _MANY, time):
            order.publish(together, row, publication, wide)
            published = True
    for place in places if published else ():
        shadow.signal(place, together)
