"""What the bit tensor core multiplies: rows of bits along K, padded to 128, from matrices or packed bits.

Source: BTC (TPDS), section 5.1 (padding) and section 6.2 (8 rows, 128 bits).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reference.types import PackedBits, PackedTensor
from simwarp.lanes import brev
from simwarp.listings.operands import Operand, Operands, row_by_row

Words = npt.NDArray[np.uint32]
T = TypeVar("T")

STEP = 4
"""Words of a step along K: 128 bits."""


def rows_along_k(a: Operand, b: Operand, transpose_a: bool, transpose_b: bool) -> Operands:
    """Both operands, checked and packed with the first element in the most significant bit.

    Of packed operands each may have either end first, unlike in `simwarp.listings.bmm32`, so that the
    bits of one product go into a next one.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, FormatError
        See `simwarp.listings.btc_bmm1`.

    Examples
    --------
    >>> ready = rows_along_k([[1.0, -1.0]], [[1.0], [1.0]], False, False)
    >>> (ready.m, ready.k, ready.n), ready.first
    ((1, 2, 1), 'msb')
    """
    return row_by_row(most_significant_first(a), most_significant_first(b), transpose_a, transpose_b, 32)


def most_significant_first(x: T) -> T:
    """Packed 32-bit words with their bits in the other order, if theirs begin at the least significant.

    All else, and what is no such array, passes as it is, for those that check it.

    Examples
    --------
    >>> packed = PackedBits(np.ones((1, 1), np.uint32), (1, 5), "column", 32, "lsb")
    >>> hex(most_significant_first(packed).words[0, 0])
    '0x80000000'
    """
    if not isinstance(x, PackedBits | PackedTensor) or x.first != "lsb":
        return x
    on_host = isinstance(x.words, np.ndarray)
    words: npt.NDArray[Any] = x.words
    if not on_host or words.dtype != np.uint32:
        return x
    return replace(x, words=brev(words), first="msb")


def padded(rows: Words, multiple: int) -> Words:
    """Rows of words, with zeros up to a multiple of rows, and of 128 bits.

    Parameters
    ----------
    rows : uint32 (…, rows, words)
    multiple : int

    Returns
    -------
    uint32 (…, rows up to the multiple, words up to a multiple of 4)

    Examples
    --------
    >>> padded(np.ones((2, 3, 5), np.uint32), 8).shape
    (2, 8, 8)
    """
    height, words = rows.shape[-2:]
    around = [(0, 0)] * (rows.ndim - 2) + [(0, -height % multiple), (0, -words % STEP)]
    return np.pad(rows, around)
