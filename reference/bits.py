"""Conversion of real matrices to bits, of bits to packed words, and back, on the host.

Bit 1 means +1 and bit 0 means -1. The functions define which bit of which word holds which element;
``simwarp`` and ``gpu`` have the kernels that pack on a device.

Source: BSTC (SC'19), equation 1 (binarization), section 4 (bit-packing, bit-unpacking), figure 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, NotANumberError, ShapeError
from reference.types import First, Layout, PackedBits, PackedTensor, TensorLayout, Word
from reference.types.fields import as_array
from reference.types.packed import LAYOUTS, WORD_DTYPES, check_format, parts_of, words_shape

Bits: TypeAlias = npt.NDArray[np.uint8]

_REAL = (np.float64, np.float32, np.float16, np.int8)


def binarize(x: npt.ArrayLike) -> Bits:
    """Return the signs of real numbers as bits: 1 where ``x >= 0``, else 0.

    Zero and -0.0 count as positive. Numbers are compared in their own type, so a subnormal number, which a
    smaller type would round to zero, keeps its sign.

    Parameters
    ----------
    x : array_like of float64, float32, float16, bfloat16 or int8
        Any number of dimensions, strides and either byte order.

    Returns
    -------
    array of uint8, same shape, C order

    Raises
    ------
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN, which has no sign; names the first in C order.
    ShapeError
        For nested sequences of unequal length.

    Notes
    -----
    Source: BSTC (SC'19), equation 1.

    Examples
    --------
    >>> binarize([1.5, 0.0, -0.0, -5e-324])
    array([1, 1, 1, 0], dtype=uint8)
    """
    return sign_bits(real_array(x, "x"), "x")


def pack(x: npt.ArrayLike, *, layout: Layout = "row", word: Word = 32, first: First = "msb") -> PackedBits:
    """Binarize a real matrix and put W = ``word`` of its bits into each word.

    Element (r, c) of the (rows, columns) matrix becomes bit ``p(i)`` of one word, where bit 0 is the
    least significant and ``p(i) = W - 1 - i`` for ``first="msb"`` or ``p(i) = i`` for ``first="lsb"``:

    * ``layout="column"``: ``words`` is (ceil(columns / W), rows);
      ``binarize(x)[r, c] == (words[c // W, r] >> p(c % W)) & 1``.
    * ``layout="row"``: ``words`` is (ceil(rows / W), columns);
      ``binarize(x)[r, c] == (words[r // W, c] >> p(r % W)) & 1``.

    Bits past the edge of the matrix are 0. The words of a stack of matrices have one more axis in front, and
    words of more than 64 bits one at the end; see `reference.types.PackedBits`.

    Parameters
    ----------
    x : array_like of float64, float32, float16, bfloat16 or int8, (rows, columns) or (B, rows, columns)
    layout : {"row", "column"}
        "column" for a left operand of `bmm`, "row" for a right one: then words hold elements along K.
    word : a word size of `reference.types.PackedBits`
    first : {"msb", "lsb"}
        Whether the first of the W elements is in the most or the least significant bit. BSTC uses "msb".

    Returns
    -------
    PackedBits
        ``words`` of uint32, or of uint64 for longer words, C order.

    Raises
    ------
    SchemeError
        For an unknown ``layout``, ``word`` or ``first``.
    ShapeError
        If ``x`` is neither a matrix nor a stack of them, or has a dimension of 0.
    DtypeError, NotANumberError
        As `binarize`.

    Notes
    -----
    Source: BSTC (SC'19), section 4 "Bit-Packing" and figure 4.

    Examples
    --------
    >>> row = [[1.0, -1.0, -1.0, 1.0]]
    >>> [hex(w) for w in pack(row, layout="column").words[:, 0]]
    ['0x90000000']
    >>> [hex(w) for w in pack(row, layout="column", first="lsb").words[:, 0]]
    ['0x9']
    >>> pack(row, layout="row").words.shape
    (1, 4)
    """
    check_format(layout, word, first)
    array = real_array(x, "x")
    _check_matrix(array.shape, "x")
    return pack_bits(sign_bits(array, "x"), layout, word, first)


def unpack(packed: PackedBits) -> Bits:
    """Return the bits of a packed matrix; the inverse of `pack`.

    Element (r, c) is ``(words[c // W, r] >> p(c % W)) & 1`` for ``layout="column"`` and
    ``(words[r // W, c] >> p(r % W)) & 1`` for ``layout="row"``, with ``p`` as in `pack`. Bits past the
    edge of the matrix are ignored.

    Parameters
    ----------
    packed : PackedBits
        Its words must be on the host.

    Returns
    -------
    array of uint8, (rows, columns) or (B, rows, columns), C order

    Raises
    ------
    FormatError
        If the words are not a host array of the shape and dtype that the format requires.
    SchemeError
        For an unknown layout, word or bit order.
    ShapeError
        If ``packed.shape`` does not have two or three dimensions, each at least 1.

    Notes
    -----
    Source: BSTC (SC'19), section 4 "Bit-Unpacking" and figure 4.

    Examples
    --------
    >>> unpack(pack([[1.0, -1.0, -1.0], [-1.0, 1.0, 1.0]]))
    array([[1, 0, 0],
           [0, 1, 1]], dtype=uint8)
    """
    check_packed(packed)
    return unpacked_words(packed.words, packed)


def real_array(x: npt.ArrayLike, name: str, *, of_bits: bool = False) -> npt.NDArray[Any]:
    """Convert ``x`` to an array with the same numbers; raise DtypeError unless its dtype can be binarized.

    ``of_bits`` for numbers that stand for bits, which may be of bool or uint8, too.
    """
    array = as_array(x, name, "an array of numbers")
    if array.dtype.name == "bfloat16":  # of ml_dtypes, or another; float32 has all its numbers
        with np.errstate(invalid="ignore"):  # it warns of a signaling NaN
            return array.astype(np.float32)
    if array.dtype.type not in _REAL and not (of_bits and array.dtype.type in (np.bool_, np.uint8)):
        advice = f"convert it with `{name}.astype(np.float64)`"
        if array.dtype.kind in "bu" and not of_bits:
            advice = f"for bits 0 and 1, `2 * {name}.astype(np.int8) - 1` has the signs they stand for"
        raise DtypeError(
            f"{name} ({type(x).__name__}) has elements of {array.dtype.name}; "
            f"accepted are float64, float32, float16, bfloat16 and int8: {advice}"
        )
    return array


def sign_bits(array: npt.NDArray[Any], name: str) -> Bits:
    """Binarize an array of `real_array` by equation 1; raise NotANumberError for a NaN."""
    _refuse_nan(array, name, "neither +1 nor -1")
    return np.asarray(array >= 0, dtype=np.uint8, order="C")


def nonzero_bits(array: npt.NDArray[Any], name: str) -> Bits:
    """The bits that numbers of `real_array` stand for, 0 for 0; raise NotANumberError for a NaN."""
    _refuse_nan(array, name, "neither 0 nor 1")
    return np.asarray(array != 0, dtype=np.uint8, order="C")


def _refuse_nan(array: npt.NDArray[Any], name: str, what: str) -> None:
    """Raise NotANumberError for the first NaN of an array."""
    missing = np.isnan(array)
    if missing.any():
        first = np.unravel_index(int(missing.argmax()), array.shape)
        index = ", ".join(str(i) for i in first) or "()"
        raise NotANumberError(
            f"{name}[{index}] is NaN ({int(missing.sum())} of {array.size} elements are), "
            f"which is {what}: replace it first, e.g. with `np.nan_to_num({name})`"
        )


def pack_bits(bits: Bits, layout: Layout, word: Word, first: First) -> PackedBits:
    """Pack a matrix or stack of bits 0 and 1, without the checks of `pack`."""
    return PackedBits(packed_words(bits, layout, word, first), bits.shape, layout, word, first)


def packed_words(bits: Bits, layout: Layout | TensorLayout, word: Word, first: First) -> npt.NDArray[Any]:
    """Pack bits into words in the order of a layout, not cut into tiles yet."""
    order, along = _axes(layout, bits.ndim)
    octets = np.packbits(np.moveaxis(bits, along, -1), axis=-1, bitorder=_BIT_ORDER[first])
    *lines, count = *octets.shape[:-1], -(-bits.shape[along] // word)
    padded = np.zeros((*lines, count * (word // 8)), np.uint8)
    padded[..., : octets.shape[-1]] = octets
    numbers = padded.view(_serial(word, first)).astype(WORD_DTYPES[word])
    words = _turned(numbers.reshape(*lines, count, *parts_of(word)), word, first)
    words = np.moveaxis(words, bits.ndim - 1, along)
    return np.ascontiguousarray(words.transpose(*order, *range(bits.ndim, words.ndim)))


def unpacked_words(words: npt.NDArray[Any], packed: PackedBits | PackedTensor) -> Bits:
    """Unpack words in the order of a layout; the inverse of `packed_words`."""
    word, first, dimensions = packed.word, packed.first, len(packed.shape)
    order, along = _axes(packed.layout, dimensions)
    words = words.transpose(*np.argsort(order), *range(dimensions, words.ndim))
    words = _turned(np.moveaxis(words, along, dimensions - 1), word, first)
    octets = words.astype(_serial(word, first), order="C").reshape(*words.shape[: dimensions - 1], -1)
    bits = np.unpackbits(
        octets.view(np.uint8), axis=-1, count=packed.shape[along], bitorder=_BIT_ORDER[first]
    )
    return np.ascontiguousarray(np.moveaxis(bits, -1, along))


def _axes(layout: Layout | TensorLayout, dimensions: int) -> tuple[tuple[int, ...], int]:
    """The order of the axes in the words, a stack's axis first, and the axis along which bits are packed."""
    form = LAYOUTS[layout]
    stack = dimensions - len(form.order)
    return (*range(stack), *(stack + axis for axis in form.order)), stack + form.along


def _turned(words: npt.NDArray[Any], word: Word, first: First) -> npt.NDArray[Any]:
    """Put the last number of each word first, and its elements in the other bit order, or back."""
    return words[..., ::-1] if parts_of(word) and first == "msb" else words


# With "msb" the first element is the top bit of the word: big-endian bits in big-endian bytes.
_BIT_ORDER: dict[First, Any] = {"msb": "big", "lsb": "little"}


def _serial(word: Word, first: First) -> np.dtype[Any]:
    """The dtype of numbers whose bytes, in memory order, hold the elements in order."""
    return WORD_DTYPES[word].newbyteorder(_BIT_ORDER[first])


def _check_matrix(shape: tuple[int, ...], name: str) -> None:
    """Raise ShapeError unless a shape is of a matrix or a stack, with dimensions of at least 1."""
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ShapeError(
            f"{name} has shape {shape}: a matrix needs (rows, columns), a stack (B, rows, columns), "
            "at least one of each"
        )


def check_packed(packed: Any) -> None:
    """Raise unless the argument is a PackedBits that can be unpacked."""
    if not isinstance(packed, PackedBits):
        raise DtypeError(
            f"expected PackedBits, got {type(packed).__name__}: pack a real matrix with `pack(x)`"
        )
    check_format(packed.layout, packed.word, packed.first)
    _check_matrix(packed.shape, "the packed matrix")
    shape = words_shape(packed.layout, packed.word, packed.shape)
    check_words(packed, "the packed matrix", f"a {' x '.join(map(str, packed.shape))} matrix", shape)


def check_words(packed: PackedBits | PackedTensor, name: str, whole: str, shape: tuple[int, ...]) -> None:
    """Raise FormatError unless the words are a host array of the shape and dtype that the format requires."""
    words: Any = packed.words
    if not issubclass(type(words), np.ndarray):
        raise FormatError(
            f"the words of {name} are a {type(words).__name__}, not a NumPy array\n"
            "the reference reads NumPy arrays\ncopy them to the host first"
        )
    dtype = WORD_DTYPES[packed.word]
    if words.shape != shape or words.dtype != dtype:
        raise FormatError(
            f"the words of {name} are {words.dtype.str} {words.shape}\n"
            f"{whole} with layout={packed.layout!r}, word={packed.word} needs {dtype.str} {shape}\n"
            f"correct the shape or the format of the {type(packed).__name__}, or pack the data again"
        )


# Constants of the bit-counting below, typed because Numba adds a uint64 and an int as float64.
_PAIRS, _NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_OCTETS, _SUM_OCTETS = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_1, _2, _4, _56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


def add_differences(word: Any, words: Any, differ: Any) -> None:
    """Add popc(word xor words[o]) to differ[o] for every o; compiled by Numba."""
    for o in range(words.shape[0]):
        x = word ^ words[o]
        x = x - ((x >> _1) & _PAIRS)
        x = (x & _NIBBLES) + ((x >> _2) & _NIBBLES)
        x = (x + (x >> _4)) & _OCTETS
        differ[o] += np.int32((x * _SUM_OCTETS) >> _56)


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop with Numba; the loop may call `add_differences`."""
    import numba
    from numba.extending import register_jitable

    register_jitable(add_differences)
    return numba.njit(cache=False)(loop)
