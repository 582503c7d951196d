"""Which rows of the image a piece of the output needs, and the other way round."""

from __future__ import annotations

from gpu.bconv.geometry import ConvShape


def image_rows(plane: ConvShape, outputs: range) -> range:
    """The rows of the image that the windows of these output rows read; at least one row.

    Those of two neighbouring pieces overlap: the halo.

    >>> from gpu.bconv.geometry import conv_shape
    >>> image_rows(conv_shape((1, 9, 9, 1), (3, 3, 1, 1), stride=2), range(1, 3))
    range(1, 6)
    """
    start = outputs.start * plane.stride_h - plane.pad_top
    end = (outputs.stop - 1) * plane.stride_h - plane.pad_top + span(plane)
    return _clipped(start, end, plane.height)


def output_rows(plane: ConvShape, rows: range) -> range:
    """The output rows whose windows read these rows of the image; at least one row.

    >>> from gpu.bconv.geometry import conv_shape
    >>> output_rows(conv_shape((1, 9, 9, 1), (3, 3, 1, 1), stride=2), range(2, 5))
    range(1, 3)
    """
    start = -((span(plane) - 1 - rows.start - plane.pad_top) // plane.stride_h)
    end = (rows.stop - 1 + plane.pad_top) // plane.stride_h + 1
    return _clipped(start, end, plane.out_height)


def span(plane: ConvShape) -> int:
    """The rows of a dilated filter."""
    return (plane.filter_height - 1) * plane.dilation_h + 1


def offset(plane: ConvShape, rows: range, outputs: range) -> int:
    """The padding above a piece: see `gpu.outofcore.on_host.Window`."""
    return plane.pad_top + rows.start - outputs.start * plane.stride_h


def _clipped(start: int, end: int, size: int) -> range:
    """The rows that exist; one where all windows are outside, as a piece is not empty."""
    first = min(max(start, 0), size - 1)
    return range(first, max(min(end, size), first + 1))
