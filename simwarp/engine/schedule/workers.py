"""Run chunks of a launch in parallel, in forked processes that share global memory.

Threads would not help: most of a step is Python code, which one thread at a time executes. Forked processes
have the launch without a copy; kernels write to memory that all of them share (`Memory` with
``shared=True``).
"""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import KernelFault

_PATIENCE = 0.2
"""Seconds between two checks that the workers are alive."""


@dataclass
class _Result:
    """The result of one chunk, as its worker process returns it.

    Attributes
    ----------
    number : int
        The chunk's number.
    executed : int
        Number of thread-instructions.
    fault : Exception or None
        The exception that ended the chunk.
    ended : bool
        Whether a reported fault ended the launch.
    found : list of KernelFault
        The faults that the checks collected.
    printed : list of str
        The texts that the kernel printed.
    """

    number: int
    executed: int = 0
    fault: Exception | None = None
    ended: bool = False
    found: list[KernelFault] = field(default_factory=list[KernelFault])
    printed: list[str] = field(default_factory=list[str])


def run(launch: Any, chunks: Sequence[npt.NDArray[np.int64]]) -> int:
    """Execute chunks in parallel; if several fail, raise the fault of the first chunk."""
    context = multiprocessing.get_context("fork")
    launch.atomics = context.Lock()
    following, sending = context.Value("q", 0), context.Lock()
    receiver, sender = context.Pipe(duplex=False)

    def send(result: _Result) -> None:
        with sending:
            sender.send(result)

    def take() -> int:
        with following:
            following.value += 1
            return following.value - 1

    count = min(launch.workers, len(chunks))
    workers = [
        context.Process(target=_work, args=(launch, chunks, take, send), daemon=True) for _ in range(count)
    ]
    with _started(workers):
        return _gather(launch, len(chunks), receiver, workers)


@contextmanager
def _started(workers: Sequence[ForkProcess]) -> Generator[None]:
    """Start the workers; terminate them at the end, even after an error."""
    try:
        with warnings.catch_warnings():  # a fork is safe: the child processes take no lock of another thread
            warnings.simplefilter("ignore", DeprecationWarning)
            for worker in workers:
                worker.start()
        yield
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.terminate()
                worker.join()


def _gather(launch: Any, count: int, receiver: Any, workers: Sequence[ForkProcess]) -> int:
    """Collect the results in the order of the chunks; returns the number of thread-instructions."""
    results: dict[int, _Result] = {}
    executed = 0
    for number in range(count):
        while number not in results:
            if receiver.poll(_PATIENCE):
                result: _Result = receiver.recv()
                results[result.number] = result
            elif not any(worker.is_alive() for worker in workers) and not receiver.poll():
                raise KernelFault(
                    "a worker process ended before its blocks did",
                    "",
                    "run with fewer workers, or more memory",
                )
        result = results.pop(number)
        for text in result.printed:
            launch.print(text)
        for fault in result.found:
            launch.checks.keep(fault)
        if result.fault is not None:
            raise result.fault
        executed += result.executed
        if result.ended:
            break
    return executed


def _work(
    launch: Any, chunks: Sequence[Any], take: Callable[[], int], send: Callable[[_Result], None]
) -> None:
    """Execute chunks in a worker process until none is left or one fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends its children
    while (number := take()) < len(chunks):
        result = _Result(number)
        launch.print = result.printed.append
        launch.checks.clear()
        try:
            result.executed = launch.run_chunk(chunks[number])
        except Exception as fault:
            result.fault = fault
        result.found, result.ended = list(launch.checks.faults), launch.ended
        send(result)
        if result.fault is not None or result.ended:
            return
