"""Listings 1 and 2: a warp binarizes a 32 × 32 tile and packs it into 32 words, one per lane.

Listing 1 turns 32 bits, one per lane, into a word by a vote; in listing 2 every lane shifts the bits of its
word in, one by one. A word of 64 bits takes two votes, or 64 shifts. The first element is always the most
significant bit. To unpack, each lane shifts its bit out of a word and makes it -1 or +1.

>>> A = GlobalArray.of("A", np.array([[1.0, -1.0, 1.0, -1.0]]))
>>> column, row = GlobalArray("column", (1, 1), np.uint32), GlobalArray("row", (1, 4), np.uint64)
>>> launch(PackTo32Col, (1, 1), 32, A, column, 1, 4)
>>> launch(PackTo64Row, (1, 1), 32, A, row, 1, 4)
>>> hex(column.numpy()[0, 0]), hex(row.numpy()[0, 2])
('0xa0000000', '0x8000000000000000')
>>> C = GlobalArray("C", (1, 4), np.int32)
>>> launch(UnpackFrom32, (1, 1), 32, column, C, 1, 4, 4, 1)
>>> C.numpy().tolist()
[[1, -1, 1, -1]]

Source: BSTC (SC'19), section 4 "Bit-Packing" and "Bit-Unpacking", section 5.1 ("The 64-bit versions are
analogous"), listings 1 and 2, figure 4.
"""

# The kernels keep the paper's names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError
from reference.types import Layout, PackedBits, Word
from reference.types.packed import parts_of, words_shape
from simwarp.lanes import WARP_SIZE, brev
from simwarp.listings.checks import check_packed, real
from simwarp.warp import GlobalArray, Warp, launch

WORD = 64
"""The longest word of a kernel; a longer one is several of them."""
lines_of = partial(wraps, assigned=(), updated=())
"""Decorator of a 64-bit kernel that runs the 32-bit one on longer words: faults name the latter's lines."""


