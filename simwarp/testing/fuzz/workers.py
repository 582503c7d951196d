"""Programs in processes of their own: what crashes the compiler or never ends costs one program, not all.

Processes also compile side by side, which is what takes the time on hardware.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

from simwarp.testing.fuzz.program import Program
from simwarp.testing.fuzz.run import answers, digest

TOGETHER = 16
"""Programs in one module: few, so that one that crashes the compiler takes few with it."""

_Job: TypeAlias = list[tuple[int, Program]]


class Workers:
    """Processes that answer programs, each on a device of its own. They stay until `close`.

    Parameters
    ----------
    make_device : callable
        Importable by name; each process calls it once.
    count : int, optional
        Processes, at most; None: one for each processor, up to 16.
    patience : float
        Seconds without an answer after which a process is ended.

    Examples
    --------
    >>> from simwarp import Device
    >>> from simwarp.testing.fuzz import generate
    >>> workers = Workers(Device, count=1)
    >>> [len(digest) for digest in workers.digests([generate(0, 1), generate(0, 2)])]
    [16, 16]
    >>> workers.close()
    """

    def __init__(
        self, make_device: Callable[[], Any], count: int | None = None, patience: float = 20.0
    ) -> None:
        self.make_device, self.patience = make_device, patience
        self.count = count or min(16, os.cpu_count() or 1)
        self._workers: list[_Worker] = []

    def digests(self, programs: Sequence[Program]) -> list[bytes]:
        """The digest of each answer; nothing for a program that has none, even alone in its module."""
        found: dict[int, bytes] = {}
        numbered = list(enumerate(programs))
        jobs = deque(numbered[first : first + TOGETHER] for first in range(0, len(programs), TOGETHER))
        while len(found) < len(programs):
            self._give(jobs)
            for worker in self._heard():
                found.update(worker.read())
                if not worker.alive:
                    self._workers.remove(worker)
                    left = worker.job
                    if len(left) == 1:
                        found[left[0][0]] = b""
                    else:
                        jobs.extendleft([one] for one in left)
        return [found[i] for i in range(len(programs))]

    def close(self) -> None:
        """End the processes."""
        while self._workers:
            self._workers.pop().end()

    def _give(self, jobs: deque[_Job]) -> None:
        """Give all something to do, as long as there is something."""
        idle = [worker for worker in self._workers if not worker.job]
        while jobs and (idle or len(self._workers) < self.count):
            if not idle:
                idle.append(_Worker(self.make_device))
                self._workers.append(idle[-1])
            idle.pop().give(jobs.popleft())

    def _heard(self) -> list[_Worker]:
        """The workers that said something, or died, or have been silent for too long."""
        busy = [worker for worker in self._workers if worker.job]
        ready = wait([worker.line for worker in busy], timeout=0.5)
        late = [w for w in busy if w.line not in ready and time.monotonic() - w.last > self.patience]
        for worker in late:
            worker.end()
        return [worker for worker in busy if worker.line in ready] + late


class _Worker:
    """One process: it is given programs, and sends back their digests one by one."""

    def __init__(self, make_device: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make_device), daemon=True)
        self.process.start()
        theirs.close()
        self.alive = True
        self.job: _Job = []
        self.last = 0.0

    def give(self, job: _Job) -> None:
        """Programs to answer, with their numbers."""
        self.job, self.last = job, time.monotonic()
        self.line.send([program for _, program in job])

    def read(self) -> dict[int, bytes]:
        """What it has answered since."""
        found: dict[int, bytes] = {}
        try:
            while self.alive and self.job and self.line.poll():
                answered = self.line.recv()
                found[self.job.pop(0)[0]] = answered
                self.last = time.monotonic()
        except (EOFError, OSError):
            self.end()
        return found

    def end(self) -> None:
        """Stop the process."""
        self.alive = False
        self.process.kill()
        self.process.join()
        self.line.close()


def _serve(line: Connection, make_device: Callable[[], Any]) -> None:
    try:
        device = make_device()
        while True:
            for answer in answers(device, line.recv()):
                line.send(digest(answer))
    except Exception:
        os._exit(1)  # an error of the driver leaves nothing that could go on; the parent asks again
