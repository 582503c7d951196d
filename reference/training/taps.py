"""The taps of windows that slide over an image: for each tap, its pixels and its windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from reference.conv_geometry import ConvGeometry, inside
from reference.errors import ShapeError


class Tap(NamedTuple):
    """One tap of a filter: the pixels that it reads, and for each pixel the window that reads it."""

    row: int  # the tap's row in the window
    column: int  # the tap's column in the window
    pixels: Any  # index into (..., H, W): the pixels inside the image that the tap reads
    outputs: Any  # index into (..., P, Q): the windows whose tap reads these pixels


def taps_of(g: ConvGeometry) -> Iterator[Tap]:
    """The taps, row by row.

    >>> from reference.conv_geometry import conv_geometry
    >>> first = next(taps_of(conv_geometry((1, 2, 2, 1), (3, 3, 1, 1))))
    >>> np.arange(4).reshape(2, 2)[first.pixels].tolist(), np.arange(4).reshape(2, 2)[first.outputs].tolist()
    ([[0]], [[3]])
    """
    for r in range(g.filter_height):
        rows = g.rows(r)
        in_rows = inside(rows, g.height)
        for s in range(g.filter_width):
            columns = g.columns(s)
            in_columns = inside(columns, g.width)
            pixels = np.ix_(rows[in_rows], columns[in_columns])
            outputs = np.ix_(np.flatnonzero(in_rows), np.flatnonzero(in_columns))
            yield Tap(r, s, (..., *pixels), (..., *outputs))


def check_gradient(given: tuple[int, ...], needed: tuple[int, ...]) -> None:
    """Raise ShapeError unless a gradient has the shape of the result."""
    if given != needed:
        raise ShapeError(
            f"the gradient has N, channels, rows and columns {given}\nthe result has {needed}\n"
            "check shape, window, stride, padding and dilation"
        )
