"""The global queue, the reservation stations of the devices, and work stealing (BLASX, section IV.C)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from gpu.blas3.blocks import Block
from gpu.blas3.tasks import Task


@dataclass
class Slot:
    """A task in a reservation station, with its priority."""

    task: Task
    priority: float = 0.0

    @cached_property
    def reads(self) -> tuple[Block, ...]:
        """The input blocks of the task's steps, which are made once while it waits."""
        return tuple(self.task.reads())

    @property
    def rank(self) -> tuple[float, int]:
        """The lowest goes first: the highest priority, then the lowest number."""
        return -self.priority, self.task.number


class Stations:
    """Tasks that no device has begun: a global queue, and for each device a station of ``size`` slots.

    With ``steal`` a device whose station is empty takes tasks from another's.
    """

    def __init__(self, tasks: Iterable[Task], devices: int, size: int, *, steal: bool) -> None:
        self._queue = deque(tasks)
        self._stations: list[list[Slot]] = [[] for _ in range(devices)]
        self._size, self._steals = size, steal

    def fill(self, device: int) -> int:
        """Fill a station from the queue, or else with a stolen task; the number of stolen ones."""
        station = self._stations[device]
        while self._queue and len(station) < self._size:
            station.append(Slot(self._queue.popleft()))
        slot = None if station else self._steal()
        if slot is None:
            return 0
        station.append(slot)
        return 1

    def next(self) -> tuple[Task, int] | None:
        """The next task of the queue with 0, or else a stolen one with 1: for the host's cores."""
        if self._queue:
            return self._queue.popleft(), 0
        slot = self._steal()
        return None if slot is None else (slot.task, 1)

    def _steal(self) -> Slot | None:
        """Take the last task of the fullest station; None without one."""
        victim = max(self._stations, key=len)
        if not victim or not self._steals:
            return None
        slot = max(victim, key=lambda slot: slot.rank)
        victim.remove(slot)
        return slot

    def refresh(self, device: int, priority: Callable[[Slot], float]) -> None:
        """Compute the priorities of all tasks of a station again."""
        for slot in self._stations[device]:
            slot.priority = priority(slot)

    def take(self, device: int, count: int) -> list[Task]:
        """Take up to ``count`` tasks of the highest priority from a device's reservation station."""
        station = self._stations[device]
        station.sort(key=lambda slot: slot.rank)
        taken, station[:] = station[:count], station[count:]
        return [slot.task for slot in taken]

    @property
    def left(self) -> int:
        """The number of tasks that no device has begun."""
        return len(self._queue) + sum(map(len, self._stations))

    def waiting(self, device: int) -> list[Task]:
        """The tasks in a device's reservation station."""
        return [slot.task for slot in self._stations[device]]
