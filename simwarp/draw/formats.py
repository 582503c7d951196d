"""Which word holds which element: BSTC's figure 4, for any size.

The pictures ask `place`, the index formula of `reference.types.PackedBits`, where elements are.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

from reference.errors import SchemeError, ShapeError
from reference.types import First, Layout, Word
from simwarp.draw.picture import Cell, Grid, Picture
from simwarp.draw.svg import to_svg
from simwarp.draw.text import to_text

_SIGNIFICANT = {"msb": "most", "lsb": "least"}


def layout(
    layout: Layout, *, word: Word = 32, rows: int, columns: int, first: First = "msb", svg: bool = False
) -> str:
    """Draw the words of a packed (rows, columns) matrix, and the bits of its first and last word.

    Words are numbered in memory order, D0, D1, D2 …; long matrices are shown in part.

    Parameters
    ----------
    layout : {"row", "column"}
    word : {32, 64}
    rows, columns : int
        Of the matrix; they need not be multiples of the word: padding is shown.
    first : {"msb", "lsb"}
        Where in its word the first element is.
    svg : bool
        SVG in place of text.

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
    picture = layout_picture(layout, word=word, rows=rows, columns=columns, first=first)
    return to_svg(picture) if svg else to_text(picture)


def place(
    row: Any, column: Any, *, layout: Layout, word: Word, rows: int, columns: int, first: First
) -> tuple[Any, Any]:
    """Where element (row, column) is: its word's number in memory, and the bit from the least significant.

    Parameters
    ----------
    row, column : int, or arrays of int64 that broadcast
    layout, word, rows, columns, first
        The format and the matrix, as in `layout`.

    Examples
    --------
    >>> place(1, 33, layout="column", word=32, rows=40, columns=70, first="msb")
    (41, 30)
    >>> place(33, 1, layout="row", word=32, rows=70, columns=40, first="lsb")
    (41, 1)
    """
    line, along, lines = (row, column, rows) if layout == "column" else (column, row, columns)
    i = along % word
    return along // word * lines + line, word - 1 - i if first == "msb" else i


def layout_picture(
    layout: Layout, *, word: Word = 32, rows: int, columns: int, first: First = "msb"
) -> Picture:
    """What `layout` draws, as plain data; parameters and errors as there.

    Examples
    --------
    >>> words, bits = layout_picture("row", rows=40, columns=2).lines
    >>> [[cell.label for cell in row] for row in words[0].cells]
    [['D0', 'D1'], ['D2', 'D3']]
    """
    _check(layout, word, rows, columns, first)
    by_column = layout == "column"
    length, lines = (columns, rows) if by_column else (rows, columns)
    blocks = -(-length // word)

    def find(line: int, along: int) -> tuple[int, int]:
        row, column = (line, along) if by_column else (along, line)
        return place(row, column, layout=layout, word=word, rows=rows, columns=columns, first=first)

    def inside(block: int) -> range:
        return range(block * word, min((block + 1) * word, length))

    def cell(line: int | None, block: int | None) -> Cell:
        if line is None or block is None:
            down = (line if by_column else block) is None
            return Cell("⋮" if down else "…", "gap")
        index, _ = find(line, inside(block).start)
        return Cell(f"D{index}", "plain" if block % 2 else "tint", padding=1 - len(inside(block)) / word)

    def bits(line: int, block: int) -> dict[int, int]:
        return {find(line, along)[1]: along for along in inside(block)}

    shown_lines, shown_blocks = _shown(lines), _shown(blocks)
    spans = [None if b is None else _span(inside(b)) for b in shown_blocks]
    names = [None if i is None else str(i) for i in shown_lines]
    if by_column:
        grid = Grid(
            tuple(tuple(cell(line, block) for block in shown_blocks) for line in shown_lines),
            corner="columns",
            column_labels=_labels("", spans, "…"),
            row_labels=_labels("row ", names, "⋮"),
        )
    else:
        grid = Grid(
            tuple(tuple(cell(line, block) for line in shown_lines) for block in shown_blocks),
            corner="column",
            column_labels=_labels("", names, "…"),
            row_labels=_labels("rows ", spans, "⋮"),
            tall=True,
        )

    ends = dict.fromkeys([(0, 0), (lines - 1, blocks - 1)])
    holders = {end: bits(*end) for end in ends}
    shown_bits = _around(word, holders.values())
    across, run = ("row", "columns") if by_column else ("column", "rows")
    close_up = Grid(
        tuple(_close_up(holder, shown_bits) for holder in holders.values()),
        "the first and the last word, bit by bit" if len(ends) > 1 else "the word, bit by bit",
        corner="bit",
        column_labels=_labels("", [None if b is None else str(b) for b in shown_bits], "…"),
        row_labels=tuple(
            f"D{find(line, inside(block).start)[0]}: {across} {line}, {run}" for line, block in ends
        ),
    )
    formula = f"words[c // {word}, r]" if by_column else f"words[r // {word}, c]"
    notes = [
        f"Dn is word n in memory; words has shape ({blocks}, {lines}).",
        f"Element (r, c) is in {formula}.",
        f'first="{first}": the first of {word} elements is in the {_SIGNIFICANT[first]} significant bit.',
    ]
    if padding := blocks * word - length:
        notes.append(f"Padding: {padding} bits of each word of the last {run}, all 0.")
    return Picture(
        f"{layout}-major-{word}: {rows} × {columns} elements", ((grid,), (close_up,)), tuple(notes)
    )


def _check(layout: object, word: object, rows: object, columns: object, first: object) -> None:
    options = (
        ("layout", layout, ("row", "column")),
        ("word", word, (32, 64)),
        ("first", first, ("msb", "lsb")),
    )
    for option, given, known in options:
        if given not in known:
            raise SchemeError(f"there is no {option}={given!r}: choose {known[0]!r} or {known[1]!r}")
    for name, size in (("rows", rows), ("columns", columns)):
        if not isinstance(size, Integral) or size < 1:
            raise ShapeError(f"{name}={size!r}: give a matrix at least one row and one column")


def _shown(count: int) -> list[int | None]:
    """All of a few, or the first and the last of many, with None for those between."""
    return list(range(count)) if count <= 7 else [0, 1, 2, 3, None, count - 2, count - 1]


def _around(word: int, holders: Iterable[dict[int, int]]) -> list[int | None]:
    """The bits at both ends, and where a word's elements end; None for those left out between."""
    keep = {*range(3), *range(word - 3, word)}
    for holder in holders:
        for edge in (min(holder), max(holder)):
            keep |= {edge - 1, edge, edge + 1}
    shown: list[int | None] = []
    for bit in range(word - 1, -1, -1):
        if bit in keep or {bit - 1, bit + 1} <= keep:
            shown.append(bit)
        elif shown[-1] is not None:
            shown.append(None)
    return shown


def _close_up(holder: dict[int, int], shown: list[int | None]) -> tuple[Cell, ...]:
    """The element in each bit that is shown."""
    return tuple(
        Cell("…", "gap")
        if bit is None
        else Cell(str(holder[bit]), "tint")
        if bit in holder
        else Cell("pad", "padding")
        for bit in shown
    )


def _span(elements: range) -> str:
    return f"{elements[0]}–{elements[-1]}" if len(elements) > 1 else str(elements[0])


def _labels(prefix: str, names: list[str | None], gap: str) -> tuple[str, ...]:
    """What stands beside the cells; the prefix, only once, says what is counted."""
    return tuple(gap if name is None else prefix * (i == 0) + name for i, name in enumerate(names))
