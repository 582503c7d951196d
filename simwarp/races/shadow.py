"""Shadow memory: the last writers and readers of each unit of an allocation.

An *entry* is ``time << 32 | thread``, with the thread numbered in the launch; 0 stands for none. A unit is as
wide as the narrowest access so far, at most 8 bytes.

Units of a large allocation have entries in pages, made at their first access: the index of a unit's entry is
then not the unit's number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.memory import Allocation
from simwarp.races.vector_clocks import Publication, Signal

Entries = npt.NDArray[np.int64]
Units = npt.NDArray[np.int64]

THREAD = (1 << 32) - 1
"""The bits of an entry that hold the thread."""
_WIDEST = 8
_LARGE = 1 << 23
"""Bytes of an allocation above which its entries lie in pages."""
_PAGE = 1 << 12
"""Units of a page."""
_LOW_HALF = 0 if sys.byteorder == "little" else 1


def threads_of(entries: Entries) -> npt.NDArray[np.uint32]:
    """The thread numbers in shadow entries, as a view without a copy."""
    return entries.view(np.uint32)[_LOW_HALF::2]


def put(into: Entries, units: Units, entries: Entries) -> None:
    """Set the shadow entries of units: one entry per unit, or one for all."""
    into[units] = entries if entries.size > 1 else int(entries[0])


def is_set(objects: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mask of the elements of an object array that are not None."""
    nothing: Any = None
    return np.not_equal(objects, nothing)


