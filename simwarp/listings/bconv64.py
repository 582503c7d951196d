"""BConv-64: listing 6 with 64-bit words, two votes to a word.

>>> input = GlobalArray.of("input", np.array([1.0, -1.0, 1.0, -1.0]))  # one pixel, + - + -
>>> bitfilter = GlobalArray.of("bitfilter", np.array([0x8 << 60], np.uint64))  # one tap, + - - -
>>> output = GlobalArray("output", (1, 1, 1, 1), np.int32)
>>> from simwarp.listings.conv_operands import layer
>>> from simwarp.warp import launch
>>> p = layer((1, 1, 1, 4), (1, 1, 4, 1), 1, "VALID", 1)
>>> launch(Conv2d_64bit, (1, 1, 1), 32, input, bitfilter, output, p, shared={"Csub": (np.uint32, 1)})
>>> output.numpy().tolist()
[[[[2]]]]

Source: BSTC (SC'19), section 5.2 "BConv-64", listing 6; section 6.2, listing 7; equation 2.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N806

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE, brev, popc, xor
from simwarp.listings.bconv import across, dot, run_conv, signs, thresholded
from simwarp.listings.conv_operands import ConvLayerParam, ConvOperand, Padding, Pair, conv_operands
from simwarp.listings.fused import Fused
from simwarp.listings.packing64 import WORD, mov_b64
from simwarp.warp import GlobalArray, Warp


def Conv2d_64bit(
    warp: Warp,
    input: GlobalArray,
    bitfilter: GlobalArray,
    output: GlobalArray,
    p: ConvLayerParam,
    fused: Fused | None = None,
) -> None:
    """Listing 6 with 64 channels to a step of c; with bits in and out BConv-64B.

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


def bconv64(
    x: ConvOperand,
    w: ConvOperand,
    *,
    stride: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
    thresholds: npt.ArrayLike | None = None,
    flip: npt.ArrayLike | None = None,
) -> Any:
    """The ±1 cross-correlation with 64-bit words, by listing 6 (BConv-64, BConv-64B).

    Parameters
    ----------
    x, w, stride, padding, dilation, thresholds, flip
        As for `bconv32`; a PackedTensor has 64-bit words.

    Returns
    -------
    array of int32, (N, P, Q, O), or with ``thresholds`` PackedTensor
        As for `bconv32`, with 64-bit words.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, FormatError, SchemeError, LaunchError
        As `bconv32`.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 "BConv-64", listings 6 and 7; equations 1 and 2.

    Examples
    --------
    >>> bconv64(np.ones((1, 2, 2, 1)), -np.ones((2, 2, 1, 1)), padding="VALID").tolist()
    [[[[-4]]]]
    """
    return run_conv(Conv2d_64bit, conv_operands(x, w, stride, padding, dilation, 64), 64, thresholds, flip)
