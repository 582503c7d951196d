"""Operations, events, and the streams that hold them in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from reference.values import shortened
from simwarp.machine.order import Known, Order
from simwarp.machine.topology import HOST, Route


class Machine(Protocol):
    """The part of `simwarp.machine.machine.Machine` that events and streams use."""

    @property
    def order(self) -> Order:
        """The order in which the machine's operations are known to execute."""
        ...


@dataclass(slots=True, eq=False)
class Conflict:
    """An access that is an error: detected when its operation is queued, reported when it starts."""

    tile: str
    access: str
    other: Operation | None
    other_access: str = ""


@dataclass(slots=True, eq=False)
class Operation:
    """A copy or a routine, queued in a stream."""

    stream: Stream
    index: int  # position in the stream, from 1
    epoch: int  # the machine's run; see `simwarp.machine.order`
    name: str
    caller: tuple[str, int]  # file and line that queued it
    begin: Callable[[], None]  # called when the operation starts; moves the values of a copy
    finish: Callable[[], None]  # called when the operation ends; moves the values of a copy
    route: Route | None = None  # the copy's route; None for a routine
    nbytes: int = 0
    operations: float = 0.0  # floating-point operations of a routine
    seconds: float = 0.0  # duration of a routine, without jitter
    conflict: Conflict | None = None
    start: float | None = None
    end: float | None = None

    def __str__(self) -> str:
        return f"{self.name} of {self.stream.where}"


@dataclass(slots=True, eq=False)
class Wait:
    """An item of a stream: the stream stops until an event has happened."""

    event: Event


@shortened
@dataclass(slots=True, eq=False)
class Event:
    """A point in a stream, which happens when all operations queued before it have ended.

    Attributes
    ----------
    machine : Machine
    stream : Stream
    number : int
        Its number in the machine.
    known : dict of int to int
        The operations before it: for each stream, by its number, how many.
    epoch : int
    happened : bool
    dropped : bool
        Whether it can no longer happen, because a failure emptied its stream.
    """

    machine: Machine
    stream: Stream
    number: int
    known: dict[int, int]
    epoch: int
    happened: bool = False
    dropped: bool = False
    streams: list[Stream] = field(default_factory=list["Stream"])
    tasks: list[Task] = field(default_factory=list["Task"])

    @property
    def done(self) -> bool:
        """Whether all work before the event has ended; if so, the host's later work is ordered after it."""
        if self.happened:
            self.machine.order.host_saw(self)
        return self.happened

    def __str__(self) -> str:
        why = ", which a failure dropped" if self.dropped else ""
        return f"event {self.number} of {self.stream.where}{why}"


@dataclass(slots=True, eq=False)
class Task:
    """A worker and the event that it waits for."""

    number: int
    worker: Iterator[object]
    event: Event | None = None
    idle: int = 0  # resumptions since an operation was queued
    queued: int = 0  # the machine's count of operations at the last resumption


@shortened
@dataclass(slots=True, eq=False)
class Stream:
    """A queue of work of one device.

    Attributes
    ----------
    machine : Machine
    device, number : int
        The number of its device, -1 for the host's cores, and its own in the machine.
    items : deque
        Operations, events and waits that it has not reached.
    busy : bool
        Whether its first operation waits for its engine or runs.
    blocked : Event or None
        The event that it waits for.
    count : int
        The operations that were ever queued.
    known : Known
        The operations that come before the next queued item.
    """

    machine: Machine
    device: int
    number: int
    items: deque[Operation | Event | Wait] = field(default_factory=deque["Operation | Event | Wait"])
    busy: bool = False
    blocked: Event | None = None
    count: int = 0
    known: Known = field(default_factory=Known)

    @property
    def where(self) -> str:
        """The stream in messages."""
        cores = self.device == HOST
        return "the host's cores" if cores else f"device {self.device}, stream {self.number}"
