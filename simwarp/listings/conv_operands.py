"""What the bit convolutions take: images and filters, checked, packed and uploaded, and their sizes.

The filter is binarized ahead of the convolution, tap by tap by listing 2; the image is binarized in it.

Source: BSTC (SC'19), section 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import PackedTensor, TensorLayout, Word
from simwarp.listings.packing import pack32
from simwarp.listings.packing64 import pack64
from simwarp.warp import GlobalArray

Tensor: TypeAlias = npt.NDArray[Any]
ConvOperand: TypeAlias = npt.ArrayLike | PackedTensor
Pair: TypeAlias = int | Sequence[int]
"""Of strides or dilations: one for both directions, or (vertical, horizontal)."""
Padding: TypeAlias = Literal["SAME", "VALID"] | Sequence[Sequence[int]]
"""TensorFlow's word, or ((top, bottom), (left, right))."""
Name: TypeAlias = Literal["x", "w"]

Sides: TypeAlias = Literal["SAME", "VALID"] | tuple[tuple[int, int], tuple[int, int]]
"""`Padding`, checked."""

MAX_ELEMENTS = 2**31 - 1
"""The most elements of x, w and the output: the kernels' indices are ``int``."""

_REAL = (np.float64, np.float32, np.float16, np.int8)
_LAYOUTS: dict[Name, TensorLayout] = {"x": "NHWC", "w": "HWIO"}
_AXES = {"x": "(batch, height, width, channels)", "w": "(height, width, in_channels, out_channels)"}
_CHANNELS = {"x": 3, "w": 2}
"""The axis of the channels, along which bits make words."""


class ConvLayerParam(NamedTuple):
    """The integers of a convolution, as the paper names them; listing 8 packs them like this."""

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
    """Columns to its left."""
    stride_vertical: int
    stride_horizontal: int
    dilation_vertical: int
    dilation_horizontal: int


class ConvOperands(NamedTuple):
    """Image and filter in global memory, and their sizes.

    ``input`` holds real numbers, NHWC, or words, (batch, in_height, in_width, ceil(in_channels / word));
    ``bitfilter`` words, (filter_height, filter_width, ceil(in_channels / word), out_channels).
    """

    input: GlobalArray
    bitfilter: GlobalArray
    p: ConvLayerParam


def conv_operands(
    x: ConvOperand, w: ConvOperand, stride: Pair, padding: Padding, dilation: Pair, word: Word
) -> ConvOperands:
    """Check image and filter, pack the filter where it is real, and upload both.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, FormatError, SchemeError
        See `simwarp.listings.bconv32`.

    Examples
    --------
    >>> ready = conv_operands(np.ones((1, 5, 5, 3)), np.ones((3, 3, 3, 2)), 2, "VALID", 1, 32)
    >>> ready.p.out_height, hex(ready.bitfilter.numpy()[0, 0, 0, 1])
    (2, '0xe0000000')
    """
    image, taps = _checked(x, "x", word), _checked(w, "w", word)
    p = layer(image.shape, taps.shape, stride, padding, dilation)
    first, values = (image.first, image.words) if isinstance(image, PackedTensor) else ("msb", image)
    bitfilter = taps if isinstance(taps, PackedTensor) else pack_filter(taps, word)
    if first != bitfilter.first:
        raise FormatError(
            f"x has first={first!r} and w has first={bitfilter.first!r}\n"
            "the bit of a channel must stand at the same place in the words of both\n"
            "pack both alike; real numbers are packed first='msb'"
        )
    input = GlobalArray.of("input", values, read_only=True)
    return ConvOperands(input, GlobalArray.of("bitfilter", bitfilter.words, read_only=True), p)


def pack_filter(w: Tensor, word: Word) -> PackedTensor:
    """Binarize a filter into BSTC's ``bitfilter``: listing 2 on the matrix of each tap.

    ``words[r, s, c // word, o]`` holds the sign of element (r, s, c, o) in bit ``word - 1 - c % word``.

    Parameters
    ----------
    w : array of float64, float32, float16 or int8, (R, S, C, O)
        As `real_tensor` lets it through.
    word : 32 or 64

    Returns
    -------
    PackedTensor
        ``layout="HWIO"``, ``first="msb"``.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 ("we binarize along in_channels"), listing 2.

    Examples
    --------
    >>> hex(pack_filter(np.array([1.0, -1.0, 0.0]).reshape(1, 1, 3, 1), 64).words[0, 0, 0, 0])
    '0xa000000000000000'
    """
    height, width, in_channels, out_channels = w.shape
    pack = pack32 if word == 32 else pack64
    taps = w.reshape(-1, in_channels, out_channels)
    words = np.stack([pack(tap, "w", "row").words for tap in taps])
    words = words.reshape(height, width, -1, out_channels)
    return PackedTensor(words, (height, width, in_channels, out_channels), "HWIO", word, "msb")


