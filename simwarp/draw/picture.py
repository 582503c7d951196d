"""Pictures before rendering as text or SVG: grids of cells, arranged in lines from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Shade: TypeAlias = Literal["zero", "one", "plain", "tint", "padding", "gap"]


@dataclass(frozen=True)
class Cell:
    """One cell of a grid.

    Attributes
    ----------
    label : str
        What is written into it.
    shade : str
        ``zero`` and ``one`` are bits; ``plain`` and ``tint`` two colours that mean only
        "together"; ``padding`` is not an element; ``gap`` stands for omitted cells.
    mark : bool
        Whether the picture is about this bit; boxes take no marks.
    padding : float
        The part of the cell that is padding, at its end: 0 to 1.
    hue : int or None
        One of 32 colours, for what belongs to a lane: see `simwarp.draw.hues`.
    """

    label: str = ""
    shade: Shade = "plain"
    mark: bool = False
    padding: float = 0.0
    hue: int | None = None


@dataclass(frozen=True)
class Grid:
    """Rows of cells, with a title, labels and notes around them.

    Attributes
    ----------
    cells : tuple of rows, each a tuple of Cell
    title, corner : str
        Above the grid; and before the labels of the columns.
    column_labels, row_labels, row_notes : tuple of str
        Above each column, before and after each row; empty, or one for each.
    style : {"boxes", "bits", "blank"}
        Boxes with a label each, or small squares; or nothing, in the room that boxes would take.
    tall : bool
        Boxes run downwards: their padding is at the bottom, else on the right.
    group : int
        A space after every so many columns; 0 is none.
    size : int
        The side of a bit's square in SVG.
    least : int
        For how many characters a box has room at least.
    lead : str
        A sign between this grid and the one before it in its line.
    """

    cells: tuple[tuple[Cell, ...], ...]
    title: str = ""
    corner: str = ""
    column_labels: tuple[str, ...] = ()
    row_labels: tuple[str, ...] = ()
    row_notes: tuple[str, ...] = ()
    style: Literal["boxes", "bits", "blank"] = "boxes"
    tall: bool = False
    group: int = 0
    size: int = 9
    least: int = 0
    lead: str = ""


@dataclass(frozen=True)
class Picture:
    """Lines of grids under a title.

    Attributes
    ----------
    title : str
    lines : tuple of lines, each a tuple of Grid
    notes : tuple of str
        Sentences below; they also describe the picture to those who cannot see it.
    """

    title: str
    lines: tuple[tuple[Grid, ...], ...]
    notes: tuple[str, ...] = ()


def boxes(
    rows: Sequence[int | None],
    columns: Sequence[int | None],
    cell: Callable[[int, int], Cell],
    row_label: Callable[[int], str] = str,
    column_label: Callable[[int], str] = str,
    prefix: str = "",
    **more: Any,
) -> Grid:
    """A grid of the chosen rows and columns, a gap for each None; ``prefix`` starts the first row label."""

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
    """All indices; or, if more than ``most``, the first and the ``last`` ones with a None between them."""
    return list(range(count)) if count <= most else [*range(most - 3), None, *range(count - last, count)]


def with_gaps(numbers: Sequence[int]) -> list[int | None]:
    """Sorted numbers with a None where some are missing."""
    shown: list[int | None] = []
    for before, number in zip([numbers[0], *numbers], numbers, strict=False):
        shown += [number] if abs(number - before) <= 1 else [None, number]
    return shown


def span(start: int, count: int) -> str:
    """The range label of ``count`` consecutive numbers: ``0–31``."""
    return f"{start}" if count == 1 else f"{start}–{start + count - 1}"


def bit_cells(words: npt.NDArray[Any], marks: npt.NDArray[Any], labelled: bool = False) -> tuple[Any, ...]:
    """Cells of each word, most significant bit left (BSTC, figure 1), marked where ``marks`` has a 1."""
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
    """Column labels of ``count`` cells: every eighth number, and the last."""
    return tuple(
        (prefix if i == 0 else "") + str(i) if i % 8 == 0 or i == count - 1 else "" for i in range(count)
    )
