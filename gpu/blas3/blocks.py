"""Blocks of host matrices: the unit of copies between host and device, and the key of caches."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from gpu.blas3.table import Name

Span: TypeAlias = tuple[int, int]
"""The first row or column, and one past the last."""


class Block(NamedTuple):
    """A rectangular block of a host matrix, by its rows and columns."""

    matrix: Name
    rows: Span
    columns: Span

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns of the block."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]

    def of(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The block as a view of its host matrix."""
        return matrix[self.rows[0] : self.rows[1], self.columns[0] : self.columns[1]]


def spans(extent: int, tile: int) -> list[Span]:
    """Cut an extent into tiles; the last may be smaller, and is not padded.

    >>> spans(5, 2), spans(0, 2)
    ([(0, 2), (2, 4), (4, 5)], [])
    """
    return [(start, min(start + tile, extent)) for start in range(0, extent, tile)]


def stored(matrix: Name, row: Span, column: Span, trans: str) -> Block:
    """The block of X whose op is the block of op(X) with these rows and columns."""
    return Block(matrix, row, column) if trans == "N" else Block(matrix, column, row)
