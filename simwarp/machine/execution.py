"""The execution of streams on a clock: starts, durations and failures of operations."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from reference.devices.timeline import Record, Timeline
from simwarp.machine.clock import Clock
from simwarp.machine.engines import Engine
from simwarp.machine.faults import CopyError, DeviceLostError
from simwarp.machine.injections import Injection
from simwarp.machine.links import Flow, Links
from simwarp.machine.operations import Event, Operation, Stream, Task, Wait
from simwarp.machine.topology import HOST, Route, Topology


class Execution:
    """Runs the operations in a machine's streams, in simulated time.

    ``seed`` orders operations that are ready at the same time, and draws the jitter; None for the order of
    queueing. Each duration is multiplied by a random factor between 1 / (1 + jitter) and 1 + jitter.
    ``conflict`` is called when an operation with a conflict starts. ``ready`` has the workers whose event has
    happened, ``queued`` counts the operations that were ever queued.
    """

    def __init__(
        self,
        topology: Topology,
        seed: int | None,
        jitter: float,
        injections: Sequence[Injection],
        conflict: Callable[[Operation], None],
    ) -> None:
        self.clock, self.links, self.timeline = Clock(), Links(topology), Timeline()
        self.ready: list[Task] = []
        self.queued = 0
        self._seeded, self._jitter = seed is not None, jitter
        self._random = random.Random(seed or 0)
        self._conflict = conflict
        self._engines: dict[Route | int, Engine] = {}
        self._touched: dict[Engine, None] = {}
        self._held: dict[int, float] = {}  # until when no operation of a device starts
        self._active: dict[Stream, None] = {}
        self._copies: dict[tuple[str, int], int] = {}
        self._injections = sorted(injections, key=lambda one: one.lost_at)
        self._stopping = False

    # ------------------------------------------------------------------------------------------ streams

    def add(self, stream: Stream, item: Operation | Event | Wait) -> None:
        """Queue an operation, event or wait in a stream."""
        if isinstance(item, Operation):
            self.queued += 1
        stream.items.append(item)
        self._active[stream] = None
        self._reach(stream)

    def _reach(self, stream: Stream) -> None:
        """Process a stream's items up to its next operation, and then the streams that its events release."""
        work = deque([stream])
        while work:
            current = work.popleft()
            while current.items and not current.busy and current.blocked is None:
                self._reach_item(current, current.items.popleft(), work)
            if not (current.items or current.busy or current.blocked):
                self._active.pop(current, None)

    def _reach_item(self, stream: Stream, item: Operation | Event | Wait, work: deque[Stream]) -> None:
        if isinstance(item, Operation):
            stream.busy = True
            engine = self._engine(item)
            engine.add(item, self.clock.now, self.tie())
            self._touched[engine] = None
        elif isinstance(item, Wait):
            if not item.event.happened:
                stream.blocked = item.event
                item.event.streams.append(stream)
        else:
            item.happened = True
            for waiting in item.streams:
                waiting.blocked = None
            work.extend(item.streams)
            self.ready.extend(item.tasks)
            item.streams, item.tasks = [], []

    def unfinished(self) -> int:
        """The number of operations that are queued or running."""
        queued = sum(isinstance(item, Operation) for stream in self._active for item in stream.items)
        return queued + sum(stream.busy for stream in self._active)

    def blocked(self) -> list[Stream]:
        """The streams that wait for an event that has not happened."""
        return [stream for stream in self._active if stream.blocked]

    # ---------------------------------------------------------------------------------------- operations

    def dispatch(self) -> None:
        """Start the next operation on every engine that is free."""
        touched, self._touched = self._touched, {}
        for engine in touched:
            held = self._held.get(engine.device, 0.0)
            if held > self.clock.now:
                self.clock.at(held, partial(self._touch, engine))
            elif operation := engine.take():
                self._start(engine, operation)

    def _touch(self, engine: Engine) -> None:
        self._touched[engine] = None

    def hold(self, device: int, seconds: float) -> None:
        """Let no operation of a device start for some time; holds follow one another."""
        if seconds:
            begin = max(self.clock.now, self._held.get(device, 0.0))
            self._held[device] = begin + seconds * self._stretch()

    def _start(self, engine: Engine, operation: Operation) -> None:
        operation.start = self.clock.now
        if operation.conflict is not None:
            self._conflict(operation)
        try:
            operation.begin()
        except Exception as error:
            error.add_note(f"in {operation}, which started at {self.clock.now} s")
            raise
        engine.running = operation
        route, device = operation.route, operation.stream.device
        stretch = math.prod(one.slows(route) for one in self.injected(device)) * self._stretch()
        if route is None:
            seconds = operation.seconds * stretch
            self.clock.at(self.clock.now + seconds, partial(self._end, engine, operation))
            return
        number = self._copies.get(route[:2], 0)
        self._copies[route[:2]] = number + 1
        fails = any(one.fails_copy(route, number) for one in self.injected(device))
        flow = Flow(operation, operation.nbytes * stretch, partial(self._end, engine, operation, fails))
        begin = self.clock.now + self.links.latency(route) * stretch
        self.clock.at(begin, partial(self._begin_flow, flow))

    def _begin_flow(self, flow: Flow) -> None:
        self._schedule(self.links.begin(flow, self.clock.now))

    def _end_flow(self, flow: Flow) -> None:
        self._schedule(self.links.end(flow, self.clock.now))
        flow.end()

    def _schedule(self, ends: Iterable[tuple[Flow, float]]) -> None:
        for flow, seconds in ends:
            self.clock.at(seconds, partial(self._end_flow, flow), flow)

    def _end(self, engine: Engine, operation: Operation, fails: bool = False) -> None:
        stream = operation.stream
        engine.running, stream.busy = None, False
        self._touched[engine] = None
        if self.lost(stream.device):
            return
        if fails:
            if not self._stopping:
                raise self._copy_error(operation)
            return
        operation.end = self.clock.now
        operation.finish()
        self._note(operation)
        self._reach(stream)

    def _copy_error(self, operation: Operation) -> CopyError:
        assert operation.route is not None
        return CopyError(
            f"{operation}: the copy of {operation.nbytes} bytes failed",
            f"it ran from {operation.start} s to {self.clock.now} s on the link {operation.route}",
            "nothing that was queued runs any more; free and unpin, then try again or give up",
            device=operation.stream.device,
            stream=operation.stream.number,
            kind=operation.route.kind,
            seconds=self.clock.now,
        )

    def _note(self, operation: Operation) -> None:
        assert operation.start is not None
        assert operation.end is not None
        route, stream = operation.route, operation.stream
        self.timeline.append(
            Record(
                stream.device,
                route.peer if route else -1,
                stream.number,
                route.kind if route else "routine",
                operation.name,
                operation.nbytes,
                operation.start,
                operation.end,
                operation.operations,
            )
        )

    def _engine(self, operation: Operation) -> Engine:
        device = operation.stream.device
        key = device if operation.route is None else operation.route
        return self._engines.setdefault(key, Engine(device))

    # --------------------------------------------------------------------------------------- the clock

    def step(self) -> bool:
        """Advance to the next time at which an operation begins to move bytes or ends; False without one."""
        moment = self.clock.next()
        if moment is None:
            return False
        now = self.clock.now
        if loss := next((one for one in self._injections if now < one.lost_at <= moment), None):
            self.clock.now = loss.lost_at
            raise self.lost_error(loss)
        self.clock.advance()
        return True

    def injected(self, device: int) -> Iterator[Injection]:
        """The injected faults of a device."""
        return (one for one in self._injections if one.device == device)

    def lost(self, device: int) -> Injection | None:
        """The injected loss of a device if it has happened by now; else None."""
        return next((one for one in self.injected(device) if one.lost_at <= self.clock.now), None)

    def lost_error(self, loss: Injection) -> DeviceLostError:
        """The error for a device that has failed, with the operations that it ran."""
        running = [one.running for one in self._engines.values() if one.running]
        of_it = [str(one) for one in running if one.stream.device == loss.device]
        ran = ", ".join(of_it) or "nothing"
        if loss.device == HOST:
            texts = (
                "the host's cores are lost",
                f"they failed at {loss.lost_at} s, while they ran {ran}",
                "leave them out, and compute again what they had not finished",
            )
        else:
            texts = (
                f"device {loss.device} is lost",
                f"it failed at {loss.lost_at} s, while it ran {ran}",
                "leave out the device, and repeat what it had not copied to the host",
            )
        return DeviceLostError(
            *texts,
            device=loss.device,
            seconds=loss.lost_at,
        )

    def stop(self) -> None:
        """Drop all queued operations, and let running ones finish."""
        self._stopping = True
        for stream in self._active:
            for item in stream.items:
                if isinstance(item, Event):
                    item.dropped = True
            stream.items.clear()
            stream.blocked = None
        for engine in self._engines.values():
            engine.clear()
        while self.clock.next() is not None:
            self.clock.advance()
        for stream in self._active:
            stream.busy = False
        self._active.clear()
        self._touched.clear()
        self.ready.clear()
        self._stopping = False

    # -------------------------------------------------------------------------------------------- luck

    def tie(self) -> float:
        """A key for the order of operations that are ready at the same time: random with a seed, else 0."""
        return self._random.random() if self._seeded else 0.0

    def choose(self, count: int) -> int:
        """A number below ``count``: random if the machine has a seed, else 0."""
        return self._random.randrange(count) if self._seeded else 0

    def _stretch(self) -> float:
        return (1 + self._jitter) ** self._random.uniform(-1, 1) if self._jitter else 1.0
