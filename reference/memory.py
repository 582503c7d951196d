"""Requests that no machine of this size can hold, refused before anything is allocated."""

from __future__ import annotations

import os

from reference.errors import ShapeError


def check_memory(numbers: int, what: str, advice: str) -> None:
    """Raise ShapeError for more float64 numbers than this machine's memory holds.

    A system that overcommits memory would kill the process later, without a message.
    """
    total = _memory()
    if numbers * 8 > total:
        need = f"{numbers / 2**27:.2g} GiB"
        raise ShapeError(f"{what} need {need}\nthis machine has {total / 2**30:.2g} GiB\n{advice}")


def _memory() -> int:
    """The machine's memory in bytes; the address space, where the system has no such number."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**47
