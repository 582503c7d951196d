"""Conversion of PyTorch's layers to those of a `Network`; an error names a layer that has no counterpart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from gpu.outofcore.in_torch.pytorch import torch
from gpu.outofcore.networks.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Flatten,
    Layer,
    MaxPool,
    Network,
)
from gpu.outofcore.problem import Activation
from reference.errors import DtypeError, SchemeError, ShapeError

nn: Any = torch.nn

ACTIVATIONS: dict[Any, tuple[Activation, Any]] = {
    nn.ReLU: ("relu", torch.relu),
    nn.Tanh: ("tanh", torch.tanh),
    nn.Sigmoid: ("sigmoid", torch.sigmoid),
}
"""Activation of torch → its name in `Network`, and torch's function for it."""
_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"


class Place(NamedTuple):
    """A layer and the names that lead to it."""

    name: str
    module: Any

    def refused(self, reason: str, advice: str) -> SchemeError:
        """Make a `SchemeError` that names the torch layer."""
        return SchemeError(f"{self}\n{reason}\n{advice}")

    def __str__(self) -> str:
        return f"layer {self.name}, {type(self.module).__name__}"


@dataclass(frozen=True)
class Sequence:
    """The layers of a sequential torch model, converted for `gpu.outofcore`."""

    layers: tuple[Layer, ...]  # the layers for `gpu.outofcore`, the last one without its activation
    places: tuple[Place, ...]  # the corresponding layers in torch; ``Flatten`` has none
    is_flat: bool  # whether the result has two axes
    # activation of the last layer; torch computes it, and its gradient
    activation: Callable[[Any], Any] | None


def leaves(module: Any, name: str = "") -> Iterator[Place]:
    """The layers of nested ``torch.nn.Sequential``, in order."""
    place = Place(name, module)
    if any(getattr(module, hooks) for hooks in _HOOKS):
        raise place.refused("it has hooks, which would not be called", "remove them before the call")
    if not is_sequential(module):
        yield place
        return
    for child, layer in module._modules.items():
        yield from leaves(layer, f"{name}.{child}" if name else child)


def is_sequential(module: Any) -> bool:
    """True if a container calls its layers in sequence."""
    return cast("Any", type(module)).forward is nn.Sequential.forward


def sequence_of(children: dict[str, Any], *, is_flat: bool | None = None) -> Sequence:
    """The layers of a model; ``is_flat``: whether its input is rows (default: as the first layer reads)."""
    reader = _Reader(is_flat)
    for name, child in children.items():
        for place in leaves(child, name):
            reader.add(place)
    if not reader.places:
        raise SchemeError("the model has no layers\nthere is nothing to compute\ngive it one or more")
    _, of_torch = ACTIVATIONS.get(reader.pending, (None, None))
    return Sequence(tuple(reader.layers), tuple(reader.places), bool(reader.is_flat), of_torch)


class _Reader:
    """Reads layers one by one, and keeps the converted ones and their places in the torch model.

    ``is_flat``: the next layer reads rows of numbers; None before the first one. ``pending`` is the type of
    the activation behind the last layer.
    """

    def __init__(self, is_flat: bool | None) -> None:
        self.is_flat = is_flat
        self.layers: list[Layer] = [Flatten()] if is_flat else []
        self.places: list[Place] = []
        self.pending: Any = None
        self._last = 0

    def add(self, place: Place) -> None:
        """Add the next torch layer to the sequence."""
        kind = cast("Any", type(place.module))
        if kind in ACTIVATIONS:
            self._activate(kind, place)
        elif kind is nn.Dropout:
            _check_dropout(place)
        elif kind is not nn.Identity:
            self._append(place, _layer(place))

    def _append(self, place: Place, layer: Layer) -> None:
        reads_rows = isinstance(layer, Dense)
        if self.is_flat is None:
            self.is_flat = reads_rows
        if isinstance(layer, Flatten):
            self.is_flat = True
        elif reads_rows != self.is_flat:
            raise _misplaced(place, reads_rows)
        else:
            self._fuse()
            self._last = len(self.layers)
            self.places.append(place)
        self.layers.append(layer)

    def _activate(self, kind: Any, place: Place) -> None:
        """Remember an activation, to be fused into the layer before it."""
        last = self.layers[self._last] if self.places else None
        if not isinstance(last, Conv | Dense | BatchNorm) or self.pending is not None:
            raise place.refused(
                "an activation must follow Conv2d, Linear or BatchNorm2d, at most one each",
                "put it directly behind one",
            )
        self.pending = kind

    def _fuse(self) -> None:
        """Fuse the remembered activation into the layer before it."""
        last = self.layers[self._last] if self.places else None
        if self.pending is not None and isinstance(last, Conv | Dense | BatchNorm):
            self.layers[self._last] = replace(last, activation=ACTIVATIONS[self.pending][0])
            self.pending = None


