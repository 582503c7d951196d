"""The numbers of a plan against those of all its steps, which a plan does not make."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu.blas3 import products
from gpu.blas3.blocks import Block
from gpu.blas3.explain import explain
from gpu.blas3.options import Options
from gpu.blas3.plan import Plan, plan_of
from gpu.blas3.routines import operations_of
from gpu.blas3.table import ROWS
from gpu.blas3.tasks import Step
from support.blas3_calls import draw_call


def counted(plan: Plan) -> dict[str, Any]:
    """The numbers of a plan, from a walk over its steps."""
    outputs = [output for task in plan.tasks for output in task.outputs]
    reads = [block for task in plan.tasks for block in task.reads()]
    loaded = [output.block for output in outputs if output.is_loaded]
    written = [output.block for output in outputs]
    segment = -(-max(map(size_in(plan), reads + written), default=0) // 256) * 256
    operands = max((len(step.reads) for task in plan.tasks for _, step in task.steps()), default=0)
    needed = segment * plan.streams * (1 + operands)
    operations = [
        (operations_of(step.kernel, [one.shape for one in step.reads], block.shape, plan.problem.dtype), step)
        for block, steps in ((output.block, output.steps) for output in outputs)
        for step in steps
    ]
    of_gemm = sum(count for count, step in operations if step.kernel.name == "gemm" and step.reads)
    return {
        "segment": segment,
        "needed": needed,
        "bytes_least": sum(map(size_in(plan), [*written, *{*reads, *loaded}])),
        "bytes_without_reuse": sum(map(size_in(plan), [*reads, *written, *loaded])),
        "gemm_share": of_gemm / sum(count for count, _ in operations) if operations else 0,
        "pool": min(plan.budgets[0], max(segment * (len({*reads}) + len(written)), 4 * needed)),
    }


def size_in(plan: Plan) -> Callable[[Block], int]:
    """The function of a block's bytes."""

    def size(block: Block) -> int:
        return int(np.prod(block.shape)) * plan.problem.dtype.itemsize

    return size


@pytest.mark.parametrize("routine", ROWS)
def test_the_numbers_of_a_plan_are_those_of_its_steps(routine: str) -> None:
    draw = random.Random(f"plans of {routine}")
    for _ in range(40):
        problem = replace(draw_call(draw, routine).call().problem, alpha=draw.choice([0, 1, 2.5]))
        options = Options(addend=draw.choice(["first", "late"]), streams=draw.randint(1, 4))
        plan = plan_of(problem, draw.randint(1, 5), [1 << 40] * draw.randint(1, 2), options)
        found = {name: getattr(plan, name) for name in ("segment", "needed", "bytes_least")}
        found |= {name: getattr(plan, name) for name in ("bytes_without_reuse", "gemm_share")}
        assert found | {"pool": plan.pool(0)} == counted(plan), plan


def test_a_plan_makes_few_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def make(*given: Any) -> Step:
        nonlocal made
        made += 1
        return Step(*given)

    monkeypatch.setattr(products, "Step", make)
    plan = explain("dgemm", 2048, tile=64, beta=1.0)
    assert str(plan).startswith("dgemm, 2048 x 2048, sums of 2048: 1024 tasks")
    assert made < 8 * len(plan.tasks)  # a task has 32 steps
    assert sum(1 for task in plan.tasks for _ in task.steps()) >= 32 * len(plan.tasks)
