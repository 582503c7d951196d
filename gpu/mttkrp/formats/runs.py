"""Runs of sorted nonzeros with equal first indices: the start of each run, and the run of each nonzero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats.compiled import compiled, in_parts
from gpu.mttkrp.formats.sort import Indices

Depths: TypeAlias = npt.NDArray[np.uint8]


def depths_of(coords: Indices, modes: Sequence[int], order: Indices) -> Depths:
    """The depth of each nonzero: the first level where it differs from its predecessor, d for duplicates.

    ``modes`` has one mode for each level; ``order`` sorts the nonzeros lexicographically by them. The depth
    of the first nonzero is 0.

    >>> coords = np.array([[0, 0, 0, 2], [1, 1, 3, 0]], np.uint32)
    >>> depths_of(coords, (0, 1), np.arange(4, dtype=np.uint32))
    array([0, 2, 1, 0], dtype=uint8)
    """
    depths = np.empty(order.size, np.uint8)
    levels = np.array(modes, np.uint32)
    in_parts(order.size, lambda begin, end: compiled(_compare)(coords, levels, order, begin, end, depths))
    return depths


def starts_of(depths: Depths, level: int, split: int = 0) -> Indices:
    """The start of each run with equal indices down to a level, and the end of the last run.

    Runs are cut into pieces of at most ``split`` nonzeros, unless it is 0.

    >>> starts_of(np.array([0, 1, 1, 0, 1], np.uint8), 0)
    array([0, 3, 5], dtype=uint32)
    >>> starts_of(np.array([0, 1, 1, 0, 1], np.uint8), 0, split=2)
    array([0, 2, 3, 5], dtype=uint32)
    """
    split = split or depths.size
    find = compiled(_find_starts)
    starts = np.empty(find(depths, level, split, np.empty(0, np.uint32)) + 1, np.uint32)
    find(depths, level, split, starts)
    starts[-1] = depths.size
    return starts


def ranks_of(outer: Indices, inner: Indices) -> Indices:
    """The position in ``inner`` of each element of ``outer``, an ascending subset of it.

    >>> ranks_of(np.array([0, 3, 5], np.uint32), np.array([0, 2, 3, 5], np.uint32))
    array([0, 2, 3], dtype=uint32)
    """
    ranks = np.empty_like(outer)
    compiled(_rank)(outer, inner, ranks)
    return ranks


def numbers_of(starts: Indices, order: Indices, numbers: Indices) -> None:
    """Write the number of each nonzero's run to ``numbers``, at the nonzero's position in the tensor.

    >>> numbers = np.empty(3, np.uint32)
    >>> numbers_of(np.array([0, 2, 3], np.uint32), np.array([2, 0, 1], np.uint32), numbers)
    >>> numbers
    array([0, 1, 0], dtype=uint32)
    """

    def number(begin: int, end: int) -> None:
        first = int(np.searchsorted(starts, begin, side="right")) - 1
        compiled(_number)(starts, order, begin, end, first, numbers)

    in_parts(order.size, number)


def _compare(coords: Any, modes: Any, order: Any, begin: int, end: int, depths: Any) -> None:
    levels = modes.size
    for i in range(begin, end):
        z, before = order[i], order[max(i, 1) - 1]
        level = 0
        while i > 0 and level < levels and coords[modes[level], z] == coords[modes[level], before]:
            level += 1
        depths[i] = level


def _find_starts(depths: Any, level: int, split: int, starts: Any) -> int:
    """Count the starts, and write them unless ``starts`` is empty."""
    count, start = 0, 0
    for i in range(depths.size):
        if depths[i] <= level or i - start == split:
            if starts.size:
                starts[count] = i
            count, start = count + 1, i
    return count


def _rank(outer: Any, inner: Any, ranks: Any) -> None:
    i = 0
    for n in range(outer.size):
        while inner[i] < outer[n]:
            i += 1
        ranks[n] = i


def _number(starts: Any, order: Any, begin: int, end: int, run: int, numbers: Any) -> None:
    for i in range(begin, end):
        while starts[run + 1] <= i:
            run += 1
        numbers[order[i]] = run
