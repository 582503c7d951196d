"""One thread of the host drives all workers: it resumes each when the event that it yielded has happened."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu.cuda_machine.cpu import CpuEvent
from gpu.cuda_machine.queues import Event
from reference.errors import DtypeError, LaunchError, MachineError

if TYPE_CHECKING:
    from gpu.cuda_machine.machine import CudaMachine

_SPIN_SECONDS = 100e-6
"""Events are polled for this long without a pause; then the thread sleeps between polls."""
_SLEEP_SECONDS = 20e-6
"""The system sleeps some 70 us: less than streams have queued ahead, and other threads run meanwhile."""


@dataclass(slots=True, eq=False)
class Task:
    """A worker and the event that it waits for."""

    number: int
    worker: Iterator[Any]
    event: Event | CpuEvent | None = None


def drive(machine: CudaMachine, workers: Sequence[Iterator[Any]]) -> None:
    """Resume the workers in turn until all have ended."""
    tasks = [Task(number, worker) for number, worker in enumerate(workers)]
    idle_since: float | None = None
    while tasks:
        ready = [task for task in tasks if task.event is None or task.event.done]
        for task in ready:
            try:
                task.event = _event(machine, task, next(task.worker))
            except StopIteration:
                tasks.remove(task)
        if ready:
            idle_since = None
            continue
        now = time.perf_counter()
        if idle_since is None:
            idle_since = now
        elif now - idle_since > _SPIN_SECONDS:
            time.sleep(_SLEEP_SECONDS)


def close(workers: Sequence[Iterator[Any]]) -> None:
    """Close the workers that have not ended."""
    for worker in workers:
        end = getattr(worker, "close", None)
        try:
            if end is not None:
                end()
        except Exception:  # the first error of the run is raised, and no later one
            continue


def settle_quietly(machine: CudaMachine) -> None:
    """Wait for all work after a failure, despite errors and Ctrl-C: its memory must not be freed before."""
    while True:
        try:
            machine.settle()
        except (MachineError, KeyboardInterrupt):
            continue
        return


def _event(machine: CudaMachine, task: Task, event: object) -> Event | CpuEvent:
    """Return the event that a worker yielded; DtypeError or LaunchError for anything else."""
    if not isinstance(event, Event | CpuEvent):
        raise DtypeError(
            f"worker {task.number} yielded a {type(event).__name__}\n"
            "a worker yields the event that it waits for\nyield what CudaMachine.record returns"
        )
    if event.machine is not machine:
        raise LaunchError(
            f"worker {task.number} waits for an event of another machine\nit may never be asked for here\n"
            "yield an event of the machine that runs the worker"
        )
    return event
