"""The vocabulary of all tiers: what a value *is*, and nothing that computes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Layout: TypeAlias = Literal["row", "column"]
Word: TypeAlias = Literal[32, 64]
First: TypeAlias = Literal["msb", "lsb"]


@dataclass(frozen=True, eq=False)
class PackedBits:
    """A bit matrix, 32 or 64 bits to a word. Bit 1 means +1 and bit 0 means -1.

    With ``W`` the word size, element (r, c) of a (rows, columns) matrix is one bit:

    * ``layout="column"`` (BSTC column-major-W, figure 4): W consecutive elements of a *row* make a
      word; ``words`` has shape (ceil(columns / W), rows) and the bit is in ``words[c // W, r]``.
    * ``layout="row"`` (BSTC row-major-W, figure 4): W consecutive elements of a *column* make a
      word; ``words`` has shape (ceil(rows / W), columns) and the bit is in ``words[r // W, c]``.

    With ``i = c % W`` (column) or ``r % W`` (row), the bit's number, counted from the least
    significant, is ``W - 1 - i`` for ``first="msb"`` and ``i`` for ``first="lsb"``. Bits past the
    edge of the matrix are 0.

    Attributes
    ----------
    words : array of uint32 or uint64, C order
        On the host (NumPy) or on a device.
    shape : tuple of int
        (rows, columns) of the matrix, without padding.
    layout, word, first
        The format, as above.

    Source: BSTC (SC'19), section 5.1 and figure 4.
    """

    words: Any
    shape: tuple[int, int]
    layout: Layout
    word: Word = 32
    first: First = "msb"
