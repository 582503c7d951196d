"""The window of a piece as padding of at least 0, as cuDNN requires."""

from __future__ import annotations

from dataclasses import dataclass

from gpu.outofcore.on_host import Window

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Axis:
    """The pixels of a piece of images along an axis that windows cover, and the padding around them.

    Pixels before ``first`` and behind the ``size`` covered ones are in no window; fewer than a stride of the
    last covered ones may be in none either.
    """

    first: int
    size: int
    before: int
    after: int


def axis_of(size: int, outputs: int, offset: int, stride: int, span: int) -> Axis | None:
    """The axis of a piece of ``size`` pixels, under windows of ``span`` pixels; None if they cover none.

    >>> axis_of(9, outputs=4, offset=-1, stride=2, span=2)
    Axis(first=1, size=8, before=0, after=0)
    """
    first, end = max(-offset, 0), (outputs - 1) * stride + span - offset
    behind = size - end
    # with a whole stride behind the last window there would be one more window
    last = end if behind >= stride else size
    if min(last, end) <= first:
        return None
    return Axis(first, last - first, max(offset, 0), max(-behind, 0))


def axes_of(window: Window, image: Shape, filters: Shape, output: Shape) -> tuple[Axis, Axis] | None:
    """Both axes, down and across, of pieces of (N, C, H, W); None if the windows cover no pixel."""
    down, across = (
        axis_of(
            image[axis + 2],
            output[axis + 2],
            window.offset[axis],
            window.stride[axis],
            (filters[axis + 2] - 1) * window.dilation[axis] + 1,
        )
        for axis in (0, 1)
    )
    return (down, across) if down and across else None
