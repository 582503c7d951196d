"""The networks that `networks.py` measures beside ours: the same layers in torch, in float16."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from reference.types.layers import (
    Affine,
    Clip,
    Conv,
    Dense,
    Flatten,
    Layer,
    PadChannels,
    Pool,
    Residual,
    Threshold,
)
from reference.types.network import Network
from reference.types.network_values import Value, after, input_value

BURSTS, WARM, RUNS = 7, 2, 5
GAP = 0.01
"""Seconds without work before a burst; the first `WARM` of its runs do not count."""

T = TypeVar("T")


def bursts(run: Callable[[], T]) -> list[T]:
    """The results of the runs that count."""
    results: list[T] = []
    for _ in range(BURSTS):
        time.sleep(GAP)
        results += [run() for _ in range(WARM + RUNS)][WARM:]
    return results


class FloatNetworks:
    """Seconds of torch's networks by name, for a number of images; empty where torch or a GPU is missing.

    With ``compiled``, those of ``torch.compile`` too.
    """

    def __init__(self, *, compiled: bool = False) -> None:
        self._compiled = compiled

    def times(self, network: Network, count: int) -> dict[str, float]:
        """The medians in seconds, from the call to the end of the device's work."""
        try:
            import torch
        except ImportError as error:
            print(f"torch is left out: {error}")
            return {}
        if not torch.cuda.is_available():
            print("torch is left out: it finds no GPU")
            return {}
        last: dict[str, Any] = {"memory_format": torch.channels_last}
        shape = network.input.shape
        model = float_model(network).cuda().half().eval()
        images = torch.randn(count, *([shape[-1], *shape[:-1]] if len(shape) == 3 else shape)).cuda().half()
        if images.ndim == 4:
            model, images = model.to(**last), images.to(**last)
        works = {"torch f16, graph": model}
        if self._compiled:
            works["torch.compile f16, graph"] = torch.compile(model, mode="max-autotune-no-cudagraphs")
        with torch.no_grad():
            return {name: _time_of_graph(work, images) for name, work in works.items()}


def float_model(network: Network) -> Any:
    """A model of torch with the layers of a network: thresholds become batch normalisation and ReLU."""
    return _sequence(network.layers, input_value(network.input))


def _module(layer: Layer, value: Value) -> Any:
    """A layer of torch for a value (H, W, C) or (F,)."""
    from torch import nn

    channels = value.shape[-1]
    match layer:
        case Conv(filters=filters, stride=stride, padding=((top, _), (left, _)), dilation=dilation):
            sizes = filters.shape[:2]
            outputs = filters.shape[3]
            how = stride, (top, left), dilation, layer.groups
            return nn.Conv2d(channels, outputs, sizes, *how, bias=False)
        case Dense(weights=weights):
            return nn.Linear(*weights.shape, bias=False)
        case Threshold():
            norm = nn.BatchNorm2d if len(value.shape) == 3 else nn.BatchNorm1d
            return nn.Sequential(norm(channels), nn.ReLU())
        case Pool(kind=kind, window=window, stride=stride, padding=((top, _), (left, _))):
            pool = nn.AvgPool2d if kind == "sum" else nn.MaxPool2d
            return pool(window, stride, (top, left))
        case Flatten():
            return nn.Flatten()
        case Affine():
            return nn.BatchNorm2d(channels) if len(value.shape) == 3 else nn.BatchNorm1d(channels)
        case Clip(low=low, high=high):
            return nn.Hardtanh(
                *(np.inf * sign if x is None else float(x) for sign, x in ((-1, low), (1, high)))
            )
        case PadChannels(before=before, after=behind):
            return nn.ZeroPad3d((0, 0, 0, 0, before, behind))
        case Residual(body=body, shortcut=shortcut):
            return _sum(_sequence(body, value), _sequence(shortcut, value))
        case _:
            raise TypeError(layer)


def _sequence(layers: tuple[Layer, ...], value: Value) -> Any:
    from torch import nn

    modules = list[Any]()
    for layer in layers:
        modules.append(_module(layer, value))
        value = after(layer, value)
    return nn.Sequential(*modules)


def _sum(body: Any, shortcut: Any) -> Any:
    """The sum of two modules of one input."""
    from torch import nn

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x: Any) -> Any:
            return self.body(x) + self.shortcut(x)

    return Sum()


def _time_of_graph(model: Any, images: Any) -> float:
    """The median time of a CUDA graph of one call."""
    import torch

    for _ in range(3):
        model(images)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(images)

    def run() -> float:
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    return statistics.median(bursts(run))