def rotated(votes: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """``__brev`` of one vote, or ``__brevll`` of two, the low half first: lane 0 has the top bit."""
    return brev(votes[0] if len(votes) == 1 else mov_b64(*votes))


def mov_b64(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``mov.b64 d, {low, high}``: one 64-bit word from two 32-bit words (section 4's inline PTX)."""
    return np.bitwise_or(low, np.left_shift(high, 32, dtype=np.uint64))


def bits_of(array: GlobalArray) -> int:
    """The bits of an array's words: 32 in the printed listings, 64 in the 64-bit kernels."""
    return array.dtype.itemsize * 8


def PackTo32Col(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Listing 1: binarize a tile into column-major format; lane i packs row i of the tile into its word.

    Parameters
    ----------
    A : (A_height, A_width), real
    B : (ceil(A_width / 32), A_height), uint32

    Notes
    -----
    Other than in print: ``__ballot`` takes a member mask today (``__ballot_sync``). Loads and the store are
    guarded, so that sides need not be multiples of 32; bits past the edge are 0. A NaN would become 0, so
    `pack32_column` refuses it. With words of 64 bits there are two votes for each word (section 4).

    Grid: (ceil(A_height / 32), ceil(A_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _), word = warp.lane, warp.block, bits_of(B)
    row, column = bx * WARP_SIZE + laneid, by * word + laneid
    Bval = np.zeros(WARP_SIZE, B.dtype)
    for i in range(WARP_SIZE):
        votes: list[npt.NDArray[Any]] = []
        for half in range(0, word, WARP_SIZE):
            with warp.where((bx * WARP_SIZE + i < A_height) & (column + half < A_width)):
                f0 = warp.load(A, (bx * WARP_SIZE + i) * A_width + column + half)
                positive = warp.select(f0 >= 0, False)
            votes.append(warp.ballot(positive))
        r0 = rotated(votes)  # rotate anticlockwise
        with warp.where(laneid == i):
            Bval = warp.select(r0, Bval)
    with warp.where(row < A_height):
        warp.store(B, by * A_height + row, Bval)


def PackTo32Row(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Listing 2: binarize a tile into row-major format; lane i packs column i of the tile into its word.

    Parameters
    ----------
    A : (A_height, A_width), real
    B : (ceil(A_height / 32), A_width), uint32

    Notes
    -----
    Other than in print: the store goes to ``bx*A_width + by*WARP_SIZE + laneid``, products where the
    text we have shows sums; loads and the store are guarded as in `PackTo32Col`, and a NaN is refused by
    `pack32_row`. With words of 64 bits the loop has 64 iterations.

    Grid: (ceil(A_height / 32), ceil(A_width / 32)), blocks of one warp.
    """
    laneid, (bx, by, _), word = warp.lane, warp.block, bits_of(B)
    column = by * WARP_SIZE + laneid
    Bval = np.zeros(WARP_SIZE, B.dtype)
    for i in range(word):
        with warp.where((bx * word + i < A_height) & (column < A_width)):
            f0 = warp.load(A, (bx * word + i) * A_width + column)
            positive = warp.select(f0 >= 0, False)
        Bval = (Bval << 1) | positive
    with warp.where(column < A_width):
        warp.store(B, bx * A_width + column, Bval)


@lines_of(PackTo32Col)
def PackTo64Col(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Binarize a 32 × 64 tile into column-major-64 format; lane i packs row i of the tile into its word.

    Parameters
    ----------
    warp, A, A_height, A_width
        As of `simwarp.listings.PackTo32Col`.
    B : (ceil(A_width / 64), A_height), uint64

    Notes
    -----
    `simwarp.listings.PackTo32Col` with section 4's second vote: "low" is the vote on the first 32 columns,
    and reversing the 64 bits puts them on top.

    Grid: (ceil(A_height / 32), ceil(A_width / 64)), blocks of one warp.
    """
    PackTo32Col(warp, A, B, A_height, A_width)


@lines_of(PackTo32Row)
def PackTo64Row(warp: Warp, A: GlobalArray, B: GlobalArray, A_height: int, A_width: int) -> None:
    """Binarize a 64 × 32 tile into row-major-64 format; lane i packs column i of the tile into its word.

    Parameters
    ----------
    warp, A, A_height, A_width
        As of `simwarp.listings.PackTo32Row`.
    B : (ceil(A_height / 64), A_width), uint64

    Notes
    -----
    `simwarp.listings.PackTo32Row` with 64 iterations.

    Grid: (ceil(A_height / 64), ceil(A_width / 32)), blocks of one warp.
    """
    PackTo32Row(warp, A, B, A_height, A_width)


def pack32_column(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 32 elements of a row per word, by listing 1 (BSTC column-major-32).

    ``words[c // 32, r]`` holds the sign of element (r, c) in bit ``31 - c % 32``: 1 where it is >= 0
    (-0.0 too), else 0. Bits past the edge are 0. Nothing is cast before the comparison.

    Parameters
    ----------
    matrix : array_like of float64, float32, float16 or int8, (rows, columns)

    Returns
    -------
    PackedBits
        ``words`` uint32, (ceil(columns / 32), rows); ``layout="column"``, ``first="msb"``.

    Raises
    ------
    ShapeError
        If it is not a matrix or has a dimension of 0.
    DtypeError
        For any other element type.
    NotANumberError
        For a NaN; the message names the first.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1, listing 1 and figure 4; equation 1.

    Examples
    --------
    >>> packed = pack32_column([[1.0, -1.0, -0.0, -2.0], [-1.0, -1.0, -1.0, 3.0]])
    >>> [hex(word) for word in packed.words[0]]
    ['0xa0000000', '0x10000000']
    """
    return pack(real(matrix, "matrix"), "column", 32)


def pack32_row(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 32 elements of a column per word, by listing 2 (BSTC row-major-32).

    ``words[r // 32, c]``, of (ceil(rows / 32), columns), holds the sign of element (r, c) in bit
    ``31 - r % 32``. Parameters, errors and the rest as of `pack32_column`.

    Examples
    --------
    >>> packed = pack32_row([[1.0, -1.0, -0.0, -2.0], [-1.0, -1.0, -1.0, 3.0]])
    >>> [hex(word) for word in packed.words[0]]
    ['0x80000000', '0x0', '0x80000000', '0x40000000']
    """
    return pack(real(matrix, "matrix"), "row", 32)


def pack64_column(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 64 elements of a row per word (BSTC column-major-64).

    As `pack32_column`, with 64 and 63 in place of 32 and 31, and words of uint64.

    Examples
    --------
    >>> hex(pack64_column([[1.0, -1.0, -0.0, -2.0]]).words[0, 0])
    '0xa000000000000000'
    """
    return pack(real(matrix, "matrix"), "column", 64)


def pack64_row(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 64 elements of a column per word (BSTC row-major-64).

    As `pack32_row`, with 64 and 63 in place of 32 and 31, and words of uint64.

    Examples
    --------
    >>> [hex(word) for word in pack64_row([[1.0, -1.0], [-2.0, 3.0]]).words[0]]
    ['0x8000000000000000', '0x4000000000000000']
    """
    return pack(real(matrix, "matrix"), "row", 64)


def pack128_column(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 128 elements of a row per word, as two words of `pack64_column`; not in the paper.

    As `pack32_column`, with 128 and 127 in place of 32 and 31, and words of two uint64, the lower half first.

    Examples
    --------
    >>> [hex(half) for half in pack128_column([[1.0, -1.0, -0.0, -2.0]]).words[0, 0]]
    ['0x0', '0xa000000000000000']
    """
    return pack(real(matrix, "matrix"), "column", 128)


def pack128_row(matrix: npt.ArrayLike) -> PackedBits:
    """Binarize and pack 128 elements of a column per word, as two words of `pack64_row`; not in the paper.

    As `pack32_row`, with 128 and 127 in place of 32 and 31, and words of two uint64, the lower half first.

    Examples
    --------
    >>> [hex(half) for half in pack128_row([[1.0], [-2.0]]).words[0, 0]]
    ['0x0', '0x8000000000000000']
    """
    return pack(real(matrix, "matrix"), "row", 128)


_KERNELS = {
    ("column", 32): (PackTo32Col, WARP_SIZE, WARP_SIZE),
    ("row", 32): (PackTo32Row, WARP_SIZE, WARP_SIZE),
    ("column", 64): (PackTo64Col, WARP_SIZE, WORD),
    ("row", 64): (PackTo64Row, WORD, WARP_SIZE),
}
"""From layout and word size to the kernel, and the rows and columns of the tile that a warp packs."""


def pack(matrix: npt.NDArray[Any], layout: Layout, word: Word) -> PackedBits:
    """Pack a matrix that `real` has checked, with the kernel for a layout and word size."""
    of_kernel: Word = 32 if word == 32 else WORD
    kernel, down, across = _KERNELS[layout, of_kernel]
    height, width = matrix.shape
    B = GlobalArray("B", words_shape(layout, of_kernel, (height, width)), f"uint{of_kernel}")
    grid = -(-height // down), -(-width // across)
    launch(kernel, grid, WARP_SIZE, GlobalArray.of("A", matrix, read_only=True), B, height, width)
    words = joined(B.numpy(), *parts_of(word)) if parts_of(word) else B.numpy()
    return PackedBits(words, (height, width), layout, word, first="msb")


def joined(words: npt.NDArray[Any], parts: int) -> npt.NDArray[Any]:
    """Join words (n, lines) into longer ones (ceil(n / parts), lines, parts), the first elements last."""
    whole = np.pad(words, ((0, -len(words) % parts), (0, 0))).reshape(-1, parts, words.shape[1])
    return np.ascontiguousarray(whole[:, ::-1].swapaxes(1, 2))


def parted(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The inverse of `joined`, with the words that pad."""
    return words[..., ::-1].swapaxes(1, 2).reshape(-1, words.shape[1])


# ---- Unpacking -------------------------------------------------------------------------------------


def UnpackFrom32(
    warp: Warp, B: GlobalArray, C: GlobalArray, lines: int, length: int, line_stride: int, stride: int
) -> None:
    """Unpack 32 words of 32 bits: broadcast each word; lane i unpacks bit i, counted from the top.

    Parameters
    ----------
    B : (ceil(length / 32), lines), uint32
        The lines are the matrix's rows in column-major format, its columns in row-major format.
    C : int32
        Element e of line l is at ``l * line_stride + e * stride``.

    Notes
    -----
    Other than in print: the parentheses close, ``2*(int)((R0>>(31-laneid))&0x1)-1``; the loop over the
    words, the broadcast and the guarded store are added. With words of 64 bits each takes two passes;
    section 4's "altering 31 to 63 for the second pass" gives the *first* 32 elements, which are the upper
    half of the word.

    Grid: (ceil(lines / 32), ceil(length / 32)), blocks of one warp.
    """
    laneid, (bx, by, _), word = warp.lane, warp.block, bits_of(B)
    line = bx * WARP_SIZE + laneid
    with warp.where(line < lines):
        packed = warp.load(B, by * lines + line)
    for i in range(min(WARP_SIZE, lines - bx * WARP_SIZE)):
        R0 = warp.shfl(packed, i)
        for half in range(0, word, WARP_SIZE):
            element = by * word + half + laneid
            with warp.where(element < length):
                bit = 2 * ((R0 >> (word - 1 - half - laneid)) & 1).astype(np.int32) - 1
                warp.store(C, (bx * WARP_SIZE + i) * line_stride + element * stride, bit)


@lines_of(UnpackFrom32)
def UnpackFrom64(
    warp: Warp, B: GlobalArray, C: GlobalArray, lines: int, length: int, line_stride: int, stride: int
) -> None:
    """Unpack 32 words of 64 bits, each in two passes of 32 bits.

    Parameters
    ----------
    warp, C, lines, length, line_stride, stride
        As of `simwarp.listings.UnpackFrom32`.
    B : (ceil(length / 64), lines), uint64

    Notes
    -----
    Grid: (ceil(lines / 32), ceil(length / 64)), blocks of one warp.
    """
    UnpackFrom32(warp, B, C, lines, length, line_stride, stride)


def unpack32(packed: PackedBits) -> npt.NDArray[np.int32]:
    """Unpack 32-bit words to a matrix of +1 and -1, by section 4's bit-unpacking; for debugging.

    Element (r, c) is ``2 * ((words[c // 32, r] >> (31 - c % 32)) & 1) - 1`` in column-major format,
    and ``2 * ((words[r // 32, c] >> (31 - r % 32)) & 1) - 1`` in row-major format. Bits past the edge
    are ignored.

    Parameters
    ----------
    packed : PackedBits
        Of 32-bit words, ``first="msb"``, either layout, on the host.

    Returns
    -------
    array of int32, (rows, columns)

    Raises
    ------
    DtypeError
        If it is not PackedBits.
    FormatError
        For another word size or bit order, or words that do not fit their description.
    ShapeError
        If its shape is not (rows, columns), each at least 1.

    Notes
    -----
    Source: BSTC (SC'19), section 4 "Bit-Unpacking".

    Examples
    --------
    >>> from simwarp.listings import pack32_row
    >>> unpack32(pack32_row([[0.5, -2.0], [-1.0, 7.0]]))
    array([[ 1, -1],
           [-1,  1]], dtype=int32)
    """
    return _unpack(packed, 32)


def unpack64(packed: PackedBits) -> npt.NDArray[np.int32]:
    """Unpack 64-bit words to a matrix of +1 and -1; for debugging.

    As `unpack32`, with 64 and 63 in place of 32 and 31.

    Examples
    --------
    >>> from simwarp.listings import pack64_column
    >>> unpack64(pack64_column([[0.5, -2.0, -1.0, 7.0]])).tolist()
    [[1, -1, -1, 1]]
    """
    return _unpack(packed, 64)


def unpack128(packed: PackedBits) -> npt.NDArray[np.int32]:
    """Unpack 128-bit words to a matrix of +1 and -1; for debugging.

    As `unpack32`, with 128 and 127 in place of 32 and 31.

    Examples
    --------
    >>> from simwarp.listings import pack128_column
    >>> unpack128(pack128_column([[0.5, -2.0, -1.0, 7.0]])).tolist()
    [[1, -1, -1, 1]]
    """
    return _unpack(packed, 128)


def _unpack(packed: Any, word: Word) -> npt.NDArray[np.int32]:
    if not isinstance(packed, PackedBits):
        raise DtypeError(
            f"expected PackedBits, got {type(packed).__name__}: pass the result of `pack{word}_…`"
        )
    by_column = packed.layout != "row"
    check_packed(packed, "packed", "column" if by_column else "row", word, to_multiply=False)
    if packed.first != "msb":
        raise FormatError(
            f"packed has first={packed.first!r}, and the paper's formats first='msb': repack it with "
            "first='msb', or call reference.unpack"
        )
    rows, columns = packed.shape
    sizes = (rows, columns, columns, 1) if by_column else (columns, rows, 1, columns)
    words = parted(packed.words) if parts_of(word) else packed.words
    C = GlobalArray("C", (rows, columns), np.int32)
    kernel = UnpackFrom32 if word == 32 else UnpackFrom64
    grid = -(-sizes[0] // WARP_SIZE), -(-sizes[1] // (8 * words.itemsize))
    launch(kernel, grid, WARP_SIZE, GlobalArray.of("B", words, read_only=True), C, *sizes)
    return C.numpy()
