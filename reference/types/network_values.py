"""Shapes and ranges of the values in a binarized network; names the layer that does not fit.

Ranges are intervals that hold for every image: each layer's largest and smallest integer, in Python's
integers, so that a network whose sums might leave int32 is refused before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from math import prod
from typing import Any, cast

import numpy as np

from reference.errors import DtypeError, RangeError, SchemeError, ShapeError, SimwarpError
from reference.types.fields import is_integer
from reference.types.layer_values import (
    INT16_MAX,
    INT16_MIN,
    INT32_MAX,
    INT32_MIN,
    LARGEST_SIZE,
    Value,
    are_counts,
    check_vectors,
)
from reference.types.layers import LAYERS, Layer, Residual
from reference.types.network import BitPlanes, Input, Network, Pixels, Reals, Signs
from reference.types.packed import PackedBits, PackedTensor


def follow(network: Network) -> Iterator[tuple[str, Layer, Value]]:
    """Each layer in order, with its path and its output; the layers of a residual come before the residual.

    The path of layer i is ``"i"``; in a residual, ``"i.body.j"`` and ``"i.shortcut.j"``.
    """
    yield from _follow(network.layers, input_value(network.input), "")


def _follow(layers: tuple[Layer, ...], value: Value, prefix: str) -> Iterator[tuple[str, Layer, Value]]:
    for i, layer in enumerate(layers):
        path = f"{prefix}{i}"
        if isinstance(layer, Residual):
            ways: list[Value] = []
            for name in ("body", "shortcut"):
                way = value
                for step in _follow(_layers(layer, name, path), value, f"{path}.{name}."):
                    yield step
                    way = step[2] if step[0].count(".") == path.count(".") + 2 else way
                ways.append(way)
            value = _at(path, layer, value, lambda _, ways=ways: _sum(*ways))
        else:
            value = _at(path, layer, value, lambda value, layer=layer: _alone(layer, value))
        yield path, layer, value


def after(layer: Layer, value: Value) -> Value:
    """The shape, kind and range of a layer's output for one image; raise if its input does not fit."""
    *_, (_, _, given) = _follow((layer,), value, "")
    return given


def input_value(given: Input) -> Value:
    """The shape, kind and range of an input layer's output for one image."""
    shape = _shape(given)
    match given:
        case Pixels():
            scales, offsets = check_vectors(given, shape[-1]).values()
            ends = np.stack([offsets, offsets + 255 * scales])
            low, high = int(ends.min()), int(ends.max())
            if low < INT16_MIN or high > INT16_MAX:
                raise RangeError(
                    f"pixels become {low} … {high}: beyond int16\ninputs have {INT16_MIN} … {INT16_MAX}\n"
                    "choose a smaller unit for scale and offset"
                )
            return Value("integers", shape, low, high)
        case Reals(fraction=fraction):
            if not is_integer(fraction) or not 0 <= fraction <= 15:
                raise SchemeError(f"fraction is {fraction!r}: give 0 to 15 binary digits after the point")
            return Value("integers", shape, INT16_MIN, INT16_MAX)
        case Signs():
            check_vectors(given, shape[-1])
            return Value("bits", shape)
        case BitPlanes():
            return Value("bits", (*shape[:-1], 8 * shape[-1]))
    raise DtypeError(f"input is a {type(given).__name__}: give Pixels, Reals, Signs or BitPlanes")


def multiply_adds(layer: Layer, given: Value) -> int:
    """The multiply-adds of a layer for one image; ``given`` is the layer's output.

    Taps outside the image count; a residual's are those of its layers.
    """
    return weights_of(layer) * prod(given.shape[:-1])


def weights_of(layer: Layer) -> int:
    """The number of ±1 weights of a layer, or of all layers in a residual."""
    held = (getattr(layer, one.name) for one in fields(cast("Any", layer)))
    return sum(prod(one.shape) for one in held if isinstance(one, PackedBits | PackedTensor))


def check_network(network: Network) -> None:
    """Raise unless each layer fits the previous one, and the final sums fit scale, offset and classes."""
    if not network.layers:
        raise ShapeError(f"network {network.name!r} has no layers: give a tuple of at least one")
    *_, (_, _, last) = follow(network)
    if last.kind != "integers" or len(last.shape) != 1:
        raise ShapeError(
            f"the last layer gives {last}\none integer for each class is needed: integers (K,)\n"
            "end with Dense, or with Flatten"
        )
    check_vectors(network, last.shape[0])
    if network.classes and len(network.classes) != last.shape[0]:
        raise ShapeError(
            f"there are {len(network.classes)} names of classes and {last.shape[0]} sums: give one for each"
        )


def _at(path: str, layer: Layer, value: Value, rule: Callable[[Value], Value]) -> Value:
    """The output of a layer by ``rule``; errors, also for sums beyond int32, name the layer and its input."""
    where = f"layer {path} ({type(layer).__name__}), given {value}"
    try:
        after = rule(value)
    except SimwarpError as error:
        raise type(error)(f"{where}: {error}") from None
    if min((*after.shape, 1)) < 1 or prod(after.shape) > LARGEST_SIZE:
        raise ShapeError(f"{where}: it would give {after}: each size is at least 1, all elements below 2**31")
    if after.low < INT32_MIN or after.high > INT32_MAX:
        raise RangeError(
            f"{where}: its integers may reach {after.low} … {after.high}, beyond int32\n"
            "use smaller scales, or a smaller unit"
        )
    return after


def _alone(layer: Any, value: Value) -> Value:
    """The output's shape, kind and range for a layer other than a residual."""
    if not isinstance(layer, LAYERS):
        raise DtypeError(f"{type(layer).__name__} is not a layer: give one of reference.bnn's")
    return layer.gives(value)


def _sum(body: Value, shortcut: Value) -> Value:
    """The sum of the two branches of a residual."""
    if body.kind != "integers" or shortcut.kind != "integers" or body.shape != shortcut.shape:
        raise ShapeError(
            f"the body gives {body}, the shortcut {shortcut}\nboth must give integers of one shape\n"
            "pool, pad channels or convolve on the shortcut"
        )
    return Value("integers", body.shape, body.low + shortcut.low, body.high + shortcut.high)


def _layers(layer: Residual, name: str, path: str) -> tuple[Layer, ...]:
    layers: Any = getattr(layer, name)
    if not isinstance(layers, tuple):
        raise DtypeError(f"layer {path} (Residual): {name} is a {type(layers).__name__}: give a tuple")
    return cast("tuple[Layer, ...]", layers)


def _shape(given: Any) -> tuple[int, ...]:
    """Check and return the shape of an input layer's images."""
    shape: Any = getattr(given, "shape", None)
    if not are_counts(shape, 1, (1, 3)):
        raise ShapeError(f"the input has shape {shape!r}: give (H, W, C), or (F,) for vectors")
    if prod(shape) > LARGEST_SIZE:
        raise ShapeError(f"the input has shape {shape}: an image has less than 2**31 elements")
    return shape
