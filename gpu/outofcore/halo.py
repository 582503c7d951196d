"""The image rows that some output rows need, and the output rows that some image rows affect."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gpu.bconv.geometry import ConvShape

Rows = TypeVar("Rows", int, npt.NDArray[np.int64])
"""A row, or an array with one row for each strip."""


def image_rows(plane: ConvShape, outputs: range) -> range:
    """The rows of the image that the windows of these output rows read; at least one row.

    Those of two neighbouring pieces overlap: the halo.

    >>> from gpu.bconv.geometry import conv_shape
    >>> image_rows(conv_shape((1, 9, 9, 1), (3, 3, 1, 1), stride=2), range(1, 3))
    range(1, 6)
    """
    return _clipped(*image_bounds(plane, outputs.start, outputs.stop), plane.height)


def image_bounds(plane: ConvShape, start: Rows, stop: Rows) -> tuple[Rows, Rows]:
    """The first image row that these windows read, and the one behind the last; both may be outside."""
    return start * plane.stride_h - plane.pad_top, (stop - 1) * plane.stride_h - plane.pad_top + span(plane)


def output_rows(plane: ConvShape, rows: range) -> range:
    """The output rows whose windows read these rows of the image; at least one row.

    >>> from gpu.bconv.geometry import conv_shape
    >>> output_rows(conv_shape((1, 9, 9, 1), (3, 3, 1, 1), stride=2), range(2, 5))
    range(1, 3)
    """
    return _clipped(*output_bounds(plane, rows.start, rows.stop), plane.out_height)


def output_bounds(plane: ConvShape, start: Rows, stop: Rows) -> tuple[Rows, Rows]:
    """The first output row that reads these rows, and the one behind the last; both may be outside."""
    first = -((span(plane) - 1 - start - plane.pad_top) // plane.stride_h)
    return first, (stop - 1 + plane.pad_top) // plane.stride_h + 1


def span(plane: ConvShape) -> int:
    """The number of rows that a dilated filter spans."""
    return (plane.filter_height - 1) * plane.dilation_h + 1


def offset(plane: ConvShape, rows: range, outputs: range) -> int:
    """The padding above a piece: see `gpu.outofcore.on_host.Window`."""
    return plane.pad_top + rows.start - outputs.start * plane.stride_h


def _clipped(start: int, end: int, size: int) -> range:
    """The part of a range that is inside; if that is empty, one row, since a piece is not empty."""
    first = min(max(start, 0), size - 1)
    return range(first, max(min(end, size), first + 1))