# --------------------------------------------------------------------------------------------------
# Sizes
# --------------------------------------------------------------------------------------------------


def layer(
    x: tuple[int, ...], w: tuple[int, ...], stride: Pair, padding: Padding, dilation: Pair
) -> ConvLayerParam:
    """The sizes of a convolution of images of shape ``x``, NHWC, with filters of shape ``w``, HWIO.

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        See `simwarp.listings.bconv32`.

    Notes
    -----
    Other than in print: there is no rule for ``pad_h`` and ``pad_w`` there, only TensorFlow's words;
    this is TensorFlow's (``tf.nn``, "Notes on padding"). The authors' networks take ``filter / 2``
    instead, which for strides above 1 is another convolution, and their benchmark the vertical stride
    for the width too. Dilation is added: a filter of R taps then covers (R - 1) * dilation + 1 rows.

    Examples
    --------
    >>> p = layer((1, 224, 224, 3), (7, 7, 3, 64), 4, "SAME", 1)
    >>> p.out_height, p.pad_h  # 3 rows in all, and TensorFlow puts the odd one below; not 7 / 2
    (56, 1)
    """
    (batch, in_height, in_width, in_channels), (filter_height, filter_width, channels, out_channels) = x, w
    if in_channels != channels:
        raise ShapeError(
            f"x {x} has {in_channels} channels, and w {w} is for {channels}\n"
            "axis 3 of x and axis 2 of w count the same channels\n"
            "give x as NHWC and w as HWIO (height, width, in_channels, out_channels)"
        )
    strides, dilations = _pair(stride, "stride"), _pair(dilation, "dilation")
    sides = _sides(padding)
    out_height, pad_h = _output(in_height, filter_height, strides, dilations, sides, 0)
    out_width, pad_w = _output(in_width, filter_width, strides, dilations, sides, 1)
    _check_size("the output", (batch, out_height, out_width, out_channels))
    return ConvLayerParam(
        batch=batch,
        in_height=in_height,
        in_width=in_width,
        in_channels=in_channels,
        filter_height=filter_height,
        filter_width=filter_width,
        out_channels=out_channels,
        out_height=out_height,
        out_width=out_width,
        pad_h=pad_h,
        pad_w=pad_w,
        stride_vertical=strides[0],
        stride_horizontal=strides[1],
        dilation_vertical=dilations[0],
        dilation_horizontal=dilations[1],
    )


def _output(
    size: int, taps: int, strides: tuple[int, int], dilations: tuple[int, int], padding: Sides, axis: int
) -> tuple[int, int]:
    """Along axis 0, vertical, or 1, horizontal: the size of the output, and the padding before the image."""
    stride, window = strides[axis], (taps - 1) * dilations[axis] + 1
    before, after = (0, 0) if isinstance(padding, str) else padding[axis]
    if padding == "SAME":
        total = max(window - (size % stride or stride), 0)
        before, after = total // 2, total - total // 2
    padded, side = before + size + after, ("height", "width")[axis]
    if padded > MAX_ELEMENTS:
        raise ShapeError(
            f"x with padding has {side} {padded}\nindices are 32-bit integers\n"
            f"give less padding or dilation: at most {MAX_ELEMENTS} in all"
        )
    if padded < window:
        raise ShapeError(
            f"the output has {side} 0: the window is {window}, x with padding {padded}\n"
            f"the {side} of w, spread by dilation, must fit once into that of x with its padding\n"
            'give more padding, padding="SAME", or a smaller w or dilation'
        )
    return (padded - window) // stride + 1, before


def _pair(value: Any, name: str) -> tuple[int, int]:
    numbers = _integers(value, name, ((), (2,)), "an integer, or (vertical, horizontal)")
    vertical, horizontal = (int(n) for n in np.broadcast_to(numbers, 2))
    if min(vertical, horizontal) < 1:
        raise ShapeError(
            f"{name} is {value}\na {name} is at least 1 in both directions\ngive 1 where none is wanted"
        )
    return vertical, horizontal


def _sides(padding: Any) -> Sides:
    if isinstance(padding, str):
        if padding == "SAME" or padding == "VALID":
            return padding
        raise SchemeError(
            f"padding is {padding!r}\nonly TensorFlow's two words are known, in capitals\n"
            "give 'SAME', 'VALID' or ((top, bottom), (left, right))"
        )
    numbers = _integers(padding, "padding", ((2, 2),), "'SAME', 'VALID' or ((top, bottom), (left, right))")
    if numbers.min() < 0:
        raise ShapeError(
            f"padding is {padding}\na padding is at least 0 on each side\ncrop x instead where less is wanted"
        )
    (top, bottom), (left, right) = ([int(n) for n in side] for side in numbers)
    return (top, bottom), (left, right)


