"""Listing 6: ±1 convolution that excludes the taps outside the image (BConv-32, BConv-64).

A warp computes one pixel of the output. Its lanes binarize 32 channels of a pixel of the image into one word,
which all of them receive; each lane then multiplies that word with the filters of its own output channels.

>>> input = GlobalArray.of("input", np.array([1.0, -1.0, 1.0, -1.0]))  # one pixel, + - + -
>>> bitfilter = GlobalArray.of("bitfilter", np.array([0x80000000], np.uint32))  # one tap, + - - -
>>> output = GlobalArray("output", (1, 1, 1, 1), np.int32)
>>> from simwarp.listings.conv_operands import layer
>>> p = layer((1, 1, 1, 4), (1, 1, 4, 1), 1, "VALID", 1)
>>> launch(Conv2d_32bit, (1, 1, 1), 32, input, bitfilter, output, p, shared={"Csub": (np.uint32, 1)})
>>> output.numpy().tolist()
[[[[2]]]]

Source: BSTC (SC'19), section 5.2, listing 6; section 6.2, listing 7; equation 2.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from reference.types import PackedTensor, Word
from simwarp.lanes import WARP_SIZE, popc, xor
from simwarp.listings.conv_operands import ConvLayerParam, ConvOperand, Padding, Pair, conv_operands
from simwarp.listings.fused import Fused, fuse
from simwarp.listings.packing import bits_of, lines_of, rotated
from simwarp.warp import Array, GlobalArray, Warp, launch


def Conv2d_32bit(
    warp: Warp,
    input: GlobalArray,
    bitfilter: GlobalArray,
    output: GlobalArray,
    p: ConvLayerParam,
    fused: Fused | None = None,
    pooled: Pooled | None = None,
) -> None:
    """Listing 6: direct convolution that excludes taps outside the image; of bits and to bits, BConv-32B.

    Parameters
    ----------
    input : (batch, in_height, in_width, in_channels), real; or of ceil(in_channels / 32) words, uint32
        A packed image is not binarized again.
    bitfilter : (filter_height, filter_width, ceil(in_channels / 32), out_channels), uint32
    output : (batch, out_height, out_width, out_channels), int32; if fused of ceil(out_channels / 32) words
    p : ConvLayerParam
        The sizes.
    fused : Fused, optional
        The thresholds of listing 7, here of the output channels.
    pooled : Pooled, optional
        Where the bits of a pixel go, if not to its own words; with 32-bit words.

    Notes
    -----
    Other than in print: the integers are fields of one object, as in listing 8. The text we have lacks the
    head of the loop over c, the test for the frame (section 5.2: "falls out of the input image frame") and
    the subscript of the store; it is that of NHWC here. Products are products
    (``bx*stride_horizontal-pad_w``, ``c*32+laneid``, ``exclude*in_channels``, ``2*Csub[i]``), the loops
    over output channels run while ``i<out_channels`` with ``i+=WARP_SIZE``, and the counts are added
    (``+=``), where the text shows otherwise. ``__ballot`` takes a member mask today (``__ballot_sync``).

    ``ins`` is rounded up, and the load of f0 guarded: past in_channels both words have 0, and n counts the
    true in_channels. ``Csub`` is ``unsigned``, so the difference in print is never negative: here a count
    becomes an ``int`` before it is subtracted. Dilation is added, and so are packed images and outputs, which
    section 6.3 names (BConv-32B) and does not print. The section's formula, ``x[m,n]·W[s-m,t-n]``, flips
    the filter; the listing does not, nor does TensorFlow.

    Grid: (out_width, out_height, batch), blocks of one warp; shared ``Csub``: out_channels of uint32.
    """
    laneid, (bx, by, bz), Csub = warp.lane, warp.block, warp.shared["Csub"]
    word = bits_of(bitfilter)
    # steps along in_channels, and words along out_channels
    ins, outs = -(-p.in_channels // word), -(-p.out_channels // word)
    ax0 = bx * p.stride_horizontal - p.pad_w  # from output image to input image
    ay0 = by * p.stride_vertical - p.pad_h
    exclude = 0  # filter entries that are masked off
    channels = pooled.channels if pooled else range(0, p.out_channels, WARP_SIZE)
    for i in across(warp, channels, p.out_channels):
        warp.store(Csub, i, np.uint32(0))
    for r in range(p.filter_height):
        for s in range(p.filter_width):
            ay, ax = ay0 + r * p.dilation_vertical, ax0 + s * p.dilation_horizontal
            if not (0 <= ay < p.in_height and 0 <= ax < p.in_width):
                exclude += 1  # tap outside the image
                continue
            pixel = (bz * p.in_height + ay) * p.in_width + ax
            for c in range(ins):
                if input.dtype == bitfilter.dtype:
                    r0 = warp.load(input, pixel * ins + c)
                else:
                    steps = range(c * word, (c + 1) * word, WARP_SIZE)
                    r0 = rotated([signs(warp, input, pixel, k, p.in_channels) for k in steps])  # binarize
                for i in across(warp, channels, p.out_channels):
                    r1 = warp.load(bitfilter, ((r * p.filter_width + s) * ins + c) * p.out_channels + i)
                    warp.store(Csub, i, warp.load(Csub, i) + popc(xor(r0, r1)))
    n = p.in_channels * p.filter_width * p.filter_height - exclude * p.in_channels
    pixel = (bz * p.out_height + by) * p.out_width + bx
    if not fused:
        for i in across(warp, channels, p.out_channels):
            warp.store(output, pixel * p.out_channels + i, dot(warp, Csub, i, n))
        return
    for c in [channel // word for channel in channels] if pooled else range(outs):
        steps = range(c * word, (c + 1) * word, WARP_SIZE)
        C = rotated([thresholded(warp, Csub, k, n, p.out_channels, fused) for k in steps])
        with warp.where(laneid == 0):
            if pooled:
                pooled.write(warp, c, C)  # section 6.2
            else:
                warp.store(output, pixel * outs + c, C)


@lines_of(Conv2d_32bit)
def Conv2d_64bit(
    warp: Warp,
    input: GlobalArray,
    bitfilter: GlobalArray,
    output: GlobalArray,
    p: ConvLayerParam,
    fused: Fused | None = None,
) -> None:
    """Listing 6 with 64 channels per step of c; with binary input and output, BConv-64B.

    Parameters
    ----------
    input : (batch, in_height, in_width, in_channels), real; or of ceil(in_channels / 64) words, uint64
    bitfilter : (filter_height, filter_width, ceil(in_channels / 64), out_channels), uint64
    output : (batch, out_height, out_width, out_channels), int32; if fused of ceil(out_channels / 64) words
    warp, p, fused
        As of `simwarp.listings.Conv2d_32bit`.

    Notes
    -----
    `simwarp.listings.Conv2d_32bit` with the paper's two changes, a second vote for each word and
    ``__popcll``. The first 32 channels are the "low" half, and reversing the 64 bits puts them on top.

    Grid: (out_width, out_height, batch), blocks of one warp; shared ``Csub``: out_channels of uint32.
    """
    Conv2d_32bit(warp, input, bitfilter, output, p, fused)


class Pooled(Protocol):
    """What a window of pixels asks of the convolution of one of them (`simwarp.listings.pooling`).

    Attributes
    ----------
    channels : sequence of int
        The first of each 32 output channels that are computed.
    """

    channels: Sequence[int]

    def write(self, warp: Warp, c: int, C: npt.NDArray[Any]) -> None:
        """Write word c of the pixel; lane 0 is active."""
        ...


def across(warp: Warp, channels: Sequence[int], out_channels: int) -> Iterator[npt.NDArray[np.uint32]]:
    """Loop ``for (int i=laneid; i<out_channels; i+=WARP_SIZE)``: yield each active lane's output channel."""
    for step in channels:
        i = step + warp.lane
        with warp.where(i < out_channels):
            yield i


