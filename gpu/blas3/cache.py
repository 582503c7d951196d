"""The tile cache of one device: approximately least recently used, with readers (BLASX, algorithm 2).

A tile that is being read is never evicted: tiles that queued work reads have readers, which are released only
after the streams were synchronised. A tile that must be dropped while it has readers is no longer found, and
its memory is returned by the last of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpu.blas3.policy_error import PolicyError

Key = TypeVar("Key", bound=Hashable)
Place = TypeVar("Place")


@dataclass(eq=False)
class Entry(Generic[Key, Place]):
    """A tile in a device's cache, with its number of users."""

    key: Key  # the block of the host's matrix
    place: Place  # the block's device memory
    readers: int = 1  # uses whose end has not been observed
    is_found: bool = True  # whether a lookup finds the block; false after the cache has dropped it


class TileCache(Generic[Key, Place]):
    """The tiles of one device; ``give_back`` is called with the memory of each evicted or dropped tile.

    >>> given_back = []
    >>> cache = TileCache(given_back.append)
    >>> first = cache.insert("A00", 0)
    >>> cache.evict() is None  # it has a reader
    True
    >>> cache.release(first)
    >>> cache.evict(), given_back
    ('A00', [0])
    """

    def __init__(self, give_back: Callable[[Place], None]) -> None:
        self._give_back = give_back
        self._entries: OrderedDict[Key, Entry[Key, Place]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def place(self, key: Key) -> Place | None:
        """The memory of a tile, without adding a reader; None if it is not in the cache."""
        entry = self._entries.get(key)
        return None if entry is None else entry.place

    def take(self, key: Key) -> Entry[Key, Place] | None:
        """Add a reader to a tile and make it the most recently used one; None for a miss."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.readers += 1
            self._entries.move_to_end(key)
        return entry

    def insert(self, key: Key, place: Place) -> Entry[Key, Place]:
        """Insert a tile with one reader, so that it cannot be evicted before its first use."""
        if key in self._entries:
            raise PolicyError(f"{key} is inserted\nit is in the cache already\ntake it")
        entry = self._entries[key] = Entry(key, place)
        return entry

    def release(self, entry: Entry[Key, Place]) -> None:
        """Decrement the number of users of a cached tile."""
        if entry.readers <= 0:
            raise PolicyError(f"{entry.key} is released\nit has no reader\nrelease each use once")
        entry.readers -= 1
        if not entry.readers and not entry.is_found:
            self._give_back(entry.place)

    def evict(self) -> Key | None:
        """Drop the least recently used tile without readers; None if all tiles have readers."""
        for key, entry in self._entries.items():
            if not entry.readers:
                self.drop(key)
                return key
        return None

    def drop(self, key: Key) -> None:
        """Remove a tile from lookups; its memory is returned now, or by its last reader."""
        entry = self._entries.pop(key, None)
        if entry is None:
            raise PolicyError(f"{key} is dropped\nit is not in the cache\ndrop each tile once")
        entry.is_found = False
        if not entry.readers:
            self._give_back(entry.place)

    def clear(self) -> None:
        """Drop all tiles from the cache."""
        for key in [*self._entries]:
            self.drop(key)
