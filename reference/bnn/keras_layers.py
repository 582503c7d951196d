"""What each layer of Keras and larq does to a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from reference.bits import pack
from reference.bnn.chains import Clamp, Normalise, linear, rationals
from reference.bnn.streams import Builder, Stream
from reference.errors import ExportError, FormatError
from reference.tensors import pack_tensor
from reference.types.fields import is_integer
from reference.types.layer_values import PerSide
from reference.types.layers import Conv, Dense, Pool

Array: TypeAlias = npt.NDArray[Any]
Take: TypeAlias = Callable[[str, Mapping[str, tuple[int, ...]]], dict[str, Array]]

_SIGNS = ("ste_sign", "SteSign", "approx_sign", "ApproxSign", "swish_sign", "SwishSign")
"""Quantizers whose value is +1 where x >= 0, else -1; they differ in their gradients."""
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Part:
    """A layer of a Keras model, with its settings from the model's JSON."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    inputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"

    def get(self, name: str, default: Any) -> Any:
        """A setting, or its default if it is missing or null."""
        value = self.settings.get(name)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        """Read a layer's setting that is true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise FormatError(f"layer {self}: {name} is {value!r:.99}: true or false is needed")
        return value

    def number(self, name: str, default: float) -> Fraction:
        """Read a layer's setting that is a finite number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e30:
            raise FormatError(f"layer {self}: {name} is {value!r:.99}: a number is needed")
        return Fraction(value)

    def count(self, name: str) -> int:
        """Read a layer's setting that is a positive integer."""
        value = self.settings.get(name)
        return self.two(name, (1, 1))[0] if is_integer(value) else self._wrong(name)

    def two(self, name: str, default: tuple[int, int]) -> tuple[int, int]:
        """A setting that is one positive integer, or one for rows and one for columns."""
        value = self.get(name, default)
        given = [value, value] if is_integer(value) else value
        pair = list(cast("list[Any]", given)) if isinstance(given, (list, tuple)) else []
        if len(pair) != 2 or not all(is_integer(n) and 1 <= n <= _LARGEST for n in pair):
            self._wrong(name)
        return pair[0], pair[1]

    def _wrong(self, name: str) -> Any:
        value = self.settings.get(name)
        raise FormatError(f"layer {self}: {name} is {value!r:.99}: positive integers are needed")

    def function(self, name: str) -> str:
        """The name of an activation or a quantizer, without its package; "linear" if there is none."""
        value = self.get(name, "linear")
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get("class_name")
        if not isinstance(value, str):
            raise FormatError(f"layer {self}: {name} is {value!r:.99}: a name is needed")
        return value.rpartition(">")[2]

    def only(self, name: str, *known: Any) -> None:
        """Raise unless a setting has one of these values; the first is the default."""
        value = self.get(name, known[0])
        if value not in known:
            raise ExportError(
                f"{name} is {value!r:.99}\nnetworks of ±1 have {' or '.join(map(repr, known))}", self.name
            )


# --------------------------------------------------------------------------------------------------
# Products
# --------------------------------------------------------------------------------------------------


