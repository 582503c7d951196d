"""The search for the sizes of pieces: greedy, steepest descent, and exhaustive (ooc_cuDNN, section 4.4).

All three try the sizes of 1, 2, 3, 4, 6, 8, 12 and so on pieces of an axis, down to pieces of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import product
from typing import TypeAlias

from gpu.outofcore.pieces import Pieces
from gpu.outofcore.problem import Problem

Key: TypeAlias = Callable[[Pieces], tuple[int, float]]
"""Bytes of a piece of each tensor, or 0 if the budget holds their buffers; and seconds: less is better."""

SPLIT_FIRST = ("images", "rows", "channels", "filters")
"""The order of the greedy search: axes whose splits add the least traffic come first."""


def candidates(size: int) -> list[int]:
    """The sizes that are tried for an axis, from the whole axis on.

    >>> candidates(10)
    [10, 5, 4, 3, 2, 1]
    """
    counts, step = [1], 1
    while step < size:
        counts += [2 * step, 3 * step]
        step *= 2
    return sorted({-(-size // count) for count in counts}, reverse=True)


def greedy(sizes: Pieces, key: Key) -> Pieces:
    """Choose the best size for one axis after another."""
    best = sizes
    for axis in SPLIT_FIRST:
        best = min((replace(best, **{axis: size}) for size in candidates(getattr(sizes, axis))), key=key)
    return best


def steepest(sizes: Pieces, key: Key) -> Pieces:
    """Descend from the whole problem to the best neighbour, as long as that is better."""
    axes = [candidates(size) for size in astuple(sizes)]
    at = [0] * len(axes)

    def pieces(where: list[int]) -> Pieces:
        return Pieces(*(sizes[index] for sizes, index in zip(axes, where, strict=True)))

    while True:
        near = [
            [*at[:axis], index, *at[axis + 1 :]]
            for axis in range(len(axes))
            for index in (at[axis] - 1, at[axis] + 1)
            if 0 <= index < len(axes[axis])
        ]
        best = min(near, key=lambda where: key(pieces(where)), default=at)
        if key(pieces(best)) >= key(pieces(at)):
            return pieces(at)
        at = best


def exhaustive(sizes: Pieces, key: Key) -> Pieces:
    """Try all combinations of piece sizes; return the best."""
    return min((Pieces(*each) for each in product(*map(candidates, astuple(sizes)))), key=key)


SEARCHES: dict[str, Callable[[Pieces, Key], Pieces]] = {
    "greedy": greedy,
    "steepest": steepest,
    "exhaustive": exhaustive,
}
"""All planners by name."""


def whole(problem: Problem) -> Pieces:
    """The piece sizes with which each tensor is one piece."""
    return Pieces(problem.batch, problem.rows, problem.channels, problem.filters)
