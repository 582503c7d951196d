"""Separate forward and backward passes of a network without a loss.

What the backward pass needs stays in the slabs in between. So it belongs to the latest forward pass alone,
and takes place once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu.machine import Machine
from gpu.outofcore.networks.host_copies import write_array
from gpu.outofcore.networks.memory import HostMemory
from gpu.outofcore.networks.moments import Pair, batch_moments, put_moments
from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.slabs import Slabs
from reference.errors import SchemeError

Array = npt.NDArray[Any]


class Forward(NamedTuple):
    """The results of a network's forward pass."""

    number: int  # number of the pass, which its backward pass names
    result: Array  # (batch, channels, rows, columns) float32
    moments: dict[str, Pair]  # batch normalization layer → mean and unbiased variance of the batch


class Passes:
    """The passes of a plan without a loss on a machine; memory is allocated when needed."""

    def __init__(self, machine: Machine, plan: TrainingPlan) -> None:
        self.plan, self._slabs = plan, Slabs(machine, plan)
        self._count, self._pending = 0, 0

    def close(self) -> None:
        """Give all memory back; no backward pass can follow."""
        self._pending = 0
        self._slabs.close()

    def forward(
        self, x: Array, parameters: Mapping[str, Array], running: Mapping[str, Pair] | None = None
    ) -> Forward:
        """Compute the last layer's result; all layers normalize by ``running``, unless it is None."""
        self._pending = 0
        try:
            host = self._slabs.open(0, lambda _: None)
            self._slabs.holds_parameters = False
            write_array(host.tensor(Key("x", 0)), x)
            for name, w in parameters.items():
                host.state(name)[0][...] = w
            if running is None:
                part = slice(len(self.plan.segments))
                self._slabs.run(lambda work, loads: work.step(None, loads=loads, part=part))
            else:
                put_moments(self.plan, host, running)
                self._slabs.run(lambda work, loads: work.logits(loads=loads))
        except BaseException:
            self.close()
            raise
        self._count += 1
        if not running:
            self._pending = self._count
        return Forward(self._count, self._result(host), self._moments(host) if running is None else {})

    def backward(self, number: int, gradient: Array) -> tuple[dict[str, Array], Array | None]:
        """Compute the gradients of parameters and images from the gradient of a forward pass's result."""
        host = self._slabs.host
        if host is None or number != self._pending:
            raise SchemeError(
                "this forward pass has no backward pass left\n"
                "activations are kept for one, until the next forward pass\n"
                "call backward once, before the next forward pass and before close"
            )
        self._pending = 0
        try:
            host.tensor(Key("g", len(self.plan.network.stages)))[...] = gradient
            part = slice(len(self.plan.segments), None)
            self._slabs.run(lambda work, loads: work.step(None, loads=loads, part=part))
        except BaseException:
            self.close()
            raise
        network = self.plan.network
        images = host.tensor(Key("g", 0)).copy() if network.image_gradient else None
        return {name: host.gradient(name).astype(np.float32) for name in network.parameters}, images

    def _result(self, host: HostMemory) -> Array:
        return host.tensor(Key("x", len(self.plan.network.stages))).copy()

    def _moments(self, host: HostMemory) -> dict[str, Pair]:
        return {stage.name: moments for stage, moments in batch_moments(self.plan, host)}
