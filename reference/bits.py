"""Real matrices to bits, bits to words, and back.

Bit 1 means +1 and bit 0 means -1. Everything here is index arithmetic on the host: which bit of
which word holds which element. How a warp gets it there is told in ``simwarp`` and ``gpu``.

Source: BSTC (SC'19), equation 1 (binarization), section 4 (bit-packing, bit-unpacking), figure 4.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import First, Layout, PackedBits, Word

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
    length = packed.shape[1] if by_column else packed.shape[0]
    lines = packed.words.T.astype(_serial(packed.word, packed.first), order="C").view(np.uint8)
    bits = np.unpackbits(lines, axis=1, count=length, bitorder=_BIT_ORDER[packed.first])
    return np.ascontiguousarray(bits if by_column else bits.T)


def real_array(x: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """``x`` as an array of one of the accepted element types; never a cast.

    Examples
    --------
    >>> real_array([1.0, -2.0], "x").dtype
    dtype('float64')
    """
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ShapeError(f"{name} is not an array: {error}; give every row the same length") from error
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
    """Equation 1, for an array that `real_array` let through.

    Examples
    --------
    >>> sign_bits(np.array([0.5, -0.5]), "x")
    array([1, 0], dtype=uint8)
    """
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
    """`pack` for a matrix of bits that are 0 or 1.

    Examples
    --------
    >>> hex(pack_bits(np.array([[1, 0, 1]], np.uint8), "column", 32, "msb").words[0, 0])
    '0xa0000000'
    """
    lines = bits if layout == "column" else bits.T
    octets = np.packbits(lines, axis=1, bitorder=_BIT_ORDER[first])
    line_octets = -(-lines.shape[1] // word) * (word // 8)
    padded = np.zeros((lines.shape[0], line_octets), np.uint8)
    padded[:, : octets.shape[1]] = octets
    words = padded.view(_serial(word, first)).T.astype(_native(word), order="C")
    return PackedBits(words, (bits.shape[0], bits.shape[1]), layout, word, first)


# Where the first element is the top bit of the first byte, that byte is the top byte of the word.
_BIT_ORDER: dict[First, Any] = {"msb": "big", "lsb": "little"}


def _serial(word: Word, first: First) -> np.dtype[Any]:
    """The byte order in which the bytes of a word come in the order of the elements."""
    return _native(word).newbyteorder(_BIT_ORDER[first])


def _native(word: Word) -> np.dtype[Any]:
    return np.dtype(np.uint32 if word == 32 else np.uint64)


def _check_format(layout: object, word: object, first: object) -> None:
    """Raise SchemeError unless the three name a format."""
    options = (
        ("layout", layout, ("row", "column")),
        ("word", word, (32, 64)),
        ("first", first, ("msb", "lsb")),
    )
    for option, given, known in options:
        if given not in known:
            raise SchemeError(f"there is no {option}={given!r}: choose {known[0]!r} or {known[1]!r}")


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
    if not issubclass(type(packed.words), np.ndarray):
        raise FormatError(
            f"the words are a {type(packed.words).__name__}, not a NumPy array: copy them to the host first"
        )
    rows, columns = packed.shape
    along, across = (columns, rows) if packed.layout == "column" else (rows, columns)
    shape, dtype = (-(-along // packed.word), across), _native(packed.word)
    words: npt.NDArray[Any] = packed.words
    if words.shape != shape or words.dtype != dtype:
        raise FormatError(
            f"the words are {words.dtype.str} {words.shape}, but a {rows} x {columns} matrix with "
            f"layout={packed.layout!r}, word={packed.word} needs {dtype.str} {shape}: "
            "check the shape and format given to PackedBits, or pack again"
        )
