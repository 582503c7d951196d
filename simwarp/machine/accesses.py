"""The accesses of one memory with which later accesses may conflict.

An access is kept until every later one comes after it: until the host knows that it has ended, or an access
that comes after it covers its bytes. They lie in buckets of addresses, so that few are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from simwarp.machine.footprints import Footprint, covers, overlap
from simwarp.machine.operations import Operation
from simwarp.machine.order import Order


class Access(NamedTuple):
    """An operation's read or write of a footprint of bytes in one memory."""

    operation: Operation
    footprint: Footprint
    writes: bool


class Accesses:
    """The accesses of one memory, in buckets of ``bucket`` bytes."""

    def __init__(self, order: Order, bucket: int) -> None:
        self._order, self._bucket = order, bucket
        self._buckets: dict[int, list[Access]] = {}

    def add(self, access: Access, before: dict[int, int]) -> Access | None:
        """Add an access, ordered behind the operations ``before``; return the first conflicting access."""
        conflict: Access | None = None
        for number in self._numbers(access.footprint):
            kept: list[Access] = []
            for earlier in self._buckets.get(number, ()):
                if self._order.ended_for_host(earlier.operation):
                    continue
                operation = earlier.operation
                ordered = (
                    operation is access.operation or before.get(operation.stream.number, 0) >= operation.index
                )
                conflicts = (access.writes or earlier.writes) and not ordered
                if conflicts and conflict is None and overlap(access.footprint, earlier.footprint):
                    conflict = earlier
                if not (ordered and _replaces(access, earlier)):
                    kept.append(earlier)
            kept.append(access)
            self._buckets[number] = kept
        return conflict

    def unfinished(self, start: int, end: int) -> Operation | None:
        """An operation on these bytes that may still run, as far as the host knows; None if there is none."""
        for number in list(self._buckets):
            kept = [one for one in self._buckets[number] if not self._order.ended_for_host(one.operation)]
            if not kept:
                del self._buckets[number]
            for one in kept:
                if one.footprint.start < end and start < one.footprint.end:
                    return one.operation
        return None

    def _numbers(self, of: Footprint) -> Iterator[int]:
        return iter(range(of.start // self._bucket, (of.end - 1) // self._bucket + 1))


def _replaces(later: Access, earlier: Access) -> bool:
    """True if every access that conflicts with the earlier access also conflicts with the later one."""
    return (later.writes or not earlier.writes) and covers(later.footprint, earlier.footprint)
