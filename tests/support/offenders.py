"""A check of many cases in one test, which names every case that fails."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def check_each(check: Callable[[T], object], cases: Iterable[T], name: Callable[[T], str] = str) -> None:
    """Call ``check`` on every case, and fail with all cases that it refuses or skips, with the reasons."""
    cases, offenders = list(cases), list[str]()
    for case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            offenders.append(f"{name(case)}: {_reason(error)}")
    if not cases:
        pytest.fail("there are no cases to check", pytrace=False)
    if offenders:
        pytest.fail("\n".join([f"{len(offenders)} of {len(cases)} fail", *offenders]), pytrace=False)


def every_case(
    names: str | Sequence[str], cases: Iterable[Any] | Callable[[], Iterable[Any]]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make one test of many quick cases, which ``pytest.mark.parametrize`` would make a test each.

    A function that returns the cases is called when the test runs. All cases share the test's fixtures: where
    each must have its own, use ``parametrize``.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        looped = [names] if isinstance(names, str) else names
        fixtures = [p for name, p in signature.parameters.items() if name not in looped]

        @functools.wraps(test)
        def loop(**given: Any) -> None:
            def check(case: Any) -> None:
                test(**given, **dict(zip(looped, [case] if isinstance(names, str) else case, strict=True)))

            check_each(check, cases() if callable(cases) else cases, _described)

        loop.__signature__ = signature.replace(parameters=fixtures)  # pyright: ignore[reportAttributeAccessIssue]
        return loop

    return decorate


def _described(case: Any) -> str:
    text = repr(case) if isinstance(case, str) else str(case)
    return text if len(text) <= 300 else f"{text[:297]}..."


def _reason(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and "_pytest" not in frame.filename]
    kind = (
        f"{type(error).__name__}: " if not isinstance(error, AssertionError | pytest.fail.Exception) else ""
    )
    if not own:  # a loop in this one
        return str(error)
    return f"{kind}{str(error) or own[-1].line} ({Path(own[-1].filename).name}:{own[-1].lineno})"
