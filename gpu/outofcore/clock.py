"""Streams on a clock that only adds up the times of the model: a machine for `gpu.outofcore.pipeline`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import numpy.typing as npt

from gpu.machine import Event, Routine, Stream, Tile
from gpu.outofcore.rates import Rates
from reference.devices.timeline import Record, Timeline

Array: TypeAlias = npt.NDArray[Any]
Kind: TypeAlias = Literal["in", "out", "routine"]


@dataclass(frozen=True)
class Moment:
    """An event of the model: the end of the first ``count`` operations of a stream."""

    row: Row
    count: int

    @property
    def done(self) -> bool:
        """True if the operations before the event have ended."""
        return self.row.ended >= self.count


@dataclass
class Work:
    """An operation: fixed seconds at its start, then seconds in which its bytes move at full speed."""

    kind: Kind
    name: str
    after: list[Moment]
    seconds: float
    moving: float = 0.0
    nbytes: int = 0
    operations: float = 0.0
    start: float = 0.0
    since: float = 0.0
    speed: float = 0.0
    """The speed of its bytes from the time ``since`` on; 0 before they move."""

    @property
    def next(self) -> float:
        """The time at which the operation's bytes begin to move, or have moved."""
        return self.since + self.moving / self.speed if self.speed else self.start + self.seconds


@dataclass(eq=False)
class Row:
    """A stream of the simulated clock, with its queued operations."""

    number: int
    device: int = 0
    queue: deque[Work] = field(default_factory=deque[Work])
    waits: list[Moment] = field(default_factory=list[Moment])
    added: int = 0
    ended: int = 0
    running: Work | None = None


class ModelMachine:
    """Streams that each run operations one after another at the model's rates, when `run` is called."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._slower: dict[str, float] = dict(zip(("in", "out"), rates.slowdowns, strict=True))
        self._rows: list[Row] = []
        self._now = 0.0
        self.timeline = Timeline()

    def stream(self, device: int) -> Row:
        """Create a stream of the model."""
        self._rows.append(Row(len(self._rows), device))
        return self._rows[-1]

    def copy_in(self, stream: Stream, source: Array, target: Tile) -> None:
        """Queue a copy from host to device, with its modelled time."""
        start = self._rates.into(0, columns=target.columns)
        moving = target.nbytes / self._rates.in_bytes_per_second
        self.add(stream, Work("in", "copy in", [], start, moving, target.nbytes))

    def copy_out(self, stream: Stream, source: Tile, target: Array) -> None:
        """Queue a copy from device to host, with its modelled time."""
        start = self._rates.out(0, columns=source.columns)
        moving = source.nbytes / self._rates.out_bytes_per_second
        self.add(stream, Work("out", "copy out", [], start, moving, source.nbytes))

    def launch(self, stream: Stream, routine: Routine) -> None:
        """Queue a routine, with its modelled time."""
        filters, kind = getattr(routine, "filters", 0), getattr(routine, "kind", "")
        seconds = self._rates.routine(routine.operations, filters, kind)
        self.add(stream, Work("routine", routine.name, [], seconds, operations=routine.operations))

    def record(self, stream: Stream) -> Moment:
        """The end of the operations that the stream has now."""
        row = _row(stream)
        return Moment(row, row.added)

    def wait(self, stream: Stream, event: Event) -> None:
        """Hold back the stream's next operation until an event."""
        _row(stream).waits.append(cast("Moment", event))

    def add(self, stream: Stream, work: Work) -> None:
        """Queue an operation, behind the events that its stream waits for."""
        row = _row(stream)
        work.after, row.waits = row.waits, []
        row.queue.append(work)
        row.added += 1

    # ----------------------------------------------------------------------------------------- the clock

    def run(self) -> None:
        """Advance the simulated clock until all queued work has ended."""
        while True:
            for row in self._rows:
                self._begin(row)
            running = [row for row in self._rows if row.running]
            if not running:
                return
            self._now = min(_running(row).next for row in running)
            for row in running:
                if _running(row).next <= self._now:
                    self._go_on(row)
            self._share()

    def _begin(self, row: Row) -> None:
        """Start the next operation of a stream, if it does not wait for an event."""
        if row.running is None and row.queue and all(moment.done for moment in row.queue[0].after):
            row.running = row.queue.popleft()
            row.running.start = self._now

    def _go_on(self, row: Row) -> None:
        """Start moving the bytes of a stream's operation, or end it."""
        work = _running(row)
        if work.moving and not work.speed:
            work.since, work.speed = self._now, 1.0
            return
        row.running = None
        row.ended += 1
        span = work.start, self._now
        self.timeline.append(
            Record(0, -1, row.number, work.kind, work.name, work.nbytes, *span, work.operations)
        )

    def _share(self) -> None:
        """Set the speeds of the copies that move now."""
        moving = [row.running for row in self._rows if row.running and row.running.speed]
        for work in moving:
            speed = 1 / self._slower[work.kind] if len({one.kind for one in moving}) > 1 else 1.0
            if speed != work.speed:
                work.moving -= (self._now - work.since) * work.speed
                work.since, work.speed = self._now, speed


def _row(stream: Stream) -> Row:
    return cast("Row", stream)


def _running(row: Row) -> Work:
    assert row.running is not None
    return row.running
