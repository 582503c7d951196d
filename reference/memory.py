"""Requests that no machine of this size can hold, refused before anything is allocated."""

from __future__ import annotations

import os

from reference.errors import ShapeError


def check_memory(numbers: int, what: str, advice: str) -> None:
    """Raise ShapeError if so many float64 are more than this machine's memory.

    A system that promises more memory than it has ends the process later, without a word.

    Examples
    --------
    >>> check_memory(10**30, "rank is 10**15: its Gram matrices", "give a smaller rank")
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: rank is 10**15: its Gram matrices need 7.5e+21 GiB
    this machine has ...
    give a smaller rank
    """
    total = _memory()
    if numbers * 8 > total:
        need = f"{numbers / 2**27:.2g} GiB"
        raise ShapeError(f"{what} need {need}\nthis machine has {total / 2**30:.2g} GiB\n{advice}")


def _memory() -> int:
    """The machine's memory in bytes; what an address can reach, where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**47
