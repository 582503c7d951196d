"""What each module and function of PyTorch does to a stream."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from reference.bits import pack
from reference.bnn.chains import Clamp, Normalise, linear, rationals
from reference.bnn.streams import Builder, Stream
from reference.errors import ExportError
from reference.tensors import pack_tensor
from reference.types.layers import Conv, Dense, Pool
from reference.types.network import Input, Pixels, Reals, Signs
from simwarp.torch.images import ImagePixels, ImageReals, ImageSigns
from simwarp.torch.layers import BinaryConv2d, BinaryLinear, Sign
from simwarp.torch.pytorch import torch

nn: Any = torch.nn


@dataclass(frozen=True)
class Image:
    """The images that a model is given, (H, W, C) or (F,)."""

    shape: tuple[int, ...]


# --------------------------------------------------------------------------------------------------
# Inputs
# --------------------------------------------------------------------------------------------------


def _pixels(module: Any, shape: tuple[int, ...]) -> tuple[Input, Any]:
    scale, offset = (_spread(x, shape[-1], np.int32) for x in (module.scale, module.offset))
    return Pixels(shape, scale, offset), _units(module.fraction, shape)


def _reals(module: Any, shape: tuple[int, ...]) -> tuple[Input, Any]:
    return Reals(shape, module.fraction), _units(module.fraction, shape)


def _signs(module: Any, shape: tuple[int, ...]) -> tuple[Input, Any]:
    return Signs(shape, _spread(module.thresholds, shape[-1], np.float32)), ()


def _spread(vector: Any, size: int, dtype: Any) -> Any:
    """A vector with one number per channel, from one number or ``size`` of them."""
    numbers = vector.detach().cpu().numpy().reshape(-1)
    if len(numbers) not in (1, size):
        raise ExportError(f"it has numbers for {len(numbers)} channels, and the images have {size}")
    return np.ascontiguousarray(np.broadcast_to(numbers, (size,)), dtype)


def _units(fraction: int, shape: tuple[int, ...]) -> Any:
    return (linear([Fraction(2) ** -fraction] * shape[-1]),) if fraction else ()


# --------------------------------------------------------------------------------------------------
# Layers
# --------------------------------------------------------------------------------------------------


def _nothing(builder: Builder, x: Any, module: Any) -> Any:
    return x


def _sign(builder: Builder, x: Stream, module: Any) -> Stream:
    return builder.sign(x)


def _convolution(builder: Builder, x: Stream, module: Any) -> Stream:
    weights = _weights(module).transpose(2, 3, 1, 0)
    left, right, top, bottom = module.sides
    layer = Conv(
        pack_tensor(weights, layout="HWOI"),
        _two(module.stride),
        ((top, bottom), (left, right)),
        _two(module.dilation),
        module.groups,
    )
    if module.padding_value and any(module.sides):
        sums = np.where(weights >= 0, 1, -1).sum((0, 1, 2))
        return _biased(builder.padded_product(x, layer, sums, module.padding_value), module)
    return _biased(builder.product(x, layer), module)


def _product(builder: Builder, x: Stream, module: Any) -> Stream:
    weights = _weights(module).T
    if len(x.shape) != 1:
        raise ExportError(f"it is given {x.shape} (H, W, C)\nput torch.nn.Flatten before it")
    if x.order is not None and len(x.order) == len(weights):
        weights = weights[x.order]
    return _biased(builder.product(x, Dense(pack(weights, layout="row"))), module)


def _weights(module: Any) -> Any:
    return module.weight.detach().double().cpu().numpy()


def _biased(stream: Stream, module: Any) -> Stream:
    if module.bias is None:
        return stream
    shift = rationals(module.bias.detach())
    return stream.with_step(linear([1] * len(shift), shift))


def _normalisation(builder: Builder, x: Stream, module: Any) -> Stream:
    if module.running_mean is None or module.running_var is None:
        raise ExportError("it has no running mean and variance\ntrain it with track_running_stats=True")
    size = module.num_features
    needed = 3 if isinstance(module, nn.BatchNorm2d) else 1
    if len(x.shape) != needed or x.shape[-1] != size:
        raise ExportError(f"it is for {size} channels of {needed + 1} axes, and is given {x.shape} (H, W, C)")
    given = (module.weight, module.bias, module.running_mean, module.running_var)
    gamma, beta, mean, variance = (None if x is None else rationals(x.detach()) for x in given)
    one, none = ((Fraction(n),) * size for n in (1, 0))
    assert variance is not None
    square = tuple(number + Fraction(module.eps) for number in variance)
    if min(square) <= 0:
        raise ExportError(f"a variance plus eps is {float(min(square))}: it must be above 0")
    step = Normalise(gamma or one, beta or none, mean or none, square)
    return x.with_step(step if x.order is None else step.taken(x.order.tolist()))


def _relu(builder: Builder, x: Stream, module: Any) -> Stream:
    return x.with_step(Clamp(low=Fraction(0)))


def _relu6(builder: Builder, x: Stream, module: Any) -> Stream:
    return x.with_step(Clamp(Fraction(0), Fraction(6)))


def _hardtanh(builder: Builder, x: Stream, module: Any) -> Stream:
    return _clamp(builder, x, module.min_val, module.max_val)


def _flatten(builder: Builder, x: Stream, module: Any) -> Stream:
    if module.start_dim != 1 or module.end_dim not in (-1, len(x.shape)):
        raise ExportError("it keeps more than the first axis, or joins it\nuse torch.nn.Flatten()")
    return builder.flatten(x, channels_first=True)


# --------------------------------------------------------------------------------------------------
# Pools
# --------------------------------------------------------------------------------------------------


def _maximum(builder: Builder, x: Stream, module: Any) -> Stream:
    if _two(module.dilation) != (1, 1) or module.return_indices:
        raise ExportError("dilation and return_indices are not supported\nuse neither")
    pool, _ = _pool(x, module)
    return builder.maximum(x, pool)


def _average(builder: Builder, x: Stream, module: Any) -> Stream:
    pool, overhang = _pool(x, module)
    padded = pool.padding != ((0, 0), (0, 0))
    if module.divisor_override is None and (overhang or (padded and not module.count_include_pad)):
        raise ExportError(
            "windows at the edge have a smaller divisor than others\n"
            "leave out ceil_mode and count_include_pad=False, or pass divisor_override"
        )
    return builder.average(x, pool, module.divisor_override or pool.window[0] * pool.window[1])


def _pool(x: Stream, module: Any) -> tuple[Pool, bool]:
    """The windows of a pooling module, and whether one extends beyond the padded image."""
    window = _two(module.kernel_size)
    stride = window if module.stride is None else _two(module.stride)
    padding, over = list[tuple[int, int]](), list[bool]()
    for size, span, step, pad in zip(_pixels_of(x), window, stride, _two(module.padding), strict=True):
        room = size + 2 * pad - span
        count = room // step + 1
        if module.ceil_mode and room % step and count * step < size + pad:
            count += 1  # torch leaves out a window that begins in the padding on the right
        missing = (count - 1) * step - room
        padding.append((pad, pad + max(missing, 0)))
        over.append(missing > 0)
    (rows, columns), (height, width), (down, across) = padding, window, stride
    return Pool("max", (height, width), (down, across), (rows, columns)), any(over)


def _adaptive_average(builder: Builder, x: Stream, module: Any) -> Stream:
    pool = _adaptive(x, module)
    return builder.average(x, pool, pool.window[0] * pool.window[1])


def _adaptive_maximum(builder: Builder, x: Stream, module: Any) -> Stream:
    return builder.maximum(x, _adaptive(x, module))


def _adaptive(x: Stream, module: Any) -> Pool:
    """The windows of an adaptive pooling module, from the number of windows."""
    sizes = _pixels_of(x)
    counts = [size if n is None else n for n, size in zip(_two(module.output_size), sizes, strict=True)]
    if any(size % count for size, count in zip(sizes, counts, strict=True)):
        raise ExportError(f"{sizes} pixels become {tuple(counts)}: windows of different sizes")
    height, width = (size // count for size, count in zip(sizes, counts, strict=True))
    return Pool("max", (height, width), (height, width))


def _pixels_of(x: Stream) -> tuple[int, int]:
    if len(x.shape) != 3:
        raise ExportError(f"it is given vectors of {x.shape[0]}: images are needed")
    return x.shape[0], x.shape[1]


def _two(given: Any) -> Any:
    return (given, given) if given is None or isinstance(given, int) else tuple(given)


# --------------------------------------------------------------------------------------------------
# Functions
# --------------------------------------------------------------------------------------------------


def _sum(builder: Builder, a: Any, b: Any, *, alpha: Any = 1) -> Stream:
    if not isinstance(a, Stream) or not isinstance(b, Stream) or alpha != 1:
        raise ExportError("a sum with something other than a tensor of the model\nuse a batch normalisation")
    return builder.sum(a, b)


def _pad(builder: Builder, x: Any, pad: Any, mode: str = "constant", value: Any = 0) -> Stream:
    sides = (*pad, *(0,) * (6 - len(pad)))
    if not isinstance(x, Stream) or mode != "constant" or value or len(sides) != 6 or any(sides[:4]):
        raise ExportError(
            "only channels of zeros may be padded: pad(x, (0, 0, 0, 0, before, after))\n"
            "pixels: give the convolution its padding and padding_value"
        )
    return builder.pad_channels(x, sides[4], sides[5])


def _clamp(builder: Builder, x: Any, min: Any = None, max: Any = None) -> Stream:
    limits = (None if limit is None or math.isinf(limit) else Fraction(limit) for limit in (min, max))
    return x.with_step(Clamp(*limits))


def _dropout(builder: Builder, x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _no_sign(builder: Builder, *args: Any) -> Stream:
    raise ExportError("torch.sign(0) is 0, which is not a bit\nuse simwarp.torch.Sign, which gives +1")


Rule = Callable[[Builder, Any, Any], Any]

IMAGES: dict[Any, Callable[[Any, tuple[int, ...]], tuple[Input, Any]]] = {
    ImagePixels: _pixels,
    ImageReals: _reals,
    ImageSigns: _signs,
}
MODULES: dict[Any, Rule] = {
    nn.Identity: _nothing,
    nn.Dropout: _nothing,
    nn.Dropout2d: _nothing,
    Sign: _sign,
    BinaryConv2d: _convolution,
    BinaryLinear: _product,
    nn.BatchNorm1d: _normalisation,
    nn.BatchNorm2d: _normalisation,
    nn.ReLU: _relu,
    nn.ReLU6: _relu6,
    nn.Hardtanh: _hardtanh,
    nn.MaxPool2d: _maximum,
    nn.AvgPool2d: _average,
    nn.AdaptiveAvgPool2d: _adaptive_average,
    nn.AdaptiveMaxPool2d: _adaptive_maximum,
    nn.Flatten: _flatten,
}
FUNCTIONS: dict[Any, Any] = {
    operator.add: _sum,
    getattr(operator, "iadd"): _sum,  # noqa: B009 - its type is not known
    torch.add: _sum,
    getattr: "shape",
    torch.sign: _no_sign,
    torch.clamp: _clamp,
    torch.flatten: nn.Flatten,
    torch.relu: nn.ReLU,
    nn.functional.pad: _pad,
    nn.functional.relu: nn.ReLU,
    nn.functional.relu6: nn.ReLU6,
    nn.functional.hardtanh: nn.Hardtanh,
    nn.functional.dropout: _dropout,
    nn.functional.max_pool2d: nn.MaxPool2d,
    nn.functional.avg_pool2d: nn.AvgPool2d,
    nn.functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
}
"""A module does what the function does with the same arguments; others are rules of their own."""
METHODS: dict[str, Any] = {
    "add": _sum,
    "add_": _sum,
    "clamp": _clamp,
    "flatten": nn.Flatten,
    "relu": nn.ReLU,
    "relu_": nn.ReLU,
    "sign": _no_sign,
}


def advice_for(module: Any) -> str:
    """Advice for a module that cannot be exported: the module to use instead."""
    instead = {
        nn.Conv2d: "its weights are not ±1: use simwarp.torch.BinaryConv2d",
        nn.Linear: "its weights are not ±1: use simwarp.torch.BinaryLinear",
        nn.Conv1d: "use simwarp.torch.BinaryConv2d with one row",
        nn.ConvTranspose2d: "networks have no transposed convolution",
    }
    for kind, advice in instead.items():
        if isinstance(module, kind):
            return advice
    if "Norm" in type(module).__name__:
        return "its scale depends on the image: use BatchNorm1d or BatchNorm2d"
    known = sorted({kind.__name__ for kind in MODULES})
    return f"networks of ±1 do not have it\nuse {', '.join(known)}"
