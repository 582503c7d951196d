"""Diagrams of the fixed-stride-bit format (FSB): bit matrices stored by tiles (figure 14 of the BTC paper).

`fsb_place`, the index formula, computes the positions of elements.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, Literal, TypeAlias

from reference.errors import SchemeError, ShapeError
from simwarp.draw.picture import Cell, Grid, Picture, boxes, ends, span
from simwarp.draw.svg import drawn

Order: TypeAlias = Literal["row", "column"]

_MOST = (16, 9)
"""The most rows and columns of cells; of more, a gap and the last three are shown."""


def fsb(
    rows: int,
    columns: int,
    *,
    tile: tuple[int, int] = (8, 128),
    order: Order = "row",
    word: int = 32,
    svg: bool = False,
) -> str:
    """Draw a bit matrix twice, stored line by line and stored in FSB tiles.

    A cell is a word; its label is the word's position in memory. Cells of the same tile have the same colour.

    Parameters
    ----------
    rows, columns : int
        Of the matrix; if they are not multiples of the tile, the padding is shown.
    tile : (int, int)
        Height and width of a tile, in elements; figure 14 has (2, 4).
    order : {"row", "column"}
        Whether elements of a tile, and the tiles, are stored row by row or column by column.
    word : int
        Elements per cell, adjacent along ``order``; 1 shows every bit.
    svg : bool
        Return SVG, not text.

    Raises
    ------
    SchemeError
        For an unknown ``order``, or a tile whose lines are not whole words.
    ShapeError
        For a dimension below 1.

    Notes
    -----
    Source: BTC (TPDS'20), section 5.1 and figure 14.

    Examples
    --------
    >>> print(fsb(4, 8, tile=(2, 4), word=1))
    FSB, tiles of 2 × 4: 4 × 8 elements, row by row
    <BLANKLINE>
           in lines                                             in tiles
    column   0    1    2    3    4    5    6    7        column   0    1    2    3    4    5    6    7
           +----+----+----+----+----+----+----+----+            +----+----+----+----+----+----+----+----+
     row 0 | 0  | 1  | 2  | 3  | 4  | 5  | 6  | 7  |      row 0 | 0  | 1  | 2  | 3  | 8  | 9  | 10 | 11 |
         1 | 8  | 9  | 10 | 11 | 12 | 13 | 14 | 15 |  →       1 | 4  | 5  | 6  | 7  | 12 | 13 | 14 | 15 |
         2 | 16 | 17 | 18 | 19 | 20 | 21 | 22 | 23 |          2 | 16 | 17 | 18 | 19 | 24 | 25 | 26 | 27 |
         3 | 24 | 25 | 26 | 27 | 28 | 29 | 30 | 31 |          3 | 20 | 21 | 22 | 23 | 28 | 29 | 30 | 31 |
           +----+----+----+----+----+----+----+----+            +----+----+----+----+----+----+----+----+
    <BLANKLINE>
    A cell is one bit, and its number is its place in memory.
    Element (r, c) is bit ((r // 2) * 2 + c // 4) * 8 + r % 2 * 4 + c % 4 of the tiles.
    """
    return drawn(fsb_picture(rows, columns, tile=tile, order=order, word=word), svg)


def fsb_place(row: Any, column: Any, *, rows: int, columns: int, tile: tuple[int, int], order: Order) -> Any:
    """The offset, in elements, of element (row, column) in a matrix in FSB format; ints or arrays."""
    if order == "column":  # a row-order layout of the transposed matrix
        return fsb_place(column, row, rows=columns, columns=rows, tile=(tile[1], tile[0]), order="row")
    height, width = tile
    number = row // height * -(-columns // width) + column // width
    return number * height * width + row % height * width + column % width


def fsb_picture(
    rows: int, columns: int, *, tile: tuple[int, int] = (8, 128), order: Order = "row", word: int = 32
) -> Picture:
    """The picture that `fsb` draws, as plain data."""
    _check(rows, columns, tile, order, word)
    by_row = order == "row"
    height, width = (1, word) if by_row else (word, 1)
    padded = (-(-rows // tile[0]) * tile[0], -(-columns // tile[1]) * tile[1])
    filled = (-(-rows // height) * height, -(-columns // width) * width)

    def in_lines(row: int, column: int) -> int:
        return row * filled[1] + column if by_row else column * filled[0] + row

    def in_tiles(row: int, column: int) -> int:
        return fsb_place(row, column, rows=rows, columns=columns, tile=tile, order=order)

    def grid(title: str, place: Callable[[int, int], int], extent: tuple[int, int], lead: str = "") -> Grid:
        def cell(i: int, j: int) -> Cell:
            row, column = i * height, j * width
            inside = max(min(rows - row, height), 0) * max(min(columns - column, width), 0)
            if not inside:
                return Cell("pad", "padding")
            number = in_tiles(row, column) // (tile[0] * tile[1])
            return Cell(str(place(row, column) // word), padding=1 - inside / word, hue=number * 4 % 32)

        return boxes(
            ends(extent[0] // height, _MOST[0]),
            ends(extent[1] // width, _MOST[1]),
            cell,
            lambda i: span(i * height, height),
            lambda j: span(j * width, width),
            "row ",
            title=title,
            corner="column",
            tall=not by_row and word > 1,
            least=len(str(padded[0] * padded[1] // word - 1)),
            lead=lead,
        )

    lines = grid("in lines", in_lines, filled)
    tiles = grid("in tiles", in_tiles, padded, "→")
    title = f"FSB, tiles of {tile[0]} × {tile[1]}: {rows} × {columns} elements, {order} by {order}"
    return Picture(title, ((lines, tiles),), tuple(_notes(rows, columns, tile, order, word)))


def _check(rows: object, columns: object, tile: tuple[int, int], order: str, word: int) -> None:
    if order not in ("row", "column"):
        raise SchemeError(
            f'order={order!r}\nFSB stores elements row by row or column by column\nchoose "row" or "column"'
        )
    sizes = {"rows": rows, "columns": columns, "tile[0]": tile[0], "tile[1]": tile[1], "word": word}
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < 1:
            raise ShapeError(
                f"{name}={size!r}\na matrix, a tile and a word have at least one element\n"
                "give a positive integer"
            )
    if tile[order == "row"] % word:
        raise SchemeError(
            f"word={word} does not divide tile={tile}\n"
            f"a {order} of a tile is stored in whole words\n"
            "choose a word that divides it: 1 draws every bit"
        )


def _notes(rows: int, columns: int, tile: tuple[int, int], order: Order, word: int) -> list[str]:
    """Notes on how to read the cells, and the formula of `fsb_place`."""
    (height, width), size = tile, tile[0] * tile[1]
    if order == "row":
        number = f"(r // {height}) * {-(-columns // width)} + c // {width}"
        within = f"r % {height} * {width} + c % {width}"
    else:
        number = f"(c // {width}) * {-(-rows // height)} + r // {height}"
        within = f"c % {width} * {height} + r % {height}"
    cell = "one bit, and its number is its" if word == 1 else f"{word} bits, and its number is the word's"
    notes = [
        f"A cell is {cell} place in memory.",
        f"Element (r, c) is bit ({number}) * {size} + {within} of the tiles.",
    ]
    if padding := -(-rows // height) * -(-columns // width) * size - rows * columns:
        notes.append(f"Padding: {padding} bits, all 0.")
    return notes
