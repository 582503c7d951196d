"""Listing 6: ±1 convolution on the bit tensor core that excludes the taps outside the image.

At one pixel of the output and one tap, images times filters is a product of bit matrices, (N, C) · (C, O):
images are transposed to HWNC, filters to KKOC, and a warp sums an 8 × 8 tile over the taps in the frame.
In design 1 the matrices are packed rows; in design 2 they are in FSB format.

>>> input = GlobalArray.of("input", np.zeros((1, 1, 8, 4), np.uint32))  # 8 images of one pixel, all -1
>>> filter = GlobalArray.of("filter", np.zeros((3, 3, 8, 4), np.uint32))
>>> from simwarp.listings.conv_operands import layer
>>> output = GlobalArray("output", (1, 1, 8, 8), np.int32)
>>> p = layer((8, 1, 1, 100), (3, 3, 100, 8), 1, "SAME", 1)  # 100 channels
>>> launch(BTC_Conv2d, (1, 1, 1), 32, input, filter, output, p, Padded(8, 128, 8), False, Options())
>>> int(output.numpy()[0, 0, 7, 7])  # one tap of nine is in the frame
100

Source: BTC (TPDS), section 5.3, listing 6, equations 2 and 3.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np

from reference.types import First, PackedTensor
from simwarp.lanes import WARP_SIZE, brev
from simwarp.listings.bconv import ConvOptions
from simwarp.listings.btc.fragments import Operation, Tile, load_matrix_sync
from simwarp.listings.btc.fsb import rows_to_fsb
from simwarp.listings.btc.tiles import TILE_SIDE, Options, most_significant_first, padded, store_tile
from simwarp.listings.conv_operands import (
    ConvLayerParam,
    ConvOperand,
    Padding,
    Pair,
    conv_operands,
    packed_channels,
)
from simwarp.warp import GlobalArray, Warp, launch


class Padded(NamedTuple):
    """Batch size and channel counts, rounded up to whole tiles of the tensor core."""

    batch: int
    """A multiple of 8."""
    in_channels: int
    """A multiple of 128."""
    out_channels: int
    """A multiple of 8; for bits, of 32."""


def BTC_Conv2d(
    warp: Warp,
    input: GlobalArray,
    filter: GlobalArray,
    output: GlobalArray,
    p: ConvLayerParam,
    sizes: Padded,
    fsb: bool,
    options: Options,
) -> None:
    """Listing 6: bit convolution on the bit tensor core, designs 1 and 2 (``fsb``).

    ``input`` is HWNC, uint32 (in_height, in_width, batch, in_channels / 32), ``filter`` KKOC, uint32
    (filter_height, filter_width, out_channels, in_channels / 32); with fsb both end in tiles, (…, batch / 8,
    in_channels / 128, 8, 4). ``output`` is PQNO, int32, or uint32 of out_channels / 32 words with thresholds.
    ``p`` has the true sizes, ``sizes`` the padded batch and channels; both operands have 0 past the true
    in_channels, and n counts those.

    Other than in print: ``in_channels > 7`` and ``out_channels > 3`` are shifts, ``in_channels >> 7`` steps
    of 128 and ``out_channels >> 3`` tiles of 8. Products are products, where the text we have shows minus
    signs and sums (``(ay*in_width+ax)*batch*ins*4+bn*ins*32+c*4`` and the like, and
    ``in_channels*filter_height*filter_width-exclude*in_channels-(2*c_frag.x[i])``), and blockIdx.z runs over
    ``out_channels/8 * batch/8``. The filter is KKOC, as in the comment of line 29, not KKCO as in the text.
    Dilation and thresholds, as in listing 5, are added. For design 2 the paper changes ``ldm`` to 128; the
    step from one c to the next changes too, from 4 words to the 32 of a tile.

    Grid: (out_width, out_height, out_channels / 8 * batch / 8), blocks of one warp; shared, for bits: Cs.
    """
    # grid: x over out_width (Q), y over out_height (P), z over out_channels / 8 * batch / 8
    bx, by, bz = warp.block
    batch, in_channels, out_channels = sizes
    ins = in_channels >> 7  # steps of 128 bits along in_channels (C)
    bn, bo = bz // (out_channels >> 3), bz % (out_channels >> 3)
    ldm, step = (128, 32) if fsb else (in_channels, 4)
    ax0 = bx * p.stride_horizontal - p.pad_w
    ay0 = by * p.stride_vertical - p.pad_h
    exclude = 0  # filter entries that are masked off
    c_frag = Tile(warp, options.operation)
    for r in range(p.filter_height):
        for s in range(p.filter_width):
            ay, ax = ay0 + r * p.dilation_vertical, ax0 + s * p.dilation_horizontal
            if not (0 <= ay < p.in_height and 0 <= ax < p.in_width):
                exclude += 1  # tap outside the image
                continue
            a = (ay * p.in_width + ax) * batch * ins * 4 + bn * ins * 32
            b = (r * p.filter_width + s) * out_channels * ins * 4 + bo * ins * 32
            for c in range(ins):  # 128 input channels at a time
                a_frag = load_matrix_sync(warp, "matrix_a", input, a + c * step, ldm)
                b_frag = load_matrix_sync(warp, "matrix_b", filter, b + c * step, ldm)
                c_frag.bmma(a_frag, b_frag)
    n = p.in_channels * p.filter_height * p.filter_width - exclude * p.in_channels
    row = (by * p.out_width + bx) * batch + bn * 8
    store_tile(warp, output, row, bo, c_frag.dots(n), out_channels, options)


class TensorCoreConvOptions(ConvOptions, total=False):
    """Keyword arguments of the bit tensor core's convolutions: see `simwarp.listings.btc_bconv1`."""

    operation: Operation
    first: First


