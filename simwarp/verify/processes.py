"""Inputs side by side: processes that each ask all tiers about one input after the other."""

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
"""The outcome of an input, and its seconds."""

Ask = Callable[[int, int], Result]
"""What is asked: the number of a case and that of an input."""


class Answer(NamedTuple):
    """What came of an input.

    Attributes
    ----------
    case, input : int
    outcome : Result, or the error that ended it
    """

    case: int
    input: int
    outcome: Result | Exception


def cores() -> int:
    """The cores that this process may use; 1 where processes cannot be forked."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Processes, each with at most one input."""

    def __init__(self, lines: dict[Connection, ForkProcess]) -> None:
        self._idle, self._lines = list(lines), lines
        self._busy: dict[Connection, tuple[int, int]] = {}

    @property
    def idle(self) -> bool:
        """Whether one has nothing to do."""
        return bool(self._idle)

    @property
    def busy(self) -> bool:
        """Whether one has something to do."""
        return bool(self._busy)

    def give(self, case: int, k: int) -> None:
        """Let an idle one try an input."""
        line = self._idle.pop()
        self._busy[line] = case, k
        line.send((case, k))

    def answers(self, timeout: float) -> list[Answer]:
        """What has come since, at the latest after so many seconds."""
        found: list[Answer] = []
        for line in wait(list(self._busy), timeout):
            if not isinstance(line, Connection):
                continue
            case, k = self._busy.pop(line)
            try:
                answer: Answer = line.recv()
            except (EOFError, OSError):
                self._lines[line].join(1)
                raise SimwarpError(
                    f"a process ended while it tried input {k} of case {case + 1}\n"
                    f"its exit code is {self._lines[line].exitcode}\n"
                    "give fewer --jobs, which take less memory"
                ) from None
            found.append(answer)
            self._idle.append(line)
        return found


@contextmanager
def started(ask: Ask, count: int) -> Generator[Workers]:
    """Processes that run, and are gone afterwards, whatever happens."""
    context = multiprocessing.get_context("fork")
    pipe: Callable[[], Any] = context.Pipe  # typed for Windows too, which has no fork
    lines: dict[Connection, ForkProcess] = {}
    try:
        for _ in range(count):
            ours, theirs = cast("tuple[Connection, Connection]", pipe())
            process = context.Process(target=_serve, args=(ask, theirs, [*lines, ours]), daemon=True)
            with warnings.catch_warnings():  # the children touch no lock that another thread may hold
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
    """What a process does until its parent is gone or ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent ends the others
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