def _convolution(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    part.only("data_format", "channels_last")
    part.only("padding", "valid", "same")
    part.only("pad_values", 0, 1, -1)
    size, stride, dilation = (part.two(name, (1, 1)) for name in ("kernel_size", "strides", "dilation_rate"))
    x = _quantized(builder, x, part)
    channels, filters, groups = _channels_of(x, 3), part.count("filters"), _groups(part)
    if channels % groups or filters % groups:
        raise ExportError(
            f"groups is {groups}, with {channels} channels and {filters} filters\n"
            "groups must divide the number of channels and the number of filters",
            part.name,
        )
    weights, bias = _weights(part, (*size, channels // groups, filters), take)
    padding = _padding(x, part, tuple((n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)), stride)
    layer = Conv(pack_tensor(weights, layout="HWOI"), stride, padding, dilation, groups)
    value = int(part.number("pad_values", 0))
    if value and padding != ((0, 0), (0, 0)):
        sums = np.where(weights >= 0, 1, -1).sum((0, 1, 2))
        x = builder.padded_product(x, layer, sums, value)
    else:
        x = builder.product(x, layer)
    return _finished(builder, x, part, bias)


def _groups(part: Part) -> int:
    return 1 if part.settings.get("groups") is None else part.count("groups")


def _product(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    x = _quantized(builder, x, part)
    weights, bias = _weights(part, (_channels_of(x, 1), part.count("units")), take)
    return _finished(builder, builder.product(x, Dense(pack(weights, layout="row"))), part, bias)


def _quantized(builder: Builder, x: Stream, part: Part) -> Stream:
    """The operand that the layer multiplies: its input, or the signs of its input."""
    if part.function("kernel_quantizer") not in _SIGNS:
        raise ExportError(
            f"its weights are not ±1: kernel_quantizer is {part.function('kernel_quantizer')!r}\n"
            f"train it with one of {', '.join(_SIGNS)}",
            part.name,
        )
    quantizer = part.function("input_quantizer")
    if quantizer not in (*_SIGNS, "linear"):
        raise ExportError(
            f"input_quantizer is {quantizer!r}\ntrain it with one of {', '.join(_SIGNS)}", part.name
        )
    return x if quantizer == "linear" else builder.sign(x)


def _weights(part: Part, shape: tuple[int, ...], take: Take) -> tuple[Array, Array | None]:
    """Read a layer's real-valued weights, of which only the signs count, and its bias."""
    needed = {"kernel": shape} | ({"bias": shape[-1:]} if part.flag("use_bias", True) else {})
    held = take(part.name, needed)
    return held["kernel"].astype(np.float64), held.get("bias")


def _finished(builder: Builder, x: Stream, part: Part, bias: Array | None) -> Stream:
    """Apply a layer's bias and activation to its product."""
    if bias is not None:
        x = x.with_step(linear([1] * len(bias), rationals(bias)))
    return _activated(builder, x, part, "activation")


def _channels_of(x: Stream, axes: int) -> int:
    if len(x.shape) != axes:
        needed = "images (H, W, C)" if axes == 3 else "vectors (F,): put Flatten before it"
        raise ExportError(f"its input has shape {x.shape}, and it takes {needed}")
    return x.shape[-1]


def _padding(x: Stream, part: Part, window: tuple[int, ...], stride: tuple[int, int]) -> PerSide:
    """The padding of TensorFlow's "same": ceil(size / stride) windows; an odd pixel is added at the end."""
    if part.get("padding", "valid") == "valid":
        return (0, 0), (0, 0)
    sides: list[tuple[int, int]] = []
    for size, span, step in zip(x.shape[:2], window, stride, strict=True):
        missing = max((-(-size // step) - 1) * step + span - size, 0)
        sides.append((missing // 2, missing - missing // 2))
    return sides[0], sides[1]


# --------------------------------------------------------------------------------------------------
# Functions of each element
# --------------------------------------------------------------------------------------------------


def _activated(builder: Builder, x: Stream, part: Part, setting: str) -> Stream:
    name = part.function(setting)
    if name in _SIGNS:
        return builder.sign(x)
    if name not in _ACTIVATIONS:
        raise ExportError(
            f"the activation {name!r:.99}\nnetworks of ±1 have {', '.join([*_ACTIVATIONS, *_SIGNS])}",
            part.name,
        )
    step = _ACTIVATIONS[name]
    return x if step is None else x.with_step(step)


_ACTIVATIONS = {
    "linear": None,
    "relu": Clamp(low=Fraction(0)),
    "relu6": Clamp(Fraction(0), Fraction(6)),
    "hard_tanh": Clamp(Fraction(-1), Fraction(1)),
}


def _activation(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    return _activated(builder, x, part, "activation")


def _relu(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    part.only("negative_slope", 0)
    part.only("threshold", 0)
    most = part.number("max_value", -1)
    return x.with_step(Clamp(Fraction(0), most if most >= 0 else None))


def _sign(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    return builder.sign(x)


def _nothing(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    return x


def _normalisation(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    axis = part.get("axis", -1)
    if axis not in (-1, len(x.shape), [len(x.shape)], [-1]):
        raise ExportError(f"axis is {axis!r:.99}\nnormalise the channels, which are last", part.name)
    size = x.shape[-1]
    names = ["moving_mean", "moving_variance"]
    names += ["gamma"] * part.flag("scale", True) + ["beta"] * part.flag("center", True)
    held = {name: rationals(array) for name, array in take(part.name, dict.fromkeys(names, (size,))).items()}
    one, none = ((Fraction(n),) * size for n in (1, 0))
    epsilon = part.number("epsilon", 1e-3)
    square = tuple(number + epsilon for number in held["moving_variance"])
    if min(square) <= 0:
        raise ExportError(f"a variance plus epsilon is {float(min(square))}: it must be above 0", part.name)
    return x.with_step(Normalise(held.get("gamma", one), held.get("beta", none), held["moving_mean"], square))


# --------------------------------------------------------------------------------------------------
# Pixels
# --------------------------------------------------------------------------------------------------


def _maximum(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    return builder.maximum(x, _windows(x, part))


def _average(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    pool = _windows(x, part)
    if pool.padding != ((0, 0), (0, 0)):
        raise ExportError(
            "windows at the edge have a smaller divisor than others\ngive padding='valid'", part.name
        )
    return builder.average(x, pool, pool.window[0] * pool.window[1])


def _windows(x: Stream, part: Part) -> Pool:
    part.only("data_format", "channels_last")
    part.only("padding", "valid", "same")
    _channels_of(x, 3)
    window = part.two("pool_size", (2, 2))
    stride = part.two("strides", window)
    return Pool("max", window, stride, _padding(x, part, window, stride))


def _whole_maximum(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    return _vector(builder, builder.maximum(x, _whole(x, part)), part)


def _whole_average(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    pool = _whole(x, part)
    return _vector(builder, builder.average(x, pool, pool.window[0] * pool.window[1]), part)


def _whole(x: Stream, part: Part) -> Pool:
    part.only("data_format", "channels_last")
    _channels_of(x, 3)
    size = x.shape[0], x.shape[1]
    return Pool("max", size, size)


def _vector(builder: Builder, x: Stream, part: Part) -> Stream:
    return x if part.flag("keepdims", False) else builder.flatten(x)


def _flatten(builder: Builder, x: Stream, part: Part, take: Take) -> Stream:
    part.only("data_format", "channels_last")
    return builder.flatten(x)


Rule: TypeAlias = Callable[[Builder, Stream, Part, Take], Stream]

RULES: dict[str, Rule] = {
    "QuantConv2D": _convolution,
    "QuantDense": _product,
    "BatchNormalization": _normalisation,
    "Activation": _activation,
    "ReLU": _relu,
    "SteSign": _sign,
    "ApproxSign": _sign,
    "SwishSign": _sign,
    "MaxPooling2D": _maximum,
    "AveragePooling2D": _average,
    "GlobalMaxPooling2D": _whole_maximum,
    "GlobalAveragePooling2D": _whole_average,
    "Flatten": _flatten,
    "Dropout": _nothing,
}
"""The class of a layer without its package → what it does."""


def takes_signs(part: Part) -> bool:
    """True if a layer binarizes its input before it multiplies."""
    settings = {"QuantDense": "input_quantizer", "QuantConv2D": "input_quantizer", "Activation": "activation"}
    name = part.function(settings[part.kind]) if part.kind in settings else part.kind
    return name in _SIGNS


def is_softmax(part: Part) -> bool:
    """True if a layer is a softmax, which does not change the order of classes."""
    return part.kind == "Softmax" or (part.kind == "Activation" and part.function("activation") == "softmax")


def advice_for(kind: str) -> str:
    """Advice for an error: the layer to use instead of an unsupported one."""
    instead = {
        "Conv2D": "its weights are not ±1: use larq.layers.QuantConv2D with kernel_quantizer='ste_sign'",
        "Dense": "its weights are not ±1: use larq.layers.QuantDense with kernel_quantizer='ste_sign'",
        "ZeroPadding2D": "zeros around the image would get a sign: use padding='same' and pad_values",
        "LayerNormalization": "its scale depends on the image: use BatchNormalization",
    }
    known = ", ".join(sorted([*RULES, "Add", "InputLayer", "Softmax"]))
    return instead.get(kind, f"networks of ±1 do not have it\nuse {known}")
