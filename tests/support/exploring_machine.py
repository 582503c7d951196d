"""A machine without a clock that runs all schedules: a depth-first search over what may happen next.

What is at the head of a stream, and whose events have happened, may complete at any moment; a worker may be
resumed at any moment after its event, or with ``is_prompt`` at once. An operation reads and writes when it
completes. A schedule is the list of the choices taken, and is run from the start. Schedules that reach one
state are continued once: a state is what each stream has completed, what the workers have seen, in order, and
all bytes of the host and the devices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu.machine import Routine, Tile, Worker
from support.shuffled_machine import view

PATIENCE = 1000
"""The most resumptions of workers without an operation that completes."""


class ScheduleError(Exception):
    """A deadlock, or memory that is freed or used at the wrong time."""


class MergedError(Exception):
    """The state was reached before."""


@dataclass(eq=False)
class Bytes:
    device: int
    nbytes: int
    data: Any
    users: int = 0
    is_live: bool = True


@dataclass(eq=False)
class Happening:
    machine: ExploringMachine
    number: int
    has_happened: bool = False

    @property
    def done(self) -> bool:
        self.machine.note(self.number, self.has_happened)
        return self.has_happened


@dataclass(eq=False)
class Wait:
    event: Happening


@dataclass(eq=False)
class Operation:
    work: Callable[[], None]
    tiles: tuple[Tile, ...]


@dataclass(eq=False)
class Queue:
    device: int
    items: deque[Operation | Happening | Wait] = field(default_factory=deque)
    completed: int = 0


class ExploringMachine:
    """Takes the choices of ``schedule``, then the first one each time; adds the others to ``left``."""

    def __init__(
        self,
        schedule: Sequence[int] = (),
        seen: set[int] | None = None,
        left: list[tuple[int, ...]] | None = None,
        *,
        devices: int = 2,
        budget: int = 1 << 30,
        peers: bool = True,
        is_prompt: bool = True,
    ) -> None:
        self.devices, self.peers, self.is_prompt = devices, peers, is_prompt
        self.schedule, self.taken = schedule, list[int]()
        self.seen = set[int]() if seen is None else seen
        self.left = [] if left is None else left
        self.budgets = [budget] * devices
        self.queues: list[Queue] = []
        self.memories: list[Bytes] = []
        self.pinned: list[Any] = []
        self.events = 0
        self.log = 0

    def budget(self, device: int) -> int:
        return self.budgets[device]

    def reaches(self, device: int, peer: int) -> bool:
        return self.peers and device != peer

    def allocate(self, device: int, nbytes: int) -> Bytes:
        assert nbytes <= self.budgets[device]
        self.budgets[device] -= nbytes
        memory = Bytes(device, nbytes, np.full(nbytes, 0xFF, np.uint8))
        self.memories.append(memory)
        return memory

    def free(self, memory: Any) -> None:
        if not memory.is_live or memory.users:
            raise ScheduleError("freed twice" if not memory.is_live else "freed in use")
        memory.is_live = False
        self.memories.remove(memory)
        self.budgets[memory.device] += memory.nbytes

    def allocated(self, device: int) -> list[Bytes]:
        return [memory for memory in self.memories if memory.device == device]

    def pins(self, array: Any) -> int:
        return sum(other is array for other in self.pinned)

    def pin(self, array: Any) -> None:
        self.pinned.append(array)

    def unpin(self, array: Any) -> None:
        del self.pinned[next(i for i, other in enumerate(self.pinned) if other is array)]

    def stream(self, device: int) -> Queue:
        self.queues.append(Queue(device))
        return self.queues[-1]

    def copy_in(self, stream: Any, source: Any, target: Tile) -> None:
        self.add(stream, lambda: np.copyto(view(target), source), target)

    def copy_out(self, stream: Any, source: Tile, target: Any) -> None:
        self.add(stream, lambda: np.copyto(target, view(source)), source)

    def copy_peer(self, stream: Any, source: Tile, target: Tile) -> None:
        assert self.reaches(stream.device, source.memory.device)
        self.add(stream, lambda: np.copyto(view(target), view(source)), target, source)

    def launch(self, stream: Any, routine: Routine) -> None:
        assert {tile.memory.device for tile in (*routine.reads, *routine.writes)} == {stream.device}

        def compute() -> None:
            routine.compute([view(x) for x in routine.reads], [view(x) for x in routine.writes])

        self.add(stream, compute, *routine.writes, *routine.reads)

    def record(self, stream: Any) -> Happening:
        event = Happening(self, self.events)
        self.events += 1
        stream.items.append(event)
        self.settle()
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.items.append(Wait(event))
        self.settle()

    def seconds(self) -> float:
        return 0.0

    # ------------------------------------------------------------------------------------- schedules

    def add(self, stream: Queue, work: Callable[[], None], *tiles: Tile) -> None:
        """Queue an operation; the first tile is on the stream's device."""
        assert tiles[0].memory.device == stream.device
        for tile in tiles:
            memory: Any = tile.memory
            if not memory.is_live:
                raise ScheduleError("work on freed memory")
            memory.users += 1
        stream.items.append(Operation(work, tiles))

    def settle(self) -> None:
        """Pass all events, and waits for them, that no operation is in front of."""
        has_changed = True
        while has_changed:
            has_changed = False
            for queue in self.queues:
                while queue.items:
                    head = queue.items[0]
                    if isinstance(head, Operation) or (
                        isinstance(head, Wait) and not head.event.has_happened
                    ):
                        break
                    if isinstance(head, Happening):
                        head.has_happened = True
                    queue.items.popleft()
                    has_changed = True

    def complete(self, queue: Queue) -> None:
        """Complete the operation at the head of a stream."""
        operation = queue.items.popleft()
        assert isinstance(operation, Operation)
        operation.work()
        for tile in operation.tiles:
            memory: Any = tile.memory
            memory.users -= 1
        queue.completed += 1
        self.settle()

    def note(self, *what: int) -> None:
        """Note an observation of the workers: the next steps depend on it."""
        self.log = hash((self.log, *what))

    def choose(self, count: int) -> int:
        """One of several things that may happen next."""
        if count == 1:
            return 0
        if len(self.taken) < len(self.schedule):
            choice = self.schedule[len(self.taken)]
        else:
            state = self.state()
            if state in self.seen:
                raise MergedError
            self.seen.add(state)
            self.left += [(*self.taken, other) for other in range(count - 1, 0, -1)]
            choice = 0
        self.taken.append(choice)
        return choice

    def state(self) -> int:
        """A hash of all that decides what can happen from now on."""
        completed = tuple(queue.completed for queue in self.queues)
        data = tuple(memory.data.tobytes() for memory in self.memories)
        return hash((self.log, completed, data, tuple(array.tobytes() for array in self.pinned)))

    def run(self, workers: Sequence[Worker]) -> None:
        try:
            self.resume(workers)
        finally:
            self.queues.clear()
            for memory in self.memories:
                memory.users = 0

    def resume(self, workers: Sequence[Worker]) -> None:
        """Resume workers and complete operations until nothing is left."""
        waiting: dict[int, Happening | None] = dict.fromkeys(range(len(workers)))
        idle = 0
        while True:
            ready: list[int | Queue] = [
                number for number, event in waiting.items() if event is None or event.has_happened
            ]
            if not (ready and self.is_prompt):
                ready += [x for x in self.queues if x.items and isinstance(x.items[0], Operation)]
            if not ready:
                break
            chosen = ready[self.choose(len(ready))]
            if isinstance(chosen, Queue):
                self.complete(chosen)
                idle = 0
                continue
            idle += 1
            if idle > PATIENCE:
                raise ScheduleError(f"worker {chosen} polls")
            self.note(-1, chosen)
            event: Any = next(workers[chosen], None)
            del waiting[chosen]
            if event is not None:
                waiting[chosen] = event
        if waiting or any(queue.items for queue in self.queues):
            raise ScheduleError(f"deadlock: workers {[*waiting]} wait")


@dataclass
class Report:
    """The numbers of schedules that ran to their ends, and that merged into others; whether these are all."""

    complete: int = 0
    merged: int = 0
    is_all: bool = False


def explore(world: Callable[[ExploringMachine], None], cap: int, **options: Any) -> Report:
    """Run a world with each schedule, at most ``cap`` of them; an error has a note with its schedule."""
    report, seen, left = Report(), set[int](), [()]
    while left and report.complete + report.merged < cap:
        machine = ExploringMachine(left.pop(), seen, left, **options)
        try:
            world(machine)
        except MergedError:
            report.merged += 1
        except Exception as error:
            error.add_note(f"schedule {machine.taken} after {report}")
            raise
        else:
            report.complete += 1
    report.is_all = not left
    return report
