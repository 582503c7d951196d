"""Runs programs in worker processes, so that a crash or hang of the compiler loses only one program.

The processes also compile in parallel, which takes most of the time on hardware.

Examples
--------
>>> from simwarp import Device
>>> from simwarp.lab.fuzz import generate
>>> workers = Workers(Device, count=1)
>>> [len(digest) for digest in workers.digests([generate(0, 1), generate(0, 2)])]
[16, 16]
>>> workers.close()
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from simwarp.lab.fuzz.program import Program
from simwarp.lab.fuzz.run import answers, digest

TOGETHER = 16
"""The number of programs in one module: small, since a compiler crash affects all of them."""


class Workers:
    """Processes that run programs until `close`, each on its own device.

    A process without an answer for ``patience`` seconds is killed.
    """

    def __init__(
        self, make_device: Callable[[], Any], count: int | None = None, patience: float = 20.0
    ) -> None:
        self.make_device, self.patience = make_device, patience
        self._threads = ThreadPoolExecutor(count or min(16, os.cpu_count() or 1))
        self._idle: list[_Worker] = []
        self._closed = False

    def digests(self, programs: Sequence[Program]) -> list[bytes]:
        """The digest of each answer; empty for a program without one, even alone in its module."""
        jobs = [programs[first : first + TOGETHER] for first in range(0, len(programs), TOGETHER)]
        return [found for digests in self._threads.map(self._run, jobs) for found in digests]

    def close(self) -> None:
        """Stop the processes."""
        self._closed = True
        self._threads.shutdown(cancel_futures=True)
        while self._idle:
            self._idle.pop().end()

    def _run(self, programs: Sequence[Program]) -> list[bytes]:
        """The digests from one process; after a crash or hang, each remaining program gets its own module."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self.make_device)
        found = worker.digests(programs, self.patience)
        left = programs[len(found) :]
        if not left:
            self._idle.append(worker)
            return found
        worker.end()
        if len(programs) == 1 or self._closed:
            return [*found, *(b"" for _ in left)]
        return [*found, *(alone for program in left for alone in self._run([program]))]


class _Worker:
    """One worker process, which receives programs and sends back their digests one by one."""

    def __init__(self, make_device: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make_device), daemon=True)
        self.process.start()
        theirs.close()

    def digests(self, programs: Sequence[Program], patience: float) -> list[bytes]:
        """The digests of the programs before a crash or hang."""
        found: list[bytes] = []
        try:
            self.line.send(programs)
            while len(found) < len(programs) and self.line.poll(patience):
                found.append(self.line.recv())
        except (EOFError, OSError):
            pass
        return found

    def end(self) -> None:
        """Kill the process."""
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
        os._exit(1)  # a driver error makes the process unusable; the parent starts another
