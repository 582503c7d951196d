"""Means and variances of batch normalization, from and to the sums of a batch in the host's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.outofcore.networks.memory import HostMemory
from gpu.outofcore.networks.phases import Key
from gpu.outofcore.networks.plan import TrainingPlan
from gpu.outofcore.networks.stages import Stage

Array = npt.NDArray[Any]
Pair = tuple[Array, Array]
"""A mean and a variance of each channel."""


def batch_moments(plan: TrainingPlan, host: HostMemory) -> Iterator[tuple[Stage, Pair]]:
    """The stages of batch normalization, with mean and unbiased variance of the batch that ran last."""
    for number, stage, count in _norms(plan):
        mean, squares = host.tensor(Key("moments", number)) / count
        variance = np.maximum(squares - mean * mean, 0.0) * (count / max(count - 1, 1))
        yield stage, (mean, variance)


def put_moments(plan: TrainingPlan, host: HostMemory, running: Mapping[str, Pair]) -> None:
    """Write a batch's sums, computed from running means and variances, where a forward pass loads them."""
    for number, stage, count in _norms(plan):
        mean, variance = (one.astype(np.float64) for one in running[f"{stage.name}.running"])
        host.tensor(Key("moments", number))[...] = mean * count, (variance + mean * mean) * count


def _norms(plan: TrainingPlan) -> Iterator[tuple[int, Stage, int]]:
    """The stages of batch normalization, and the pixels of a channel in a batch."""
    for number in plan.moments[0]:
        stage = plan.network.stages[number - 1]
        yield number, stage, plan.batch * stage.shape[1] * stage.shape[2]
