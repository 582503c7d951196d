"""Running means and variances of ``BatchNorm2d``, by torch's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu.outofcore.in_torch.layers import Place, Sequence
from gpu.outofcore.in_torch.pytorch import torch
from gpu.outofcore.networks.layers import Network
from gpu.outofcore.networks.moments import Pair
from reference.errors import ShapeError


def norms_of(sequence: Sequence, network: Network) -> dict[str, Place]:
    """The layers of batch normalization by the names of their stages."""
    pairs = zip(network.stages, sequence.places, strict=True)
    return {stage.name: place for stage, place in pairs if stage.kind == "batch_norm"}


def running_of(norms: Mapping[str, Place]) -> dict[str, Pair] | None:
    """The running means and variances; None if the layers normalize by batch statistics."""
    by_batch = {name: _uses_batch(place.module) for name, place in norms.items()}
    if not norms or all(by_batch.values()):
        return None
    if any(by_batch.values()):
        place = next(norms[name] for name, is_so in by_batch.items() if not is_so)
        raise place.refused(
            "it normalizes by running means, and other layers by means of the batch",
            "call train() or eval() for all of them",
        )
    return {
        f"{name}.running": (_array(place.module.running_mean), _array(place.module.running_var))
        for name, place in norms.items()
    }


def check_counts(norms: Mapping[str, Place], network: Network, batch: int) -> None:
    """Raise ShapeError if a channel has only one pixel in the batch, so that it has no variance."""
    for stage in network.stages:
        if stage.name in norms and batch * stage.shape[1] * stage.shape[2] == 1:
            raise ShapeError(
                f"{norms[stage.name]}: a channel of the batch has one pixel\nit has no variance\n"
                "give more images"
            )


def update(norms: Mapping[str, Place], moments: Mapping[str, Pair]) -> None:
    """Update the running means and variances with the moments of a batch."""
    for name, place in norms.items():
        given = place.module
        if not (given.training and given.track_running_stats and given.running_mean is not None):
            continue
        given.num_batches_tracked.add_(1)
        part = given.momentum
        if part is None:
            part = 1.0 / float(given.num_batches_tracked)
        for buffer, new in zip((given.running_mean, given.running_var), moments[name], strict=True):
            buffer.copy_(torch.from_numpy((1 - part) * _array(buffer).astype(np.float64) + part * new))


def _uses_batch(norm: Any) -> bool:
    return norm.training or norm.running_mean is None


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()
