"""A check of many cases in one test, which names every case that fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def check_each(check: Callable[[T], object], cases: Iterable[T], name: Callable[[T], str] = str) -> None:
    """Call ``check`` on every case, and fail with all the cases that it refuses, each with its reason."""
    cases, offenders = list(cases), list[str]()
    for case in cases:
        try:
            check(case)
        except Exception as error:
            offenders.append(f"{name(case)}: {_reason(error)}")
    if not cases:
        pytest.fail("there are no cases to check", pytrace=False)
    if offenders:
        pytest.fail("\n".join([f"{len(offenders)} of {len(cases)} fail", *offenders]), pytrace=False)


def _reason(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{str(error) or last.line} ({Path(last.filename).name}:{last.lineno})"
