"""Patterns of wrong elements of a matrix: their rows and columns, permutations, and small errors.

>>> right = np.arange(256).reshape(16, 16)
>>> pattern(right, np.roll(right, 8, axis=1), k="columns")
'in all rows and columns; columns 0-7 and 8-15 are exchanged, the halves of k'
>>> wrong = right.copy(); wrong[8:] = right[:8]
>>> pattern(right, wrong)
'all in rows 8-15; they hold what belongs to the other half of the rows'
>>> pattern(right, right.T)
'here and there in all rows and columns; the matrix is transposed'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.floats.formats import FORMATS

Matrix: TypeAlias = "npt.NDArray[Any]"
Move: TypeAlias = Callable[[Any, Any], "tuple[Any, Any]"]
"""A map from a position (row, column) to the position whose element is there."""

_SHOWN = 4
"""The number of ranges of rows or columns that a message lists."""

_CERTAIN = 24
"""Bits that must agree to accept a permutation; as up to 2**10 are tried, fewer could agree by chance."""

_FEW = 4
"""The largest error, in units in the last place, that counts as another rounding."""


def pattern(expected: Matrix, got: Matrix, kind: str = "", k: str = "") -> str:
    """Describe the elements in which two matrices differ; "" if they are equal."""
    wrong = expected != got
    if not wrong.any():
        return ""
    common = _moved(expected, got, wrong, k) or _off(expected[wrong], got[wrong], kind)
    return "; ".join(part for part in (_where(wrong), common) if part)


# ---- where -----------------------------------------------------------------------------------------


def _where(wrong: Matrix) -> str:
    """The rows and columns that contain all wrong elements."""
    if wrong.all():
        return "in all rows and columns"
    parts = [
        f"{name} {ranges(np.flatnonzero(hit).tolist())}"
        for name, hit in (("rows", wrong.any(axis=1)), ("columns", wrong.any(axis=0)))
        if not hit.all()
    ]
    if parts:
        return "all in " + ", ".join(parts)
    return "here and there in all rows and columns"


def ranges(numbers: list[int]) -> str:
    """Ascending numbers as text, with consecutive ones as ranges."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [f"{first}-{last}" if last > first else str(first) for first, last in runs[:_SHOWN]]
    return ", ".join(shown) + " …" * (len(runs) > _SHOWN)


# ---- elements in other places ------------------------------------------------------------------------


def _moved(expected: Matrix, got: Matrix, wrong: Matrix, k: str) -> str:
    """The first permutation that explains all elements, or else all wrong ones; "" if none does."""
    rows, columns = np.nonzero(wrong)
    values = got[wrong]
    known = np.log2(max(np.unique(expected).size, 1))
    if rows.size * known < _CERTAIN:
        return ""
    partly = ""
    for exchanged, taken, move in _moves(expected.shape[0], expected.shape[1], k):
        from_rows, from_columns = move(rows, columns)
        inside = (from_rows < expected.shape[0]) & (from_columns < expected.shape[1])
        if not inside.all() or not np.array_equal(expected[from_rows, from_columns], values):
            continue
        if _is_everywhere(expected, got, move):
            return exchanged
        partly = partly or f"they hold what belongs to {taken}"
    return partly


def _is_everywhere(expected: Matrix, got: Matrix, move: Move) -> bool:
    """Whether every element of ``got`` is the expected one at the place that ``move`` maps it to."""
    rows, columns = move(*np.indices(expected.shape))
    inside = (rows < expected.shape[0]) & (columns < expected.shape[1])
    return bool(inside.all()) and np.array_equal(expected[rows, columns], got)