def signs(
    warp: Warp, input: GlobalArray, pixel: int, channel: int, in_channels: int
) -> npt.NDArray[np.uint32]:
    """Ballot of the signs of 32 channels of a pixel, the first in bit 0; 0 past the last channel."""
    c = channel + warp.lane
    with warp.where(c < in_channels):
        f0 = warp.load(input, pixel * in_channels + c)
        positive = warp.select(f0 >= 0, False)
    return warp.ballot(positive)


def dot(warp: Warp, Csub: Array, i: npt.NDArray[np.uint32], n: int) -> npt.NDArray[np.int32]:
    """Each active lane's ±1 dot product of n terms, ``n - 2 * popc(a ^ b)`` (equation 2)."""
    return np.int32(n) - 2 * warp.load(Csub, i).astype(np.int32)


def thresholded(
    warp: Warp, Csub: Array, channel: int, n: int, out_channels: int, fused: Fused
) -> npt.NDArray[np.uint32]:
    """Ballot of the output bits of 32 channels, the first in bit 0; 0 past the last channel."""
    i = channel + warp.lane
    with warp.where(i < out_channels):
        bit = warp.select(fused.bit(warp, dot(warp, Csub, i, n), i), False)
    return warp.ballot(bit)


class ConvOptions(TypedDict, total=False):
    """Keyword arguments of the convolutions of BSTC: see `simwarp.listings.bconv32`."""

    stride: Pair
    padding: Padding
    dilation: Pair
    thresholds: npt.ArrayLike | None
    flip: npt.ArrayLike | None


