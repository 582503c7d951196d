"""Section 4's bit-unpacking: each lane shifts its bit out of a word and makes it -1 or +1.

>>> B = GlobalArray.of("B", np.array([[0xA0000000]], np.uint32))
>>> C = GlobalArray("C", (1, 4), np.int32)
>>> launch(UnpackFrom32, (1, 1), 32, B, C, 1, 4, 4, 1)
>>> C.numpy().tolist()
[[1, -1, 1, -1]]

Source: BSTC (SC'19), section 4 "Bit-Unpacking".
"""

# The kernels keep the paper's style of names.
# ruff: noqa: N802, N803, N806

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, FormatError
from reference.types import PackedBits, Word
from simwarp.lanes import WARP_SIZE
from simwarp.listings.checks import check_packed
from simwarp.listings.packing import WORD
from simwarp.warp import GlobalArray, Warp, launch


def UnpackFrom32(
    warp: Warp, B: GlobalArray, C: GlobalArray, lines: int, length: int, line_stride: int, stride: int
) -> None:
    """Unpack 32 words of 32 bits: a word is broadcast, and lane i takes its bit i from the top.

    Parameters
    ----------
    B : (ceil(length / 32), lines), uint32
        The lines are the matrix's rows in column-major format, its columns in row-major format.
    C : int32
        Element e of line l is at ``l * line_stride + e * stride``.

    Notes
    -----
    Other than in print: the parentheses close, ``2*(int)((R0>>(31-laneid))&0x1)-1``; the loop over the
    words, the broadcast and the guarded store are added.

    Grid: (ceil(lines / 32), ceil(length / 32)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    line, element = bx * WARP_SIZE + laneid, by * WARP_SIZE + laneid
    with warp.where(line < lines):
        word = warp.load(B, by * lines + line)
    for i in range(min(WARP_SIZE, lines - bx * WARP_SIZE)):
        R0 = warp.shfl(word, i)
        with warp.where(element < length):
            bit = 2 * ((R0 >> (31 - laneid)) & 1).astype(np.int32) - 1
            warp.store(C, (bx * WARP_SIZE + i) * line_stride + element * stride, bit)


def UnpackFrom64(
    warp: Warp, B: GlobalArray, C: GlobalArray, lines: int, length: int, line_stride: int, stride: int
) -> None:
    """Unpack 32 words of 64 bits, in two passes of 32 bits.

    Parameters
    ----------
    B : (ceil(length / 64), lines), uint64
    C, lines, length, line_stride, stride
        As of `UnpackFrom32`.

    Notes
    -----
    Other than in print: "altering 31 to 63 for the second pass" gives the *first* 32 elements, which
    are the upper half of the word.

    Grid: (ceil(lines / 32), ceil(length / 64)), blocks of one warp.
    """
    laneid, (bx, by, _) = warp.lane, warp.block
    line = bx * WARP_SIZE + laneid
    with warp.where(line < lines):
        word = warp.load(B, by * lines + line)
    for i in range(min(WARP_SIZE, lines - bx * WARP_SIZE)):
        R0 = warp.shfl(word, i)
        for top, element in ((63, by * WORD + laneid), (31, by * WORD + WARP_SIZE + laneid)):
            with warp.where(element < length):
                bit = 2 * ((R0 >> np.uint64(top - laneid)) & 1).astype(np.int32) - 1
                warp.store(C, (bx * WARP_SIZE + i) * line_stride + element * stride, bit)


def unpack32(packed: PackedBits) -> npt.NDArray[np.int32]:
    """The matrix of -1 and +1 that 32-bit words hold, by section 4's bit-unpacking; for debugging.

    Element (r, c) is ``2 * ((words[c // 32, r] >> (31 - c % 32)) & 1) - 1`` in column-major format,
    and ``2 * ((words[r // 32, c] >> (31 - r % 32)) & 1) - 1`` in row-major format. Bits past the edge
    are not looked at.

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
    """The matrix of -1 and +1 that 64-bit words hold; for debugging.

    As `unpack32`, with 64 and 63 in the place of 32 and 31.

    Examples
    --------
    >>> from simwarp.listings import pack64_column
    >>> unpack64(pack64_column([[0.5, -2.0, -1.0, 7.0]])).tolist()
    [[1, -1, -1, 1]]
    """
    return _unpack(packed, 64)


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
    C = GlobalArray("C", (rows, columns), np.int32)
    kernel, grid = (
        UnpackFrom32 if word == 32 else UnpackFrom64,
        (-(-sizes[0] // WARP_SIZE), -(-sizes[1] // word)),
    )
    launch(kernel, grid, WARP_SIZE, GlobalArray.of("B", packed.words, read_only=True), C, *sizes)
    return C.numpy()
