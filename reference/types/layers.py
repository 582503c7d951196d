"""The layers of a binarized network: their fields, their checks, and the shape and range of their outputs.

A value is bits (1 means +1, 0 means -1) or integers (int32). Each tier has its answer in a table by class.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from reference.errors import DtypeError, RangeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.types.layer_values import (
    INT32_MAX,
    INT32_MIN,
    OF_BOOL,
    OF_INT32,
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
    "Clip",
    "Conv",
    "Dense",
    "Flatten",
    "Layer",
    "PadChannels",
    "Pool",
    "Residual",
    "Threshold",
]
"""What `reference.bnn` exports of them."""

PoolKind: TypeAlias = Literal["or", "and", "max", "sum"]

_LATER = {"later": True}
"""Of a field that files may lack: it came later, and is written where it is not its default."""


class Layer:
    """A layer of a network; its fields are what a network's file stores.

    Each tier has its answer in a table by class: `reference.bnn.inference`, `gpu.bnn`.

    Attributes
    ----------
    detail : str
        What it is beyond its class, for listings.
    """

    @property
    def detail(self) -> str:
        """The layer's parameters in words, for listings of a network."""
        return ""

    def gives(self, value: Value) -> Value:
        """The shape, kind and range of the layer's output; raise if its input does not fit."""
        raise NotImplementedError


def _spread(layer: Any, *pairs: str) -> None:
    """Write one number as a pair for both axes, and a padding for each side; values are checked elsewhere."""
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
        """The filters' sizes, the stride and the groups, in words."""
        rows, columns = self.filters.shape[:2]
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"{rows}×{columns}, stride {self.stride[0]}×{self.stride[1]}{groups}"

    def gives(self, value: Value) -> Value:
        """The output's shape and range: a sum for each window and filter."""
        r, s, channels, outputs = packed_shape(self.filters, PackedTensor, 4)
        check_value(value, None, 3)
        self._check_groups(channels, outputs, value.shape[2])
        check_counts("dilation", self.dilation, 1)
        window = tuple((n - 1) * d + 1 for n, d in zip((r, s), self.dilation, strict=True))
        check_sides(self.padding)
        size = count_windows(value.shape[:2], window, self.stride, self.padding)
        return sums((*size, outputs), r * s * channels, value)

    def _check_groups(self, channels: int, outputs: int, given: int) -> None:
        """Raise unless groups divide the input's channels and the filters evenly."""
        if not is_integer(self.groups) or self.groups < 1:
            raise ShapeError(f"groups is {self.groups!r}: give an integer of at least 1")
        if self.groups == 1:
            check_same("channels", channels, given)
        elif channels * self.groups != given or outputs % self.groups:
            raise ShapeError(
                f"the input has {given} channels, for {outputs} filters of {channels} channels in "
                f"{self.groups} groups\n"
                "groups must divide the number of channels and the number of filters\n"
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
        """The output's shape and range: a sum of all features for each output."""
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

    thresholds: Any = field(metadata=OF_INT32)
    flip: Any = field(metadata=OF_BOOL)

    def gives(self, value: Value) -> Value:
        """The output's shape and kind: bits, of the input's shape."""
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
        """The operation, the window and the stride, in words."""
        (height, width), (down, across) = self.window, self.stride
        return f"{self.kind} of {height}×{width}, stride {down}×{across}"

    def gives(self, value: Value) -> Value:
        """The output's shape and range: one pixel for each window."""
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
        """The output's shape: all elements of the input as a vector."""
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

    scale: Any = field(metadata=OF_INT32)
    offset: Any = field(metadata=OF_INT32)

    def gives(self, value: Value) -> Value:
        """The output's shape and range: integers, of the input's shape."""
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
        """The lower and upper limit, in words."""
        low, high = ("" if limit is None else limit for limit in (self.low, self.high))
        return f"{low} … {high}"

    def gives(self, value: Value) -> Value:
        """The output's shape and range: integers within the limits, of the input's shape."""
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
        """The number of channels added on each side, in words."""
        return f"{self.before} before, {self.after} after"

    def gives(self, value: Value) -> Value:
        """The output's shape and range: the input's channels and channels of zeros."""
        check_value(value, "integers", 3)
        check_counts("before and after", (self.before, self.after), 0)
        shape = (*value.shape[:2], self.before + value.shape[2] + self.after)
        return Value("integers", shape, min(value.low, 0), max(value.high, 0))


@shortened
@dataclass(frozen=True, eq=False)
class Residual(Layer):
    """The sum of two branches of one value: ``body(x) + shortcut(x)``, integers.

    A branch without layers returns its input, which must then be integers. Type A of the papers: a shortcut
    of ``Pool("max")`` and `PadChannels`, or none; type B: `Threshold` and a 1×1 `Conv`.

    Attributes
    ----------
    body, shortcut : tuple of layers
    """

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()


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
