"""The ±1 convolution: the definition in NumPy, tap by tap, and a Numba version for large problems.

The Numba version computes equation 2 of BSTC on packed words, and counts the taps inside the image for each
pixel. The tests compare the two.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bits import Bits, add_differences, compiled, real_array, sign_bits
from reference.conv_geometry import ConvGeometry, Padding, PerAxis, conv_geometry, inside
from reference.tensors import check_packed_tensor, pack_tensor_bits, unpack_tensor
from reference.types import PackedTensor, TensorLayout
from reference.types.packed import FILTER_LAYOUTS, IMAGE_LAYOUTS

Dots: TypeAlias = npt.NDArray[np.int32]

# With fewer terms, the NumPy version takes less time than importing Numba and compiling the loop.
_LARGE_SUM = 1 << 28
# With more elements, float64 tensors would take more than 1 GiB; packed words need one bit for each.
_LARGE_TENSORS = 1 << 27
# Each tap costs a few NumPy calls, however small the image.
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
    taps (r, s) inside the image: 0 <= h < H and 0 <= v < W. A tap outside contributes **nothing**, neither
    +1 nor -1; see `excluded_taps`. Exact integers. ``simwarp.listings.bconv32`` and
    ``gpu.bconv2d`` answer the same question.

    Parameters
    ----------
    x : array_like of float64, float32, float16, bfloat16 or int8, (N, H, W, C), or PackedTensor of images
        A PackedTensor may have any layout of images, word and bit order; its words must be on the host.
    w : likewise, (R, S, C, O), or PackedTensor of filters
        Its dtype or format may differ from that of ``x``.
    stride, dilation : int or (vertical, horizontal), at least 1
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right)), at least 0
        The names are TensorFlow's; see `conv_geometry`.
    groups : int
        Filter o reads the channels of group ``o // (O / groups)`` only; w has C / groups channels.

    Returns
    -------
    array of int32, (N, P, Q, O), C order

    Raises
    ------
    ShapeError
        As `conv_geometry`: shapes that do not fit, an empty output, too many elements.
    DtypeError
        For another dtype.
    NotANumberError
        For a NaN; names the operand and the first index.
    FormatError
        For a PackedTensor whose words do not fit its shape or format, or that holds filters as ``x``.
    SchemeError
        For an unknown name of padding, groups below 1, or an unknown format.

    Notes
    -----
    Source: BSTC (SC'19), equation 2 and section 5.2.

    Examples
    --------
    With an image and a filter of +1, each output counts the taps inside the image:

    >>> bconv2d(np.ones((1, 3, 3, 1)), np.ones((3, 3, 1, 1)))[0, :, :, 0]
    array([[4, 6, 4],
           [6, 9, 6],
           [4, 6, 4]], dtype=int32)

    Two groups of two channels and one filter each:

    >>> w = np.ones((1, 1, 2, 2)) * [1, -1]
    >>> bconv2d(np.ones((1, 1, 1, 4)), w, groups=2).ravel()
    array([ 2, -2], dtype=int32)
    """
    x, w = _operand(x, "x", IMAGE_LAYOUTS), _operand(w, "w", FILTER_LAYOUTS)
    geometry = conv_geometry(
        x.shape, w.shape, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    images, filters = (np.split(_bits(one, name), groups, axis=-1) for one, name in ((x, "x"), (w, "w")))
    parts = [_bconv2d(*bits, geometry) for bits in zip(images, filters, strict=True)]
    return parts[0] if groups == 1 else np.concatenate(parts, axis=-1)


def _bconv2d(bits_x: Bits, bits_w: Bits, geometry: ConvGeometry) -> Dots:
    """Convolve the bits of one group's images and filters."""
    if _is_small(geometry):
        return _tap_by_tap(bits_x, bits_w, geometry)
    words_x = pack_tensor_bits(bits_x, "NHWC", 64, "lsb").words
    words_w = pack_tensor_bits(bits_w, "HWIO", 64, "lsb").words
    return _word_by_word(words_x, words_w, geometry)


def _operand(
    operand: npt.ArrayLike | PackedTensor, name: str, layouts: tuple[TensorLayout, ...]
) -> npt.NDArray[Any] | PackedTensor:
    """Check an operand; an array of real numbers unless it is packed."""
    if isinstance(operand, PackedTensor):
        check_packed_tensor(operand, name, layouts)
        return operand
    return real_array(operand, name)


def _bits(operand: npt.NDArray[Any] | PackedTensor, name: str) -> Bits:
    """Unpack a packed operand to bits, or take the sign bits of numbers."""
    return unpack_tensor(operand) if isinstance(operand, PackedTensor) else sign_bits(operand, name)


def _is_small(g: ConvGeometry) -> bool:
    """True if the NumPy version is faster than Numba's and its arrays fit into memory."""
    taps = g.filter_height * g.filter_width
    outputs = g.batch * g.out_height * g.out_width * g.filters
    elements = outputs + g.batch * g.height * g.width * g.channels + taps * g.channels * g.filters
    return outputs * taps * g.channels < _LARGE_SUM and elements < _LARGE_TENSORS and taps < _MANY_TAPS


def _tap_by_tap(bits_x: Bits, bits_w: Bits, g: ConvGeometry) -> Dots:
    """The convolution of bits by definition; exact, as every partial sum is below 2**53."""
    x, w = 2.0 * bits_x - 1.0, 2.0 * bits_w - 1.0
    y = np.zeros((g.batch, g.out_height, g.out_width, g.filters))
    for r in range(g.filter_height):
        for s in range(g.filter_width):
            rows, columns = g.rows(r), g.columns(s)
            p, q = np.flatnonzero(inside(rows, g.height)), np.flatnonzero(inside(columns, g.width))
            y[:, p[:, None], q] += x[:, rows[p][:, None], columns[q]] @ w[r, s]
    return y.astype(np.int32)


def _word_by_word(words_x: npt.NDArray[np.uint64], words_w: npt.NDArray[np.uint64], g: ConvGeometry) -> Dots:
    """The convolution by equation 2, on words (N, H, W, K) and (R, S, K, O) with equal padding bits."""
    return compiled(_xor_popc)(
        *(words_x, words_w, g.channels, (g.out_height, g.out_width), (g.pad_top, g.pad_left)),
        *((g.stride_h, g.stride_w), (g.dilation_h, g.dilation_w)),
    )


def _xor_popc(
    words_x: Any, words_w: Any, channels: int, out: Any, pad: Any, stride: Any, dilation: Any
) -> Any:
    """The Numba-compiled loops of `_word_by_word`, over outputs, taps and words."""
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
