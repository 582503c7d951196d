"""Diagrams of packed bit matrices of any size: the word of each element (figure 4 of the BSTC paper).

`place`, the index formula of `reference.types.PackedBits`, computes the positions of elements.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from numbers import Integral
from typing import Any

from reference.errors import ShapeError
from reference.types import First, Layout, Word
from reference.types.packed import check_format, parts_of, words_shape
from simwarp.draw.picture import Cell, Picture, boxes, ends, span, with_gaps
from simwarp.draw.svg import drawn

_SIGNIFICANT = {"msb": "most", "lsb": "least"}


def layout(
    layout: Layout, *, word: Word = 32, rows: int, columns: int, first: First = "msb", svg: bool = False
) -> str:
    """Draw the words of a packed (rows, columns) matrix, and the bits of its first and last word.

    Words are numbered in memory order: D0, D1, D2 and so on. Of a large matrix, only the ends are shown.

    Parameters
    ----------
    layout : {"row", "column"}
    word : a word size of `reference.types.PackedBits`
    rows, columns : int
        Of the matrix; if they are not multiples of the word, the padding is shown.
    first : {"msb", "lsb"}
        The bit of the first element in a word.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    SchemeError
        For an unknown ``layout``, ``word`` or ``first``.
    ShapeError
        For a dimension below 1.

    Notes
    -----
    Source: BSTC (SC'19), section 5.1 and figure 4.

    Examples
    --------
    >>> print(layout("column", rows=2, columns=40))
    column-major-32: 2 × 40 elements
    <BLANKLINE>
    columns   0–31   32–39
            +------+-------+
      row 0 |  D0  | D2 ░░░|
          1 |  D1  | D3 ░░░|
            +------+-------+
    <BLANKLINE>
                       the first and the last word, bit by bit
                   bit   31   30   29   …   25   24   23    …    2     1     0
                       +----+----+----+---+----+----+-----+---+-----+-----+-----+
    D0: row 0, columns | 0  | 1  | 2  | … | 6  | 7  |  8  | … | 29  | 30  | 31  |
    D3: row 1, columns | 32 | 33 | 34 | … | 38 | 39 | pad | … | pad | pad | pad |
                       +----+----+----+---+----+----+-----+---+-----+-----+-----+
    <BLANKLINE>
    Dn is word n in memory; words has shape (2, 2).
    Element (r, c) is in words[c // 32, r].
    first="msb": the first of 32 elements is in the most significant bit.
    Padding: 24 bits of each word of the last columns, all 0.
    """
    return drawn(layout_picture(layout, word=word, rows=rows, columns=columns, first=first), svg)


def place(
    row: Any, column: Any, *, layout: Layout, word: Word, rows: int, columns: int, first: First
) -> tuple[Any, Any]:
    """The word index of element (row, column), and its bit (0 is the least significant)."""
    line, along, lines = (row, column, rows) if layout == "column" else (column, row, columns)
    i = along % word
    return along // word * lines + line, word - 1 - i if first == "msb" else i


def element(index: tuple[int, ...], bit: int, *, layout: Layout, word: Word, first: First) -> tuple[int, ...]:
    """The element, (row, column) or (matrix, row, column), of a bit of ``words[index]``; undoes `place`."""
    is_long = bool(parts_of(word))
    bit += 64 * index[-1] if is_long else 0
    *matrix, block, line = index[:-1] if is_long else index
    along = block * word + (word - 1 - bit if first == "msb" else bit)
    return (*matrix, line, along) if layout == "column" else (*matrix, along, line)


def layout_picture(
    layout: Layout, *, word: Word = 32, rows: int, columns: int, first: First = "msb"
) -> Picture:
    """The picture that `layout` draws, as plain data."""
    _check(layout, word, rows, columns, first)
    by_column = layout == "column"
    length, lines = (columns, rows) if by_column else (rows, columns)
    blocks = -(-length // word)
    across, run = ("row", "columns") if by_column else ("column", "rows")

    def find(line: int, along: int) -> tuple[int, int]:
        row, column = (line, along) if by_column else (along, line)
        return place(row, column, layout=layout, word=word, rows=rows, columns=columns, first=first)

    def inside(block: int) -> range:
        return range(block * word, min((block + 1) * word, length))

    def name(line: int, block: int) -> str:
        return f"D{find(line, block * word)[0]}"

    def cell(line: int, block: int) -> Cell:
        padding = 1 - len(inside(block)) / word
        return Cell(name(line, block), "plain" if block % 2 else "tint", padding=padding)

    def block_span(block: int) -> str:
        return span(block * word, len(inside(block)))

    shown_lines, shown_blocks = ends(lines, 7, 2), ends(blocks, 7, 2)
    if by_column:
        grid = boxes(shown_lines, shown_blocks, cell, str, block_span, "row ", corner="columns")
    else:
        down = boxes(
            shown_blocks, shown_lines, lambda block, line: cell(line, block), block_span, str, "rows "
        )
        grid = replace(down, corner="column", tall=True)

    last = dict.fromkeys([(0, 0), (lines - 1, blocks - 1)])
    words = [{find(line, along)[1]: along for along in inside(block)} for line, block in last]
    names = [f"{name(line, block)}: {across} {line}, {run}" for line, block in last]
    close_up = boxes(
        range(len(words)),
        _around(word, words),
        lambda i, bit: Cell(str(words[i][bit]), "tint") if bit in words[i] else Cell("pad", "padding"),
        names.__getitem__,
        title="the first and the last word, bit by bit" if len(words) > 1 else "the word, bit by bit",
        corner="bit",
    )
    of_several = "".join(f" A word is {parts} uint64, the lowest bits first." for parts in parts_of(word))
    notes = [
        f"Dn is word n in memory; words has shape {words_shape(layout, word, (rows, columns))}.{of_several}",
        f"Element (r, c) is in words[{f'c // {word}, r' if by_column else f'r // {word}, c'}].",
        f'first="{first}": the first of {word} elements is in the {_SIGNIFICANT[first]} significant bit.',
    ]
    if padding := blocks * word - length:
        notes.append(f"Padding: {padding} bits of each word of the last {run}, all 0.")
    title = f"{layout}-major-{word}: {rows} × {columns} elements"
    return Picture(title, ((grid,), (close_up,)), tuple(notes))


def _check(layout: object, word: object, rows: object, columns: object, first: object) -> None:
    """Raise SchemeError for an unknown option, ShapeError for an empty matrix."""
    check_format(layout, word, first)
    for name, size in (("rows", rows), ("columns", columns)):
        if not isinstance(size, Integral) or size < 1:
            raise ShapeError(f"{name}={size!r}: give a matrix at least one row and one column")


def _around(word: int, words: Collection[dict[int, int]]) -> list[int | None]:
    """The bits to draw: at both ends of a word and of its elements, with None for each gap."""
    edges = {edge for elements in words for edge in (min(elements), max(elements))}
    keep = {*range(3), *range(word - 3, word), *(edge + d for edge in edges for d in (-1, 0, 1))}
    return with_gaps([b for b in range(word - 1, -1, -1) if b in keep or {b - 1, b + 1} <= keep])
