"""Which cases of a test `make test` and CI leave out: marks of a function that mark some of its cases.

``@pytest.mark.slow_cases("btc*", "*-4096")``
    The cases with one of these names, the text in brackets, are `slow`; ``but=("bmm32",)``: all except these.
``@pytest.mark.gate_cases("btc*", "*-4096")``
    Likewise `gate`.
``@pytest.mark.pairwise``
    The cases that are not needed for each two values of different arguments to meet in one are `gate`.
``@pytest.mark.singly``
    The cases that are not needed for each value of each argument to occur are `gate`.
``@pytest.mark.at_most(8)``
    CI runs 8 cases: those with the most new values, as far apart as they can be. The others are `gate`.

`slow` and `gate` themselves mark a whole test, or by `pytest.param` one case. CI runs what is `slow`; what is
`gate` runs before a release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

import pytest

TIERS = ("slow", "gate")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks that select cases."""
    for tier in TIERS:
        text = f"{tier}_cases(*ids, but=()): the cases of these names are {tier}"
        config.addinivalue_line("markers", text)
    config.addinivalue_line("markers", "pairwise: the cases that no pair of values needs are gate")
    config.addinivalue_line("markers", "singly: the cases that no value needs are gate")
    config.addinivalue_line("markers", "at_most(count): the cases that are not among so many are gate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Mark the cases before ``-m`` selects tests."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tests.items():
        for tier in TIERS:
            by_name = cases[0].get_closest_marker(f"{tier}_cases")
            if by_name is None:
                continue
            patterns: Sequence[str] = by_name.kwargs.get("but", by_name.args)
            unknown = [p for p in patterns if not any(_matches(case, [p]) for case in cases)]
            if whole and unknown:
                raise pytest.UsageError(f"{name} has no case {', '.join(unknown)}: correct its {tier}_cases")
            but = "but" in by_name.kwargs
            _mark(tier, (case for case in cases if _matches(case, patterns) != but))
        for mark, together in (("pairwise", 2), ("singly", 1)):
            if cases[0].get_closest_marker(mark):
                kept = covering([[*_arguments(case)] for case in cases], together)
                _mark("gate", (case for i, case in enumerate(cases) if i not in kept))
        if limit := cases[0].get_closest_marker("at_most"):
            left = [case for case in cases if not case.get_closest_marker("gate")]
            kept = spread([[*_arguments(case)] for case in left], *limit.args)
            _mark("gate", (case for i, case in enumerate(left) if i not in kept))


def _arguments(case: Any) -> Iterable[tuple[str, int]]:
    return ((name, id(value)) for name, value in case.callspec.params.items())


def _matches(case: pytest.Item, patterns: Sequence[str]) -> bool:
    name = case.nodeid.partition("[")[2].removesuffix("]")
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _mark(mark: str, cases: Iterable[pytest.Item]) -> None:
    for case in cases:
        case.add_marker(mark)


def covering(cases: Sequence[Sequence[tuple[str, Hashable]]], together: int) -> set[int]:
    """Numbers of a few cases, chosen greedily, with every combination of ``together`` argument values.

    Among cases with as many new combinations, that with the most new combinations of one value more is taken.
    """
    held, wider = ([set(combinations(case, n)) for case in cases] for n in (together, together + 1))
    missing, chosen, seen = set().union(*held), set[int](), set[Hashable]()
    while missing:
        best = max(range(len(cases)), key=lambda i: (len(held[i] & missing), len(wider[i] - seen), -i))
        chosen.add(best)
        missing -= held[best]
        seen |= wider[best]
    return chosen


def spread(cases: Sequence[Sequence[Hashable]], most: int) -> list[int]:
    """Numbers of so many cases: each has the most new values, and among equals is far from those before."""
    chosen, seen = list[int](), set[Hashable]()
    for _ in range(min(most, len(cases))):
        left = (i for i in range(len(cases)) if i not in chosen)
        best = max(
            left,
            key=lambda i: (len(set(cases[i]) - seen), min((abs(i - j) for j in chosen), default=0), -i),
        )
        chosen.append(best)
        seen |= set(cases[best])
    return chosen
