"""Shapes and ranges of the values in a binarized network; names the layer that does not fit.

Ranges are intervals that hold for every image: each layer's largest and smallest integer, in Python's
integers, so that a network whose sums might leave int32 is refused before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, RangeError, SchemeError, ShapeError, SimwarpError
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.types.network import (
    Affine,
    BitPlanes,
    Clip,
    Conv,
    Dense,
    Flatten,
    Input,
    Layer,
    Network,
    PadChannels,
    PerSide,
    Pixels,
    Pool,
    Reals,
    Residual,
    Signs,
    Threshold,
)
from reference.types.packed import PackedBits, PackedTensor

Kind: TypeAlias = Literal["bits", "integers"]

INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
_LARGEST_SIZE = 2**31 - 1


@dataclass(frozen=True)
class Value:
    """What flows between two layers, for one image.

    Attributes
    ----------
    kind : {"bits", "integers"}
    shape : (H, W, C) or (F,)
    low, high : int
        The range of integers; -1 and 1 for bits.
    """

    kind: Kind
    shape: tuple[int, ...]
    low: int = -1
    high: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.shape}"


def follow(network: Network) -> Iterator[tuple[str, Layer, Value]]:
    """Each layer with its path and what it gives, in order; the layers of a residual before itself.

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
            value = _at(path, layer, value, lambda value, layer=layer: _after(layer, value))
        yield path, layer, value


def after(layer: Layer, value: Value) -> Value:
    """What a layer gives for one image; raise if it does not fit."""
    *_, (_, _, given) = _follow((layer,), value, "")
    return given


def input_value(given: Input) -> Value:
    """What an input gives, for one image."""
    shape = _shape(given)
    match given:
        case Pixels(scale=scale, offset=offset):
            scales, offsets = (
                _vector(x, n, np.int32, shape[-1]) for x, n in ((scale, "scale"), (offset, "offset"))
            )
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
        case Signs(thresholds=thresholds):
            _vector(thresholds, "thresholds", np.float32, shape[-1])
            return Value("bits", shape)
        case BitPlanes():
            return Value("bits", (*shape[:-1], 8 * shape[-1]))
    raise DtypeError(f"input is a {type(given).__name__}: give Pixels, Reals, Signs or BitPlanes")


def multiply_adds(layer: Layer, given: Value) -> int:
    """Products of a weight and an element for one image; ``given`` is what the layer gives.

    Taps outside the image count; a residual's are those of its layers.
    """
    match layer:
        case Conv(filters=filters):
            return prod(filters.shape) * prod(given.shape[:2])
        case Dense(weights=weights):
            return prod(weights.shape)
        case _:
            return 0


def check_network(network: Network) -> None:
    """Raise unless each layer fits the one before it and the sums fit scale, offset and classes."""
    if not network.layers:
        raise ShapeError(f"network {network.name!r} has no layers: give a tuple of at least one")
    *_, (_, _, last) = follow(network)
    if last.kind != "integers" or len(last.shape) != 1:
        raise ShapeError(
            f"the last layer gives {last}\none integer for each class is needed: integers (K,)\n"
            "end with Dense, or with Flatten"
        )
    for name in ("scale", "offset"):
        _vector(getattr(network, name), name, np.float32, last.shape[0])
    if network.classes and len(network.classes) != last.shape[0]:
        raise ShapeError(
            f"there are {len(network.classes)} names of classes and {last.shape[0]} sums: give one for each"
        )


def _at(path: str, layer: Layer, value: Value, rule: Callable[[Value], Value]) -> Value:
    """What a layer gives; an error names the layer and its input, and a sum beyond int32 is one."""
    where = f"layer {path} ({type(layer).__name__}), given {value}"
    try:
        after = rule(value)
    except SimwarpError as error:
        raise type(error)(f"{where}: {error}") from None
    if min((*after.shape, 1)) < 1 or prod(after.shape) > _LARGEST_SIZE:
        raise ShapeError(f"{where}: it would give {after}: each size is at least 1, all elements below 2**31")
    if after.low < INT32_MIN or after.high > INT32_MAX:
        raise RangeError(
            f"{where}: its integers may reach {after.low} … {after.high}, beyond int32\n"
            "use smaller scales, or a smaller unit"
        )
    return after


