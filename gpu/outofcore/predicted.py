"""The predicted timeline of a call: its pipeline on a machine that only adds up predicted times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from gpu.device_tensor import DeviceTensor
from gpu.outofcore.clock import ModelMachine
from gpu.outofcore.model import TENSORS, Buffers
from gpu.outofcore.pieces import Task
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.problem import FLOAT, Problem, Tensor
from gpu.outofcore.rates import Rates
from reference.devices.timeline import Timeline

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Slab:
    """Device memory without content, for a call that is only predicted."""

    nbytes: int
    device: int = 0


def predict(problem: Problem, tasks: Iterator[Task], buffers: Buffers, rates: Rates) -> Timeline:
    """The timeline of the tasks of a call."""
    machine = ModelMachine(rates)
    tensors: tuple[Tensor, ...] = ("x", "w", "z") if problem.pool else TENSORS
    shapes: dict[str, tuple[int, ...]] = {tensor: problem.shape(tensor) for tensor in tensors}
    if problem.has_bias:
        shapes["bias"] = (problem.filters,)
    arrays = {
        name: DeviceTensor(Slab(0), shape, problem.dtype)
        if name in problem.on_device
        else addresses(shape, problem.dtype)
        for name, shape in shapes.items()
    }
    pipeline = Pipeline(machine, problem, buffers, Slab(buffers.total), arrays)
    for _ in pipeline.work(tasks):
        pass
    machine.run()
    return machine.timeline


def addresses(shape: tuple[int, ...], dtype: np.dtype[Any] = FLOAT) -> Array:
    """An array of addresses without memory; only its shape and strides may be used."""
    strides = [dtype.itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return as_strided(np.zeros(1, dtype), shape, strides, writeable=False)
