"""Pictures as plain data, before rendering as text or SVG: rows of grids of cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy.typing as npt

Shade: TypeAlias = Literal["zero", "one", "plain", "tint", "padding", "gap"]


@dataclass(frozen=True)
class Cell:
    """One cell of a `Grid`: its label and its shade.

    The shades ``zero`` and ``one`` are bits; ``plain`` and ``tint`` are colours that group cells; ``padding``
    is not an element of the matrix; ``gap`` stands for omitted cells.
    """

    label: str = ""
    shade: Shade = "plain"
    mark: bool = False  # highlights a bit; boxes are never highlighted
    padding: float = 0.0  # padding at the end of the cell, as a fraction of the cell: 0 to 1
    hue: int | None = None  # the colour of a lane, 0 to 31: see `simwarp.draw.hues`


@dataclass(frozen=True)
class Grid:
    """Rows of cells, with a title, labels and notes around them."""

    cells: tuple[tuple[Cell, ...], ...]
    title: str = ""
    corner: str = ""  # text left of the column labels
    column_labels: tuple[str, ...] = ()
    row_labels: tuple[str, ...] = ()  # text before each row
    row_notes: tuple[str, ...] = ()  # text after each row
    style: Literal["boxes", "bits", "blank"] = "boxes"  # "blank" draws nothing, in the space of boxes
    tall: bool = False  # boxes have their padding at the bottom, else on the right
    group: int = 0  # columns between two gaps; 0 for no gaps
    size: int = 9  # the side of a bit's square in SVG
    least: int = 0  # the least width of a box, in characters
    lead: str = ""  # a sign, such as an arrow, between the previous grid of the row and this one


@dataclass(frozen=True)
class Picture:
    """A drawing as data: a title, and below it rows of grids side by side."""

    title: str
    lines: tuple[tuple[Grid, ...], ...]
    notes: tuple[str, ...] = ()  # sentences below the picture, which also describe it to a screen reader


def boxes(
    rows: Sequence[int | None],
    columns: Sequence[int | None],
    cell: Callable[[int, int], Cell],
    row_label: Callable[[int], str] = str,
    column_label: Callable[[int], str] = str,
    prefix: str = "",
    **more: Any,
) -> Grid:
    """A grid of the given rows and columns, a gap for each None; ``prefix`` begins the first row label."""

    def made(row: int | None, column: int | None) -> Cell:
        if row is None or column is None:
            return Cell("⋮" if row is None else "…", "gap")
        return cell(row, column)

    names = ["⋮" if row is None else row_label(row) for row in rows]
    return Grid(
        tuple(tuple(made(row, column) for column in columns) for row in rows),
        column_labels=tuple("…" if column is None else column_label(column) for column in columns),
        row_labels=(prefix + names[0], *names[1:]),
        **more,
    )


def ends(count: int, most: int, last: int = 3) -> list[int | None]:
    """All ``count`` indices, or if that exceeds ``most`` the first and ``last`` ones with a None between."""
    return list(range(count)) if count <= most else [*range(most - 3), None, *range(count - last, count)]


def with_gaps(numbers: Sequence[int]) -> list[int | None]:
    """The sorted numbers, with a None wherever numbers are skipped."""
    shown: list[int | None] = []
    for before, number in zip([numbers[0], *numbers], numbers, strict=False):
        shown += [number] if abs(number - before) <= 1 else [None, number]
    return shown


def span(start: int, count: int) -> str:
    """The label of a range of ``count`` numbers: ``0–31``."""
    return f"{start}" if count == 1 else f"{start}–{start + count - 1}"


def bit_cells(words: npt.NDArray[Any], marks: npt.NDArray[Any], labelled: bool = False) -> tuple[Any, ...]:
    """A row of cells for each word, most significant bit first, marked where ``marks`` has a 1."""
    import numpy as np

    width = words.dtype.itemsize * 8
    shifts = np.arange(width - 1, -1, -1, dtype=words.dtype)
    ones, marked = ((array[:, None] >> shifts & words.dtype.type(1)).tolist() for array in (words, marks))
    cells = {
        (bit, mark): Cell(str(bit) if labelled else "", "one" if bit else "zero", bool(mark))
        for bit in (0, 1)
        for mark in (0, 1)
    }
    return tuple(
        tuple(cells[bits] for bits in zip(*row, strict=True)) for row in zip(ones, marked, strict=True)
    )


def sparse_labels(count: int, prefix: str = "") -> tuple[str, ...]:
    """Labels of ``count`` rows or columns: every eighth number and the last; "" for the others."""
    return tuple(
        (prefix if i == 0 else "") + str(i) if i % 8 == 0 or i == count - 1 else "" for i in range(count)
    )
