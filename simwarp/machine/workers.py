"""Workers: generators that yield the event that they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reference.errors import DtypeError, LaunchError
from simwarp.machine.faults import WorkerDeadlockError
from simwarp.machine.operations import Event, Task

if TYPE_CHECKING:
    from simwarp.machine.machine import Machine

_PATIENCE = 100
"""The yields of past events that a worker may make while nothing is queued; then time goes on."""


class Crew:
    """The workers (generators of host programs) of one run, which a machine resumes in turn."""

    def __init__(self, machine: Machine, workers: Sequence[Iterator[object]]) -> None:
        self._machine, self._execution = machine, machine.execution
        self._execution.ready[:] = [Task(number, worker) for number, worker in enumerate(workers)]
        self._waiting: dict[Task, None] = dict.fromkeys(self._execution.ready)
        self._polling: list[Task] = []

    def run(self) -> None:
        """Resume workers and advance the clock until all workers have ended and all work is done."""
        execution = self._execution
        while True:
            while execution.ready:
                self._resume(execution.ready.pop(execution.choose(len(execution.ready))))
            execution.dispatch()
            if not execution.step():
                break
            execution.ready.extend(self._polling)
            self._polling.clear()
        if self._waiting or execution.blocked():
            raise self._deadlock()

    def _resume(self, task: Task) -> None:
        if task.event is not None:
            self._machine.order.host_saw(task.event)
        if task.queued != self._execution.queued:
            task.idle, task.queued = 0, self._execution.queued
        task.idle += 1
        try:
            event = next(task.worker)
        except StopIteration:
            del self._waiting[task]
            return
        task.event = self._event(event, task)
        if not task.event.happened:
            task.event.tasks.append(task)
        elif task.idle <= _PATIENCE or task.queued != self._execution.queued:
            self._execution.ready.append(task)
        else:
            self._polling.append(task)

    def _event(self, event: object, task: Task) -> Event:
        if not isinstance(event, Event):
            raise DtypeError(
                f"worker {task.number} yielded a {type(event).__name__}\n"
                "a worker yields the event that it waits for\nyield what Machine.record returns"
            )
        if event.machine is not self._machine:
            raise LaunchError(
                f"worker {task.number} waits for {event}\nthe event is of another machine\n"
                "yield an event of the machine that runs the worker"
            )
        return event

    def _deadlock(self) -> WorkerDeadlockError:
        waiting = [f"worker {task.number} for {task.event}" for task in self._waiting]
        waiting += [
            f"stream {stream.number} of device {stream.device} for {stream.blocked}"
            for stream in self._execution.blocked()
        ]
        polls = ", ".join(str(task.number) for task in self._polling)
        return WorkerDeadlockError(
            f"no work is left, and {len(waiting)} workers and streams wait at {self._execution.clock.now} s",
            "; ".join(waiting),
            f"worker {polls} polls an event that has happened; queue work that it can wait for, or let it end"
            if polls
            else "wait only for events that can still happen",
            waiting=tuple(waiting),
        )
