"""A step without values: on the model's machine, and on a simulated one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from gpu.cleanup import leaving_nothing
from gpu.machine import Machine
from gpu.outofcore.clock import ModelMachine
from gpu.outofcore.networks.layers import SGD
from gpu.outofcore.networks.memory import HostMemory, host_bytes
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.work import Work
from gpu.outofcore.predicted import Slab
from reference.devices.timeline import Timeline


def predict(plan: TrainingPlan, *, loads: bool = False) -> Timeline:
    """The predicted timeline of a step; with ``loads``, resident parameters are copied in first."""
    machine = ModelMachine(plan.rates)
    work = Work(machine, plan, Slab(plan.device.nbytes), HostMemory(plan, unbacked(host_bytes(plan))))
    for _ in work.step(SGD() if plan.network.loss else None, loads=loads):
        pass
    machine.run()
    return machine.timeline


def rehearse(plan: TrainingPlan, machine: Machine) -> float:
    """The seconds of a step on the clock of ``Machine(values=False)``, which moves no values."""
    host = HostMemory(plan, unbacked(host_bytes(plan)))
    with leaving_nothing(machine, [host.slab]):
        memory = machine.allocate(0, plan.device.nbytes)
        begin = machine.seconds()
        sgd = SGD() if plan.network.loss else None
        machine.run([Work(machine, plan, memory, host).step(sgd, loads=False)])
        return machine.seconds() - begin


def unbacked(nbytes: int) -> npt.NDArray[Any]:
    """An array of addresses without memory; its elements must not be accessed."""
    return as_strided(np.zeros(1, np.uint8), (nbytes,), (1,))
