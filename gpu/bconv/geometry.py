"""The geometry of a convolution: checked here, and passed to kernels by value (geometry.cuh)."""

from __future__ import annotations

import math
import operator
from dataclasses import astuple, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from gpu.host import unknown
from reference.errors import SchemeError, ShapeError

Pool: TypeAlias = Literal["none", "or", "and"]

LARGEST = 2**31 - 1
"""The most elements of a tensor, of a dot product and of a line of the padded image. Kernels count in
32 bits, and the row of a tap above the image wraps around to a larger number than this."""


@dataclass(frozen=True)
class ConvShape:
    """The sizes of a convolution, in the order of the kernels' structure.

    Attributes
    ----------
    batch, height, width, channels : int
        Sizes of the images, NHWC.
    filter_height, filter_width, filters : int
        R, S and O of the filters, HWIO.
    out_height, out_width : int
        P and Q of the output, NHWC.
    pad_top, pad_left : int
        Rows and columns of the first window that lie outside the image.
    stride_h, stride_w, dilation_h, dilation_w : int
    """

    batch: int
    height: int
    width: int
    channels: int
    filter_height: int
    filter_width: int
    filters: int
    out_height: int
    out_width: int
    pad_top: int
    pad_left: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int

    def __hash__(self) -> int:
        """A hash of the sizes that differ most between shapes, because every call looks its shape up."""
        return hash((self.batch, self.height, self.width, self.channels, self.filters))

    @property
    def argument(self) -> np.void:
        """The geometry as a by-value argument of kernels: 15 uint32 numbers in the order of the fields."""
        return np.void(np.array(astuple(self), np.uint32).tobytes())

    @property
    def dot_length(self) -> int:
        """The elements of the longest dot products, those of windows inside the image."""
        return self.filter_height * self.filter_width * self.channels

    @property
    def pixels(self) -> int:
        """The number of output pixels of all images."""
        return self.batch * self.out_height * self.out_width

    def outputs(self, pool: Pool) -> tuple[int, int]:
        """(pixels, channels) to be computed; with pooling, only pixels of whole windows."""
        return (self.pixels if pool == "none" else 4 * self.windows), self.filters

    @property
    def windows(self) -> int:
        """The number of pooling windows of 2 x 2 output pixels; a last odd row or column is left out."""
        return self.batch * (self.out_height // 2) * (self.out_width // 2)


def conv_shape(
    images: tuple[int, ...],
    filters: tuple[int, ...],
    *,
    stride: Any = 1,
    padding: Any = "SAME",
    dilation: Any = 1,
    groups: Any = 1,
) -> ConvShape:
    """Check the geometry of a convolution; the options are those of `gpu.bconv2d`.

    With groups it is that of one: its channels and its filters.
    """
    batch, height, width, channels = check_sizes(images, "x", "(N, H, W, C)")
    rows, columns, of_filters, count = check_sizes(filters, "w", "(R, S, C, O)")
    if type(groups) is not int or groups != 1:
        _check_groups(groups, channels, of_filters, count)
        channels, count = of_filters, count // groups
    if channels != of_filters:
        raise ShapeError(
            f"x is {images} and w is {filters}: C is {channels} in one and {of_filters} in the other\n"
            "the last dimension of x must be the third of w\nx is NHWC, w is HWIO"
        )
    (stride_h, stride_w), (gap_h, gap_w) = _pair(stride, "stride"), _pair(dilation, "dilation")
    pads = _pads(padding)
    top, out_height = _axis("row", height, rows, stride_h, gap_h, pads and pads[0])
    left, out_width = _axis("column", width, columns, stride_w, gap_w, pads and pads[1])
    shape = ConvShape(
        *(batch, height, width, channels, rows, columns, count),
        *(out_height, out_width, top, left),
        # A stride or dilation that is only multiplied by 0 may exceed 32 bits; kernels then get 1.
        *(stride_h if out_height > 1 else 1, stride_w if out_width > 1 else 1),
        *(gap_h if rows > 1 else 1, gap_w if columns > 1 else 1),
    )
    _check_counts(shape, groups)
    return shape


def _check_groups(groups: Any, channels: int, of_filters: int, filters: int) -> None:
    """Refuse groups that do not share channels and filters evenly."""
    if type(groups) is not int or groups < 1:
        raise SchemeError(
            f"groups={groups!r}\nchannels are shared by that many groups\ngive an integer from 1 on"
        )
    if channels != groups * of_filters or filters % groups:
        raise ShapeError(
            f"groups={groups}: x has {channels} channels, w {filters} filters of {of_filters}\n"
            "each filter reads the channels of its group, and each group has as many filters\n"
            f"give w of shape (R, S, C / {groups}, O), with C and O multiples of {groups}"
        )


def check_sizes(sizes: Any, name: str, meaning: str) -> tuple[int, int, int, int]:
    """Refuse shapes that are not four positive sizes, or that have more elements than kernels can count."""
    known = _integers(sizes)
    if len(known) != 4 or min(known) < 1:
        raise ShapeError(
            f"{name} has shape {sizes}\n{meaning} is needed, each at least 1\n"
            "reshape it, or leave the call out where there is nothing to compute"
        )
    if math.prod(known) > LARGEST:
        raise _too_many(math.prod(known), f"{name} has shape {known}", "split the batch or the channels")
    return known[0], known[1], known[2], known[3]


def _integers(given: Any) -> tuple[int, ...]:
    """The integers of a sequence; () for anything else."""
    try:
        return tuple(map(operator.index, given))
    except TypeError:
        return ()


def _check_counts(shape: ConvShape, groups: int) -> None:
    """Refuse outputs and dot products that are larger than kernels can count."""
    output = shape.batch, shape.out_height, shape.out_width, shape.filters * groups
    outputs = shape.pixels * shape.filters * groups
    if outputs > LARGEST:
        advice = "split the batch, or make padding smaller"
        raise _too_many(outputs, f"the output would be {output}", advice)
    if shape.dot_length > LARGEST:
        taps = f"w has {shape.filter_height} x {shape.filter_width} taps of {shape.channels} channels"
        raise _too_many(shape.dot_length, f"{taps}, dot products", "split the channels")


def _too_many(elements: int, what: str, advice: str) -> ShapeError:
    """The error for more elements than kernels can count."""
    return ShapeError(f"{what}: {elements} elements\nat most {LARGEST} can be counted\n{advice}")


def _pair(given: Any, name: str) -> tuple[int, int]:
    """Check a stride or dilation, one number or two, and return it as (down, across)."""
    pair = _integers(given if np.iterable(given) else (given, given))
    if len(pair) != 2 or min(pair) < 1:
        raise ShapeError(
            f"{name}={given!r}\nan integer from 1 on, or two (down, across), is needed\ngive {name}=1"
        )
    return pair[0], pair[1]


_FORMS = ("an integer", "(down, across)", "((top, bottom), (left, right))")


def _pads(given: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Check a padding, and return it as ((top, bottom), (left, right)); None for SAME."""
    if isinstance(given, str):
        if given.upper() not in ("SAME", "VALID"):
            raise unknown("padding", given, ("SAME", "VALID", *_FORMS))
        return None if given.upper() == "SAME" else ((0, 0), (0, 0))
    both = _integers(given if np.iterable(given) else (given, given))
    if len(both) == 2:
        given = [(pixels, pixels) for pixels in both]
    try:
        (top, bottom), (left, right) = map(_integers, given)
    except (TypeError, ValueError):
        raise ShapeError(
            f"padding={given!r}\nit must be the pixels that are added on each side, or a name\n"
            f"give SAME, VALID, {', '.join(_FORMS[:-1])} or {_FORMS[-1]}"
        ) from None
    if min(top, bottom, left, right) < 0:
        raise ShapeError(
            f"padding={given!r}\nit adds at least 0 pixels on each side\n"
            "crop x instead of padding by less than 0"
        )
    return (top, bottom), (left, right)


def _axis(
    what: str, size: int, window: int, stride: int, gap: int, pads: tuple[int, int] | None
) -> tuple[int, int]:
    """The padding before the image along one dimension, and the number of windows that fit."""
    span = (window - 1) * gap + 1
    before, after = _same(size, stride, span) if pads is None else pads
    padded = before + size + after
    if span > padded:
        raise ShapeError(
            f"w: a window of {span} {what}s does not fit {padded} {what}s of padded image\n"
            f"the output would have no {what}\nmake padding larger, or the filter or dilation smaller"
        )
    if padded > LARGEST:
        raise ShapeError(
            f"padding: the padded image has {padded} {what}s\nat most {LARGEST} can be counted\n"
            "make it smaller"
        )
    return before, (padded - span) // stride + 1


def _same(size: int, stride: int, span: int) -> tuple[int, int]:
    """The padding (before, after) of TensorFlow's SAME: one window per stride, the smaller half before."""
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + span - size, 0)
    return total // 2, total - total // 2
