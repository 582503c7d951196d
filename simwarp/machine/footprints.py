"""The bytes that a matrix occupies in memory: columns at a fixed pitch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Footprint(NamedTuple):
    """Runs of bytes, one for each column; a matrix without gaps has a single run."""

    start: int
    end: int  # the address behind the last byte
    width: int  # bytes of a contiguous run
    pitch: int  # bytes from one run to the next, at least ``width``
    runs: int


def footprint(start: int, width: int, pitch: int, columns: int) -> Footprint:
    """The footprint of ``columns`` columns of ``width`` bytes, each ``pitch`` bytes after the one before.

    >>> footprint(64, 16, 16, 4)
    Footprint(start=64, end=128, width=64, pitch=64, runs=1)
    """
    if width == pitch or columns == 1:
        width = pitch = width * columns
        return Footprint(start, start + width, width, width, 1)
    return Footprint(start, start + (columns - 1) * pitch + width, width, pitch, columns)


def overlap(a: Footprint, b: Footprint) -> bool:
    """True if two footprints have a byte in common.

    >>> left, right = footprint(0, 16, 64, 4), footprint(16, 48, 64, 4)
    >>> overlap(left, right), overlap(left, footprint(8, 16, 64, 4))
    (False, True)
    """
    if a.start >= b.end or b.start >= a.end:
        return False
    if a.runs == 1 and b.runs == 1:
        return True
    if a.pitch == b.pitch:
        return _overlap_at_one_pitch(a, b)
    few, many = (a, b) if a.runs <= b.runs else (b, a)
    starts = few.start + few.pitch * np.arange(few.runs)
    # for each start, the first run of `many` that ends behind it
    runs = np.maximum((starts - many.start - many.width) // many.pitch + 1, 0)
    common = (runs < many.runs) & (many.start + runs * many.pitch < starts + few.width)
    return bool(common.any())


def _overlap_at_one_pitch(a: Footprint, b: Footprint) -> bool:
    """True if two matrices with the same pitch overlap."""
    behind, byte = divmod(b.start - a.start, a.pitch)
    same = byte < a.width and -b.runs < behind < a.runs
    next_column = byte + b.width > a.pitch and -b.runs < behind + 1 < a.runs
    return same or next_column


def covers(a: Footprint, b: Footprint) -> bool:
    """True if ``a`` certainly contains every byte of ``b``: they are equal, or ``a`` has no gaps."""
    return a == b or (a.runs == 1 and a.start <= b.start and b.end <= a.end)
