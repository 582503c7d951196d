"""Images and filters: the orders of their axes, and their bits in words.

Everything here is index arithmetic on the host. The signs are those of `reference.binarize`.

Source: BSTC (SC'19), sections 4 and 5.2; BTC (TPDS'20), sections 5.1 and 5.3, figure 14.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from reference.bits import (
    Bits,
    bits_of,
    check_option,
    check_words,
    real_array,
    sign_bits,
    words_of,
)
from reference.errors import DtypeError, FormatError, SchemeError, ShapeError
from reference.types import First, PackedTensor, TensorLayout, Word

Axes: TypeAlias = Literal["NHWC", "HWNC", "NCHW", "HWIO", "HWOI", "OIHW", "KKCO", "OCKK"]
Scalar = TypeVar("Scalar", bound=np.generic)

IMAGE_LAYOUTS: tuple[TensorLayout, ...] = ("NHWC", "HWNC", "HWNC-FSB")
FILTER_LAYOUTS: tuple[TensorLayout, ...] = ("HWOI", "HWIO", "HWOI-FSB")
_LAYOUTS = (*IMAGE_LAYOUTS, *FILTER_LAYOUTS)

# BTC writes K for both axes of the filter's window and C for its input channels.
_AXES: dict[str, str] = {
    **{axes: axes for axes in ("NHWC", "HWNC", "NCHW", "HWIO", "HWOI", "OIHW")},
    **{"KKCO": "HWIO", "OCKK": "OIHW"},
}

# The order of the unpacked tensor's axes in its words; the FSB layouts then cut the last two into tiles.
_ORDER = {
    **{"NHWC": (0, 1, 2, 3), "HWNC": (1, 2, 0, 3), "HWNC-FSB": (1, 2, 0, 3)},
    **{"HWOI": (0, 1, 3, 2), "HWIO": (0, 1, 2, 3), "HWOI-FSB": (0, 1, 3, 2)},
}
_TILE_ROWS, _TILE_WORDS = 8, 4


def to_layout(array: npt.NDArray[Scalar], source: Axes, target: Axes) -> npt.NDArray[Scalar]:
    """An array with its axes in another order.

    With letters for indices: ``to_layout(x, "NHWC", "HWNC")[h, w, n, c] == x[n, h, w, c]``, and so for
    every pair of orders of images (N, H, W, C), and of filters (O, I, H, W, where I are the input
    channels).

    ========== =========================================================================
    order      stored by
    ========== =========================================================================
    ``NHWC``   images of TensorFlow, of BSTC and of this package
    ``NCHW``   images of PyTorch
    ``HWNC``   images of BTC
    ``HWIO``   filters of TensorFlow, of BSTC and of this package; ``KKCO`` in BTC's words
    ``OIHW``   filters of PyTorch; ``OCKK`` in BTC's words
    ``HWOI``   filters whose words run along the input channels
    ========== =========================================================================

    Parameters
    ----------
    array : any element type, four dimensions
    source, target : str
        Orders of the table, both of images or both of filters.

    Returns
    -------
    array of the same elements, C order
        A copy only where the order asks for it.

    Raises
    ------
    SchemeError
        For an unknown order, or one of images and one of filters.
    ShapeError
        If ``array`` has not four dimensions.

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
            "N and C are of images, O and I of filters\n"
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
    """Binarize images or filters and put L = ``word`` channels into each word.

    Channel c becomes bit ``i`` of word ``k = c // L``, where bit 0 is the least significant and
    ``i = c % L`` for ``first="lsb"`` or ``L - 1 - c % L`` for ``first="msb"``. By layout, word k of a pixel
    (n, h, w) of images, or of tap (r, s) of filter o, is::

        images                                   filters
        "NHWC"      words[n, h, w, k]            "HWOI"      words[r, s, o, k]
        "HWNC"      words[h, w, n, k]            "HWIO"      words[r, s, k, o]
        "HWNC-FSB"  words[h, w, n // 8, k // 4,  "HWOI-FSB"  words[r, s, o // 8, k // 4,
                          n % 8, k % 4]                            o % 8, k % 4]

    Bits past C, and in FSB tiles past N or O, are 0.

    Parameters
    ----------
    x : array_like of float64, float32, float16 or int8
        Images (N, H, W, C) or filters (R, S, C, O), as the layout asks for, in this order of axes
        whatever the layout. `to_layout` reorders others.
    layout : {"NHWC", "HWNC", "HWNC-FSB"} for images, {"HWOI", "HWIO", "HWOI-FSB"} for filters
    word : {32, 64}
        32 in the FSB layouts.
    first : {"lsb", "msb"}

    Returns
    -------
    PackedTensor
        ``words`` of uint32 or uint64, C order.

    Raises
    ------
    SchemeError
        For an unknown ``layout``, ``word`` or ``first``, or 64-bit words in an FSB layout.
    ShapeError
        If ``x`` has not four dimensions or one of them is 0.
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
    check_tensor_format(layout, word, first)
    array = real_array(x, "x")
    _check_shape(array.shape, layout, "x")
    return pack_tensor_bits(sign_bits(array, "x"), layout, word, first)


def unpack_tensor(packed: PackedTensor) -> Bits:
    """The bits of packed images or filters; the inverse of `pack_tensor`.

    Element (n, h, w, c), or (r, s, c, o) of filters, is bit i of word k as `pack_tensor` puts it. Bits
    past the edges are not looked at.

    Parameters
    ----------
    packed : PackedTensor
        With its words on the host.

    Returns
    -------
    array of uint8, (N, H, W, C) or (R, S, C, O), C order

    Raises
    ------
    FormatError
        If the words are not a host array, or of another shape or dtype than the true shape and the
        format ask for, or the true shape is missing.
    SchemeError
        For an unknown layout, word or bit order.
    ShapeError
        If a dimension of the true shape is less than 1.

    Examples
    --------
    >>> x = np.array([1.0, -1.0, -1.0]).reshape(1, 1, 1, 3)
    >>> unpack_tensor(pack_tensor(x, layout="HWNC")).tolist()
    [[[[1, 0, 0]]]]
    """
    check_packed_tensor(packed, "the packed tensor")
    words, order, axis = packed.words, _ORDER[packed.layout], _channels(packed.layout)
    if packed.layout.endswith("FSB"):
        words = from_tiles(words, packed.shape[order[2]], words.shape[3] * _TILE_WORDS)
    lines = np.moveaxis(np.transpose(words, np.argsort(order)), axis, -1)
    bits = bits_of(lines, packed.shape[axis], packed.word, packed.first)
    return np.ascontiguousarray(np.moveaxis(bits, -1, axis))


def pack_tensor_bits(bits: Bits, layout: TensorLayout, word: Word, first: First) -> PackedTensor:
    """`pack_tensor` for bits that are 0 or 1."""
    axis = _channels(layout)
    words = np.moveaxis(words_of(np.moveaxis(bits, axis, -1), word, first), -1, axis)
    words = np.transpose(words, _ORDER[layout])
    if layout.endswith("FSB"):
        words = to_tiles(words, _TILE_ROWS, _TILE_WORDS)
    n, h, w, c = bits.shape
    return PackedTensor(np.ascontiguousarray(words), (n, h, w, c), layout, word, first)


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
    """The inverse of `to_tiles`, for matrices of ``rows`` and ``columns``."""
    *outer, down, across, tile_rows, tile_columns = tiles.shape
    padded = np.swapaxes(tiles, -3, -2).reshape(*outer, down * tile_rows, across * tile_columns)
    return np.ascontiguousarray(padded[..., :rows, :columns])


def _channels(layout: TensorLayout) -> int:
    """The axis of the channels in the unpacked tensor."""
    return 3 if layout in IMAGE_LAYOUTS else 2


def _words_shape(layout: TensorLayout, word: Word, shape: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The shape of the words that hold a tensor of the true shape."""
    sizes, axis = list(shape), _channels(layout)
    sizes[axis] = -(-sizes[axis] // word)
    *outer, lines, words = (sizes[axis] for axis in _ORDER[layout])
    if layout.endswith("FSB"):
        return *outer, -(-lines // _TILE_ROWS), -(-words // _TILE_WORDS), _TILE_ROWS, _TILE_WORDS
    return *outer, lines, words


def check_tensor_format(
    layout: object, word: object, first: object, layouts: tuple[TensorLayout, ...] = _LAYOUTS
) -> None:
    """Raise SchemeError unless the three name a format, with one of ``layouts``."""
    for option, given, known in (
        ("layout", layout, layouts),
        ("word", word, (32, 64)),
        ("first", first, ("lsb", "msb")),
    ):
        check_option(option, given, known, "layout, word and first are the format of packed bits")
    if word == 64 and layout in ("HWNC-FSB", "HWOI-FSB"):
        raise SchemeError(
            f"there is no layout={layout!r} with word=64\n"
            "a tile is 8 by 128 bits in words of 32\n"
            "choose word=32"
        )


def _is_shape(shape: Any) -> bool:
    if not issubclass(type(shape), tuple) or len(shape) != 4:
        return False
    return all(issubclass(type(size), int | np.integer) for size in shape)


def _check_shape(shape: tuple[int, ...], layout: TensorLayout, name: str) -> None:
    if len(shape) != 4 or min(shape) < 1:
        axes = "images (N, H, W, C)" if layout in IMAGE_LAYOUTS else "filters (R, S, C, O)"
        raise ShapeError(
            f"{name} has shape {shape}\n"
            f"layout={layout!r} is of {axes}, each at least 1\n"
            "add the missing axes with reshape"
        )


def check_packed_tensor(packed: Any, name: str, layouts: tuple[TensorLayout, ...] = _LAYOUTS) -> None:
    """Raise unless ``packed`` is a PackedTensor that can be unpacked, with one of ``layouts``."""
    if not isinstance(packed, PackedTensor):
        raise DtypeError(
            f"{name}: expected a PackedTensor, got {type(packed).__name__}\n"
            "pack real images or filters with `pack_tensor(x, layout=…)`"
        )
    check_tensor_format(packed.layout, packed.word, packed.first)
    if packed.layout not in layouts:
        raise FormatError(
            f"{name} is packed with layout={packed.layout!r}\n"
            f"here it must be {' or '.join(repr(layout) for layout in layouts)}\n"
            "images are x, filters are w: check the order of the arguments, or pack again"
        )
    if not _is_shape(packed.shape):
        raise FormatError(
            f"{name} has the true shape {packed.shape!r}\n"
            "how many of the words' bits count depends on it\n"
            "give PackedTensor the shape of the unpacked tensor, four ints"
        )
    _check_shape(packed.shape, packed.layout, name)
    shape = _words_shape(packed.layout, packed.word, packed.shape)
    check_words(packed, name, f"the true shape {packed.shape}", shape)