def _check_dropout(place: Place) -> None:
    if place.module.training and place.module.p:
        raise place.refused(
            f"p is {place.module.p}, and dropout is not supported", "set p=0, or call eval() of it"
        )


def _misplaced(place: Place, needs_rows: bool) -> SchemeError:
    if needs_rows:
        return place.refused(
            "it needs rows of numbers, but its input is images", "put torch.nn.Flatten before it"
        )
    return place.refused(
        "it needs images, but its input is rows of numbers", "put it before torch.nn.Flatten"
    )


# ------------------------------------------------------------------------------------------------- layers


def _layer(place: Place) -> Layer:
    """Convert a torch layer to a `gpu.outofcore` layer."""
    make = _MAKERS.get(type(place.module))
    if make is None:
        names = [kind.__name__ for kind in (*_MAKERS, *ACTIVATIONS, nn.Identity, nn.Dropout, nn.Sequential)]
        raise place.refused(
            f"supported are {', '.join(names)}", "replace it, or leave it outside of the model"
        )
    return make(place)


def _conv(place: Place) -> Layer:
    given = place.module
    if given.padding_mode != "zeros":
        raise place.refused(f"padding_mode is {given.padding_mode!r}", 'pass padding_mode="zeros"')
    pads: Any = given.padding
    window, dilation = _two(given.kernel_size), _two(given.dilation)
    if pads == "same":
        totals = [apart * (size - 1) for size, apart in zip(window, dilation, strict=True)]
        padding = tuple((total // 2, total - total // 2) for total in totals)
    else:
        padding = _pads((0, 0) if pads == "valid" else pads)
    return Conv(given.out_channels, window, _two(given.stride), padding, dilation, given.groups)


def _linear(place: Place) -> Layer:
    return Dense(place.module.out_features)


def _max_pool(place: Place) -> Layer:
    given = place.module
    if given.ceil_mode or given.return_indices or _two(given.dilation) != (1, 1):
        raise place.refused(
            "supported are ceil_mode=False, return_indices=False and dilation=1", "choose these, or padding"
        )
    return MaxPool(_two(given.kernel_size), _two(given.stride), _pads(given.padding))


def _average_pool(place: Place) -> Layer:
    given, padding = place.module, _pads(place.module.padding)
    counts_pads = given.count_include_pad and any(map(any, padding))
    if given.ceil_mode or given.divisor_override is not None or counts_pads:
        raise place.refused(
            "supported are count_include_pad=False, no divisor_override and ceil_mode=False",
            "pass count_include_pad=False, no divisor_override, and padding for ceil_mode",
        )
    return AveragePool(_two(given.kernel_size), _two(given.stride), padding)


def _norm(place: Place) -> Layer:
    return BatchNorm(place.module.eps)


def _flatten(place: Place) -> Layer:
    if place.module.start_dim != 1 or place.module.end_dim not in (-1, 3):
        raise place.refused(
            "supported is a Flatten that makes one row of each image", "pass start_dim=1 and end_dim=-1"
        )
    return Flatten()


_MAKERS: dict[Any, Callable[[Place], Layer]] = {
    nn.Conv2d: _conv,
    nn.Linear: _linear,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.BatchNorm2d: _norm,
    nn.Flatten: _flatten,
}


def _two(value: Any) -> tuple[int, int]:
    """Expand torch's int or pair to a (vertical, horizontal) pair."""
    first, second = cast("tuple[int, int]", value if isinstance(value, tuple | list) else (value, value))
    return first, second


def _pads(value: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    vertical, horizontal = _two(value)
    return (vertical, vertical), (horizontal, horizontal)


# --------------------------------------------------------------------------------------------- parameters


def tensors_of(sequence: Sequence, network: Network) -> dict[str, Any]:
    """The torch tensor of each parameter of a network, checked; None for a missing bias or norm."""
    found: dict[str, Any] = {}
    for place, stage in zip(sequence.places, network.stages, strict=True):
        for name, shape in stage.parameters.items():
            of_torch = {"w": "weight", "bias": "bias"}[name]
            tensor = getattr(place.module, of_torch)
            if tensor is not None and tuple(tensor.shape) != shape:
                raise ShapeError(
                    f"{place}: {of_torch} has shape {tuple(tensor.shape)}\n"
                    f"the layer reads images of shape {stage.reads}, which need {shape}\n"
                    "give images of the size that the model is for"
                )
            if tensor is not None and tensor.dtype != torch.float32:
                raise DtypeError(f"{place}: {of_torch} is of {tensor.dtype}\nfloat32 is needed\nconvert it")
            found[f"{stage.name}.{name}"] = tensor
    return found
