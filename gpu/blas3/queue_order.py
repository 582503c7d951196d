"""The order of tasks in the global queue, for an early start and for cache hits.

The paper leaves it open. Row after row, the first row needs all of B before A is used again: copies take
longer than products. A growing square of p × p tasks needs 2p panels. Squares that fit into a device's memory
follow one another in a snake, so that the next one shares its row or its column panels.

>>> [*sorted([(i, j) for i in range(3) for j in range(3)], key=lambda at: place(*at, 3))][:6]
[(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)]
"""

from __future__ import annotations

from gpu.blas3.problem import Problem
from gpu.blas3.tasks import Task


def place(i: int, j: int, side: int) -> tuple[int, int, int, bool, int]:
    """The sort key of the task of tile (i, j): its square in the snake, its shell, its position there."""
    row, column = i // side, j // side
    i, j = i % side, j % side
    return row, -column if row % 2 else column, max(i, j), i >= j, min(i, j)


def in_squares(tasks: list[Task], problem: Problem, tile: int, tiles: int) -> list[Task]:
    """Sort and renumber tasks by squares of C whose operands are at most ``tiles`` tiles."""
    if problem.row.form == "triangular" or not tasks:
        return tasks
    along = -(-max(problem.k, 1) // tile)
    side = max(1, tiles // (2 * along))

    def key(task: Task) -> tuple[int, int, int, bool, int]:
        block = task.outputs[0].block
        return place(block.rows[0] // tile, block.columns[0] // tile, side)

    return [Task(number, task.outputs) for number, task in enumerate(sorted(tasks, key=key))]
