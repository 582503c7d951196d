"""Processes that run tasks, each on its own device; a crash or device error loses one task only.

A device that has executed an illegal instruction is of no use to its process any more. Such a process ends,
and another takes its place.

>>> from simwarp import Device
>>> list(perform(Device, getattr, [("name",)], processes=1))
['simwarp simulator (sm_90)']
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")

PATIENCE = 120.0
"""The seconds after which a process without an answer is ended."""


@dataclass(frozen=True)
class Lost:
    """The result of a task that raised an exception, or whose process died."""

    reason: str


class Crew:
    """Processes that do tasks until `close`, each on a device of its own."""

    def __init__(self, make: Callable[[], Any], processes: int, patience: float = PATIENCE) -> None:
        # Each process has one core; threads of a BLAS in the other processes would use it, too.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._make, self._patience = make, patience
        self._threads = ThreadPoolExecutor(processes)
        self._idle: SimpleQueue[_Worker] = SimpleQueue()

    def perform(self, function: Callable[..., R], tasks: Iterable[tuple[Any, ...]]) -> Iterator[R | Lost]:
        """The results of ``function(device, *task)`` for each task, in order; `Lost` for one without."""
        waiting = [self._threads.submit(self._perform_one, function, task) for task in tasks]
        try:
            yield from (future.result() for future in waiting)
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the worker processes."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().end()

    def _perform_one(self, function: Callable[..., R], task: tuple[Any, ...]) -> R | Lost:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = _Worker(self._make)
        answer: R | Lost = worker.ask(function, task, self._patience)
        if isinstance(answer, Lost):
            worker.end()
        else:
            self._idle.put(worker)
        return answer


def perform(
    make: Callable[[], Any],
    function: Callable[..., R],
    tasks: Iterable[tuple[Any, ...]],
    processes: int,
    patience: float = PATIENCE,
) -> Iterator[R | Lost]:
    """The results of a crew that has these tasks alone."""
    with closing(Crew(make, processes, patience)) as crew:
        yield from crew.perform(function, tasks)


class _Worker:
    """A process with a device, to which tasks are sent one by one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, function: Callable[..., Any], task: tuple[Any, ...], patience: float) -> Any:
        """Run ``function`` on a task in the process; `Lost` if it fails or exceeds ``patience`` seconds."""
        try:
            self._line.send((function, task))
            if self._line.poll(patience):
                return self._line.recv()
            return Lost(f"no answer after {patience:.0f} seconds")
        except (EOFError, OSError):
            self._process.join(1)
            return Lost(f"the process ended with exit code {self._process.exitcode}")

    def end(self) -> None:
        """Kill the worker process."""
        self._process.kill()
        self._process.join()
        self._line.close()


def _serve(line: Connection, make: Callable[[], Any]) -> None:
    """Do tasks in a process until one fails or the parent closes the connection."""
    device: Any = None
    while True:
        try:
            function, task = line.recv()
        except EOFError:
            return
        try:
            device = make() if device is None else device
            answer = function(device, *task)
        except Exception:
            line.send(Lost(traceback.format_exc(limit=-3)))
            return
        line.send(answer)
