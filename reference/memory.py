"""A check that arrays fit into this machine's memory, before they are allocated."""

from __future__ import annotations

import os

from reference.errors import ShapeError


def check_memory(numbers: int, what: str, advice: str) -> None:
    """Raise ShapeError if this machine's memory cannot hold that many float64 numbers.

    A system that overcommits memory would kill the process later, without an error.
    """
    total = _memory()
    if numbers * 8 > total:
        need = f"{numbers / 2**27:.2g} GiB"
        raise ShapeError(f"{what} need {need}\nthis machine has {total / 2**30:.2g} GiB\n{advice}")


def _memory() -> int:
    """The machine's memory in bytes; the size of the address space if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**47
