"""Interleaved measurements: each runs once per round, so that a disturbance affects one round only."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from simwarp.lab.network_studies import Progress

Measure: TypeAlias = Callable[[], "float | tuple[float, ...]"]

WARM_CALLS = 5


class Timing:
    """A measurement of every round: a time, or a tuple of times."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._rounds: list[tuple[float, ...]] = []

    def add_round(self) -> None:
        """Run the measurement once more, and keep its times."""
        times = self._measure()
        self._rounds.append(times if isinstance(times, tuple) else (times,))

    def keep(self, rounds: int) -> None:
        """Keep only the times of the first ``rounds`` rounds."""
        del self._rounds[rounds:]

    @property
    def medians(self) -> tuple[float, ...]:
        """The median over all rounds of each measured time, in seconds."""
        return tuple(statistics.median(times) for times in zip(*self._rounds, strict=True))


class Rounds:
    """Interleaved measurements: every round runs each of them once."""

    def __init__(self) -> None:
        self._timings: list[Timing] = []

    def timing(self, measure: Measure) -> Timing:
        """Add a measurement to all rounds; return its `Timing`."""
        self._timings.append(Timing(measure))
        return self._timings[-1]

    def measure(self, rounds: int, progress: Progress) -> int:
        """Run the rounds, each on the least disturbed core; return the number of rounds that count.

        Ctrl-C ends them, and drops the round that it meets.
        """
        for done in range(rounds):
            progress(done, rounds)
            try:
                with on_core(quietest_core()):
                    for timing in self._timings:
                        timing.add_round()
            except KeyboardInterrupt:
                if not done:
                    raise
                for timing in self._timings:
                    timing.keep(done)
                return done
        return rounds


def medians(call: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, float]:
    """Median seconds of repeated calls: until the result is there, and until the call returns."""
    for _ in range(WARM_CALLS):
        call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    samples = max(20, min(60, int(0.05 / (time.perf_counter() - start))))
    whole: list[float] = []
    host: list[float] = []
    for _ in range(samples):
        start = time.perf_counter()
        kept = call()
        returned = time.perf_counter()
        wait()
        end = time.perf_counter()
        del kept
        whole.append(end - start)
        host.append(returned - start)
    return statistics.median(whole), statistics.median(host)


@contextmanager
def on_core(core: int) -> Generator[None]:
    """Pin this thread to a CPU core while the block runs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def quietest_core() -> int:
    """The core on which work runs fastest after some milliseconds of sleep, with the fewest disturbances."""
    times: dict[int, float] = {}
    for core in os.sched_getaffinity(0):
        with on_core(core):
            times[core] = statistics.median(_after_a_wait() for _ in range(20))
    return min(times, key=times.__getitem__)


def _after_a_wait() -> float:
    """The seconds of work in the caches, after a busy wait."""
    data = list(range(20_000))
    until = time.perf_counter() + 0.004
    while time.perf_counter() < until:
        pass
    start = time.perf_counter()
    sum(data[::16])
    return time.perf_counter() - start
