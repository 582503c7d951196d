"""Listing 6: ±1 convolution that excludes the taps outside the image (BConv-32, BConv-64).

A warp makes one pixel of the output. Its lanes binarize 32 channels of a pixel of the image into a word
that all of them get; then each lane takes that word against the filters of its own output channels.

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

from collections.abc import Callable, Iterator
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from reference.types import PackedTensor, Word
from simwarp.lanes import WARP_SIZE, brev, popc, xor
from simwarp.listings.conv_operands import ConvLayerParam, ConvOperand, Padding, Pair, conv_operands
from simwarp.listings.fused import Fused, fuse
from simwarp.listings.packing import WORD, mov_b64
from simwarp.warp import Array, GlobalArray, Warp, launch


def Conv2d_32bit(
    warp: Warp,
    input: GlobalArray,
    bitfilter: GlobalArray,
    output: GlobalArray,
    p: ConvLayerParam,
    fused: Fused | None = None,
) -> None:
    """Listing 6, direct convolution with exclusion on the fly; with binary input and output, BConv-32B.

    Parameters
    ----------
    input : (batch, in_height, in_width, in_channels), real; or of ceil(in_channels / 32) words, uint32
        What is packed already is not binarized again.
    bitfilter : (filter_height, filter_width, ceil(in_channels / 32), out_channels), uint32
    output : (batch, out_height, out_width, out_channels), int32; if fused of ceil(out_channels / 32) words
    p : ConvLayerParam
        The sizes.
    fused : Fused, optional
        What listing 7 adds to the product of matrices, here to the convolution.

    Notes
    -----
    Other than in print: the integers come in one object, as in listing 8. Of the window's loops the text
    we have lost the heads over c and the test for the frame, which section 5.2 tells ("falls out of the
    input image frame"); of the store the subscript, which is that of NHWC. Products are products
    (``bx*stride_horizontal-pad_w``, ``c*32+laneid``, ``exclude*in_channels``, ``2*Csub[i]``), the loops
    over output channels run while ``i<out_channels`` with ``i+=WARP_SIZE``, and the counts are added
    (``+=``), where it shows otherwise. ``__ballot`` takes a member mask today (``__ballot_sync``).

    ``ins`` is rounded up, and the load of f0 guarded: past in_channels both words have 0, and the true
    in_channels is what is counted. ``Csub`` is ``unsigned``, with which the difference in print is never
    negative: a count becomes an ``int`` before it is subtracted. Dilation is added, and so are words in
    and bits out, which section 6.3 names (BConv-32B) and does not print. The section's formula,
    ``x[m,n]·W[s-m,t-n]``, turns the filter round; the listing does not, nor does TensorFlow.

    Grid: (out_width, out_height, batch), blocks of one warp; shared ``Csub``: out_channels of uint32.
    """
    laneid, (bx, by, bz), Csub = warp.lane, warp.block, warp.shared["Csub"]
    ins = -(-p.in_channels // WARP_SIZE)  # steps in in_channels
    ax0 = bx * p.stride_horizontal - p.pad_w  # from output image to input image
    ay0 = by * p.stride_vertical - p.pad_h
    exclude = 0  # filter entries that are masked off
    for i in across(warp, p.out_channels):
        warp.store(Csub, i, np.uint32(0))
    for r in range(p.filter_height):
        for s in range(p.filter_width):
            ay, ax = ay0 + r * p.dilation_vertical, ax0 + s * p.dilation_horizontal
            if not (0 <= ay < p.in_height and 0 <= ax < p.in_width):
                exclude += 1  # not in frame
                continue
            pixel = (bz * p.in_height + ay) * p.in_width + ax
            for c in range(ins):
                if input.dtype == np.uint32:
                    r0 = warp.load(input, pixel * ins + c)
                else:
                    r0 = brev(signs(warp, input, pixel, c * WARP_SIZE, p.in_channels))  # binarize
                for i in across(warp, p.out_channels):
                    r1 = warp.load(bitfilter, ((r * p.filter_width + s) * ins + c) * p.out_channels + i)
                    warp.store(Csub, i, warp.load(Csub, i) + popc(xor(r0, r1)))
    n = p.in_channels * p.filter_width * p.filter_height - exclude * p.in_channels
    pixel = (bz * p.out_height + by) * p.out_width + bx
    if fused:
        outs = -(-p.out_channels // WARP_SIZE)
        for k in range(outs):
            C = brev(thresholded(warp, Csub, k * WARP_SIZE, n, p.out_channels, fused))
            with warp.where(laneid == 0):
                warp.store(output, pixel * outs + k, C)
        return
    for i in across(warp, p.out_channels):
        warp.store(output, pixel * p.out_channels + i, dot(warp, Csub, i, n))


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
    p, fused
        As of `simwarp.listings.Conv2d_32bit`.

    Notes
    -----
    Other than in print: as in `simwarp.listings.Conv2d_32bit`. The paper's two changes are the second
    vote for a word and ``__popcll``; as the votes come, the first 32 channels are the "low" half, and
    reversing the whole puts them on top. So do the two votes of an output word.

    Grid: (out_width, out_height, batch), blocks of one warp; shared ``Csub``: out_channels of uint32.
    """
    laneid, (bx, by, bz), Csub = warp.lane, warp.block, warp.shared["Csub"]
    ins = -(-p.in_channels // WORD)
    ax0 = bx * p.stride_horizontal - p.pad_w
    ay0 = by * p.stride_vertical - p.pad_h
    exclude = 0
    for i in across(warp, p.out_channels):
        warp.store(Csub, i, np.uint32(0))
    for r in range(p.filter_height):
        for s in range(p.filter_width):
            ay, ax = ay0 + r * p.dilation_vertical, ax0 + s * p.dilation_horizontal
            if not (0 <= ay < p.in_height and 0 <= ax < p.in_width):
                exclude += 1
                continue
            pixel = (bz * p.in_height + ay) * p.in_width + ax
            for c in range(ins):
                if input.dtype == np.uint64:
                    r0 = warp.load(input, pixel * ins + c)
                else:
                    low = signs(warp, input, pixel, c * WORD, p.in_channels)
                    high = signs(warp, input, pixel, c * WORD + WARP_SIZE, p.in_channels)
                    r0 = brev(mov_b64(low, high))
                for i in across(warp, p.out_channels):
                    r1 = warp.load(bitfilter, ((r * p.filter_width + s) * ins + c) * p.out_channels + i)
                    warp.store(Csub, i, warp.load(Csub, i) + popc(xor(r0, r1)))
    n = p.in_channels * p.filter_width * p.filter_height - exclude * p.in_channels
    pixel = (bz * p.out_height + by) * p.out_width + bx
    if fused:
        outs = -(-p.out_channels // WORD)
        for k in range(outs):
            low = thresholded(warp, Csub, k * WORD, n, p.out_channels, fused)
            high = thresholded(warp, Csub, k * WORD + WARP_SIZE, n, p.out_channels, fused)
            with warp.where(laneid == 0):
                warp.store(output, pixel * outs + k, brev(mov_b64(low, high)))
        return
    for i in across(warp, p.out_channels):
        warp.store(output, pixel * p.out_channels + i, dot(warp, Csub, i, n))


def across(warp: Warp, out_channels: int) -> Iterator[npt.NDArray[np.uint32]]:
    """``for (int i=laneid; i<out_channels; i+=WARP_SIZE)``: one output channel per active lane."""
    for step in range(0, out_channels, WARP_SIZE):
        i = step + warp.lane
        with warp.where(i < out_channels):
            yield i


def signs(
    warp: Warp, input: GlobalArray, pixel: int, channel: int, in_channels: int
) -> npt.NDArray[np.uint32]:
    """Ballot of the signs of a pixel's 32 channels from ``channel`` on; 0 past the last. Lane 0 is bit 0."""
    c = channel + warp.lane
    with warp.where(c < in_channels):
        f0 = warp.load(input, pixel * in_channels + c)
        positive = warp.select(f0 >= 0, False)
    return warp.ballot(positive)


def dot(warp: Warp, Csub: Array, i: npt.NDArray[np.uint32], n: int) -> npt.NDArray[np.int32]:
    """Equation 2, ``n - 2 * popc(a ^ b)``: each active lane's ±1 dot product of n terms."""
    return np.int32(n) - 2 * warp.load(Csub, i).astype(np.int32)


def thresholded(
    warp: Warp, Csub: Array, channel: int, n: int, out_channels: int, fused: Fused
) -> npt.NDArray[np.uint32]:
    """Ballot of the output bits of 32 channels from ``channel`` on; 0 past the last. Lane 0 is bit 0."""
    i = channel + warp.lane
    with warp.where(i < out_channels):
        bit = warp.select(fused.bit(warp, dot(warp, Csub, i, n), i), False)
    return warp.ballot(bit)


class ConvOptions(TypedDict, total=False):
    """Keyword arguments of all convolutions: see `simwarp.listings.bconv32`."""

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
    padding : "SAME", "VALID" or ((top, bottom), (left, right)), default "SAME"
        By TensorFlow's rules, or so many rows and columns, at least 0. What is padded counts nothing.
    thresholds : integers in the range of int32, (O,), optional
        Ask for bits (BConv-32B): bit (n, p, q, o) is 1 where ``y[n, p, q, o] >= thresholds[o]``.
    flip : bool, (O,), optional
        The output channels whose bits are reversed.

    Returns
    -------
    array of int32, (N, P, Q, O)
        With ``thresholds`` PackedTensor instead, ``layout="NHWC"``, ``word=32``, ``first="msb"``: the
        ``x`` of a next convolution. P is ceil(H / stride) for "SAME", else what fits:
        (H + top + bottom - (R - 1) * dilation - 1) // stride + 1. Q likewise.

    Raises
    ------
    ShapeError
        If an operand has not four axes or one of size 0, the channels differ, the output has a size of
        0, anything has more than 2³¹ - 1 elements, a stride, dilation or padding is too small or not of
        the right length, or there is not one threshold and flip per output channel.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; names the first.
    FormatError
        For a PackedTensor in another layout, word size or bit order, or whose words do not fit it.
    SchemeError
        For another string for ``padding``, or ``flip`` without ``thresholds``.
    LaunchError
        For more than 65535 images or rows of output, beyond which there is no grid.

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
    """Launch a convolution with a warp per output pixel, and download int32 sums or packed images."""
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
