"""One call on a machine: whatever fails, no memory stays allocated and no array pinned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cleanup import leaving_nothing
from gpu.cuda_machine import CudaMachine
from gpu.machine import Machine
from gpu.outofcore.calibration import measured_rates
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.plan import Plan, plan_of
from gpu.outofcore.problem import Problem
from gpu.outofcore.rates import rates_of
from gpu.outofcore.statistics import Statistics
from reference.errors import LaunchError
from reference.types.fields import is_integer

Array = npt.NDArray[Any]


def planned(
    problem: Problem,
    device: Machine,
    memory_budget: int | None,
    pieces: Pieces | None,
    options: Options | None,
) -> Plan:
    """The plan of a problem for a machine's first device."""
    options = options or Options()
    budget = budget_of(device, memory_budget)
    is_single, is_tf32 = problem.dtype == np.float32, options.math == "tf32"
    problem = replace(
        problem,
        tf32=is_single and is_tf32,
        transforms=options.transforms and is_single and not is_tf32,
        workspace=options.workspace if isinstance(device, CudaMachine) else 0,
    )
    if options.rates:
        rates = options.rates
    elif isinstance(device, CudaMachine):
        rates = measured_rates(device, problem, budget)
    else:
        rates = rates_of(device, problem.dtype)
    return plan_of(problem, pieces, budget, rates, options)


def compute(machine: Machine, plan: Plan, arrays: Mapping[str, Array], statistics: Statistics | None) -> None:
    """Compute a call into its output array."""
    begin = machine.seconds()
    with leaving_nothing(machine, [*arrays.values()]):
        memory = machine.allocate(0, plan.buffers.total)
        pipeline = Pipeline(machine, plan.problem, plan.buffers, memory, arrays)
        if isinstance(machine, CudaMachine):
            machine.prepare(0, pipeline.routines(plan.kinds))
        machine.run([pipeline.work(plan.tasks())])
    if statistics is not None:
        statistics.seconds = machine.seconds() - begin
        statistics.bytes_in, statistics.bytes_out = lambda: plan.bytes_in, lambda: plan.bytes_out
        statistics.predicted_seconds = lambda: plan.timeline.seconds


def budget_of(machine: Machine, memory_budget: int | None) -> int:
    """The bytes that a call may use."""
    free = machine.budget(0)
    if memory_budget is None:
        return free
    if not is_integer(memory_budget):
        raise LaunchError(
            f"memory_budget is {memory_budget!r}\nit is a number of bytes\npass an int, or None for all"
        )
    return min(int(memory_budget), free)
