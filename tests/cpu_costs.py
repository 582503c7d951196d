"""CPU time of tests: a limit for tests not marked `slow`, and a file with the cost of each test.

``--cpu-limit=SECONDS``
    A test that is not marked `slow` fails when its set-up and its call take more than that (default: 2).
    CPU seconds of this process and of its finished children are counted, so that other programs on the
    machine matter little; the limit is for a machine that runs `_yardstick` in `YARDSTICK` seconds, and a
    slower one has longer. Twice as long where CI is set: a change is not refused for a noisy neighbour.
    0: no limit.
``--cpu-costs=FILE``
    Append a line for every test: its CPU seconds, whether it is marked `slow`, its name.

One-time work does not count: Numba's compilation time is subtracted, and a test during which a library was
imported, or any process put PTX into the cache, has no limit.
"""

import os
import resource
import sys
import time
import timeit
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu.compiler.cache import cache_folder

YARDSTICK = 0.02
"""Seconds of `_yardstick` on the machine that the limit is for."""
FEW_MODULES = 50
"""Fewer are one of our own packages; a library has more."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--cpu-limit`` and ``--cpu-costs``."""
    parser.addoption("--cpu-limit", type=float, default=2.0, metavar="SECONDS", help="of an unmarked test")
    parser.addoption("--cpu-costs", type=Path, metavar="FILE", help="append what each test costs")


class Cost:
    """The CPU seconds of a test so far, and whether they can be judged."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.judged = True

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Add the CPU time of the enclosed code."""
        once = _done_once()
        numba, start = _numba_seconds(), _cpu_seconds()
        try:
            yield
        finally:
            self.seconds += _cpu_seconds() - start - (_numba_seconds() - numba)
            modules, newest_ptx = (now - before for now, before in zip(_done_once(), once, strict=True))
            self.judged &= modules <= FEW_MODULES and not newest_ptx


_COST = pytest.StashKey[Cost]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Count the CPU time of the set-up, fixtures included."""
    item.stash[_COST] = Cost()
    with item.stash[_COST].counted():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Count the CPU time of the call, record the cost, and fail the test if it is beyond the limit."""
    cost = item.stash[_COST]
    slow = any(item.get_closest_marker(name) is not None for name in ("slow", "gate", "gpu"))
    try:
        with cost.counted():
            result = yield
    finally:
        file: Path | None = item.config.option.cpu_costs
        if file:
            with file.open("a") as lines:
                lines.write(f"{cost.seconds:.3f}\t{'slow' if slow else ''}\t{item.nodeid}\n")
    limit: float = item.config.option.cpu_limit
    if limit and cost.seconds > limit and not slow and cost.judged:
        limit *= max(1.0, _yardstick() / YARDSTICK) * (2 if os.environ.get("CI") else 1)
        if cost.seconds <= limit:
            return result
        pytest.fail(
            f"{cost.seconds:.1f} CPU seconds, and tests that are not marked slow have {limit:.2g} here\n"
            "make it cheaper, or mark it: @pytest.mark.slow",
            pytrace=False,
        )
    return result


def _yardstick() -> float:
    """The CPU seconds that a million rounds of a plain loop take, the median of three."""
    return sorted(
        timeit.repeat("x += i * i", "x, i = 0, 70_000", timer=time.process_time, repeat=3, number=10**6)
    )[1]


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _done_once() -> tuple[int, int]:
    """Number of imported modules, and the time of the newest PTX cache entry."""
    try:
        return len(sys.modules), cache_folder().stat().st_mtime_ns
    except OSError:
        return len(sys.modules), 0


class _NumbaClock:
    """Accumulates the time that Numba spends compiling; nested compilations count once."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._start = 0.0, 0, 0.0

    def notify(self, event: Any) -> None:
        if event.is_start:
            if not self._depth:
                self._start = time.process_time()
            self._depth += 1
        elif self._depth:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.process_time() - self._start


_numba_clock: _NumbaClock | None = None


def _numba_seconds() -> float:
    """Seconds that Numba has compiled since this clock first saw it imported."""
    global _numba_clock
    if _numba_clock is None and "numba.core.event" in sys.modules:
        from numba.core import event

        event.Listener.register(_NumbaClock)
        _numba_clock = _NumbaClock()
        event.register("numba:compile", _numba_clock)
    return _numba_clock.seconds if _numba_clock else 0.0
