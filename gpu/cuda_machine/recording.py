"""The timeline of a machine: events of the driver, with times, around each operation.

The driver gives times between two events of one device. Each device has a base event whose time on the host's
clock is known to half the microseconds in which the host recorded it and saw it happen; devices are aligned
by these.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

from gpu.cuda_machine.contexts import Contexts
from gpu.cuda_machine.driver import Driver, DriverStream
from reference.devices.timeline import Record, Timeline

_TRIES = 5


@dataclass(slots=True)
class Span:
    """A recorded operation between two timing events."""

    queue: DriverStream
    stream: int
    kind: Literal["in", "out", "peer", "routine"]
    name: str
    peer: int
    nbytes: int
    operations: float
    start: Any
    end: Any = None


@dataclass
class Base:
    """An event, and its time on the host's clock."""

    event: Any
    seconds: float


class Recorder:
    """Records operations, if it is on; ``timeline`` has those that have ended."""

    def __init__(self, driver: Driver, contexts: Contexts, is_on: bool) -> None:
        self.timeline = Timeline()
        self.is_on = is_on
        self._driver, self._contexts = driver, contexts
        self._spans: list[Span] = []
        self._noted: list[Record] = []
        self._bases: dict[int, Base] = {}
        self._free: dict[int, list[Any]] = {}
        self._events: list[tuple[int, Any]] = []

    def begin(
        self,
        queue: DriverStream,
        stream: int,
        kind: Literal["in", "out", "peer", "routine"],
        name: str,
        nbytes: int = 0,
        operations: float = 0.0,
        peer: int = -1,
    ) -> None:
        """Record the start of the operation that is queued next."""
        if queue.device not in self._bases:
            self._bases[queue.device] = self._base(queue)
        start = self._record(queue)
        self._spans.append(Span(queue, stream, kind, name, peer, nbytes, operations, start))

    def end(self) -> None:
        """Record the end of the operation that was begun last."""
        span = self._spans[-1]
        span.end = self._record(span.queue)

    def note(self, record: Record) -> None:
        """Add an operation of the host's cores to what is collected next."""
        self._noted.append(record)

    def collect(self) -> None:
        """Add the recorded operations to the timeline; all must have ended."""
        records = [self._measured(span) for span in self._spans if span.end is not None]
        records += self._noted
        for record in sorted(records, key=lambda one: one.end):
            self.timeline.append(record)
        self.drop()

    def drop(self) -> None:
        """Forget the operations recorded since the last collection."""
        self._noted.clear()
        self._spans.clear()
        self._bases.clear()
        self._free.clear()
        for device, event in self._events:
            self._free.setdefault(device, []).append(event)

    def close(self, release: Any) -> None:
        """Destroy all timing events."""
        self._spans.clear()
        self._free.clear()
        while self._events:
            device, event = self._events.pop()
            release(device, self._driver.call, "cuEventDestroy", event)

    def _measured(self, span: Span) -> Record:
        """The record of an operation that has ended."""
        device = span.queue.device
        base = self._bases[device]
        with self._contexts.on(device):
            start, end = (
                base.seconds
                + float(self._driver.call("cuEventElapsedTime", base.event, event, device=device)) / 1000
                for event in (span.start, span.end)
            )
        return Record(
            device, span.peer, span.stream, span.kind, span.name, span.nbytes, start, end, span.operations
        )

    def _record(self, queue: DriverStream) -> Any:
        """An event with a time behind the work of a queue."""
        device, free = queue.device, self._free.get(queue.device)
        if free:
            event = free.pop()
        else:
            event = self._driver.call("cuEventCreate", 0, device=device)
            self._events.append((device, event))
        self._driver.call("cuEventRecord", event, queue.stream, device=device)
        return event

    def _base(self, queue: DriverStream) -> Base:
        """A base for a queue's device: of several events, the one whose time the host knows best."""
        bases: list[tuple[float, Base]] = []
        for _ in range(_TRIES):
            before = time.perf_counter()
            event = self._record(queue)
            self._driver.call("cuEventSynchronize", event, device=queue.device)
            after = time.perf_counter()
            bases.append((after - before, Base(event, (before + after) / 2)))
        return min(bases, key=lambda one: one[0])[1]
