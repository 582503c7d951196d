"""Managed (unified) memory: which pages lie on the device, and what accesses and prefetches move.

An address range moves in pages of 64 KiB and lies in blocks of 2 MiB. An access to an absent page is a fault:
the driver moves the page, and the largest part around it, by a binary tree of the block's pages, of which
more than half has then been moved. If the device is full, the block that was used least recently goes back
to the host, whole: a page lies on one side only, so pages that were only read are moved, too.

Sources: Ganguly, Zhang, Yang and Melhem, "Interplay between hardware prefetcher and page eviction policy in
CPU-GPU unified virtual memory" (ISCA 2019), for sizes, tree, eviction and the latency; Zheng et al., "Towards
high performance paged memory for GPUs" (HPCA 2016), has 20 to 50 µs for the latency.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from reference.errors import LaunchError, ShapeError

PAGE = 1 << 16
BLOCK = 1 << 21
PAGES = BLOCK // PAGE
FAULT_SECONDS = 45e-6
"""From a fault to the start of its migration, as Ganguly et al. measured it on a Pascal."""
_ALL = (1 << PAGES) - 1


@dataclass
class Moved:
    """What an access or a prefetch moves: migrations that the driver starts, and bytes in both directions."""

    migrations: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class ManagedMemory:
    """The managed memory of a host and of a device with room for ``nbytes``; all of it begins on the host.

    >>> memory = ManagedMemory(1 << 30)
    >>> first = memory.allocate(4 << 20)
    >>> memory.access(first, first + (4 << 20))
    Moved(migrations=12, bytes_in=4194304, bytes_out=0)
    """

    def __init__(self, nbytes: int) -> None:
        if nbytes < BLOCK:
            raise LaunchError(
                f"managed memory on a device with {nbytes} bytes free\nit moves in blocks of {BLOCK} bytes\n"
                "free memory of the device"
            )
        self._room = nbytes // BLOCK
        self._end = 0
        self._here: OrderedDict[int, int] = OrderedDict()
        """Block → a bit for each of its pages on the device; blocks without one are left out, the last used
        block is the last one."""

    def allocate(self, nbytes: int) -> int:
        """The first address of new memory, in blocks of its own."""
        if nbytes < 1:
            raise ShapeError(f"allocation of {nbytes} bytes\na memory has at least one byte\nask for more")
        start = self._end
        self._end += -(-nbytes // BLOCK) * BLOCK
        return start

    def resident(self, start: int, end: int) -> int:
        """The bytes of a range that lie on the device, in whole pages."""
        return PAGE * sum(
            (self._here.get(block, 0) & pages).bit_count() for block, pages in self._parts(start, end)
        )

    def access(self, start: int, end: int) -> Moved:
        """The device reads or writes a range in order; absent pages fault."""
        moved = Moved()
        for block, pages in self._parts(start, end):
            here = self._here.get(block, 0)
            after, faults = faulted(here, pages)
            moved.migrations += faults
            self._bring(block, here, after, moved)
        return moved

    def access_by_host(self, start: int, end: int) -> Moved:
        """The host reads or writes a range in order; pages on the device fault, by the same rule."""
        moved = Moved()
        for block, pages in self._parts(start, end):
            here = self._here.get(block, 0)
            absent, faults = faulted(_ALL & ~here, pages)
            moved.migrations += faults
            self._take(block, here, _ALL & ~absent, moved)
        return moved

    def prefetch(self, start: int, end: int) -> Moved:
        """The pages of a range go to the device, by one call."""
        moved = Moved(migrations=1)
        for block, pages in self._parts(start, end):
            here = self._here.get(block, 0)
            self._bring(block, here, here | pages, moved)
        return moved

    def prefetch_to_host(self, start: int, end: int) -> Moved:
        """The pages of a range go to the host, by one call."""
        moved = Moved(migrations=1)
        for block, pages in self._parts(start, end):
            here = self._here.get(block, 0)
            self._take(block, here, here & ~pages, moved)
        return moved

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The blocks of a range, and a bit for each of their pages in it."""
        if not 0 <= start < end <= self._end:
            raise LaunchError(
                f"bytes {start} to {end} of managed memory\n{self._end} bytes are allocated\n"
                "give a range of an allocation"
            )
        first, stop = start // PAGE, -(-end // PAGE)
        for block in range(first // PAGES, -(-stop // PAGES)):
            low, high = max(first - block * PAGES, 0), min(stop - block * PAGES, PAGES)
            yield block, (1 << high) - (1 << low)

    def _bring(self, block: int, here: int, after: int, moved: Moved) -> None:
        """Let pages of a block be on the device; if it is full, the block used least recently leaves it."""
        if not here and len(self._here) == self._room:
            _, oldest = self._here.popitem(last=False)
            moved.bytes_out += PAGE * oldest.bit_count()
        moved.bytes_in += PAGE * (after & ~here).bit_count()
        self._here[block] = after
        self._here.move_to_end(block)

    def _take(self, block: int, here: int, after: int, moved: Moved) -> None:
        """Let pages of a block be on the host."""
        moved.bytes_out += PAGE * (here & ~after).bit_count()
        if after:
            self._here[block] = after
        else:
            self._here.pop(block, None)


@lru_cache(4096)
def faulted(here: int, pages: int) -> tuple[int, int]:
    """The pages of a block that are there once some were accessed in order, and the faults of that.

    >>> faulted(0, 0b111)
    (15, 3)
    """
    faults = 0
    for page in range(PAGES):
        if pages >> page & 1 and not here >> page & 1:
            here |= 1 << page
            faults += 1
            for size in (2 << level for level in range(PAGES.bit_length() - 1)):
                part = ((1 << size) - 1) << page // size * size
                if 2 * (here & part).bit_count() > size:
                    here |= part
    return here, faults
