"""One call on a machine: whatever fails, no memory stays allocated and no array pinned."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cleanup import leaving_nothing
from gpu.cuda_machine import DEFAULT_LOCK, CudaMachine, default_machine
from gpu.device_tensor import DeviceTensor
from gpu.machine import Machine, check_machine
from gpu.outofcore.calibration import measured_rates
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.plan import Plan, plan_of
from gpu.outofcore.predicted import Slab
from gpu.outofcore.problem import Problem
from gpu.outofcore.rates import rates_of
from gpu.outofcore.statistics import Statistics
from reference.errors import LaunchError, MissingExtraError, NoGpuError, ShapeError
from reference.types.fields import is_integer

Array = npt.NDArray[Any]


@contextmanager
def machine_for(device: Machine | None, call: str) -> Generator[Machine]:
    """The machine of a call, by default of all GPUs, which one call at a time may use."""
    if device is not None:
        check_machine(device)
        yield device
        return
    with DEFAULT_LOCK:
        yield _gpus(call, default_machine)


def machine_of(device: Machine | None, call: str) -> Machine:
    """The machine of an object that keeps memory between calls; by default its own machine of all GPUs."""
    if device is None:
        return _gpus(call, CudaMachine)
    check_machine(device)
    return device


def _gpus(call: str, make: Callable[[], CudaMachine]) -> CudaMachine:
    """A machine of all GPUs; NoGpuError if none can be used."""
    try:
        return make()
    except (MissingExtraError, NoGpuError) as error:
        raise NoGpuError(
            f"{call} needs a GPU: {str(error).splitlines()[0]}\n"
            "without device= the first GPU computes\npass device=simwarp.Machine() to simulate one"
        ) from None


def called(
    problem: Problem,
    device: Machine,
    arrays: Mapping[str, Array | DeviceTensor],
    statistics: Statistics | None,
    *how: Any,
) -> None:
    """Plan a call for its arrays, on host or device, and run it; ``how`` is passed to `planned`."""
    if not problem.batch:
        _without_images(problem, arrays, statistics)
        return
    here = frozenset(name for name, x in arrays.items() if isinstance(x, DeviceTensor))
    compute(device, planned(replace(problem, on_device=here), device, *how), arrays, statistics)


def _without_images(
    problem: Problem, arrays: Mapping[str, Array | DeviceTensor], statistics: Statistics | None
) -> None:
    """The result of an empty batch, empty or zeros; ShapeError if it would have to be on a device."""
    result = arrays[problem.result]
    if isinstance(result, np.ndarray):
        result[...] = 0
    elif result.size:
        raise ShapeError(
            f"the images have shape {problem.shape('x')}, and out lies on a device\n"
            "without images the gradient is zeros, and no kernel runs that could write them\n"
            "clear out, or pass memory of the host"
        )
    if statistics is not None:
        statistics.bytes_in = statistics.bytes_out = 0
        statistics.seconds, statistics.predicted_seconds = 0.0, 0.0


def planned(
    problem: Problem,
    device: Machine,
    memory_budget: int | None,
    pieces: Pieces | None,
    options: Options | None,
) -> Plan:
    """The plan of a problem for a machine's first device."""
    if not problem.batch:
        raise ShapeError(
            f"the images have shape {problem.shape('x')}\nwithout images there is nothing to plan\n"
            "give a batch of at least one image"
        )
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
        rates = measured_rates(device, replace(problem, on_device=frozenset(), pool=None), budget)
    else:
        rates = rates_of(device, problem.dtype)
    return plan_of(problem, pieces, budget, rates, options)


def compute(
    machine: Machine,
    plan: Plan,
    arrays: Mapping[str, Array | DeviceTensor],
    statistics: Statistics | None,
) -> None:
    """Compute a convolution call by its plan, into its output array."""
    begin, total = machine.seconds(), plan.buffers.total
    with leaving_nothing(machine, [x for x in arrays.values() if not isinstance(x, DeviceTensor)]):
        memory = machine.allocate(0, total) if total else Slab(0)
        pipeline = Pipeline(machine, plan.problem, plan.buffers, memory, arrays)
        # the kind of a piece does not include where it begins on the device
        if isinstance(machine, CudaMachine):
            machine.prepare(0, pipeline.routines(plan.tasks() if plan.problem.on_device else plan.kinds))
        machine.run([pipeline.work(plan.tasks())])
    if statistics is not None:
        statistics.seconds = machine.seconds() - begin
        statistics.bytes_in, statistics.bytes_out = lambda: plan.bytes_in, lambda: plan.bytes_out
        statistics.predicted_seconds = lambda: plan.timeline.seconds


def budget_of(machine: Machine, memory_budget: int | None) -> int:
    """The bytes of device memory that a call may use."""
    free = machine.budget(0)
    if memory_budget is None:
        return free
    if not is_integer(memory_budget):
        raise LaunchError(
            f"memory_budget is {memory_budget!r}\nit is a number of bytes\npass an int, or None for all"
        )
    return min(int(memory_budget), free)