def btc_bconv1(x: ConvOperand, w: ConvOperand, **options: Unpack[TensorCoreConvOptions]) -> Any:
    """The ±1 cross-correlation of the signs of images and filters, by BTC's design 1.

    With s(·) the signs, and the sum over the taps (r, s) that lie in the image, and all channels c::

        y[n, p, q, o] = Σ s(x[n, p * stride - top + r * dilation, q * stride - left + s * dilation, c])
                          * s(w[r, s, c, o])

    Parameters
    ----------
    x : array_like of float64, float32, float16 or int8, or PackedTensor; (N, H, W, C)
        A PackedTensor has ``layout="NHWC"`` and 32-bit words, in either bit order.
    w : likewise, (R, S, C, O)
        A PackedTensor has ``layout="HWIO"``.
    stride, dilation : int, or (vertical, horizontal), at least 1, default 1
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right))
        By TensorFlow's rules, or rows and columns, at least 0. Padding contributes nothing to a sum.
    thresholds : integers in the range of int32, (O,), optional
        Return bits: bit (n, p, q, o) is 1 where ``y[n, p, q, o] >= thresholds[o]``.
    flip : bool, (O,), optional
        The output channels whose bits are inverted.
    operation : "xor" or "and", default "xor"
        The operation of the tensor core, Turing's or Hopper's; the result is the same.
    first : "lsb" or "msb", default "lsb"
        The bit order of the kernel's words and of the output.

    Returns
    -------
    array of int32, (N, P, Q, O)
        With ``thresholds`` a PackedTensor instead, ``layout="NHWC"``, ``word=32`` and the given ``first``:
        channel o is bit ``o % 32`` of ``words[n, p, q, o // 32]`` for "lsb", bit ``31 - o % 32`` for "msb".
        It is the ``x`` of the next convolution.

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
        For a PackedTensor in another layout or word size, or whose words do not fit it.
    SchemeError
        For an unknown ``padding``, ``operation`` or ``first``, or ``flip`` without ``thresholds``.

    Notes
    -----
    Source: BTC (TPDS), section 5.3, listing 6; equations 1 to 3.

    Examples
    --------
    >>> btc_bconv1(np.ones((1, 3, 3, 5)), np.ones((3, 3, 5, 1)))[0, :, :, 0]  # 4, 6 or 9 taps, 5 channels
    array([[20, 30, 20],
           [30, 45, 30],
           [20, 30, 20]], dtype=int32)
    >>> bits = btc_bconv1(np.ones((1, 3, 3, 5)), np.ones((3, 3, 5, 1)), thresholds=[30])
    >>> bits.words[0, :, :, 0].tolist()
    [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    """
    return _run(False, x, w, **options)


def btc_bconv2(x: ConvOperand, w: ConvOperand, **options: Unpack[TensorCoreConvOptions]) -> Any:
    """The ±1 cross-correlation by BTC's design 2, with image and filter in FSB format.

    Parameters, returns and errors are those of `btc_bconv1`.

    Notes
    -----
    Source: BTC (TPDS), sections 5.1 and 5.3, listing 6; equations 1 to 3.

    Examples
    --------
    >>> btc_bconv2(np.ones((1, 3, 3, 5)), np.ones((3, 3, 5, 1)), operation="and")[0, :, :, 0]
    array([[20, 30, 20],
           [30, 45, 30],
           [20, 30, 20]], dtype=int32)
    """
    return _run(True, x, w, **options)


def _run(
    fsb: bool,
    x: ConvOperand,
    w: ConvOperand,
    *,
    stride: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    **more: Any,
) -> Any:
    """Transpose to HWNC and KKOC, pad, launch a block per pixel and tile, download, crop."""
    x, w = most_significant_first(x), most_significant_first(w)
    ready = conv_operands(x, w, stride, padding, dilation, WARP_SIZE)
    p, images = ready.p, ready.input.numpy()
    options = Options.of(p.out_channels, **more)
    images = images if isinstance(x, PackedTensor) else packed_channels(images)
    turned = images.transpose(1, 2, 0, 3), ready.bitfilter.numpy().transpose(0, 1, 3, 2)
    images, filters = map(brev, turned) if options.first == "lsb" else turned
    images, filters = padded(images, TILE_SIDE), padded(filters, WARP_SIZE if options.fused else TILE_SIDE)
    sizes = Padded(images.shape[2], images.shape[3] * WARP_SIZE, filters.shape[2])
    tiles = sizes.batch // TILE_SIDE * (sizes.out_channels // TILE_SIDE)
    arrays = (
        GlobalArray.of("input", rows_to_fsb(images) if fsb else images, read_only=True),
        GlobalArray.of("filter", rows_to_fsb(filters) if fsb else filters, read_only=True),
        options.output("output", (p.out_height, p.out_width, sizes.batch, sizes.out_channels)),
    )
    grid = p.out_width, p.out_height, tiles
    launch(BTC_Conv2d, grid, WARP_SIZE, *arrays, p, sizes, fsb, options, shared=options.shared(1))
    channels = -(-p.out_channels // WARP_SIZE) if options.fused else p.out_channels
    y = np.ascontiguousarray(arrays[2].numpy()[:, :, : p.batch, :channels].transpose(2, 0, 1, 3))
    if not options.fused:
        return y
    return PackedTensor(y, (*y.shape[:3], p.out_channels), "NHWC", 32, options.first)
