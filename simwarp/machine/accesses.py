"""The accesses of one memory with which later accesses may conflict.

An access is kept until every later one comes after it: until the host knows that it has ended, or an access
that comes after it covers its bytes. They lie in buckets of addresses, so that few are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from simwarp.machine.footprints import Footprint, covers, overlap
from simwarp.machine.operations import Operation
from simwarp.machine.order import Order


class Access(NamedTuple):
    """An operation's read or write of a footprint of bytes in one memory."""

    operation: Operation
    footprint: Footprint
    writes: bool


@dataclass(slots=True)
class Bucket:
    """The accesses of a range of addresses in one epoch, each with its number in their order."""

    epoch: int
    writes: list[tuple[int, Access]] = field(default_factory=list[tuple[int, Access]])
    reads: dict[int, list[tuple[int, Access]]] = field(default_factory=dict[int, list[tuple[int, Access]]])
    """By stream: a read conflicts with no other, and replaces only those that come before it."""

    def all(self) -> list[tuple[int, Access]]:
        """All accesses in their order."""
        if not self.reads:
            return self.writes
        return sorted([*self.writes, *chain.from_iterable(self.reads.values())])


class Accesses:
    """The accesses of one memory, in buckets of ``bucket`` bytes."""

    def __init__(self, order: Order, bucket: int) -> None:
        self._order, self._bucket = order, bucket
        self._buckets: dict[int, Bucket] = {}
        self._count = 0

    def add(self, access: Access, before: dict[int, int]) -> Access | None:
        """Add an access, ordered behind the operations ``before``; return the first conflicting access."""
        conflict: Access | None = None
        self._count += 1
        for number in self._numbers(access.footprint):
            bucket = self._buckets.get(number)
            if bucket is None or bucket.epoch < self._order.epoch:  # what ran before this epoch has ended
                bucket = self._buckets[number] = Bucket(self._order.epoch)
            conflict = conflict or _conflict(bucket, access, before)
            self._drop(bucket, access, before)
            if access.writes:
                bucket.writes.append((self._count, access))
            else:
                bucket.reads.setdefault(access.operation.stream.number, []).append((self._count, access))
        return conflict

    def _drop(self, bucket: Bucket, access: Access, before: dict[int, int]) -> None:
        """Drop the accesses that have ended for the host, and those that one replaces."""

        def is_kept(earlier: Access) -> bool:
            if self._order.ended_for_host(earlier.operation):
                return False
            return not (_is_ordered(earlier, before) and _replaces(access, earlier))

        bucket.writes = [one for one in bucket.writes if is_kept(one[1])]
        # of another stream nothing comes before the access
        for stream in [*min(before, bucket.reads, key=len)]:
            if kept := [one for one in bucket.reads.get(stream, ()) if is_kept(one[1])]:
                bucket.reads[stream] = kept
            else:
                bucket.reads.pop(stream, None)

    def unfinished(self, start: int, end: int) -> Operation | None:
        """An operation on these bytes that may still run, as far as the host knows; None if there is none."""
        for number in list(self._buckets):
            accesses = (one for _, one in self._buckets[number].all())
            kept = [one for one in accesses if not self._order.ended_for_host(one.operation)]
            if not kept:
                del self._buckets[number]
            for one in kept:
                if one.footprint.start < end and start < one.footprint.end:
                    return one.operation
        return None

    def _numbers(self, of: Footprint) -> Iterator[int]:
        return iter(range(of.start // self._bucket, (of.end - 1) // self._bucket + 1))


def _conflict(bucket: Bucket, access: Access, before: dict[int, int]) -> Access | None:
    """The first access of a bucket that conflicts with a later one: they overlap, and nothing orders them."""
    for _, earlier in bucket.all() if access.writes else bucket.writes:
        if not _is_ordered(earlier, before) and overlap(access.footprint, earlier.footprint):
            return earlier
    return None


def _is_ordered(earlier: Access, before: dict[int, int]) -> bool:
    """True if an access of this epoch comes before a clock; it does if it has ended for the host."""
    operation = earlier.operation
    return before.get(operation.stream.number, 0) >= operation.index


def _replaces(later: Access, earlier: Access) -> bool:
    """True if every access that conflicts with the earlier access also conflicts with the later one."""
    return (later.writes or not earlier.writes) and covers(later.footprint, earlier.footprint)
