"""What a picture is, before it is text or SVG: grids of cells, in lines from top to bottom."""

from __future__ import annotations

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
        ``zero`` and ``one`` are bits; ``plain`` and ``tint`` two colours that say nothing but
        "together"; ``padding`` is no element; ``gap`` stands for cells that are left out.
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
    """Cells in rows, with what is written around them.

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


def bit_cells(words: npt.NDArray[Any], marks: npt.NDArray[Any], labelled: bool = False) -> tuple[Any, ...]:
    """A row of cells for each word, the most significant bit on the left (BSTC, figure 1).

    Parameters
    ----------
    words, marks : uint32 or uint64 (n,)
        Where a bit of ``marks`` is 1, the cell is marked.
    labelled : bool
        Write 0 and 1 into the cells.

    Returns
    -------
    tuple of n tuples of Cell

    Examples
    --------
    >>> row = bit_cells(np.array([5], np.uint32), np.array([1], np.uint32))[0]
    >>> [cell.shade for cell in row[-4:]], row[31].mark
    (['zero', 'one', 'zero', 'one'], True)
    """
    width = words.dtype.itemsize * 8
    shifts = np.arange(width - 1, -1, -1, dtype=words.dtype)
    one: Any = words.dtype.type(1)
    ones = (words[:, None] >> shifts & one).astype(bool).tolist()
    marked = (marks[:, None] >> shifts & one).astype(bool).tolist()
    cells = {
        (bit, mark): Cell(str(int(bit)) if labelled else "", "one" if bit else "zero", mark)
        for bit in (False, True)
        for mark in (False, True)
    }
    return tuple(
        tuple(cells[bit, mark] for bit, mark in zip(*rows, strict=True))
        for rows in zip(ones, marked, strict=True)
    )


def sparse_labels(count: int, prefix: str = "") -> tuple[str, ...]:
    """Numbers for a row of ``count`` cells, written at every eighth and at the last.

    Examples
    --------
    >>> [label for label in sparse_labels(32, "lane ") if label]
    ['lane 0', '8', '16', '24', '31']
    """
    return tuple(
        (prefix if i == 0 else "") + str(i) if i % 8 == 0 or i == count - 1 else "" for i in range(count)
    )
