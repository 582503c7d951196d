"""Operands of bit convolutions: check images and filters, pack filters, upload both, and compute the sizes.

The filter is binarized before the convolution, by listing 2 for each tap; the kernel binarizes the image.

Source: BSTC (SC'19), section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, SchemeError, ShapeError
from reference.types import PackedTensor, Word
from simwarp.listings.checks import MAX_ELEMENTS, Array, check_alike, check_size, checked
from simwarp.listings.packing import pack
from simwarp.warp import GlobalArray

ConvOperand: TypeAlias = npt.ArrayLike | PackedTensor
Pair: TypeAlias = int | Sequence[int]
"""A stride or dilation: one number for both directions, or (vertical, horizontal)."""
Padding: TypeAlias = Literal["SAME", "VALID", "same", "valid"] | int | Sequence[int] | Sequence[Sequence[int]]
"""A word of TensorFlow's, pixels on all sides, (vertical, horizontal), or ((top, bottom), (left, right))."""
Sides: TypeAlias = Literal["SAME", "VALID"] | tuple[tuple[int, int], tuple[int, int]]
"""A checked `Padding`."""


class ConvLayerParam(NamedTuple):
    """The sizes of a convolution, with the names of the struct in listing 8."""

    batch: int
    in_height: int
    in_width: int
    in_channels: int
    filter_height: int
    filter_width: int
    out_channels: int
    out_height: int
    out_width: int
    pad_h: int
    """Rows above the image."""
    pad_w: int
    """Columns to the left of the image."""
    stride_vertical: int
    stride_horizontal: int
    dilation_vertical: int
    dilation_horizontal: int


class ConvOperands(NamedTuple):
    """Image and filter in global memory, with their sizes.

    ``input`` holds real numbers, NHWC, or words, (batch, in_height, in_width, ceil(in_channels / word));
    ``bitfilter`` words, (filter_height, filter_width, ceil(in_channels / word), out_channels).
    """

    input: GlobalArray
    bitfilter: GlobalArray
    p: ConvLayerParam


def conv_operands(
    x: ConvOperand,
    w: ConvOperand,
    stride: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    word: Word = 32,
) -> ConvOperands:
    """Check image and filter, pack a real filter, and upload both."""
    image, taps = checked(x, PackedTensor, "x", "NHWC", word), checked(w, PackedTensor, "w", "HWIO", word)
    p = layer(image.shape, taps.shape, stride, padding, dilation)
    bitfilter = taps if isinstance(taps, PackedTensor) else pack_filter(taps, word)
    first, values = (image.first, image.words) if isinstance(image, PackedTensor) else ("msb", image)
    check_alike("xw", first, bitfilter.first)
    input = GlobalArray.of("input", values, read_only=True)
    return ConvOperands(input, GlobalArray.of("bitfilter", bitfilter.words, read_only=True), p)


def pack_filter(w: Array, word: Word) -> PackedTensor:
    """Binarize a filter along in_channels into BSTC's ``bitfilter``: listing 2 on the matrix of each tap."""
    words = np.stack([pack(tap, "row", word).words for tap in w.reshape(-1, *w.shape[2:])])
    return PackedTensor(words.reshape(*w.shape[:2], -1, w.shape[3]), w.shape, "HWIO", word, "msb")


