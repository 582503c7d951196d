"""One call of a layer that reads one map and writes one, on a machine, and its predicted timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from gpu.cleanup import leaving_nothing
from gpu.cuda_machine import CudaMachine
from gpu.device_tensor import DeviceTensor
from gpu.machine import Machine
from gpu.outofcore.arguments import Operand
from gpu.outofcore.calibration import copy_rates
from gpu.outofcore.clock import ModelMachine
from gpu.outofcore.map_pipeline import MapPipeline
from gpu.outofcore.maps import Map, MapPlan, map_plan_of
from gpu.outofcore.options import Options
from gpu.outofcore.predicted import Slab, addresses
from gpu.outofcore.rates import Rates, rates_of
from gpu.outofcore.run import budget_of
from gpu.outofcore.statistics import Statistics
from reference.devices.timeline import Timeline


def called_map(
    of: Map,
    machine: Machine,
    arrays: Mapping[str, Operand],
    memory_budget: int | None,
    options: Options | None,
    statistics: Statistics | None,
) -> None:
    """Plan a call for its arrays, on host or device, and run it."""
    here = frozenset(name for name, x in arrays.items() if isinstance(x, DeviceTensor))
    of, begin, counts = replace(of, on_device=here), machine.seconds(), statistics or Statistics()
    counts.bytes_in = counts.bytes_out = 0
    counts.predicted_seconds = 0.0
    if of.images[0]:
        options, budget = options or Options(), budget_of(machine, memory_budget)
        rates = options.rates or _rates(machine, of.dtype, budget)
        plan = map_plan_of(of, budget, rates, options)
        _run(machine, plan, arrays)
        timeline = cache(lambda: predicted_map(plan, rates))
        counts.bytes_in = lambda: timeline().nbytes("in")
        counts.bytes_out = lambda: timeline().nbytes("out")
        counts.predicted_seconds = lambda: timeline().seconds
    counts.seconds = machine.seconds() - begin


def _run(machine: Machine, plan: MapPlan, arrays: Mapping[str, Operand]) -> None:
    """Compute a call by its plan; whatever fails, no memory stays allocated and no array pinned."""
    with leaving_nothing(machine, [x for x in arrays.values() if not isinstance(x, DeviceTensor)]):
        memory = machine.allocate(0, plan.total) if plan.total else Slab(0)
        machine.run([MapPipeline(machine, plan, memory, arrays).work()])


def _rates(machine: Machine, dtype: np.dtype[Any], budget: int) -> Rates:
    return copy_rates(machine, budget) if isinstance(machine, CudaMachine) else rates_of(machine, dtype)


def predicted_map(plan: MapPlan, rates: Rates) -> Timeline:
    """The timeline of a call's pipeline on a machine that only adds up the times of the model."""
    of, machine = plan.map, ModelMachine(rates)
    names = (*of.reads, "out", *(("bias",) if of.has_bias else ()))
    shapes = {name: of.shape(name) for name in names}
    if of.is_sum:  # in double precision
        shapes["out"] = (2 * of.images[1],)
    arrays = {
        name: DeviceTensor(Slab(0), shape, of.dtype) if name in of.on_device else addresses(shape, of.dtype)
        for name, shape in shapes.items()
    }
    for _ in MapPipeline(machine, plan, Slab(plan.total), arrays).work():
        pass
    machine.run()
    return machine.timeline
