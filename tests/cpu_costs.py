"""The CPU time of tests: a limit for those that are not marked `slow`, and a file of what each costs.

``--cpu-limit=SECONDS``
    A test that is not marked `slow` fails when its set-up and its call take more than that (default: 2).
    CPU seconds of this process and of its finished children are counted, so that other programs on the
    machine do not matter. 0: no limit.
``--cpu-costs=FILE``
    Append a line for every test: its CPU seconds, whether it is marked `slow`, its name.

Compilers do not count: Numba's seconds are taken off, and a test during which PTX was put into the cache,
by whichever process, is not judged.
"""

import resource
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu.cache import cache_folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    parser.addoption("--cpu-limit", type=float, default=2.0, metavar="SECONDS", help="of an unmarked test")
    parser.addoption("--cpu-costs", type=Path, metavar="FILE", help="append what each test costs")


class Cost:
    """The CPU seconds of a test so far, and whether compilers make them unfit to be judged."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.compiled = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Add what happens inside."""
        numba, cache, start = _numba_seconds(), _newest_ptx(), _cpu_seconds()
        try:
            yield
        finally:
            self.seconds += _cpu_seconds() - start
            if numba is None:  # not imported when the test began
                self.compiled |= "numba" in sys.modules
            else:
                self.seconds -= (_numba_seconds() or 0.0) - numba
            self.compiled |= _newest_ptx() != cache


_COST = pytest.StashKey[Cost]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Count the set-up, with what fixtures do."""
    item.stash[_COST] = Cost()
    with item.stash[_COST].counted():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Count the call, note the cost, and judge it."""
    cost, slow = item.stash[_COST], item.get_closest_marker("slow") is not None
    try:
        with cost.counted():
            result = yield
    finally:
        file: Path | None = item.config.option.cpu_costs
        if file:
            with file.open("a") as lines:
                lines.write(f"{cost.seconds:.3f}\t{'slow' if slow else ''}\t{item.nodeid}\n")
    limit: float = item.config.option.cpu_limit
    if limit and cost.seconds > limit and not slow and not cost.compiled:
        pytest.fail(
            f"{cost.seconds:.1f} CPU seconds, and tests that are not marked slow have {limit:g}\n"
            "make it cheaper, or mark it: @pytest.mark.slow",
            pytrace=False,
        )
    return result


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _newest_ptx() -> int:
    """When an entry was last put into the cache."""
    try:
        return cache_folder().stat().st_mtime_ns
    except OSError:
        return 0


class _NumbaClock:
    """How long Numba has compiled; compilations nest."""

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


def _numba_seconds() -> float | None:
    """The seconds that Numba has compiled, or None while nothing has imported it."""
    global _numba_clock
    if "numba" not in sys.modules:
        return None
    if _numba_clock is None:
        from numba.core import event

        event.Listener.register(_NumbaClock)
        _numba_clock = _NumbaClock()
        event.register("numba:compile", _numba_clock)
    return _numba_clock.seconds
