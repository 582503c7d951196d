"""Axis orders of images and filters, and packing of their signs into words, on the host.

The signs are those of `reference.binarize`.

Source: BSTC (SC'19), sections 4 and 5.2; BTC (TPDS'20), sections 5.1 and 5.3, figure 14.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from reference.bits import Bits, check_words, packed_words, real_array, sign_bits, unpacked_words
from reference.errors import DtypeError, FormatError, SchemeError, ShapeError
from reference.types import First, PackedTensor, TensorLayout, Word
from reference.types.arguments import check_option
from reference.types.fields import is_integer
from reference.types.packed import IMAGE_LAYOUTS, LAYOUTS, TENSOR_LAYOUTS, check_format, words_shape

Axes: TypeAlias = Literal["NHWC", "HWNC", "NCHW", "HWIO", "HWOI", "OIHW", "KKCO", "OCKK"]
Scalar = TypeVar("Scalar", bound=np.generic)

# The axes of each order in TensorFlow's letters. BTC writes K for both axes of the window, and C for I.
_AXES: dict[str, str] = {
    **{axes: axes for axes in ("NHWC", "HWNC", "NCHW", "HWIO", "HWOI", "OIHW")},
    **{"KKCO": "HWIO", "OCKK": "OIHW"},
}


def to_layout(array: npt.NDArray[Scalar], source: Axes, target: Axes) -> npt.NDArray[Scalar]:
    """Permute the axes of images or filters from one order to another.

    For example ``to_layout(x, "NHWC", "HWNC")[h, w, n, c] == x[n, h, w, c]``. The letters of images are
    N, H, W, C; those of filters are O, I, H, W, where I are the input channels.

    ========== =========================================================================
    order      used for
    ========== =========================================================================
    ``NHWC``   images of TensorFlow, of BSTC and of this package
    ``NCHW``   images of PyTorch
    ``HWNC``   images of BTC
    ``HWIO``   filters of TensorFlow, of BSTC and of this package; called ``KKCO`` by BTC
    ``OIHW``   filters of PyTorch; called ``OCKK`` by BTC
    ``HWOI``   filters whose packed words hold input channels
    ========== =========================================================================

    Parameters
    ----------
    array : any dtype, four dimensions
    source, target : str
        Orders from the table, both of images or both of filters.

    Returns
    -------
    array of the same elements, C order
        A copy unless the array has that order already.

    Raises
    ------
    SchemeError
        For an unknown order, or for one order of images and one of filters.
    ShapeError
        If ``array`` does not have four dimensions.

    Notes
    -----
    Source: BTC (TPDS'20), section 5.3.

    Examples
    --------
    >>> to_layout(np.zeros((8, 3, 32, 40)), "NCHW", "NHWC").shape
    (8, 32, 40, 3)
    >>> to_layout(np.zeros((64, 3, 5, 7)), "OIHW", "KKCO").shape
    (5, 7, 3, 64)
    """
    for name, axes in (("source", source), ("target", target)):
        check_option(name, axes, tuple(_AXES), "letters name the axes")
    old, new = _AXES[source], _AXES[target]
    if set(old) != set(new):
        raise SchemeError(
            f"source={source!r} and target={target!r} do not have the same axes\n"
            "N and C are axes of images, O and I of filters\n"
            "give two orders of images or two of filters"
        )
    if np.ndim(array) != 4:
        raise ShapeError(
            f"array has shape {np.shape(array)}\n{source} names four axes\nadd the missing ones with reshape"
        )
    return np.ascontiguousarray(np.transpose(array, [old.index(axis) for axis in new]))


def pack_tensor(
    x: npt.ArrayLike, *, layout: TensorLayout, word: Word = 32, first: First = "lsb"
) -> PackedTensor:
    """Binarize images or filters and pack L = ``word`` channels into each word.

    Channel c becomes bit ``i`` of word ``k = c // L``, where bit 0 is the least significant and
    ``i = c % L`` for ``first="lsb"`` or ``L - 1 - c % L`` for ``first="msb"``. Word k of pixel (n, h, w) of
    images, or of tap (r, s) of filter o, is::

        images                                   filters
        "NHWC"      words[n, h, w, k]            "HWOI"      words[r, s, o, k]
        "HWNC"      words[h, w, n, k]            "HWIO"      words[r, s, k, o]
        "HWNC-FSB"  words[h, w, n // 8, k // 4,  "HWOI-FSB"  words[r, s, o // 8, k // 4,
                          n % 8, k % 4]                            o % 8, k % 4]

    Bits past C, and in FSB tiles past N or O, are 0.

    Parameters
    ----------
    x : array_like of float64, float32, float16, bfloat16 or int8
        Images (N, H, W, C) or filters (R, S, C, O), always in this order of axes. `to_layout` converts
        other orders.
    layout : {"NHWC", "HWNC", "HWNC-FSB"} for images, {"HWOI", "HWIO", "HWOI-FSB"} for filters
    word : a word size of `reference.types.PackedBits`
        32 in the FSB layouts.
    first : {"lsb", "msb"}

    Returns
    -------
    PackedTensor
        ``words`` of uint32, or of uint64 for longer words, C order.

    Raises
    ------
    SchemeError
        For an unknown ``layout``, ``word`` or ``first``, or longer words in an FSB layout.
    ShapeError
        If ``x`` does not have four dimensions, each at least 1.
    DtypeError, NotANumberError
        As `reference.binarize`.

    Notes
    -----
    Source: BSTC (SC'19), section 5.2 (words along the channels); BTC (TPDS'20), section 5.1, figure 14.

    Examples
    --------
    >>> pixel = np.array([1.0, -1.0, -1.0, 1.0]).reshape(1, 1, 1, 4)
    >>> hex(pack_tensor(pixel, layout="NHWC").words[0, 0, 0, 0])
    '0x9'
    >>> pack_tensor(np.ones((3, 3, 200, 20)), layout="HWOI-FSB").words.shape
    (3, 3, 3, 2, 8, 4)
    """
    check_format(layout, word, first, TENSOR_LAYOUTS)
    array = real_array(x, "x")
    _check_shape(array.shape, layout, "x")
    return pack_tensor_bits(sign_bits(array, "x"), layout, word, first)


def unpack_tensor(packed: PackedTensor) -> Bits:
    """Return the bits of packed images or filters; the inverse of `pack_tensor`.

    Bits past the edges are ignored.

    Parameters
    ----------
    packed : PackedTensor
        Its words must be on the host.

    Returns
    -------
    array of uint8, (N, H, W, C) or (R, S, C, O), C order

    Raises
    ------
    FormatError
        If the words are not a host array of the shape and dtype that ``packed.shape`` and the format
        require, or ``packed.shape`` is missing.
    SchemeError
        For an unknown layout, word or bit order.
    ShapeError
        If a dimension of ``packed.shape`` is less than 1.

    Examples
    --------
    >>> x = np.array([1.0, -1.0, -1.0]).reshape(1, 1, 1, 3)
    >>> unpack_tensor(pack_tensor(x, layout="HWNC")).tolist()
    [[[[1, 0, 0]]]]
    """
    check_packed_tensor(packed, "the packed tensor")
    words, form = packed.words, LAYOUTS[packed.layout]
    if form.tile:
        words = from_tiles(words, packed.shape[form.order[2]], words.shape[3] * words.shape[5])
    return unpacked_words(words, packed)


def pack_tensor_bits(bits: Bits, layout: TensorLayout, word: Word, first: First) -> PackedTensor:
    """Pack images or filters of bits 0 and 1, without the checks of `pack_tensor`."""
    words, tile = packed_words(bits, layout, word, first), LAYOUTS[layout].tile
    if tile:
        words = to_tiles(words, tile[0], tile[1] // word)
    n, h, w, c = bits.shape
    return PackedTensor(words, (n, h, w, c), layout, word, first)


def to_tiles(matrices: npt.NDArray[Scalar], tile_rows: int, tile_columns: int) -> npt.NDArray[Scalar]:
    """Cut the last two axes into tiles, padded with zeros: BTC's FSB format for any element and tile.

    ``tiles[..., i // T, j // U, i % T, j % U] == matrices[..., i, j]`` with T = ``tile_rows`` and
    U = ``tile_columns``, BH and BW of BTC (TPDS'20), section 5.1 and figure 14.
    """
    *outer, rows, columns = matrices.shape
    down, across = -(-rows // tile_rows), -(-columns // tile_columns)
    padded = np.zeros((*outer, down * tile_rows, across * tile_columns), matrices.dtype)
    padded[..., :rows, :columns] = matrices
    tiles = padded.reshape(*outer, down, tile_rows, across, tile_columns)
    return np.ascontiguousarray(np.swapaxes(tiles, -3, -2))


def from_tiles(tiles: npt.NDArray[Scalar], rows: int, columns: int) -> npt.NDArray[Scalar]:
    """The inverse of `to_tiles`: cut the padding off to matrices of ``rows`` by ``columns``."""
    *outer, down, across, tile_rows, tile_columns = tiles.shape
    padded = np.swapaxes(tiles, -3, -2).reshape(*outer, down * tile_rows, across * tile_columns)
    return np.ascontiguousarray(padded[..., :rows, :columns])


def _check_shape(shape: tuple[int, ...], layout: TensorLayout, name: str) -> None:
    """Raise ShapeError unless a shape has four dimensions of at least 1."""
    if len(shape) != 4 or min(shape) < 1:
        axes = f"{'images' if layout in IMAGE_LAYOUTS else 'filters'} {LAYOUTS[layout].axes}"
        raise ShapeError(
            f"{name} has shape {shape}\n"
            f"layout={layout!r} needs {axes}, each dimension at least 1\n"
            "add missing axes with reshape; where a dimension is 0, there is nothing to compute"
        )


def check_packed_tensor(packed: Any, name: str, layouts: tuple[TensorLayout, ...] = TENSOR_LAYOUTS) -> None:
    """Raise unless ``packed`` is a PackedTensor that can be unpacked, with one of ``layouts``."""
    if not isinstance(packed, PackedTensor):
        raise DtypeError(
            f"{name}: expected a PackedTensor, got {type(packed).__name__}\n"
            "pack real images or filters with `pack_tensor(x, layout=…)`"
        )
    check_format(packed.layout, packed.word, packed.first, TENSOR_LAYOUTS)
    if packed.layout not in layouts:
        raise FormatError(
            f"{name} is packed with layout={packed.layout!r}\n"
            f"here it must be {' or '.join(repr(layout) for layout in layouts)}\n"
            "images are x, filters are w: check the order of the arguments, or pack the data again"
        )
    size: Any = packed.shape
    if not issubclass(type(size), tuple) or len(size) != 4 or not all(map(is_integer, size)):
        raise FormatError(
            f"{name} has shape={packed.shape!r}\n"
            "it decides which bits of the words are padding\n"
            "give PackedTensor the shape of the unpacked tensor, four ints"
        )
    _check_shape(packed.shape, packed.layout, name)
    shape = words_shape(packed.layout, packed.word, packed.shape)
    check_words(packed, name, f"shape={packed.shape}", shape)
