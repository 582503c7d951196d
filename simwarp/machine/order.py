"""The order of operations: vector clocks of the streams and of the host.

An operation comes before one that is queued later if both are of one stream; if the later one's stream waited
for an event behind the earlier one; or if the host, before it queued the later one, had seen such an event: a
worker was resumed by it, or read its ``done``. The host counts as one thread. All that a run did comes before
what is queued after it, so each run starts with empty clocks, in an *epoch* of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simwarp.machine.operations import Event, Operation, Stream


@dataclass(slots=True, eq=False)
class Known:
    """A vector clock: stream number → the number of its operations that come before."""

    counts: dict[int, int] = field(default_factory=dict[int, int])
    epoch: int = 0
    version: int = 0


class Order:
    """The vector clocks of one machine, which order its operations."""

    def __init__(self) -> None:
        self.epoch = 0
        self._host: dict[int, int] = {}
        self._version = 0

    def next_epoch(self) -> None:
        """Order all later operations after all operations queued so far."""
        self.epoch += 1
        self._version += 1
        self._host.clear()

    def host_saw(self, event: Event) -> None:
        """Note that the host knows that an event has happened."""
        if event.epoch == self.epoch and _join(self._host, event.known):
            self._version += 1

    def before(self, stream: Stream) -> dict[int, int]:
        """The vector clock of the next operation of a stream: stream → operations ordered before it."""
        known = stream.known
        if known.epoch != self.epoch:
            known.counts, known.epoch = {}, self.epoch
        if known.version != self._version:
            _join(known.counts, self._host)
            known.version = self._version
        return known.counts

    def wait(self, stream: Stream, event: Event) -> None:
        """Order all later operations of a stream behind an event."""
        if event.epoch == self.epoch:
            _join(self.before(stream), event.known)

    def ended_for_host(self, operation: Operation) -> bool:
        """True if the host knows that an operation has ended."""
        return operation.epoch < self.epoch or self._host.get(operation.stream.number, 0) >= operation.index


def _join(into: dict[int, int], other: dict[int, int]) -> bool:
    """Merge another clock into one: the larger count of each stream; True if one changed."""
    changed = False
    for stream, count in other.items():
        if into.get(stream, 0) < count:
            into[stream] = count
            changed = True
    return changed
