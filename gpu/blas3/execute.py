"""The execution of a call: on a machine, by default of all GPUs, or a small one on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from gpu.blas3.layouts import Call
from gpu.blas3.on_host import compute_on_host, is_small
from gpu.blas3.options import Options
from gpu.blas3.plan import plan_of
from gpu.blas3.run import compute
from gpu.blas3.statistics import Statistics
from gpu.cuda_machine import DEFAULT_LOCK, CudaMachine, default_machine
from gpu.machine import Machine
from reference.errors import LaunchError, MissingExtraError, NoGpuError


def execute(
    call: Call,
    device: Machine | None,
    tile: int | None,
    memory_budget: int | Sequence[int] | None,
    options: Options | None,
    statistics: Statistics | None,
) -> None:
    """Compute a call in place; with a machine always in tiles."""
    if device is not None:
        _in_tiles(call, device, tile, memory_budget, options or Options(), statistics)
    elif is_small(call):
        compute_on_host(call)
    else:
        with DEFAULT_LOCK:
            _in_tiles(call, _gpus(call), tile, memory_budget, options or Options(), statistics)


def _gpus(call: Call) -> CudaMachine:
    """A machine of all GPUs of this computer."""
    try:
        return default_machine()
    except (MissingExtraError, NoGpuError) as error:
        problem = call.problem
        raise NoGpuError(
            f"{problem.name} of {problem.m} x {problem.n}, sums of {problem.k}, needs a GPU:"
            f" {str(error).splitlines()[0]}\n"
            "without one, only small problems are computed\npass device=simwarp.Machine(), or use SciPy"
        ) from None


def _in_tiles(
    call: Call,
    device: Machine,
    tile: int | None,
    memory_budget: int | Sequence[int] | None,
    options: Options,
    statistics: Statistics | None,
) -> None:
    """Compute a BLAS call tile by tile on the devices of a machine."""
    budgets = _budgets(device, memory_budget)
    plan = plan_of(call.problem, tile, budgets, options)
    found = compute(device, call, plan, options) if plan.tasks else Statistics()
    if statistics is not None:
        for field in fields(Statistics):
            setattr(statistics, field.name, getattr(found, field.name))


def _budgets(machine: Machine, memory_budget: int | Sequence[int] | None) -> list[int]:
    """The bytes of each device that tiles may use."""
    free = [machine.budget(device) for device in range(machine.devices)]
    if memory_budget is None:
        return free
    given = [memory_budget] * len(free) if isinstance(memory_budget, int) else list(memory_budget)
    if len(given) != len(free):
        raise LaunchError(
            f"memory_budget has {len(given)} numbers for {len(free)} devices\n"
            "one number is for all devices, a sequence has one for each\ngive as many as devices"
        )
    return [min(pair) for pair in zip(given, free, strict=True)]
