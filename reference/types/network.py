"""Binarized networks as plain data: an input, layers, and the scale of the last sums.

Two kinds of value flow from layer to layer: *bits* (1 means +1, 0 means -1) and *integers* (int32). An input
and a `Threshold` make bits of numbers, `Conv` and `Dense` make integers of bits. Nothing is rounded after the
input, so all tiers agree to the last bit. `reference.types.network_values` follows shapes and ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from reference.errors import DtypeError, RangeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.types.layer_values import (
    INT32_MAX,
    INT32_MIN,
    Kind,
    PerSide,
    Value,
    check_counts,
    check_same,
    check_sides,
    check_value,
    check_vectors,
    count_windows,
    packed_shape,
    sums,
)
from reference.types.packed import PackedBits, PackedTensor
from reference.values import not_an_array, shortened

__all__ = [
    "Affine",
    "Answer",
    "BitPlanes",
    "Clip",
    "Conv",
    "Dense",
    "EnsembleAnswer",
    "Flatten",
    "Input",
    "Layer",
    "Network",
    "PadChannels",
    "Pixels",
    "Pool",
    "Reals",
    "Residual",
    "Signs",
    "Threshold",
]
"""What `reference.bnn` exports."""

PoolKind: TypeAlias = Literal["or", "and", "max", "sum"]

_BOOL, _INT32, _FLOAT32 = ({"dtype": dtype} for dtype in (np.bool_, np.int32, np.float32))
"""Of a field that is a vector with one number for each channel."""
_LATER = {"later": True}
"""Of a field that files may lack: it came later, and is written where it is not its default."""


@not_an_array("pass its scale or its offset")
@shortened
@dataclass(frozen=True, eq=False)
class Pixels:
    """Images of bytes as integers: ``scale[c] * x[n, h, w, c] + offset[c]``.

    A normalisation (x / 255 - mean) / deviation becomes exact in units of 2**-f with integers near
    ``2**f / (255 * deviation)`` and ``-2**f * mean / deviation``.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    scale, offset : array of int32, (C,) or (F,)
        The integers must lie within int16.
    """

    shape: tuple[int, ...]
    scale: Any = field(metadata=_INT32)
    offset: Any = field(metadata=_INT32)


@shortened
@dataclass(frozen=True, eq=False)
class Reals:
    """Images of float32 as integers: ``x * 2**fraction`` rounded to the nearest integer, ties to even.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    fraction : int
        0 to 15. An integer beyond int16 is an error.
    """

    shape: tuple[int, ...]
    fraction: int = 10


@not_an_array("pass its thresholds")
@shortened
@dataclass(frozen=True, eq=False)
class Signs:
    """Images of bytes or float32 as bits: ``x[n, h, w, c] >= thresholds[c]``.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    thresholds : array of float32, (C,) or (F,)
    """

    shape: tuple[int, ...]
    thresholds: Any = field(metadata=_FLOAT32)


@shortened
@dataclass(frozen=True, eq=False)
class BitPlanes:
    """Images of bytes as bits: channel ``8 * c + b`` is bit 7 - b of ``x[n, h, w, c]``.

    Attributes
    ----------
    shape : (H, W, C), or (F,) for vectors
    """

    shape: tuple[int, ...]


class Layer:
    """A layer of a network: its fields are what a file has of it.

    Each tier has its answer in a table by class: `reference.bnn.inference`, `gpu.bnn`.

    Attributes
    ----------
    detail : str
        What it is beyond its class, for listings.
    """

    @property
    def detail(self) -> str:
        """What the layer is beyond its class, for listings."""
        return ""

    def gives(self, value: Value) -> Value:
        """What the layer makes of a value; raise if it does not fit."""
        raise NotImplementedError


def _spread(layer: Any, *pairs: str) -> None:
    """Write one number as a pair for both axes, and a padding for each side; values are checked later."""
    for name in (*pairs, "padding"):
        given: Any = getattr(layer, name)
        if is_integer(given):
            object.__setattr__(layer, name, (given, given))
    padding = cast("tuple[Any, ...]", layer.padding)
    if isinstance(padding, tuple) and len(padding) == 2 and all(map(is_integer, padding)):  # pyright: ignore[reportUnnecessaryIsInstance]
        object.__setattr__(layer, "padding", tuple((pixels, pixels) for pixels in padding))


@not_an_array("pass the words of its filters")
@shortened
@dataclass(frozen=True, eq=False)
class Conv(Layer):
    """Cross-correlation with filters of ±1; taps outside the image contribute nothing. Gives integers.

    Of bits it is `reference.bconv2d`; of integers each is added or subtracted.

    Attributes
    ----------
    filters : PackedTensor of filters, (R, S, C, O)
    stride, dilation : (vertical, horizontal)
        An int is for both.
    padding : ((top, bottom), (left, right))
        (vertical, horizontal) and an int are for opposite sides, and for all.
    groups : int
        Filter o reads the channels of group ``o // (O / groups)`` only: filters have C / groups channels.
    """

    filters: PackedTensor
    stride: tuple[int, int] = (1, 1)
    padding: PerSide = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)
    groups: int = field(default=1, metadata=_LATER)

    def __post_init__(self) -> None:
        _spread(self, "stride", "dilation")

    @property
    def detail(self) -> str:
        """The sizes of filters and stride, and groups."""
        rows, columns = self.filters.shape[:2]
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"{rows}×{columns}, stride {self.stride[0]}×{self.stride[1]}{groups}"

    def gives(self, value: Value) -> Value:
        """Sums for each window."""
        r, s, channels, outputs = packed_shape(self.filters, PackedTensor, 4)
        check_value(value, None, 3)
        self._check_groups(channels, outputs, value.shape[2])
        check_counts("dilation", self.dilation, 1)
        window = tuple((n - 1) * d + 1 for n, d in zip((r, s), self.dilation, strict=True))
        check_sides(self.padding)
        size = count_windows(value.shape[:2], window, self.stride, self.padding)
        return sums((*size, outputs), r * s * channels, value)

    def _check_groups(self, channels: int, outputs: int, given: int) -> None:
        """Refuse groups that do not share the channels that come, or filters, evenly."""
        if not is_integer(self.groups) or self.groups < 1:
            raise ShapeError(f"groups is {self.groups!r}: give an integer of at least 1")
        if self.groups == 1:
            check_same("channels", channels, given)
        elif channels * self.groups != given or outputs % self.groups:
            raise ShapeError(
                f"{given} channels come to {outputs} filters of {channels} channels in {self.groups} groups\n"
                "each group has as many channels and filters as the others\n"
                f"give filters (R, S, C / {self.groups}, O), with C and O multiples of {self.groups}"
            )


@not_an_array("pass the words of its weights")
@shortened
@dataclass(frozen=True, eq=False)
class Dense(Layer):
    """A fully connected layer: the product of vectors (N, F) with weights of ±1. Gives integers.

    Attributes
    ----------
    weights : PackedBits, (F, O)
    """

    weights: PackedBits

    def gives(self, value: Value) -> Value:
        """Sums of all features."""
        size, outputs = packed_shape(self.weights, PackedBits, 2)
        check_value(value, None, 1)
        check_same("features", size, value.shape[0])
        return sums((outputs,), size, value)


@not_an_array("pass its thresholds or its flip")
@shortened
@dataclass(frozen=True, eq=False)
class Threshold(Layer):
    """Bits of integers: ``(x[..., j] >= thresholds[j]) ^ flip[j]``.

    `reference.integer_thresholds` makes them of a batch normalisation.

    Attributes
    ----------
    thresholds : array of int32, (C,)
    flip : array of bool, (C,)
    """

    thresholds: Any = field(metadata=_INT32)
    flip: Any = field(metadata=_BOOL)

    def gives(self, value: Value) -> Value:
        """Bits of the same shape."""
        check_value(value, "integers")
        check_vectors(self, value.shape[-1])
        return Value("bits", value.shape)


@dataclass(frozen=True, eq=False)
class Pool(Layer):
    """OR or AND of the bits, the maximum or the sum of the integers, of each window of pixels.

    Pixels outside the image are left out. An average is a sum, whose divisor belongs to what follows.

    Attributes
    ----------
    kind : {"or", "and", "max", "sum"}
    window, stride : (vertical, horizontal)
        An int is for both.
    padding : ((top, bottom), (left, right))
        (vertical, horizontal) and an int are for opposite sides, and for all. Less than the window, so that
        each window has a pixel.
    """

    kind: PoolKind
    window: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = (2, 2)
    padding: PerSide = ((0, 0), (0, 0))

    def __post_init__(self) -> None:
        _spread(self, "window", "stride")

    @property
    def detail(self) -> str:
        """The operation, the window and the stride."""
        (height, width), (down, across) = self.window, self.stride
        return f"{self.kind} of {height}×{width}, stride {down}×{across}"

    def gives(self, value: Value) -> Value:
        """One pixel for each window."""
        kinds: dict[str, Kind] = {"or": "bits", "and": "bits", "max": "integers", "sum": "integers"}
        check_option("kind", self.kind, tuple(kinds), "windows are joined by one of four operations")
        check_value(value, kinds[self.kind], 3)
        check_counts("window", self.window, 1)
        check_sides(self.padding)
        for (before, after), size in zip(self.padding, self.window, strict=True):
            if before >= size or after >= size:
                raise ShapeError(
                    f"padding {self.padding} and window {self.window}: a window without a pixel\n"
                    "pad less than the window"
                )
        size = count_windows(value.shape[:2], self.window, self.stride, self.padding)
        shape, pixels = (*size, value.shape[2]), prod(self.window)
        if self.kind != "sum":
            return replace(value, shape=shape)
        return Value(
            "integers", shape, min(pixels * value.low, value.low), max(pixels * value.high, value.high)
        )


@dataclass(frozen=True, eq=False)
class Flatten(Layer):
    """Pixels (N, H, W, C) as vectors (N, H * W * C), in C order.

    Examples
    --------
    A network of PyTorch flattens (N, C, H, W): its weights (C * H * W, O) have to be permuted.

    >>> import numpy as np
    >>> x = np.arange(8).reshape(1, 2, 2, 2)  # pixel (h, w) holds 4 h + 2 w and the number after it
    >>> x.reshape(1, -1)
    array([[0, 1, 2, 3, 4, 5, 6, 7]])
    """

    def gives(self, value: Value) -> Value:
        """The same elements as a vector."""
        return replace(value, shape=(prod(value.shape),))


@not_an_array("pass its scale or its offset")
@shortened
@dataclass(frozen=True, eq=False)
class Affine(Layer):
    """Integers ``scale[c] * x[..., c] + offset[c]``: a batch normalisation in units of a power of two.

    Attributes
    ----------
    scale, offset : array of int32, (C,)
    """

    scale: Any = field(metadata=_INT32)
    offset: Any = field(metadata=_INT32)

    def gives(self, value: Value) -> Value:
        """Integers of the same shape."""
        check_value(value, "integers")
        scales, offsets = check_vectors(self, value.shape[-1]).values()
        ends = np.stack([scales * value.low + offsets, scales * value.high + offsets])
        return replace(value, low=int(ends.min()), high=int(ends.max()))


@dataclass(frozen=True, eq=False)
class Clip(Layer):
    """Integers limited to low … high: ReLU is ``Clip(0)``, hardtanh has both limits.

    Attributes
    ----------
    low, high : int, optional
    """

    low: int | None = None
    high: int | None = None

    @property
    def detail(self) -> str:
        """The limits."""
        low, high = ("" if limit is None else limit for limit in (self.low, self.high))
        return f"{low} … {high}"

    def gives(self, value: Value) -> Value:
        """Integers of the same shape, within the limits."""
        check_value(value, "integers")
        low, high = self.low, self.high
        for limit in (low, high):
            if limit is not None and (not is_integer(limit) or not INT32_MIN <= limit <= INT32_MAX):
                raise DtypeError(f"a limit is {limit!r}: give an integer within int32, or None")
        if low is not None and high is not None and low > high:
            raise RangeError(f"low is {low}, high {high}: give low at most high")
        least, most = INT32_MIN if low is None else low, INT32_MAX if high is None else high
        ends = (min(max(end, least), most) for end in (value.low, value.high))
        return Value("integers", value.shape, *ends)


@dataclass(frozen=True, eq=False)
class PadChannels(Layer):
    """Integers with channels of zeros before and after: the shortcut of type A where channels grow.

    Attributes
    ----------
    before, after : int
    """

    before: int
    after: int

    @property
    def detail(self) -> str:
        """The number of channels on both sides."""
        return f"{self.before} before, {self.after} after"

    def gives(self, value: Value) -> Value:
        """Integers, of which some are 0."""
        check_value(value, "integers", 3)
        check_counts("before and after", (self.before, self.after), 0)
        shape = (*value.shape[:2], self.before + value.shape[2] + self.after)
        return Value("integers", shape, min(value.low, 0), max(value.high, 0))


@shortened
@dataclass(frozen=True, eq=False)
class Residual(Layer):
    """The sum of two ways from one value: ``body(x) + shortcut(x)``, integers.

    Without layers a way gives its input, which then has to be integers. Type A of the papers: a shortcut of
    ``Pool("max")`` and `PadChannels`, or none; type B: `Threshold` and a 1×1 `Conv`.

    Attributes
    ----------
    body, shortcut : tuple of layers
    """

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()


@not_an_array("pass its logits or its classes")
@shortened
class Answer(NamedTuple):
    """What a network says of N images; arrays of NumPy, or of the device that the images are on.

    Attributes
    ----------
    sums : array of int32, (N, K)
        The exact integers of the last layer.
    logits : array of float32, (N, K)
    classes : array of int64, (N,)
        The first class with the largest logit.
    """

    sums: Any
    logits: Any
    classes: Any


@not_an_array("pass its logits or its classes")
@shortened
class EnsembleAnswer(NamedTuple):
    """What an ensemble of M networks says of N images; NumPy arrays.

    Attributes
    ----------
    members : array of float32, (M, N, K)
        The logits of each network.
    logits : array of float32, (N, K)
        Their sum, from the first one on; each addition rounds.
    classes : array of int64, (N,)
        The first class with the largest logit.
    """

    members: Any
    logits: Any
    classes: Any


Input: TypeAlias = Pixels | Reals | Signs | BitPlanes
LAYERS: tuple[type[Layer], ...] = (
    Conv,
    Dense,
    Threshold,
    Pool,
    Flatten,
    Affine,
    Clip,
    PadChannels,
    Residual,
)
"""The layers that a file of a network may have, and that a network may have."""


@not_an_array("pass an array of its layers")
@shortened
@dataclass(frozen=True, eq=False)
class Network:
    """A binarized network: from images to one integer and one logit for each class.

    The last layer gives integers (N, K), the *sums*. Logit (n, k) is ``float32(sums[n, k]) * scale[k] +
    offset[k]``, two operations that each round to float32. The class is the first with the largest logit.

    Attributes
    ----------
    name : str
    input : Pixels, Reals, Signs or BitPlanes
    layers : tuple of layers
    scale, offset : array of float32, (K,)
    classes : tuple of str, optional
        The names of the K classes.
    about : str, optional
        What it is, and where it comes from.

    Raises
    ------
    ShapeError, DtypeError, SchemeError, RangeError
        For a layer that does not fit the one before it, or whose integers may exceed int32; names the layer.
    """

    name: str
    input: Input
    layers: tuple[Layer, ...]
    scale: Any = field(metadata=_FLOAT32)
    offset: Any = field(metadata=_FLOAT32)
    classes: tuple[str, ...] = ()
    about: str = ""

    def __post_init__(self) -> None:
        from reference.types.network_values import check_network

        check_network(self)