def _moves(rows: int, columns: int, k: str) -> Iterator[tuple[str, str, Move]]:
    """The permutations, the simplest first: text for all elements, text for some, and the map."""
    row_bits, column_bits = (rows - 1).bit_length(), (columns - 1).bit_length()
    flips = sorted(product(range(1 << row_bits), range(1 << column_bits)), key=_complexity)
    for row_mask, column_mask in flips[1:]:
        yield _flip(row_mask, column_mask, rows, columns, k)
    if rows == columns:
        yield "the matrix is transposed", "[column, row]", lambda row, column: (column, row)
    if rows % 8 == columns % 8 == 0:
        yield "each 8 x 8 block is transposed", "their 8 x 8 block transposed", _transpose_block
    bits = [("row", bit) for bit in range(row_bits)] + [("column", bit) for bit in range(column_bits)]
    for at, first in enumerate(bits):
        for second in bits[at + 1 :]:
            text = f"bit {first[1]} of the {first[0]} and bit {second[1]} of the {second[0]} exchanged"
            yield f"{text} in all places", f"the places with {text}", _exchange(first, second)


def _complexity(masks: tuple[int, int]) -> tuple[int, int, int]:
    """A sort key: few bits before many, then high bits before low ones, so halves before neighbours."""
    row, column = masks
    return row.bit_count() + column.bit_count(), -max(row, column), -row


def _flip(row_mask: int, column_mask: int, rows: int, columns: int, k: str) -> tuple[str, str, Move]:
    """The permutation that flips bits of row and column."""

    def move(row: Any, column: Any) -> tuple[Any, Any]:
        return row ^ row_mask, column ^ column_mask

    for name, masks, size in (
        ("rows", (row_mask, column_mask), rows),
        ("columns", (column_mask, row_mask), columns),
    ):
        if masks == (size // 2, 0):
            halves = f"{name} 0-{masks[0] - 1} and {masks[0]}-{size - 1} are exchanged"
            other = "the other half of " + ("k" if name == k else f"the {name}")
            return halves + ", the halves of k" * (name == k), other, move
    places = [
        f"{name} ^ {mask}" if mask else name for name, mask in (("row", row_mask), ("column", column_mask))
    ]
    place = f"[{', '.join(places)}]"
    return f"[row, column] and {place} are exchanged", place, move


def _transpose_block(row: Any, column: Any) -> tuple[Any, Any]:
    """Transpose the coordinates within each 8 × 8 block."""
    return row // 8 * 8 + column % 8, column // 8 * 8 + row % 8


def _exchange(first: tuple[str, int], second: tuple[str, int]) -> Move:
    """The permutation that exchanges two bits of row and column."""

    def move(row: Any, column: Any) -> tuple[Any, Any]:
        place = {"row": row, "column": column}
        differ = place[first[0]] >> first[1] & 1 ^ place[second[0]] >> second[1] & 1
        place[first[0]] = place[first[0]] ^ differ << first[1]
        place[second[0]] = place[second[0]] ^ differ << second[1]
        return place["row"], place["column"]

    return move


# ---- numbers a little off ------------------------------------------------------------------------------


def _off(expected: Matrix, got: Matrix, kind: str) -> str:
    """The common error of numbers, which are given as words; "" if there is not one."""
    if kind in FORMATS:
        return _last_place(expected, got, kind)
    if kind != "s32" or expected.size == 1:
        return ""
    difference = np.unique((got - expected).view(np.int32))
    if difference.size > 1:
        return ""
    return f"each is {abs(int(difference[0]))} {'more' if difference[0] > 0 else 'less'} than expected"


def _last_place(expected: Matrix, got: Matrix, kind: str) -> str:
    """The error of floats in units in the last place, from the integer difference of their magnitudes."""
    format = FORMATS[kind]
    magnitudes = [(words & (format.sign - 1)).astype(np.int64) >> format.padding for words in (expected, got)]
    further = magnitudes[1] - magnitudes[0]
    same_sign = ((expected ^ got) & format.sign == 0).all()
    if not same_sign or np.abs(further).max() > _FEW or max(m.max() for m in magnitudes) > format.largest:
        return ""
    most = int(np.abs(further).max())
    units = "one unit" if most == 1 else f"up to {most} units"
    away = "further from zero" if (further > 0).all() else "nearer to zero" if (further < 0).all() else "off"
    return f"each is {units} in the last place {away}: another rounding"