def _after(layer: Layer, value: Value) -> Value:
    """What a layer other than a residual gives."""
    match layer:
        case Conv():
            return _conv(layer, value)
        case Dense(weights=weights):
            size, outputs = _weights(weights, PackedBits, 2)
            _needs(value, None, 1)
            _same("features", size, value.shape[0])
            return _dots((outputs,), size, value)
        case Threshold(thresholds=thresholds, flip=flip):
            _needs(value, "integers")
            _vector(thresholds, "thresholds", np.int32, value.shape[-1])
            _vector(flip, "flip", np.bool_, value.shape[-1])
            return Value("bits", value.shape)
        case Pool():
            return _pool(layer, value)
        case Flatten():
            return replace(value, shape=(prod(value.shape),))
        case Affine(scale=scale, offset=offset):
            _needs(value, "integers")
            scales = _vector(scale, "scale", np.int32, value.shape[-1])
            offsets = _vector(offset, "offset", np.int32, value.shape[-1])
            ends = np.stack([scales * value.low + offsets, scales * value.high + offsets])
            return replace(value, low=int(ends.min()), high=int(ends.max()))
        case Clip(low=low, high=high):
            return _clip(low, high, value)
        case PadChannels(before=before, after=after):
            _needs(value, "integers", 3)
            _counts("before and after", (before, after), 0)
            shape = (*value.shape[:2], before + value.shape[2] + after)
            return Value("integers", shape, min(value.low, 0), max(value.high, 0))
        case _:
            pass
    raise DtypeError(f"{type(layer).__name__} is not a layer: give one of reference.bnn's")


def _conv(layer: Conv, value: Value) -> Value:
    r, s, channels, outputs = _weights(layer.filters, PackedTensor, 4)
    _needs(value, None, 3)
    _same("channels", channels, value.shape[2])
    _counts("dilation", layer.dilation, 1)
    window = tuple((n - 1) * d + 1 for n, d in zip((r, s), layer.dilation, strict=True))
    _sides(layer.padding)
    size = _windows(value.shape[:2], window, layer.stride, layer.padding)
    return _dots((*size, outputs), r * s * channels, value)


def _pool(layer: Pool, value: Value) -> Value:
    kinds: dict[str, Kind] = {"or": "bits", "and": "bits", "max": "integers", "sum": "integers"}
    check_option("kind", layer.kind, tuple(kinds), "windows are joined by one of four operations")
    _needs(value, kinds[layer.kind], 3)
    _counts("window", layer.window, 1)
    _sides(layer.padding)
    for (before, after), size in zip(layer.padding, layer.window, strict=True):
        if before >= size or after >= size:
            raise ShapeError(
                f"padding {layer.padding} and window {layer.window}: a window without a pixel\n"
                "pad less than the window"
            )
    shape = (*_windows(value.shape[:2], layer.window, layer.stride, layer.padding), value.shape[2])
    if layer.kind != "sum":
        return replace(value, shape=shape)
    pixels = prod(layer.window)
    return Value("integers", shape, min(pixels * value.low, value.low), max(pixels * value.high, value.high))


def _clip(low: int | None, high: int | None, value: Value) -> Value:
    _needs(value, "integers")
    for limit in (low, high):
        if limit is not None and (not is_integer(limit) or not INT32_MIN <= limit <= INT32_MAX):
            raise DtypeError(f"a limit is {limit!r}: give an integer within int32, or None")
    if low is not None and high is not None and low > high:
        raise RangeError(f"low is {low}, high {high}: give low at most high")

    def limited(number: int) -> int:
        number = number if low is None else max(number, low)
        return number if high is None else min(number, high)

    return replace(value, low=limited(value.low), high=limited(value.high))


def _sum(body: Value, shortcut: Value) -> Value:
    """The sum of the two ways of a residual."""
    if body.kind != "integers" or shortcut.kind != "integers" or body.shape != shortcut.shape:
        raise ShapeError(
            f"the body gives {body}, the shortcut {shortcut}\nboth must give integers of one shape\n"
            "pool, pad channels or convolve on the shortcut"
        )
    return Value("integers", body.shape, body.low + shortcut.low, body.high + shortcut.high)


def _dots(shape: tuple[int, ...], terms: int, value: Value) -> Value:
    """Sums of up to ``terms`` numbers with either sign."""
    largest = terms * max(-value.low, value.high)
    return Value("integers", shape, -largest, largest)


