"""Processes as threads, with the communicators that `summa` needs; broadcasts happen as late as they may."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SECONDS = 20.0
"""After which a process that waits for the others counts as hanging."""


@dataclass
class Meeting:
    given: dict[int, Any] = field(default_factory=dict)
    left: int = 0


class World:
    """The shared state of the processes of one communicator; every collective operation has a number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.condition = threading.Condition()
        self.meetings: dict[tuple[str, int], Meeting] = {}

    def meet(self, key: tuple[str, int], rank: int, given: Any, act: Callable[[Meeting], Any]) -> Any:
        """Wait for all; every process acts on what was given, and none leaves before all have acted."""
        with self.condition:
            meeting = self.meetings.setdefault(key, Meeting())
            meeting.given[rank] = given
            self.condition.notify_all()
            self._wait(lambda: len(meeting.given) == self.size)
            found = act(meeting)
            meeting.left += 1
            self.condition.notify_all()
            self._wait(lambda: meeting.left == self.size)
            return found

    def _wait(self, is_true: Callable[[], bool]) -> None:
        if not self.condition.wait_for(is_true, SECONDS):
            raise TimeoutError("the other processes do not come")


class ThreadProcess:
    def __init__(self, world: World, rank: int) -> None:
        self._world, self.rank, self.size = world, rank, world.size
        self._numbers = {"object": 0, "broadcast": 0}
        self.is_free = False

    def _key(self, kind: str) -> tuple[str, int]:
        assert not self.is_free
        self._numbers[kind] += 1
        return kind, self._numbers[kind]

    def allgather(self, sendobj: Any) -> list[Any]:
        return self._world.meet(
            self._key("object"), self.rank, sendobj, lambda m: [m.given[rank] for rank in range(self.size)]
        )

    def Split(self, color: int, key: int) -> ThreadProcess:  # noqa: N802
        offers = self.allgather((color, key, self.rank, {}))
        line = sorted(offer[1:3] for offer in offers if offer[0] == color)
        shared = next(offer[3] for offer in offers if offer[2] == line[0][1])
        with self._world.condition:
            world = shared.setdefault("world", World(len(line)))
        return ThreadProcess(world, line.index((key, self.rank)))

    def Ibcast(self, buf: Any, root: int) -> Broadcast:  # noqa: N802
        assert buf.flags.c_contiguous
        if self.rank != root:
            buf[...] = np.nan
        return Broadcast(self._world, self._key("broadcast"), self.rank, buf, root)

    def Free(self) -> None:  # noqa: N802
        self.is_free = True


@dataclass
class Broadcast:
    world: World
    key: tuple[str, int]
    rank: int
    buffer: Any
    root: int

    def Wait(self) -> None:  # noqa: N802
        def copy(meeting: Meeting) -> None:
            source = meeting.given[self.root]
            assert source.shape == self.buffer.shape
            if self.rank != self.root:
                self.buffer[...] = source

        self.world.meet(self.key, self.rank, self.buffer, copy)


def run_processes(size: int, program: Callable[[ThreadProcess], Any]) -> Sequence[Any]:
    """Run a program in processes; the result or the exception of each."""
    world, found = World(size), [None] * size

    def work(rank: int) -> None:
        try:
            found[rank] = program(ThreadProcess(world, rank))
        except Exception as error:
            found[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
        assert not thread.is_alive()
    return found
