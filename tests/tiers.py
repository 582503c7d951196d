"""Which cases of a test `make test` leaves out: two marks of a function become `slow` on some of its cases.

``@pytest.mark.slow_cases("btc*", "*-4096")``
    The cases with one of these names, the text in brackets; ``but=("bmm32",)``: all except these.
``@pytest.mark.pairwise``
    The cases that are not needed for each two values of different arguments to meet in one.

`slow` itself marks a whole test, or by `pytest.param` one case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks `slow_cases` and `pairwise`."""
    config.addinivalue_line("markers", "slow_cases(*ids, but=()): the cases of these names are slow")
    config.addinivalue_line("markers", "pairwise: the cases that no pair of values needs are slow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Mark the slow cases before ``-m`` selects tests."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tests.items():
        by_name, by_pairs = (cases[0].get_closest_marker(mark) for mark in ("slow_cases", "pairwise"))
        if by_name:
            patterns: Sequence[str] = by_name.kwargs.get("but", by_name.args)
            unknown = [p for p in patterns if not any(_matches(case, [p]) for case in cases)]
            if whole and unknown:
                raise pytest.UsageError(f"{name} has no case {', '.join(unknown)}: correct its slow_cases")
            but = "but" in by_name.kwargs
            _mark(case for case in cases if _matches(case, patterns) != but)
        if by_pairs:
            kept = pairwise([[(name, id(value)) for name, value in _arguments(case)] for case in cases])
            _mark(case for i, case in enumerate(cases) if i not in kept)


def _arguments(case: Any) -> Iterable[tuple[str, object]]:
    return case.callspec.params.items()


def _matches(case: pytest.Item, patterns: Sequence[str]) -> bool:
    name = case.nodeid.partition("[")[2].removesuffix("]")
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _mark(cases: Iterable[pytest.Item]) -> None:
    for case in cases:
        case.add_marker("slow")


def pairwise(cases: Sequence[Sequence[tuple[str, Hashable]]]) -> set[int]:
    """Numbers of a greedily chosen small set of cases that contains every pair of argument values."""
    pairs = [set(combinations(case, 2)) for case in cases]
    missing, chosen = set().union(*pairs), set[int]()
    while missing:
        best = max(range(len(cases)), key=lambda i: (len(pairs[i] & missing), -i))
        chosen.add(best)
        missing -= pairs[best]
    return chosen
