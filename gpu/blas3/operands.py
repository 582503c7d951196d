"""The distinct tiles of the matrices that a call only reads, counted by their spans."""

from __future__ import annotations

from typing import NamedTuple

from gpu.blas3.blocks import spans
from gpu.blas3.problem import Problem


class Tiles(NamedTuple):
    """Tiles of matrices: their number, and the elements of all."""

    number: int
    elements: int


def tiles_read(problem: Problem, tile: int) -> Tiles:
    """The tiles of A and B that the tasks read, each once, without those of the result.

    >>> import numpy as np
    >>> tiles_read(Problem("symm", np.dtype("f8"), 5, 3, 5, 1.0, 0.0), 2)
    Tiles(number=12, elements=32)
    """
    if problem.is_scaling:
        return Tiles(0, 0)
    number = elements = 0
    for name, (rows, columns) in problem.shapes.items():
        if name == problem.result:
            continue
        down = len(spans(rows, tile))
        if name == "a" and problem.row.form in ("symmetric", "triangular"):  # one triangle of tiles
            number += down * (down + 1) // 2
            elements += (rows**2 + sum((end - start) ** 2 for start, end in spans(rows, tile))) // 2
        else:
            number += down * len(spans(columns, tile))
            elements += rows * columns
    return Tiles(number, elements)
