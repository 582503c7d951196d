"""The order of the global queue."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gpu.blas3.explain import explain
from gpu.blas3.options import Options


def tiles(plan: Any) -> list[tuple[int, int]]:
    blocks = [task.outputs[0].block for task in plan.tasks]
    return [(block.rows[0] // plan.tile, block.columns[0] // plan.tile) for block in blocks]


@pytest.mark.parametrize("budget", [None, 60_000, 10_000_000])
def test_squares_have_every_tile_once(budget: Any) -> None:
    plan = explain("dgemm", 90, 70, 50, tile=10, memory_budget=budget)
    rows = explain("dgemm", 90, 70, 50, tile=10, memory_budget=budget, options=Options(queue="rows"))
    assert sorted(tiles(plan)) == tiles(rows)
    assert [task.number for task in plan.tasks] == list(range(63))


def test_the_first_tasks_need_few_panels() -> None:
    first = tiles(explain("dgemm", 160, tile=10))[:16]
    assert {max(tile) for tile in first} == {0, 1, 2, 3}


def test_squares_follow_in_a_snake() -> None:
    budget = explain("dgemm", 80, tile=10).needed + 32 * 1024
    order = tiles(explain("dgemm", 80, tile=10, memory_budget=budget))
    squares = list(dict.fromkeys((i // 2, j // 2) for i, j in order))
    apart = [abs(a - c) + abs(b - d) for (a, b), (c, d) in pairwise(squares)]
    assert set(apart) == {1}
    assert len(squares) == 16


def test_triangular_tasks_stay_in_order() -> None:
    plan = explain("dtrsm", 64, 40, tile=8)
    assert [task.outputs[0].block.columns[0] for task in plan.tasks] == list(np.arange(0, 40, plan.width))


@pytest.mark.parametrize(("devices", "tile"), [(1, 4096), (2, 4096), (4, 2752)])
def test_default_tiles_are_large_and_leave_tasks_for_all(devices: int, tile: int) -> None:
    assert explain("dgemm", 16384, devices=devices).tile == tile


def test_a_small_budget_gets_smaller_tiles() -> None:
    plan = explain("dgemm", 4096, memory_budget=4_000_000)
    assert plan.needed <= 4_000_000
    assert plan.tile == 192