def _windows(
    image: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, int], padding: PerSide
) -> tuple[int, int]:
    """The number of windows in rows and columns."""
    _counts("stride", stride, 1)
    padded = [size + before + after for size, (before, after) in zip(image, padding, strict=True)]
    if prod(padded) > _LARGEST_SIZE:
        raise ShapeError(f"padding {padding} makes an image of {padded}: an image has less than 2**31 pixels")
    counts = [
        (size + before + after - span) // step + 1
        for size, (before, after), span, step in zip(image, padding, window, stride, strict=True)
    ]
    if min(counts) < 1:
        raise ShapeError(f"a window of {window} is larger than the image {image} with padding {padding}")
    return counts[0], counts[1]


def _layers(layer: Residual, name: str, path: str) -> tuple[Layer, ...]:
    layers: Any = getattr(layer, name)
    if not isinstance(layers, tuple):
        raise DtypeError(f"layer {path} (Residual): {name} is a {type(layers).__name__}: give a tuple")
    return cast("tuple[Layer, ...]", layers)


def _shape(given: Any) -> tuple[int, ...]:
    """The shape of an input's images."""
    shape: Any = getattr(given, "shape", None)
    if not _are_counts(shape, 1, (1, 3)):
        raise ShapeError(f"the input has shape {shape!r}: give (H, W, C), or (F,) for vectors")
    if prod(shape) > _LARGEST_SIZE:
        raise ShapeError(f"the input has shape {shape}: an image has less than 2**31 elements")
    return shape


def _weights(weights: Any, kind: type, axes: int) -> tuple[int, ...]:
    """The shape of packed weights."""
    if not isinstance(weights, kind):
        raise DtypeError(f"weights are a {type(weights).__name__}: give {kind.__name__}")
    shape: Any = getattr(weights, "shape", None)
    if not _are_counts(shape, 1, (axes,)):
        raise ShapeError(f"weights have shape {shape}: give {axes} sizes of at least 1")
    return shape


def _vector(given: Any, name: str, dtype: Any, size: int) -> Any:
    """Check a vector of a layer; as int64 unless it holds floats."""
    if not isinstance(given, np.ndarray):
        raise DtypeError(f"{name} is a {type(given).__name__}: give an array of {np.dtype(dtype)}")
    vector = cast("npt.NDArray[Any]", given)
    if vector.dtype != dtype:
        raise DtypeError(f"{name} is of {vector.dtype}: give an array of {np.dtype(dtype)}")
    if vector.shape != (size,):
        raise ShapeError(f"{name} has shape {vector.shape}: give one for each channel, ({size},)")
    if vector.dtype.kind != "f":
        return vector.astype(np.int64)
    if not np.isfinite(vector).all():
        raise RangeError(f"{name} has an element that is not finite: give finite numbers")
    return vector


def _needs(value: Value, kind: Kind | None, axes: int | None = None) -> None:
    if (kind and value.kind != kind) or (axes and len(value.shape) != axes):
        form = {None: "of any shape", 1: "(F,)", 3: "(H, W, C)"}[axes]
        raise ShapeError(f"{kind or 'bits or integers'} {form} are needed")


def _same(what: str, given: int, needed: int) -> None:
    if given != needed:
        raise ShapeError(f"it has {given} input {what}, and {needed} come")


def _counts(name: str, given: Any, least: int) -> None:
    if not _are_counts(given, least, (2,)):
        raise ShapeError(f"{name} is {given!r}: give two integers of at least {least}, below 2**31")


def _are_counts(given: Any, least: int, lengths: tuple[int, ...]) -> bool:
    """Whether a value is a tuple of integers of one of the lengths, each from ``least`` to 2**31 - 1."""
    numbers = cast("tuple[Any, ...]", given)
    return (
        isinstance(given, tuple)
        and len(numbers) in lengths
        and all(is_integer(number) and least <= number <= _LARGEST_SIZE for number in numbers)
    )


def _sides(padding: Any) -> None:
    try:
        (top, bottom), (left, right) = padding
    except (TypeError, ValueError):
        top = bottom = left = right = None
    if not all(is_integer(n) and n >= 0 for n in (top, bottom, left, right)):
        raise ShapeError(
            f"padding is {padding!r}: give an int, (vertical, horizontal) or ((top, bottom), (left, right))"
        )
