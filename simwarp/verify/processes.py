"""A pool of processes that run inputs of the harness in parallel."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, NamedTuple, TypeAlias, cast

from reference.errors import SimwarpError
from simwarp.verify.compare import Checked

Result: TypeAlias = tuple[Checked, float]
"""The result of an input, and the seconds that it took."""

Ask = Callable[[int, int], Result]
"""A function that runs an input, given the number of its case and of the input."""


class Answer(NamedTuple):
    """The result that a process returns for one input, or the exception."""

    case: int
    input: int
    outcome: Result | Exception


def cores() -> int:
    """The number of cores that this process may use; 1 if processes cannot be forked."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Worker processes with at most one input each, and the connections of idle and busy ones."""

    def __init__(self, lines: dict[Connection, ForkProcess]) -> None:
        self.idle, self._lines = list(lines), lines
        self.busy: dict[Connection, tuple[int, int]] = {}

    def give(self, case: int, k: int) -> None:
        """Send input ``k`` of a case to an idle process."""
        line = self.idle.pop()
        self.busy[line] = case, k
        line.send((case, k))

    def answers(self, timeout: float) -> list[Answer]:
        """Wait for answers, at most ``timeout`` seconds; return those that have arrived."""
        found: list[Answer] = []
        for line in wait(list(self.busy), timeout):
            if not isinstance(line, Connection):
                continue
            case, k = self.busy.pop(line)
            try:
                answer: Answer = line.recv()
            except (EOFError, OSError):
                self._lines[line].join(1)
                raise SimwarpError(
                    f"a process ended while it ran input {k} of case {case + 1}\n"
                    f"its exit code is {self._lines[line].exitcode}\n"
                    "use fewer --jobs, which need less memory"
                ) from None
            found.append(answer)
            self.idle.append(line)
        return found


@contextmanager
def started(ask: Ask, count: int) -> Generator[Workers]:
    """Start processes, and terminate them when the block ends, also by an exception."""
    context = multiprocessing.get_context("fork")
    pipe: Callable[[], Any] = context.Pipe  # the type on Windows, which has no fork, is another
    lines: dict[Connection, ForkProcess] = {}
    try:
        for _ in range(count):
            ours, theirs = cast("tuple[Connection, Connection]", pipe())
            process = context.Process(target=_serve, args=(ask, theirs, [*lines, ours]), daemon=True)
            with warnings.catch_warnings():  # safe: the children take no lock that another thread may hold
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            lines[ours] = process
        yield Workers(lines)
    finally:
        for line, process in lines.items():
            process.terminate()
            process.join()
            line.close()


def _serve(ask: Ask, line: Connection, of_parent: Sequence[Connection]) -> None:
    """Answer requests in a process until its parent closes the connection or terminates it."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes; the parent terminates the children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in of_parent:
        other.close()
    while True:
        try:
            case, k = line.recv()
        except EOFError:
            return
        try:
            answer = Answer(case, k, ask(case, k))
        except Exception as error:
            answer = Answer(case, k, error)
        line.send(answer)
