"""Render a picture as text."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from simwarp.draw.picture import Cell, Grid, Picture

PADDING = "░"
LEGEND = "# is 1, . is 0; highlighted bits are digits"
_BIT = {("zero", False): ".", ("one", False): "#", ("zero", True): "0", ("one", True): "1"}


def to_text(picture: Picture) -> str:
    """A picture as monochrome text, without trailing spaces.

    Boxes are drawn with bars, and padding as ``░``. Bits without a label are ``#`` for 1 and ``.`` for 0,
    or digits if marked; a marked cell with a label has ``^`` below it.

    Examples
    --------
    >>> print(to_text(Picture("two words", ((Grid(((Cell("D0"), Cell("D1")),)),),))))
    two words
    <BLANKLINE>
    +----+----+
    | D0 | D1 |
    +----+----+
    """
    parts = [picture.title]
    parts += ["\n".join(_beside(line)) for line in picture.lines]
    cells = (cell for line in picture.lines for grid in line for row in grid.cells for cell in row)
    if notes := [*picture.notes, *[LEGEND] * any(map(_is_glyph, cells))]:
        parts.append("\n".join(notes))
    return "\n".join(line.rstrip() for line in "\n\n".join(parts).splitlines())


def _is_glyph(cell: Cell) -> bool:
    return not cell.label and (cell.shade, cell.mark) in _BIT


def _beside(line: tuple[Grid, ...]) -> list[str]:
    """The text lines of grids side by side, with the sign of `Grid.lead` before each."""
    joined: list[str] = []
    for grid in line:
        block = _bits(grid) if grid.style == "bits" else _boxes(grid)
        if grid.style == "blank":
            block = [" " * len(text) for text in block]
        if joined:
            middle = len(block) // 2
            leads = [f"  {grid.lead if i == middle else '':{len(grid.lead)}}  " for i in range(len(block))]
            block = [lead + text for lead, text in zip(leads, block, strict=True)]
        width = max(map(len, joined), default=0)
        joined = [f"{left:{width}}{right}" for left, right in zip_longest(joined, block, fillvalue="")]
    return joined


def _margin(grid: Grid) -> int:
    """The width of the row labels and the space after them, in characters."""
    label = max((len(text) for text in (grid.corner, *grid.row_labels)), default=0)
    return label + 1 if label else 0


def _row_texts(grid: Grid) -> list[tuple[str, str]]:
    """The label before and the note after each row of a grid, padded to align."""
    count = len(grid.cells)
    labels, notes = grid.row_labels or ("",) * count, grid.row_notes or ("",) * count
    margin = _margin(grid)
    return [
        (f"{label:>{margin - 1}} " if margin else "", f"  {note}" if note else "")
        for label, note in zip(labels, notes, strict=True)
    ]


def _bits(grid: Grid) -> list[str]:
    margin = _margin(grid)
    lines = [" " * margin + grid.title] if grid.title else []
    places = [i + (i // grid.group if grid.group else 0) for i in range(len(grid.cells[0]))]
    if grid.column_labels:
        lines.append(f"{grid.corner:>{margin - 1}} " if margin else "")
        for place, label in zip(places, grid.column_labels, strict=True):
            if label:
                lines[-1] = f"{lines[-1]:{margin + place}}{label}"
    for row, (before, after) in zip(grid.cells, _row_texts(grid), strict=True):
        characters, carets = [" "] * (places[-1] + 1), [" "] * (places[-1] + 1)
        for place, cell in zip(places, row, strict=True):
            characters[place] = _BIT[cell.shade, cell.mark] if _is_glyph(cell) else cell.label
            carets[place] = "^" if cell.mark and cell.label else " "
        lines.append(before + "".join(characters) + after)
        if "^" in carets:
            lines.append(" " * margin + "".join(carets))
    return lines


def _boxes(grid: Grid) -> list[str]:
    margin = " " * _margin(grid)
    labels = grid.column_labels or ("",) * len(grid.cells[0])
    widths = [
        2 + max(grid.least, len(label), *(len(c.label) + 3 * _on_the_right(grid, c) for c in column))
        for label, column in zip(labels, zip(*grid.cells, strict=True), strict=True)
    ]

    def line(cells: Iterable[str], mark: str = "|") -> str:
        return mark + mark.join(cells) + mark

    rule = margin + line(("-" * width for width in widths), "+")
    lines = [margin + grid.title] if grid.title else []
    if grid.column_labels:
        header = " ".join(f"{label:^{width}}" for label, width in zip(labels, widths, strict=True))
        lines.append(f"{grid.corner:>{len(margin) - 1}}  {header}" if margin else f" {header}")
    lines.append(rule)
    for row, (before, after) in zip(grid.cells, _row_texts(grid), strict=True):
        lines.append(
            before + line(_box(grid, c, width) for c, width in zip(row, widths, strict=True)) + after
        )
        if grid.tall:
            ends = ((PADDING if c.padding else " ") * width for c, width in zip(row, widths, strict=True))
            lines += [margin + line(ends), rule]
    return lines if grid.tall else [*lines, rule]


def _on_the_right(grid: Grid, cell: Cell) -> bool:
    return bool(cell.padding) and not grid.tall


def _box(grid: Grid, cell: Cell, width: int) -> str:
    if not _on_the_right(grid, cell):
        return f"{cell.label:^{width}}"
    fill = min(max(round(cell.padding * width), 1), width - len(cell.label) - 2)
    return f" {cell.label} ".ljust(width - fill) + PADDING * fill


def printable(text: str) -> str:
    """An untrusted text without the characters that would move the cursor."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)
