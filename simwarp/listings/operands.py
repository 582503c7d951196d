"""What the products take: matrices or packed bits, checked, packed and uploaded.

Source: BSTC (SC'19), section 5.1.
"""

# The arrays keep the paper's names.
# ruff: noqa: N806

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError, ShapeError
from reference.types import First, Layout, PackedBits, Word
from simwarp.listings.packing import Matrix, pack32, real_matrix
from simwarp.listings.packing64 import pack64
from simwarp.warp import GlobalArray

Operand: TypeAlias = npt.ArrayLike | PackedBits


class Operands(NamedTuple):
    """Two packed operands in global memory, and the sizes of op(a) · op(b): (m, k) · (k, n)."""

    A: GlobalArray
    B: GlobalArray
    m: int
    k: int
    n: int
    first: First


def row_by_row(a: Operand, b: Operand, transpose_a: bool, transpose_b: bool, word: Word) -> Operands:
    """The operands of a row-by-row product, whose words run along K on both sides.

    Examples
    --------
    >>> ready = row_by_row([[1.0, -1.0]], [[1.0], [1.0]], False, False, 32)
    >>> (ready.m, ready.k, ready.n), hex(ready.B.numpy()[0, 0])
    ((1, 2, 1), '0xc0000000')
    """
    layout_a: Layout = "row" if transpose_a else "column"
    layout_b: Layout = "column" if transpose_b else "row"
    return operands(a, b, layout_a, layout_b, transpose_a, transpose_b, word)


def operands(
    a: Operand,
    b: Operand,
    layout_a: Layout,
    layout_b: Layout,
    transpose_a: bool,
    transpose_b: bool,
    word: Word,
) -> Operands:
    """Check both operands, pack what is a matrix, and upload the words.

    Raises
    ------
    ShapeError, DtypeError, NotANumberError, FormatError
        See `simwarp.listings.bmm32`.

    Examples
    --------
    >>> operands([[1.0]], [[1.0]], "row", "row", False, False, 64).A.dtype
    dtype('uint64')
    """
    a = check_packed(a, "a", layout_a, word, True) if isinstance(a, PackedBits) else real_matrix(a, "a")
    b = check_packed(b, "b", layout_b, word, True) if isinstance(b, PackedBits) else real_matrix(b, "b")
    (m, k), (k_of_b, n) = _op(a.shape, transpose_a), _op(b.shape, transpose_b)
    if k != k_of_b:
        raise ShapeError(
            f"a {a.shape} and b {b.shape} do not fit with transpose_a={transpose_a}, "
            f"transpose_b={transpose_b}: K is {k} in a and {k_of_b} in b; check the transpositions"
        )
    packed_a, packed_b = _packed(a, "a", layout_a, word), _packed(b, "b", layout_b, word)
    if packed_a.first != packed_b.first:
        raise FormatError(
            f"a has first={packed_a.first!r} and b has first={packed_b.first!r}: "
            "pack both alike (matrices are packed first='msb')"
        )
    A = GlobalArray.of("A", packed_a.words, read_only=True)
    B = GlobalArray.of("B", packed_b.words, read_only=True)
    return Operands(A, B, m, k, n, packed_a.first)


def check_packed(packed: PackedBits, name: str, layout: Layout, word: Word, operand: bool) -> PackedBits:
    """Raise unless packed bits have this format, and words that fit their description.

    Parameters
    ----------
    operand : bool
        Of a product, where bits past the edge would count.

    Examples
    --------
    >>> packed = PackedBits(np.zeros((1, 3), np.uint32), (1, 3), "row")
    >>> check_packed(packed, "a", "row", 32, True) is packed
    True
    """
    if packed.layout != layout or packed.word != word or packed.first not in ("msb", "lsb"):
        what, advice = (f"BMM-{word}", f", or check transpose_{name}") if operand else ("this", "")
        raise FormatError(
            f"{name} is packed layout={packed.layout!r}, word={packed.word}, first={packed.first!r}, "
            f"but {what} needs layout={layout!r}, word={word} here: pack it so{advice}"
        )
    if len(packed.shape) != 2 or min(packed.shape) < 1:
        raise ShapeError(f"{name} has shape {packed.shape}: give (rows, columns), each at least 1")
    on_host = isinstance(packed.words, np.ndarray)
    if not on_host:
        raise FormatError(f"{name} has words that are no NumPy array: copy them to the host first")
    words: npt.NDArray[Any] = packed.words
    dtype = np.dtype(np.uint32 if word == 32 else np.uint64)
    length, across = _op(packed.shape, layout == "column")
    expected = (-(-length // word), across)
    if words.dtype != dtype or words.shape != expected:
        raise FormatError(
            f"{name} has words {words.dtype} {words.shape}, but a {packed.shape} matrix with "
            f"layout={layout!r}, word={word} needs {dtype} {expected}: pack it again"
        )
    padding = -length % word
    past_the_edge = (1 << padding) - 1
    if packed.first == "lsb":
        past_the_edge <<= word - padding
    if operand and np.any(words[-1] & dtype.type(past_the_edge)):
        raise FormatError(
            f"{name} has bits past the edge of its {packed.shape} that are not 0: clear them, or pack again"
        )
    return packed


def _op(shape: tuple[int, ...], transpose: bool) -> tuple[int, int]:
    rows, columns = shape
    return (columns, rows) if transpose else (rows, columns)


def _packed(operand: Matrix | PackedBits, name: str, layout: Layout, word: Word) -> PackedBits:
    if isinstance(operand, PackedBits):
        return operand
    return pack32(operand, name, layout) if word == 32 else pack64(operand, name, layout)