def packed_channels(images: Array) -> npt.NDArray[np.uint32]:
    """Pack the signs of 32 channels (last axis) into each word, the first in the most significant bit."""
    channels = images.shape[-1]
    octets = np.packbits(images >= 0, axis=-1)
    whole = np.pad(octets, [(0, 0)] * (images.ndim - 1) + [(0, -(-channels // 32) * 4 - octets.shape[-1])])
    return whole.view(">u4").astype(np.uint32)


def layer(
    x: tuple[int, ...], w: tuple[int, ...], stride: Pair, padding: Padding, dilation: Pair
) -> ConvLayerParam:
    """The sizes of a convolution of images of shape ``x``, NHWC, with filters of shape ``w``, HWIO.

    Other than in print: the paper has TensorFlow's words for padding, but no rule for ``pad_h`` and
    ``pad_w``; the rule here is TensorFlow's (``tf.nn``, "Notes on padding"). The authors' networks pad by
    ``filter / 2``, which is another convolution for strides above 1, and their benchmark uses the vertical
    stride for the width too. Dilation is added: a filter of R taps then covers (R - 1) * dilation + 1 rows.
    """
    (batch, in_height, in_width, in_channels), (filter_height, filter_width, channels, out_channels) = x, w
    if in_channels != channels:
        raise ShapeError(
            f"x {x} has {in_channels} channels, and w {w} is for {channels}\n"
            "axis 3 of x and axis 2 of w must be equal\n"
            "give x as NHWC and w as HWIO (height, width, in_channels, out_channels)"
        )
    strides, dilations, sides = _pair(stride, "stride"), _pair(dilation, "dilation"), _sides(padding)
    out_height, pad_h = _output(in_height, filter_height, strides[0], dilations[0], sides, 0)
    out_width, pad_w = _output(in_width, filter_width, strides[1], dilations[1], sides, 1)
    check_size("the output", (batch, out_height, out_width, out_channels))
    taps, output = (filter_height, filter_width, out_channels), (out_height, out_width, pad_h, pad_w)
    return ConvLayerParam(batch, in_height, in_width, in_channels, *taps, *output, *strides, *dilations)


def _output(size: int, taps: int, stride: int, dilation: int, padding: Sides, axis: int) -> tuple[int, int]:
    """The output size and the leading padding along axis 0 (vertical) or 1 (horizontal)."""
    window = (taps - 1) * dilation + 1
    before, after = (0, 0) if isinstance(padding, str) else padding[axis]
    if padding == "SAME":
        total = max(window - (size % stride or stride), 0)
        before, after = total // 2, total - total // 2
    padded, side = before + size + after, ("height", "width")[axis]
    if padded > MAX_ELEMENTS:
        raise ShapeError(
            f"x with padding has {side} {padded}\nindices are 32-bit integers, at most {MAX_ELEMENTS}\n"
            "give less padding or dilation"
        )
    if padded < window:
        raise ShapeError(
            f"the output has {side} 0: the window is {window}, x with padding {padded}\n"
            f"the {side} of the dilated filter must be at most that of the padded image\n"
            'give more padding, padding="SAME", or a smaller w or dilation'
        )
    return (padded - window) // stride + 1, before


def _pair(value: Any, name: str) -> tuple[int, int]:
    numbers = _integers(value, name, ((), (2,)), "an integer, or (vertical, horizontal)")
    vertical, horizontal = (int(n) for n in np.broadcast_to(numbers, 2))
    if min(vertical, horizontal) < 1:
        raise ShapeError(
            f"{name} is {value}\na {name} is at least 1 in both directions\ngive 1 for no {name}"
        )
    return vertical, horizontal


_PADDINGS = "an integer, (vertical, horizontal) or ((top, bottom), (left, right))"


def _sides(padding: Any) -> Sides:
    if isinstance(padding, str):
        word = padding.upper()
        if word == "SAME" or word == "VALID":
            return word
        raise SchemeError(
            f"padding is {padding!r}\nthe known words are 'SAME' and 'VALID'\ngive one, or {_PADDINGS}"
        )
    numbers = _integers(padding, "padding", ((), (2,), (2, 2)), f"'SAME', 'VALID', {_PADDINGS}")
    numbers = np.broadcast_to(numbers if numbers.ndim == 2 else numbers.reshape(-1, 1), (2, 2))
    if numbers.min() < 0:
        raise ShapeError(
            f"padding is {padding}\na padding is at least 0 on each side\ncrop x instead of negative padding"
        )
    (top, bottom), (left, right) = ([int(n) for n in side] for side in numbers)
    return (top, bottom), (left, right)


def _integers(value: Any, name: str, shapes: Sequence[tuple[int, ...]], what: str) -> Array:
    try:
        numbers = np.asarray(value)
    except ValueError:  # nested sequences of unequal length
        numbers = np.empty(0)
    if numbers.shape not in shapes:
        raise ShapeError(f"{name} is {value!r}\nit has the wrong length\ngive {what}")
    if numbers.dtype.kind not in "iu":
        raise DtypeError(f"{name} is {value!r}\nonly integers count rows and columns\ngive {what}")
    if numbers.max() > MAX_ELEMENTS:
        raise ShapeError(f"{name} is {value!r}\nindices are 32-bit integers\ngive at most {MAX_ELEMENTS}")
    return numbers
