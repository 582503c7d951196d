"""Real matrices to bits, bits to words, and back.

Bit 1 means +1 and bit 0 means -1. Everything here is index arithmetic on the host: which bit of
which word holds which element; ``simwarp`` and ``gpu`` have the kernels that pack on a device.

Source: BSTC (SC'19), equation 1 (binarization), section 4 (bit-packing, bit-unpacking), figure 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import First, Layout, PackedBits, PackedTensor, Word

Bits: TypeAlias = npt.NDArray[np.uint8]

_REAL = (np.float64, np.float32, np.float16, np.int8)


def binarize(x: npt.ArrayLike) -> Bits:
    """The signs of real numbers as bits: 1 where ``x >= 0``, else 0.

    Zero counts as positive, -0.0 too. Nothing is cast before the comparison, so that a number which
    another type would round to zero keeps its sign.

    Parameters
    ----------
    x : array_like of float64, float32, float16 or int8
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

    Bits past the edge of the matrix are 0.

    Parameters
    ----------
    x : array_like of float64, float32, float16 or int8, (rows, columns)
    layout : {"row", "column"}
        "column" serves a left operand of `bmm` and "row" a right one: both run their words along K.
    word : {32, 64}
    first : {"msb", "lsb"}
        Where the first of the W elements goes. BSTC's formats are "msb".

    Returns
    -------
    PackedBits
        ``words`` of uint32 or uint64, C order.

    Raises
    ------
    SchemeError
        For an unknown ``layout``, ``word`` or ``first``.
    ShapeError
        If ``x`` is not a matrix or has a dimension of 0.
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
    _check_format(layout, word, first)
    array = real_array(x, "x")
    _check_matrix(array.shape, "x")
    return pack_bits(sign_bits(array, "x"), layout, word, first)


def unpack(packed: PackedBits) -> Bits:
    """The bits of a packed matrix; the inverse of `pack`.

    Element (r, c) is ``(words[c // W, r] >> p(c % W)) & 1`` for ``layout="column"`` and
    ``(words[r // W, c] >> p(r % W)) & 1`` for ``layout="row"``, with ``p`` as in `pack`. Bits past the
    edge of the matrix are not looked at.

    Parameters
    ----------
    packed : PackedBits
        With its words on the host.

    Returns
    -------
    array of uint8, (rows, columns), C order

    Raises
    ------
    FormatError
        If the words are not a host array, or of another shape or dtype than the format asks for.
    SchemeError
        For an unknown layout, word or bit order.
    ShapeError
        If ``packed.shape`` is not that of a matrix or has a dimension of 0.

    Notes
    -----
    Source: BSTC (SC'19), section 4 "Bit-Unpacking" and figure 4.

    Examples
    --------
    >>> unpack(pack([[1.0, -1.0, -1.0], [-1.0, 1.0, 1.0]]))
    array([[1, 0, 0],
           [0, 1, 1]], dtype=uint8)
    """
    _check_packed(packed)
    by_column = packed.layout == "column"
    bits = bits_of(packed.words.T, packed.shape[by_column], packed.word, packed.first)
    return np.ascontiguousarray(bits if by_column else bits.T)


def any_array(x: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """``x`` as an array of whatever element type."""
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"{name} is not an array: {error}; give every row the same length") from error


