"""The division of a problem into tasks (BLASX, section IV.A)."""

from __future__ import annotations

from gpu.blas3 import products, triangular
from gpu.blas3.problem import Problem
from gpu.blas3.tasks import Task


def taskize(problem: Problem, tile: int, width: int | None = None, *, adds_late: bool = False) -> list[Task]:
    """The tasks of a problem; those of a triangular routine have ``width`` right-hand sides, or a tile's.

    With ``adds_late`` the first tiles of a product add ``beta C`` behind their products.

    >>> import numpy as np
    >>> problem = Problem("gemm", np.dtype("f8"), 5, 3, 4, 1.0, 0.0)
    >>> len(taskize(problem, 2)), next(taskize(problem, 2)[1].reads())
    (6, Block(matrix='a', rows=(0, 2), columns=(0, 2)))
    """
    if problem.m == 0 or problem.n == 0:
        return []
    if problem.row.form == "triangular":
        found = triangular.tasks_of(problem, tile, width or tile)
    else:
        found = ((output,) for output in products.outputs_of(problem, tile, adds_late=adds_late))
    return [Task(number, outputs) for number, outputs in enumerate(found)]
