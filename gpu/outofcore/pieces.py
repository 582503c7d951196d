"""Pieces of images, filters and results, and the tasks that a call is cut into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from gpu.outofcore.halo import image_rows, output_rows
from gpu.outofcore.problem import Problem, Tensor


@dataclass(frozen=True)
class Pieces:
    """The sizes of pieces; the last ones along an axis may be smaller.

    With groups, a piece holds whole groups, or a part of one.

    Attributes
    ----------
    images : int
        d_n.
    rows : int
        d_hY, of the gradient of data d_hX; with pooling, rows of the pooled result.
    channels, filters : int
        d_cX and d_cY.

    Examples
    --------
    >>> Pieces(images=16, rows=56, channels=64, filters=32).images
    16
    """

    images: int
    rows: int
    channels: int
    filters: int


@dataclass(frozen=True)
class Piece:
    """A rectangular part of a tensor, by its ranges along the axes."""

    tensor: Tensor
    first: range  # images; for w, filters
    channels: range  # channels of the tensor; for w, the filters' channels
    rows: range | None = None  # rows; None for w: all rows


@dataclass(frozen=True)
class Task:
    """A piece of the output, the pieces of the operands for each term of its sums, and the pooled piece."""

    output: Piece
    steps: tuple[tuple[Piece, Piece], ...]
    pooled: Piece | None = None


Loops: TypeAlias = Mapping[str, list[range]]
"""The ranges of each loop: n, g, c, f, h. Those of c and f count within a block of groups."""


def block_of(problem: Problem, pieces: Pieces) -> tuple[int, int, int]:
    """The groups, channels and filters of a block, which has whole groups or a part of one."""
    of_group, filters = problem.group_channels, problem.group_filters
    if pieces.channels >= of_group and pieces.filters >= filters:
        groups = min(pieces.channels // of_group, pieces.filters // filters, problem.groups)
        return groups, groups * of_group, groups * filters
    return 1, min(pieces.channels, of_group), min(pieces.filters, filters)


def loops_of(problem: Problem, pieces: Pieces) -> Loops:
    """The ranges of indices that each loop over pieces goes through."""
    groups, channels, filters = block_of(problem, pieces)
    return {
        "n": cut(problem.batch, pieces.images),
        "g": cut(problem.groups, groups),
        "c": cut(groups * problem.group_channels, channels),
        "f": cut(groups * problem.group_filters, filters),
        "h": cut(problem.rows, pieces.rows),
    }


def cut(size: int, piece: int) -> list[range]:
    """Cut an axis into pieces; the last one may be smaller.

    >>> cut(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(start, min(start + piece, size)) for start in range(0, size, piece)]


def tasks_of(problem: Problem, pieces: Pieces) -> Iterator[Task]:
    """The tasks of a call, one per piece of the output, in order."""
    loops, form = loops_of(problem, pieces), problem.form
    for outer in product(*(loops[axis] for axis in form.outer)):
        at = dict(zip(form.outer, outer, strict=True))
        steps = [
            at | dict(zip(form.inner, inner, strict=True))
            for inner in product(*(loops[axis] for axis in form.inner))
        ]
        first, second = form.operands
        yield Task(
            piece_at(problem, form.output, steps[0]),
            tuple((piece_at(problem, first, step), piece_at(problem, second, step)) for step in steps),
            piece_at(problem, "z", steps[0]) if problem.pool else None,
        )


def piece_at(problem: Problem, tensor: Tensor, at: Mapping[str, range]) -> Piece:
    """The piece of a tensor in one iteration of the loops; ``at`` has the range of each axis."""
    groups = at["g"]
    channels = _in_block(at["c"], groups, problem.group_channels)
    filters = _in_block(at["f"], groups, problem.group_filters)
    if tensor == "w":
        start = groups.start * problem.group_channels
        inner = range(channels.start - start, channels.stop - start)
        return Piece("w", filters, inner if len(groups) == 1 else range(problem.group_channels))
    if tensor == "z":
        return Piece("z", at["n"], filters, at["h"])
    rows, outputs = rows_at(problem, at["h"])
    return Piece("x", at["n"], channels, rows) if tensor == "x" else Piece("y", at["n"], filters, outputs)


def rows_at(problem: Problem, rows: range) -> tuple[range, range]:
    """The rows of x and of y in one iteration of the loop over rows."""
    if problem.form.output == "x":
        return rows, output_rows(problem.plane, rows)
    if problem.pool:
        rows = image_rows(problem.pool.plane, rows)
    return image_rows(problem.plane, rows), rows


def _in_block(part: range, groups: range, size: int) -> range:
    """The channels or filters of a part of a block, which ends at the end of its groups."""
    start = groups.start * size
    return range(start + part.start, min(start + part.stop, groups.stop * size))
