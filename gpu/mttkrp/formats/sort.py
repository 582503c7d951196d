"""Radix sort of nonzeros by bits of their indices; coordinates are not linearised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats.compiled import compiled, in_parts

Indices: TypeAlias = npt.NDArray[np.uint32]

WIDEST = 16
"""The most bits of a digit; the offsets of 65,536 buckets still fit the L2 cache."""


def sorted_by(coords: Indices, bits: Sequence[tuple[int, int]], order: Indices | None = None) -> Indices:
    """The permutation that sorts nonzeros stably by a key of single bits, by LSD radix sort.

    The key lists (mode, bit) from its most significant bit; bit 0 is an index's least significant one.
    ``order`` is the present order of the nonzeros, by default that of ``coords``.

    >>> sorted_by(np.array([[3, 1, 2, 1]], np.uint32), [(0, 1), (0, 0)])
    array([1, 3, 2, 0], dtype=uint32)
    """
    if order is None:
        order = np.arange(coords.shape[1], dtype=np.uint32)
    # the number of buckets stays near the number of nonzeros
    widest = min(WIDEST, max(8, order.size.bit_length()))
    digits = -(-len(bits) // widest)
    bounds = [len(bits) * digit // digits for digit in range(digits + 1)] if digits else [0]
    for begin, end in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        order = _distributed(coords, _fields(bits[begin:end]), 1 << (end - begin), order)
    return order


def bits_of(coords: Indices, modes: Sequence[int]) -> list[tuple[int, int]]:
    """The key of a lexicographic order by modes, as (mode, bit), without bits that are 0 in every index.

    >>> bits_of(np.array([[3, 1], [0, 0], [0, 4]], np.uint32), (2, 1, 0))
    [(2, 2), (2, 1), (2, 0), (0, 1), (0, 0)]
    """
    return [(n, bit) for n in modes for bit in reversed(range(int(coords[n].max()).bit_length()))]


def resorted(
    coords: Indices, modes: Sequence[int], have: Sequence[int], order: Indices | None = None
) -> Indices:
    """The permutation that sorts nonzeros by ``modes``; ``order`` sorts them by ``have``.

    The default ``order`` is that of ``coords``. The last modes need no sort if they are in the same order in
    ``have``.

    >>> resorted(np.array([[0, 0, 1], [0, 1, 0]], np.uint32), (1, 0), have=(0, 1))
    array([0, 2, 1], dtype=uint32)
    """
    places = [tuple(have).index(n) for n in modes]
    tail = len(modes) - 1
    while tail and places[tail - 1] < places[tail]:
        tail -= 1
    return sorted_by(coords, bits_of(coords, modes[:tail]), order)


def taken(array: npt.NDArray[Any], order: Indices) -> npt.NDArray[Any]:
    """The elements of a vector at the positions ``order``, gathered by several threads.

    >>> taken(np.array([5.0, 6.0, 7.0]), np.array([2, 0], np.uint32))
    array([7., 5.])
    """
    chosen = np.empty(order.size, array.dtype)
    in_parts(order.size, lambda begin, end: compiled(_take)(array, order, begin, end, chosen))
    return chosen


def gathered(
    indices: npt.NDArray[Any], order: Indices, modes: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """The rows of a (d, M) array for some modes (default: all), with their columns in a given order."""
    modes = range(len(indices)) if modes is None else modes
    rows = np.empty((len(modes), order.size), indices.dtype)
    for row, n in zip(rows, modes, strict=True):
        row[:] = taken(indices[n], order)
    return rows


def _take(array: Any, order: Any, begin: int, end: int, chosen: Any) -> None:
    for i in range(begin, end):
        chosen[i] = array[order[i]]


def _fields(bits: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint32]:
    """The bit fields of a digit, as rows of (mode, shift, mask, position); adjacent bits are merged."""
    fields: list[list[int]] = []
    for place, (mode, bit) in enumerate(reversed(bits)):
        if fields and fields[-1][0] == mode and fields[-1][1] + fields[-1][2].bit_length() == bit:
            fields[-1][2] = 2 * fields[-1][2] + 1
        else:
            fields.append([mode, bit, 1, place])
    return np.array(fields, np.uint32)


def _distributed(coords: Indices, fields: npt.NDArray[np.uint32], lists: int, order: Indices) -> Indices:
    """One radix pass over ``order``: each thread counts its digits, finds its offsets, and scatters."""
    digits = np.empty(order.size, np.uint16)

    def count(begin: int, end: int) -> tuple[int, int, npt.NDArray[np.int64]]:
        counts = np.zeros(lists, np.int64)
        compiled(_count)(coords, fields, order, begin, end, digits, counts)
        return begin, end, counts

    parts = in_parts(order.size, count)
    counts = np.array([found for _, _, found in parts])
    if (counts.sum(axis=0) == order.size).any():
        return order
    ends = counts.T.cumsum().reshape(lists, len(parts)).T
    places = {begin: each for (begin, _, _), each in zip(parts, ends - counts, strict=True)}
    moved = np.empty_like(order)
    in_parts(
        order.size, lambda begin, end: compiled(_append)(digits, order, begin, end, places[begin], moved)
    )
    return moved


def _count(coords: Any, fields: Any, order: Any, begin: int, end: int, digits: Any, counts: Any) -> None:
    for i in range(begin, end):
        z = order[i]
        digit = np.uint32(0)
        for f in range(fields.shape[0]):
            digit |= ((coords[fields[f, 0], z] >> fields[f, 1]) & fields[f, 2]) << fields[f, 3]
        digits[i] = digit
        counts[digit] += 1


def _append(digits: Any, order: Any, begin: int, end: int, places: Any, moved: Any) -> None:
    for i in range(begin, end):
        digit = digits[i]
        moved[places[digit]] = order[i]
        places[digit] += 1
