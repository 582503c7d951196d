"""Workspaces and rates of a network's routines on GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gpu.cuda_machine import CudaMachine
from gpu.cuda_machine.timing import seconds_of
from gpu.machine import Tile
from gpu.outofcore.calibration import measured_rates, probing
from gpu.outofcore.networks.on_cuda import parts_bytes
from gpu.outofcore.networks.routines import ActivationGradient
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.problem import Problem, Tensor
from gpu.outofcore.rates import Rates
from gpu.outofcore.workspace import aligned, workspace_of

if TYPE_CHECKING:
    from gpu.outofcore.networks.layers import Network
    from gpu.outofcore.networks.phases import Op, Phase

ROUTINES = {"forward": "conv2d", "data": "conv2d_backward_data", "filters": "conv2d_backward_filter"}
"""The routine of each operation of stages with weights."""
ITEM = 4
_LAUNCH_SECONDS = 1e-5
_PROBE_BYTES = 1 << 30
_TIMES, _RUNS = 3, 8
_FINISH_BYTES, _SUM_BYTES, _ADD_BYTES = 8, 4, 20
"""Bytes that routines beside cuDNN's move: for each result, bias and activation, and the bias's gradient;
for each weight, sums of terms."""
_MOVED_BYTES = 6
"""Bytes that a routine moves for each operation: two operations read two numbers and write one."""
_OTHERS = {
    "moments": 2,
    "batch_norm forward": 8,
    "batch_norm filters": 8,
    "max_pool forward": 5,
    "max_pool data": 9,
    "average_pool forward": 5,
    "average_pool data": 5,
}
"""The same by kind, for routines that move other bytes; pooling has windows of 2 x 2 pixels."""


@dataclass(frozen=True)
class Engines:
    """Options for the choice of convolution engines: workspace, transforms, TF32."""

    need_memory: bool = False  # whether engines need a workspace, as on GPUs
    transforms: bool = False  # whether GPUs may use Winograd and FFT
    tf32: bool = False  # whether operands are rounded to TF32

    def transform(self, stage: Stage) -> bool:
        """True if GPUs may transform a stage's images; filters of one pixel would gain nothing."""
        return self.transforms and not self.tf32 and math.prod(stage.filters[2:]) > 1


SIMULATED = Engines()


def problem_of(stage: Stage, action: str, images: int, engines: Engines) -> Problem:
    """The convolution, or the gradient, of a stage with weights."""
    return Problem(
        ROUTINES[action],
        "NCHW",
        images,
        stage.filters[1] * stage.groups,
        stage.shape[0],
        stage.groups,
        stage.plane,
        workspace=None,
        tf32=engines.tf32,
        transforms=engines.transform(stage),
    )


# --------------------------------------------------------------------------------------------------
# Memory
# --------------------------------------------------------------------------------------------------


def workspace_bytes(phase: Phase, op: Op, engines: Engines) -> int:
    """The bytes for an operation on the largest piece of a phase."""
    if op.action not in (*ROUTINES, "moments"):
        return 0
    stage = phase.stage(op)
    sums = parts_bytes(stage.shape[0])
    if not stage.has_weights or op.action == "moments":
        return sums if op.action in ("filters", "moments") else 0
    images, count = min(phase.cut.images, phase.batch), len(phase.strips)
    of_x, of_y = phase.network.shape(stage.number - 1), stage.shape
    rows = int(phase.worked_rows(op).max())
    nbytes: dict[Tensor, int] = {
        "x": images * math.prod(of_x) * ITEM,
        "y": images * math.prod(of_y) * ITEM,
        "w": math.prod(stage.filters) * ITEM,
    }
    if count > 1:
        share = rows / of_y[1]
        nbytes["x"], nbytes["y"] = (math.ceil(nbytes[name] * share) for name in ("x", "y"))
    problem = problem_of(stage, op.action, images, engines)
    if op.action == "data":
        rows = int(phase.strips.gradients[op.key.tensor].sizes.max())
    planes = images * stage.filters[1] * stage.groups
    engine = workspace_of(problem, nbytes, planes, rows if count > 1 else None, images)
    if op.action != "filters":
        return engine
    without_gaps = aligned(nbytes["y"]) if count > 1 else 0
    return aligned(nbytes["w"]) + max(engine + without_gaps, sums)


# --------------------------------------------------------------------------------------------------
# Rates
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepRates(Rates):
    """The rates of a training step: of routines that move memory, and of each stage with weights.

    ``stages`` has kinds of routines, each with its fixed seconds and its operations per second.
    """

    stages: tuple[tuple[str, tuple[float, float]], ...] = field(default=(), kw_only=True)

    @cached_property
    def _by_kind(self) -> dict[str, tuple[float, float]]:
        return dict(self.stages)

    def of(self, kind: str) -> tuple[float, float]:
        """The fixed seconds of a routine, and its operations per second."""
        return self._by_kind.get(kind) or super().of(kind)


def step_rates(
    machine: CudaMachine, network: Network, batch: int, budget: int, engines: Engines
) -> StepRates:
    """The rates of a network's step on a machine's first device, measured, or from the user's cache."""
    bandwidth = _memory_bandwidth(machine, budget)
    found: dict[str, tuple[float, float]] = {}
    links = Rates(1e-5, 1e10, 1e-5, 1e10, 0.0, 1.0)
    for stage in (one for one in network.stages if one.has_weights):
        # operations of one element of the result
        each = stage.operations(1, 1) / (stage.shape[0] * stage.shape[2])
        for action in ROUTINES:
            links = measured_rates(machine, problem_of(stage, action, batch, engines), budget)
            seconds, rate = links.of("")
            if action == "filters":
                seconds += math.prod(stage.filters) * _ADD_BYTES / bandwidth
            moved = {"forward": _FINISH_BYTES, "filters": _SUM_BYTES}.get(action, 0)
            found[kind_of(stage, action)] = seconds, 1 / (1 / rate + moved / bandwidth / each)
    moving = {kind: (_LAUNCH_SECONDS, bandwidth / nbytes) for kind, nbytes in _OTHERS.items()}
    return StepRates(
        links.in_seconds,
        links.in_bytes_per_second,
        links.out_seconds,
        links.out_bytes_per_second,
        _LAUNCH_SECONDS,
        bandwidth / _MOVED_BYTES,
        both_bytes_per_second=links.both_bytes_per_second,
        column_seconds=links.column_seconds,
        stages=tuple((found | moving).items()),
    )


def kind_of(stage: Stage, action: str) -> str:
    """The key of a stage's routine in a table of rates."""
    return f"{stage.name if stage.has_weights else stage.kind} {action}"


def _memory_bandwidth(machine: CudaMachine, budget: int) -> float:
    """Bytes per second of a routine that moves memory and computes little."""
    count = min(_PROBE_BYTES, budget) // (2 * ITEM)
    with probing(machine):
        memory = machine.allocate(0, 2 * ITEM * count)
        y, dy = (Tile(memory, at * ITEM * count, count, 1, count, np.dtype(np.float32)) for at in range(2))
        routine = ActivationGradient("relu_gradient", (dy, y), (dy,), (), 2.0 * count, "relu")
        stream = machine.stream(0)

        def work() -> None:
            for _ in range(_RUNS):
                machine.launch(stream, routine)

        return _RUNS * 3 * ITEM * count / min(seconds_of(machine, work, _TIMES))
