"""A stage: a layer with all its sizes. A dense layer is a convolution of images of one pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from gpu.bconv.geometry import ConvShape, conv_shape
from gpu.outofcore.halo import offset
from gpu.outofcore.on_host import Window
from gpu.outofcore.problem import ACTIVATIONS, Activation
from reference.errors import SchemeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer

Shape: TypeAlias = tuple[int, int, int]
Kind: TypeAlias = Literal["conv", "dense", "max_pool", "average_pool", "batch_norm"]


@dataclass(frozen=True)
class Stage:
    """One layer of a network with its shapes and options."""

    number: int  # number of the stage, from 1, and of its result; its input is the tensor before
    kind: Kind
    reads: Shape  # (channels, rows, columns) of an image that the stage reads
    shape: Shape  # (channels, rows, columns) of an image of the result
    plane: ConvShape  # the stage's windows
    groups: int = 1
    activation: Activation | None = None
    epsilon: float = 0.0  # epsilon of batch normalization
    momentum: float = 0.0  # momentum of batch normalization

    @property
    def name(self) -> str:
        """The stage's kind and number, e.g. for errors."""
        return f"{self.kind}{self.number}"

    @property
    def has_weights(self) -> bool:
        """True if the stage is a convolution or a dense layer."""
        return self.kind in ("conv", "dense")

    @property
    def filters(self) -> tuple[int, int, int, int]:
        """The shape of the stage's weights, as filters (O, I, R, S)."""
        plane = self.plane
        return self.shape[0], self.reads[0] // self.groups, plane.filter_height, plane.filter_width

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the stage's weights and bias, as users pass them."""
        bias = (self.shape[0],)
        if self.has_weights:
            return {"w": self.filters[:2] if self.kind == "dense" else self.filters, "bias": bias}
        return {"w": bias, "bias": bias} if self.kind == "batch_norm" else {}

    def window(self, rows: range, outputs: range) -> Window:
        """The convolution of pieces with these rows of the stage's input and result."""
        plane = self.plane
        return Window(
            (offset(plane, rows, outputs), plane.pad_left),
            (plane.stride_h, plane.stride_w),
            (plane.dilation_h, plane.dilation_w),
            self.groups,
        )

    def operations(self, images: int, rows: int) -> float:
        """Floating-point operations for ``rows`` rows of the stage's result."""
        outputs = images * rows * self.shape[0] * self.shape[2]
        taps = self.plane.filter_height * self.plane.filter_width
        return float(outputs * taps * (2 * self.filters[1] if self.has_weights else 1))


def norm_of(number: int, shape: Shape, epsilon: Any, momentum: Any, activation: Any) -> Stage:
    """Check a batch normalization's options, and build its `Stage`."""
    if not (0 < epsilon < math.inf and 0 <= momentum <= 1):
        raise SchemeError(
            f"layer {number}, batch_norm: epsilon is {epsilon}, momentum {momentum}\n"
            "epsilon must be above 0, momentum 0 to 1\nchoose other values"
        )
    stage = stage_of(number, "batch_norm", shape, shape[0], 1, 1, "VALID", activation=activation)
    return replace(stage, epsilon=float(epsilon), momentum=float(momentum))


def stage_of(
    number: int,
    kind: Kind,
    reads: Shape,
    filters: Any,
    window: Any,
    stride: Any,
    padding: Any,
    *,
    dilation: Any = 1,
    groups: Any = 1,
    activation: Any = None,
) -> Stage:
    """Check a layer's options, and build its `Stage`."""
    place = f"layer {number}, {kind}"
    check_option("activation", activation, (None, *ACTIVATIONS), f"{place}: it follows the bias")
    rows, columns = cast("tuple[Any, Any]", window if isinstance(window, tuple | list) else (window, window))
    for name, size in (("filters", filters), ("window", rows), ("window", columns), ("groups", groups)):
        if not is_integer(size) or size < 1:
            raise ShapeError(f"{place}: {name} is {size!r}\nit must be at least 1\ngive a positive int")
    if reads[0] % groups or filters % groups:
        raise ShapeError(
            f"{place}: {reads[0]} channels and {filters} filters in {groups} groups\n"
            "groups must divide both numbers\nchoose another number of groups"
        )
    plane = conv_shape(
        (1, reads[1], reads[2], 1), (rows, columns, 1, 1), stride=stride, padding=padding, dilation=dilation
    )
    shape = (int(filters), plane.out_height, plane.out_width)
    stage = Stage(number, kind, reads, shape, plane, int(groups), activation)
    if not stage.has_weights and _is_outside(plane):
        raise ShapeError(
            f"{place}: a window of {rows} x {columns} with padding={padding!r} is outside the image\n"
            "each window has a pixel inside\ngive less padding than the window"
        )
    return stage


def _is_outside(plane: ConvShape) -> bool:
    """True if the first or the last window along an axis has no pixel of the image."""
    return (
        plane.pad_top >= plane.filter_height
        or plane.pad_left >= plane.filter_width
        or (plane.out_height - 1) * plane.stride_h - plane.pad_top >= plane.height
        or (plane.out_width - 1) * plane.stride_w - plane.pad_left >= plane.width
    )
