"""Layers on integers that one launch computes: their order, and the kernel's arguments for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.bnn.tiles import UNIT
from reference.types.layers import Affine, Clip, Layer, PadChannels, Pool, Residual, Threshold
from reference.types.network_values import INT32_MAX, INT32_MIN


@dataclass(frozen=True)
class Stage:
    """What a layer is in a launch of several.

    Attributes
    ----------
    macro : str
        The layer's macro of integers.cu; "" where its stage is read from the step instead.
    arguments : callable
        Takes the layer; its arguments there by name, in order; arrays are uploaded.
    fields : callable
        Takes the layer; its fields and constants of step.cuh.
    """

    macro: str = ""
    arguments: Callable[[Any], dict[str, Any]] = lambda layer: {}
    fields: Callable[[Any], dict[str, Any]] = lambda layer: {}


def pairs(first: Any, second: Any) -> npt.NDArray[np.int32]:
    """Interleave two numbers for each channel."""
    return np.stack(np.broadcast_arrays(first, second), axis=-1).astype(np.int32)


def _rule(threshold: Threshold) -> npt.NDArray[np.int32]:
    """Thresholds and flips as pairs; padding channels give 0."""
    rule = pairs(threshold.thresholds, np.asarray(threshold.flip))
    rest = np.tile(np.array([[INT32_MAX, 0]], np.int32), (-len(rule) % UNIT, 1))
    return np.concatenate([rule, rest])


def _limits(clip: Clip) -> dict[str, int]:
    """The kernel's fields for a clip's low and high limits, as int32."""
    low, high = clip.low, clip.high
    return {"low": INT32_MIN if low is None else int(low), "high": INT32_MAX if high is None else int(high)}


STAGES: dict[type, Stage] = {
    Pool: Stage(),
    PadChannels: Stage(),
    Affine: Stage(
        "AFFINE",
        lambda layer: {"scale": layer.scale, "offset": layer.offset},
        lambda layer: {"affine": pairs(layer.scale, layer.offset)},
    ),
    Clip: Stage("CLIP", _limits, _limits),
    Residual: Stage(),
    Threshold: Stage(fields=lambda layer: {"rule": _rule(layer)}),
}
"""The layers on integers that one launch computes, of each at most one, in this order."""

ORDER = {layer: stage for stage, layer in enumerate(STAGES)}


def view_of(layers: Iterable[Any]) -> tuple[Pool | None, int]:
    """The pool and the number of zero channels through which layers read their last input."""
    kinds: dict[type, Any] = {type(layer): layer for layer in layers}
    return kinds.get(Pool), int(kinds[PadChannels].before) if PadChannels in kinds else 0


COMPUTED_AS: dict[type, Callable[[Any, int], Layer]] = {}
"""Layers without code in the kernels → what gives, of one and its channels, the layer that is computed."""