def bconv32(x: ConvOperand, w: ConvOperand, **options: Unpack[ConvOptions]) -> Any:
    """The ±1 cross-correlation of the signs of images and filters, by listing 6 (BConv-32, BConv-32B).

    With s(·) the signs, and the sum over the taps (r, s) that lie in the image, and all channels c::

        y[n, p, q, o] = Σ s(x[n, p * stride - top + r * dilation, q * stride - left + s * dilation, c])
                          * s(w[r, s, c, o])

    Parameters
    ----------
    x : array_like of float64, float32, float16 or int8, or PackedTensor; (N, H, W, C)
        A PackedTensor has ``layout="NHWC"`` and 32-bit words: bits in.
    w : likewise, (R, S, C, O)
        A PackedTensor has ``layout="HWIO"``, the paper's bitfilter. The first channel sits at the same
        end of a word as in ``x``; real numbers are packed "msb".
    stride, dilation : int, or (vertical, horizontal), at least 1, default 1
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right))
        By TensorFlow's rules, or rows and columns, at least 0. Padding contributes nothing to a sum.
    thresholds : integers in the range of int32, (O,), optional
        Return bits (BConv-32B): bit (n, p, q, o) is 1 where ``y[n, p, q, o] >= thresholds[o]``.
    flip : bool, (O,), optional
        The output channels whose bits are inverted.

    Returns
    -------
    array of int32, (N, P, Q, O)
        With ``thresholds`` a PackedTensor instead, ``layout="NHWC"``, ``word=32``, ``first="msb"``: the
        ``x`` of the next convolution. P is ceil(H / stride) for "SAME", else
        (H + top + bottom - (R - 1) * dilation - 1) // stride + 1. Q likewise.

    Raises
    ------
    ShapeError
        If an operand does not have four axes, or has one of size 0; if the channels differ, the output is
        empty, an array has more than 2³¹ - 1 elements, or a stride, dilation or padding is too small or has
        the wrong length; or if there is not one threshold and flip per output channel.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; the message names the first.
    FormatError
        For a PackedTensor in another layout, word size or bit order, or whose words do not fit it.
    SchemeError
        For an unknown word as ``padding``, or ``flip`` without ``thresholds``.
    LaunchError
        For more than 65535 images or rows of output, the limits of a grid.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2, listing 6; listing 7; equations 1 and 2.

    Examples
    --------
    >>> bconv32(np.ones((1, 3, 3, 5)), np.ones((3, 3, 5, 1)))[0, :, :, 0]  # 4, 6 or 9 taps, 5 channels
    array([[20, 30, 20],
           [30, 45, 30],
           [20, 30, 20]], dtype=int32)
    >>> bits = bconv32(np.ones((1, 3, 3, 5)), np.ones((3, 3, 5, 1)), thresholds=[30])
    >>> (bits.words[0, :, :, 0] >> 31).tolist()
    [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    """
    return _run(Conv2d_32bit, 32, x, w, **options)


def bconv64(x: ConvOperand, w: ConvOperand, **options: Unpack[ConvOptions]) -> Any:
    """The ±1 cross-correlation with 64-bit words, by listing 6 (BConv-64, BConv-64B).

    Parameters, returns and errors are those of `bconv32`, with 64-bit words.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 "BConv-64", listings 6 and 7; equations 1 and 2.

    Examples
    --------
    >>> bconv64(np.ones((1, 2, 2, 1)), -np.ones((2, 2, 1, 1)), padding="VALID").tolist()
    [[[[-4]]]]
    """
    return _run(Conv2d_64bit, 64, x, w, **options)


def _run(
    kernel: Callable[..., None],
    word: Word,
    x: ConvOperand,
    w: ConvOperand,
    *,
    thresholds: npt.ArrayLike | None = None,
    flip: npt.ArrayLike | None = None,
    **window: Any,
) -> Any:
    """Launch a convolution, a warp per output pixel, and download int32 sums or, with thresholds, bits."""
    input, bitfilter, p = conv_operands(x, w, **window, word=word)
    fused = fuse(thresholds, flip, p.out_channels)
    pixels, words = (p.batch, p.out_height, p.out_width), -(-p.out_channels // word)
    output = GlobalArray("output", (*pixels, p.out_channels), np.int32)
    if fused:
        output = GlobalArray("output", (*pixels, words), f"uint{word}")
    grid, shared = (p.out_width, p.out_height, p.batch), {"Csub": (np.uint32, p.out_channels)}
    launch(kernel, grid, WARP_SIZE, input, bitfilter, output, p, fused, shared=shared)
    y = output.numpy()
    return PackedTensor(y, (*pixels, p.out_channels), "NHWC", word, "msb") if fused else y
