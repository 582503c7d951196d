"""The ±1 convolution: the definition in NumPy, tap by tap, and a Numba version checked against it.

The Numba version, for large problems, is equation 2 of BSTC on packed words, with the taps that lie on the
image counted for each pixel.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bits import Bits, add_differences, compiled, real_array, sign_bits
from reference.conv_geometry import ConvGeometry, Padding, PerAxis, conv_geometry
from reference.tensors import (
    FILTER_LAYOUTS,
    IMAGE_LAYOUTS,
    check_packed_tensor,
    pack_tensor_bits,
    unpack_tensor,
)
from reference.types import PackedTensor, TensorLayout

Dots: TypeAlias = npt.NDArray[np.int32]

# As many terms as the definition adds while Numba compiles; and its eight bytes for each bit of the other.
_LARGE_SUM = 1 << 28
_LARGE_TENSORS = 1 << 27
# Each tap is a handful of NumPy calls, however little there is to add.
_MANY_TAPS = 1 << 14


def bconv2d(
    x: npt.ArrayLike | PackedTensor,
    w: npt.ArrayLike | PackedTensor,
    *,
    stride: PerAxis = 1,
    padding: Padding = "SAME",
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Dots:
    """Cross-correlate images with filters, each element replaced by its sign, +1 or -1.

    ``y[n, p, q, o]`` is the sum over r, s and c of ``s(x[n, h, v, c]) * s(w[r, s, c, o])`` with
    ``h = p * stride_h - top + r * dilation_h`` and ``v = q * stride_w - left + s * dilation_w``, over the
    taps (r, s) that lie on the image: 0 <= h < H and 0 <= v < W. A tap outside contributes **nothing**,
    neither +1 nor -1; see `excluded_taps`. Exact integers. ``simwarp.listings.bconv32`` and
    ``gpu.bconv2d`` answer the same question.

    Parameters
    ----------
    x : array_like of float64, float32, float16 or int8, (N, H, W, C), or PackedTensor of images
        A PackedTensor may have any layout of images, word and bit order; its words lie on the host.
    w : likewise, (R, S, C, O), or PackedTensor of filters
        The element type or format need not go with that of ``x``.
    stride, dilation : int or (vertical, horizontal), at least 1
    padding : {"SAME", "VALID"} or ((top, bottom), (left, right)), at least 0
        The words are TensorFlow's; see `conv_geometry`.
    groups : 1

    Returns
    -------
    array of int32, (N, P, Q, O), C order

    Raises
    ------
    ShapeError
        As `conv_geometry`: shapes that do not fit, an output of no pixel, too many elements.
    DtypeError
        For an element type that is not in the list.
    NotANumberError
        For a NaN; names the operand and the first index.
    FormatError
        For a PackedTensor whose words do not fit its description, or of filters as ``x``.
    SchemeError
        For another word of padding, groups other than 1, or an unknown format.

    Notes
    -----
    Source: BSTC (SC'19), equation 2 and section 5.2.

    Examples
    --------
    A 3×3 image of +1 under a 3×3 filter of +1 counts the taps that lie on the image:

    >>> bconv2d(np.ones((1, 3, 3, 1)), np.ones((3, 3, 1, 1)))[0, :, :, 0]
    array([[4, 6, 4],
           [6, 9, 6],
           [4, 6, 4]], dtype=int32)
    """
    x, w = _operand(x, "x", IMAGE_LAYOUTS), _operand(w, "w", FILTER_LAYOUTS)
    geometry = conv_geometry(
        x.shape, w.shape, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    bits_x, bits_w = _bits(x, "x"), _bits(w, "w")
    if _is_small(geometry):
        return _tap_by_tap(bits_x, bits_w, geometry)
    words_x = pack_tensor_bits(bits_x, "NHWC", 64, "lsb").words
    words_w = pack_tensor_bits(bits_w, "HWIO", 64, "lsb").words
    return _word_by_word(words_x, words_w, geometry)


def _operand(
    operand: npt.ArrayLike | PackedTensor, name: str, layouts: tuple[TensorLayout, ...]
) -> npt.NDArray[Any] | PackedTensor:
    if isinstance(operand, PackedTensor):
        check_packed_tensor(operand, name, layouts)
        return operand
    return real_array(operand, name)


def _bits(operand: npt.NDArray[Any] | PackedTensor, name: str) -> Bits:
    return unpack_tensor(operand) if isinstance(operand, PackedTensor) else sign_bits(operand, name)


def _is_small(g: ConvGeometry) -> bool:
    taps = g.filter_height * g.filter_width
    outputs = g.batch * g.out_height * g.out_width * g.filters
    inputs = g.batch * g.height * g.width * g.channels + taps * g.channels * g.filters
    return (
        outputs * taps * g.channels < _LARGE_SUM and inputs + outputs < _LARGE_TENSORS and taps < _MANY_TAPS
    )


def _tap_by_tap(bits_x: Bits, bits_w: Bits, g: ConvGeometry) -> Dots:
    """The definition, on bits; every partial sum is an integer below 2**53."""
    x, w = 2.0 * bits_x - 1.0, 2.0 * bits_w - 1.0
    y = np.zeros((g.batch, g.out_height, g.out_width, g.filters))
    for r in range(g.filter_height):
        for s in range(g.filter_width):
            rows, columns = g.rows(r), g.columns(s)
            (p,) = np.nonzero((rows >= 0) & (rows < g.height))
            (q,) = np.nonzero((columns >= 0) & (columns < g.width))
            y[:, p[:, None], q] += x[:, rows[p][:, None], columns[q]] @ w[r, s]
    return y.astype(np.int32)


def _word_by_word(words_x: npt.NDArray[np.uint64], words_w: npt.NDArray[np.uint64], g: ConvGeometry) -> Dots:
    """Equation 2 with the true number of terms, on words (N, H, W, K) and (R, S, K, O), padding alike."""
    return compiled(_xor_popc)(
        *(words_x, words_w, g.channels, (g.out_height, g.out_width), (g.pad_top, g.pad_left)),
        *((g.stride_h, g.stride_w), (g.dilation_h, g.dilation_w)),
    )


def _xor_popc(
    words_x: Any, words_w: Any, channels: int, out: Any, pad: Any, stride: Any, dilation: Any
) -> Any:
    batch, height, width, steps = words_x.shape
    filter_height, filter_width, _, filters = words_w.shape
    y = np.zeros((batch, out[0], out[1], filters), np.int32)
    for n, p, q in np.ndindex(batch, out[0], out[1]):
        taps = 0
        for r in range(filter_height):
            row = p * stride[0] - pad[0] + r * dilation[0]
            for s in range(filter_width):
                column = q * stride[1] - pad[1] + s * dilation[1]
                if 0 <= row < height and 0 <= column < width:
                    taps += 1
                    for step in range(steps):
                        add_differences(words_x[n, row, column, step], words_w[r, s, step], y[n, p, q])
        for o in range(filters):
            y[n, p, q, o] = channels * taps - 2 * y[n, p, q, o]
    return y