def real_array(x: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """``x`` as an array of one of the accepted element types; never a cast."""
    array = any_array(x, name)
    if array.dtype.type not in _REAL:
        advice = f"convert it with `{name}.astype(np.float64)`"
        if array.dtype.kind in "bu":
            advice = f"for bits 0 and 1, `2 * {name}.astype(np.int8) - 1` has the signs they stand for"
        raise DtypeError(
            f"{name} ({type(x).__name__}) has elements of {array.dtype.name}; "
            f"accepted are float64, float32, float16 and int8: {advice}"
        )
    return array


def sign_bits(array: npt.NDArray[Any], name: str) -> Bits:
    """Equation 1, for an array of `real_array`."""
    missing = np.isnan(array)
    if missing.any():
        first = np.unravel_index(int(missing.argmax()), array.shape)
        index = ", ".join(str(i) for i in first) or "()"
        raise NotANumberError(
            f"{name}[{index}] is NaN ({int(missing.sum())} of {array.size} elements are), "
            f"which is neither +1 nor -1: replace it first, for instance with `np.nan_to_num({name})`"
        )
    return np.asarray(array >= 0, dtype=np.uint8, order="C")


def pack_bits(bits: Bits, layout: Layout, word: Word, first: First) -> PackedBits:
    """`pack` for a matrix of bits that are 0 or 1."""
    words = words_of(bits if layout == "column" else bits.T, word, first)
    return PackedBits(np.ascontiguousarray(words.T), (bits.shape[0], bits.shape[1]), layout, word, first)


def words_of(bits: Bits, word: Word, first: First) -> npt.NDArray[Any]:
    """The words that hold the bits of the last axis."""
    octets = np.packbits(bits, axis=-1, bitorder=_BIT_ORDER[first])
    padded = np.zeros((*bits.shape[:-1], -(-bits.shape[-1] // word) * (word // 8)), np.uint8)
    padded[..., : octets.shape[-1]] = octets
    return padded.view(_serial(word, first)).astype(word_dtype(word))


def bits_of(words: npt.NDArray[Any], count: int, word: Word, first: First) -> Bits:
    """The first ``count`` bits of the words of the last axis."""
    octets = words.astype(_serial(word, first), order="C").view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=count, bitorder=_BIT_ORDER[first])


# Where the first element is the top bit of the first byte, that byte is the top byte of the word.
_BIT_ORDER: dict[First, Any] = {"msb": "big", "lsb": "little"}


def _serial(word: Word, first: First) -> np.dtype[Any]:
    """The byte order in which the bytes of a word come in the order of the elements."""
    return word_dtype(word).newbyteorder(_BIT_ORDER[first])


def word_dtype(word: Word) -> np.dtype[Any]:
    """The element type of packed words."""
    return np.dtype(np.uint32 if word == 32 else np.uint64)


def _check_format(layout: object, word: object, first: object) -> None:
    check_option("layout", layout, ("row", "column"))
    check_option("word", word, (32, 64))
    check_option("first", first, ("msb", "lsb"))


def check_option(option: str, given: object, known: Sequence[object], reason: str = "") -> None:
    """Raise SchemeError for a value that an option does not have."""
    if given not in known:
        between = f"\n{reason}\n" if reason else ": "
        raise SchemeError(f"there is no {option}={given!r}{between}choose {' or '.join(map(repr, known))}")


def _check_matrix(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        raise ShapeError(f"{name} has shape {shape}: give it the two dimensions of a matrix, (rows, columns)")
    if min(shape) < 1:
        raise ShapeError(f"{name} has shape {shape}: a matrix needs at least one row and one column")


def _check_packed(packed: Any) -> None:
    if not isinstance(packed, PackedBits):
        raise DtypeError(
            f"expected PackedBits, got {type(packed).__name__}: pack a real matrix with `pack(x)`"
        )
    _check_format(packed.layout, packed.word, packed.first)
    _check_matrix(packed.shape, "the packed matrix")
    rows, columns = packed.shape
    along, across = (columns, rows) if packed.layout == "column" else (rows, columns)
    shape = -(-along // packed.word), across
    check_words(packed, "the packed matrix", f"a {rows} x {columns} matrix", shape)


def check_words(packed: PackedBits | PackedTensor, name: str, whole: str, shape: tuple[int, ...]) -> None:
    """Raise FormatError unless the words are a host array of the shape that the format needs."""
    words: Any = packed.words
    if not issubclass(type(words), np.ndarray):
        raise FormatError(
            f"the words of {name} are a {type(words).__name__}, not a NumPy array\n"
            "the reference reads NumPy arrays\ncopy them to the host first"
        )
    dtype = word_dtype(packed.word)
    if words.shape != shape or words.dtype != dtype:
        raise FormatError(
            f"the words of {name} are {words.dtype.str} {words.shape}\n"
            f"{whole} with layout={packed.layout!r}, word={packed.word} needs {dtype.str} {shape}\n"
            f"correct the shape or the format of the {type(packed).__name__}, or pack again"
        )


# Typed, because Numba adds a uint64 and a plain int as float64.
_PAIRS, _NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_OCTETS, _SUM_OCTETS = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_1, _2, _4, _56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


def add_differences(word: Any, words: Any, differ: Any) -> None:
    """Add popc(word xor words[o]) to differ[o], for every o; a loop for Numba."""
    for o in range(words.shape[0]):
        x = word ^ words[o]
        x = x - ((x >> _1) & _PAIRS)
        x = (x & _NIBBLES) + ((x >> _2) & _NIBBLES)
        x = (x + (x >> _4)) & _OCTETS
        differ[o] += np.int32((x * _SUM_OCTETS) >> _56)


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A loop that calls `add_differences`, compiled by Numba."""
    import numba
    from numba.extending import register_jitable

    register_jitable(add_differences)
    return numba.njit(cache=False)(loop)