class _Pages:
    """The pages of units that have shadow entries, and the slot where each page's entries are stored."""

    def __init__(self, units: int) -> None:
        self._slots = np.full(-(-units // _PAGE), -1, np.int64)
        self._owners = np.empty(0, np.int64)  # slot → page
        self.room = 0

    def find(self, units: Units) -> Units:
        """The indices of the entries of units; ``room`` has grown if they are in new pages."""
        pages = units // _PAGE
        slots = self._slots.take(pages)
        if slots.min(initial=0) < 0:
            made = np.unique(pages[slots < 0])
            self._slots[made] = np.arange(made.size) + self._owners.size
            self._owners = np.concatenate([self._owners, made])
            while self.room < self._owners.size * _PAGE:
                self.room = max(2 * self.room, _PAGE)
            slots = self._slots.take(pages)
        return slots * _PAGE + units % _PAGE

    def units(self, indices: Units) -> Units:
        """The numbers of the units whose entries are at these indices."""
        return self._owners[indices // _PAGE] * _PAGE + indices % _PAGE

    def split(self, times: int) -> None:
        """Split each unit into ``times`` units; their entries follow one another."""
        parts = np.arange(times)
        slots = self._slots[:, None] * times + parts
        self._slots = np.where(self._slots[:, None] < 0, -1, slots).reshape(-1)
        self._owners = (self._owners[:, None] * times + parts).reshape(-1)
        self.room *= times


class Shadow:
    """The shadow of an allocation; ``width`` is the width of its first access.

    Attributes
    ----------
    written : (units,) int64
        The entry of each unit's last write that was not strong for all threads that can access it.
    written_also : (units,) int64, or None before the first one
        The entry of an unordered write of the same bits by another thread.
    updated : (units,) int64, or None before the first one
        The entry of each unit's last strong write.
    read, read_also : (units,) int64, or None before the first watched read
        The entries of each unit's last read, and of a read by another thread.
    constant : (units,) int64, or None before the first one
        The entry of each unit's last load as read-only memory (``ld.global.nc``).
    observed : (units,) int64, or None before the first one
        The time of each unit's last strong read.
    signals : (units,) of Signal or None; or None before the first one
        The signal of the accesses that begin at each unit.
    released : dict of (warp, offset) to (Publication, bool)
        A warp's last publication at an offset by a release, and whether it is for all blocks.
    last_write, last_also, last_update, last_read : int
        The time of the last entry in ``written``, ``written_also``, ``updated`` and ``read``.
    """

    def __init__(self, allocation: Allocation, width: int) -> None:
        self.allocation, self.unit = allocation, min(width, _WIDEST)
        self._pages = _Pages(self._count()) if allocation.size > _LARGE else None
        self.written = self._empty()
        self.written_also: Entries | None = None
        self.updated: Entries | None = None
        self.read: Entries | None = None
        self.read_also: Entries | None = None
        self.constant: Entries | None = None
        self.observed: npt.NDArray[np.int64] | None = None
        self.signals: npt.NDArray[Any] | None = None
        self.released: dict[tuple[int, int], tuple[Publication, bool]] = {}
        self.last_write = self.last_also = self.last_update = self.last_read = 0
        self.pending: Callable[[], None] | None = None
        """Enters reads that are noted elsewhere; `readers` calls it."""

    @property
    def is_plain(self) -> bool:
        """Whether it has entries of weak accesses alone, and not in pages."""
        others = self._pages, self.updated, self.constant, self.observed
        return all(one is None for one in others)

    def _count(self) -> int:
        """The number of units into which the allocation is divided."""
        return -(-self.allocation.size // _WIDEST) * _WIDEST // self.unit

    def _empty(self) -> Entries:
        """An array with no entry for any unit, or for any unit of a page."""
        return np.zeros(self._count() if self._pages is None else self._pages.room, np.int64)

    def units(self, offsets: npt.NDArray[np.uint64], width: int) -> Units:
        """The entry indices of n accesses' units, (n,), or (k * n,) with k units each, first units first."""
        if width < self.unit:
            self._refine(width)
        first = self._places((offsets >> np.uint64(self.unit.bit_length() - 1)).view(np.int64))
        if width == self.unit:
            return first
        return (first + np.arange(width // self.unit)[:, None]).reshape(-1)

    def _places(self, numbers: Units) -> Units:
        """The indices of the entries of units, by their numbers in the allocation."""
        if self._pages is None:
            return numbers
        found = self._pages.find(numbers)
        if self.written.size < self._pages.room:
            self._grow(self._pages.room)
        return found

    def pieces(self, data: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The data of accesses split into units, in the order of `units`."""
        return np.ascontiguousarray(data).view(f"u{self.unit}").reshape(data.size, -1).T.reshape(-1)

    def held(self, units: Units) -> npt.NDArray[Any]:
        """The current contents of units of the allocation, by the indices of their entries."""
        return self.allocation.view(np.dtype(f"u{self.unit}")).take(self.numbers(units))

    def numbers(self, indices: Units) -> Units:
        """The numbers of units in the allocation, by the indices of their entries."""
        return indices if self._pages is None else self._pages.units(indices)

    def readers(self) -> tuple[Entries, Entries]:
        """The arrays of last readers, ``read`` and ``read_also``; they are allocated on first use."""
        if self.pending is not None:
            self.pending()
        if self.read is None or self.read_also is None:
            self.read, self.read_also = self._empty(), self._empty()
        return self.read, self.read_also

    def other_writers(self) -> Entries:
        """The array of second writers, ``written_also``; it is allocated on first use."""
        if self.written_also is None:
            self.written_also = self._empty()
        return self.written_also

    def write(self, units: Units, entries: Entries, time: int) -> None:
        """Record a write as the last one of units of memory."""
        put(self.written, units, entries)
        self.last_write = time

    def update(self, units: Units, entries: Entries, time: int) -> None:
        """Record a strong (relaxed, volatile or atomic) write to units of memory."""
        updated = self._empty() if self.updated is None else self.updated
        put(updated, units, entries)
        self.updated, self.last_update = updated, time

    def constants(self) -> Entries:
        """The array ``constant``; it is allocated on first use."""
        if self.constant is None:
            self.constant = self._empty()
        return self.constant

    def observe(self, units: Units, time: int) -> None:
        """Record the time of a strong (relaxed, volatile or atomic) read of units of memory."""
        observed = self._empty() if self.observed is None else self.observed
        observed[units] = time
        self.observed = observed

    def signals_at(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[Any] | None:
        """The signal at each byte offset, None where there is none; None if the allocation has no signals."""
        found = None if self.signals is None else self.signals[self._places(offsets // self.unit)]
        return found if found is not None and is_set(found).any() else None

    def signal(self, offsets: npt.NDArray[np.int64], signals: npt.NDArray[Any] | Signal | None) -> None:
        """Set the signals at offsets: one for all, or one (or None) each; the last of a repeated offset."""
        places = self._places(offsets // self.unit)
        if self.signals is None:
            self.signals = np.full(self._empty().size, None, np.object_)
        self.signals[places] = signals

    def _refine(self, width: int) -> None:
        """Split all units into units of a smaller width."""
        if self.pending is not None:
            self.pending()
        times = self.unit // width
        self.unit = width
        if self._pages is not None:
            self._pages.split(times)
        for name in _ENTRIES:
            units = getattr(self, name)
            if units is not None:
                setattr(self, name, units.repeat(times))
        if self.signals is not None:
            signals = np.full(self.signals.size * times, None, np.object_)
            signals[::times] = self.signals
            self.signals = signals

    def _grow(self, room: int) -> None:
        """Enlarge the arrays of entries to ``room`` units, for more pages."""
        for name in (*_ENTRIES, "signals"):
            old = getattr(self, name)
            if old is not None:
                new = np.full(room, None, np.object_) if name == "signals" else np.zeros(room, np.int64)
                new[: old.size] = old
                setattr(self, name, new)


_ENTRIES = ("written", "written_also", "updated", "read", "read_also", "constant", "observed")