def _integers(value: Any, name: str, shapes: Sequence[tuple[int, ...]], what: str) -> Tensor:
    try:
        numbers = np.asarray(value)
    except ValueError:  # nested sequences of unequal length
        numbers = np.empty(0)
    if numbers.shape not in shapes:
        raise ShapeError(f"{name} is {value!r}\nthat has not the right length\ngive {what}")
    if numbers.dtype.kind not in "iu":
        raise DtypeError(f"{name} is {value!r}\nrows and columns are counted in integers\ngive {what}")
    if numbers.max() > MAX_ELEMENTS:
        raise ShapeError(f"{name} is {value!r}\nindices are 32-bit integers\ngive at most {MAX_ELEMENTS}")
    return numbers


# --------------------------------------------------------------------------------------------------
# Tensors
# --------------------------------------------------------------------------------------------------


def _checked(x: ConvOperand, name: Name, word: Word) -> Tensor | PackedTensor:
    return check_packed_tensor(x, name, word) if isinstance(x, PackedTensor) else real_tensor(x, name)


def real_tensor(x: npt.ArrayLike, name: Name) -> Tensor:
    """``x`` as a tensor of an accepted element type without NaN, not cast; errors call it ``name``.

    Examples
    --------
    >>> real_tensor([[[[1.0, 2.0]]]], "x").shape
    (1, 1, 1, 2)
    """
    try:
        tensor = np.asarray(x)
    except ValueError as error:
        raise ShapeError(
            f"{name} is not an array\n{error}\ngive {_AXES[name]}, rows of one length"
        ) from error
    if tensor.dtype.type not in _REAL:
        raise DtypeError(
            f"{name} has elements of {tensor.dtype}\nwhat is packed are the signs of real numbers\n"
            "give float64, float32, float16 or int8, or a PackedTensor"
        )
    if tensor.ndim != 4 or tensor.size == 0:
        raise ShapeError(
            f"{name} has shape {tensor.shape}\na convolution needs four axes, none of size 0\n"
            f"give {_AXES[name]}, each at least 1"
        )
    _check_size(name, tensor.shape)
    missing = np.isnan(tensor)
    if missing.any():
        at = ", ".join(str(i) for i in np.argwhere(missing)[0])
        raise NotANumberError(
            f"{name}[{at}] is NaN\na NaN is neither >= 0 nor < 0, so it has no sign\n"
            f"replace it first, for instance with np.nan_to_num({name})"
        )
    return tensor


def check_packed_tensor(packed: PackedTensor, name: Name, word: Word) -> PackedTensor:
    """Raise unless packed bits have the paper's format, and words that fit their description.

    Examples
    --------
    >>> packed = PackedTensor(np.zeros((1, 2, 2, 1), np.uint32), (1, 2, 2, 7), "NHWC")
    >>> check_packed_tensor(packed, "x", 32) is packed
    True
    """
    layout = _LAYOUTS[name]
    if packed.layout != layout or packed.word != word or packed.first not in ("msb", "lsb"):
        raise FormatError(
            f"{name} is packed layout={packed.layout!r}, word={packed.word}, first={packed.first!r}\n"
            f"BConv-{word} needs layout={layout!r}, word={word}, first='msb' (or 'lsb' on both sides)\n"
            f"pack {name} so"
        )
    shape = tuple(packed.shape)
    if len(shape) != 4 or min(shape) < 1:
        raise ShapeError(
            f"{name} is packed with shape {shape}\na convolution needs four axes, none of size 0\n"
            f"give the true {_AXES[name]}, each at least 1"
        )
    _check_size(name, shape)
    on_host = isinstance(packed.words, np.ndarray)
    if not on_host:
        raise FormatError(
            f"{name} has words that are no NumPy array\nlistings run on the host\ncopy the words there first"
        )
    words: Tensor = packed.words
    axis, dtype = _CHANNELS[name], np.dtype(np.uint32 if word == 32 else np.uint64)
    channels = shape[axis]
    expected = (*shape[:axis], -(-channels // word), *shape[axis + 1 :])
    if words.dtype != dtype or words.shape != expected:
        raise FormatError(
            f"{name} has words {words.dtype} {words.shape}\n"
            f"its shape {shape} with layout={layout!r}, word={word} needs {dtype} {expected}\n"
            "correct what the PackedTensor says of them, or pack again"
        )
    padding = -channels % word
    past_the_edge = ((1 << padding) - 1) << (word - padding if packed.first == "lsb" else 0)
    if np.any(words.take(-1, axis) & dtype.type(past_the_edge)):
        raise FormatError(
            f"{name} has bits past its {channels} channels that are not 0\n"
            "they would count wherever x and w differ in them\nclear them, or pack again"
        )
    return packed


def _check_size(name: str, shape: tuple[int, ...]) -> None:
    elements = math.prod(shape)
    if elements > MAX_ELEMENTS:
        raise ShapeError(
            f"{name} has shape {shape}, {elements} elements\nindices are 32-bit integers\n"
            f"give at most {MAX_ELEMENTS} elements: split the batch or the channels"
        )
