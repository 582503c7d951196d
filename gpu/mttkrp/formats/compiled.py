"""Loops that Numba compiles at their first call, and the threads that run them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")

LEAST = 1 << 16
"""The fewest elements for which another thread pays off."""


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop to machine code that runs without the GIL.

    >>> def total(numbers):
    ...     sum = 0
    ...     for number in numbers:
    ...         sum += number
    ...     return sum
    >>> compiled(total)((1, 2, 3))
    6
    """
    import numba

    return numba.njit(nogil=True)(loop)


def in_parts(n: int, work: Callable[[int, int], Result]) -> list[Result]:
    """Call ``work(begin, end)`` on consecutive parts of n elements, one thread per part; return the results.

    There are as many parts as Numba has threads (``numba.set_num_threads``), or fewer for a small n.

    >>> in_parts(5, lambda begin, end: (begin, end))
    [(0, 5)]
    """
    import numba

    parts = max(1, min(numba.get_num_threads(), n // LEAST))
    if parts == 1:
        return [work(0, n)]
    bounds = [n * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, bounds[:-1], bounds[1:]))
