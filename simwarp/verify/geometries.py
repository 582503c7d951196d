"""The geometry of a convolution, and a picture of one of its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simwarp.draw import exclude_picture
from simwarp.draw.picture import Picture

Pair: TypeAlias = tuple[int, int]
Padding: TypeAlias = "str | tuple[Pair, Pair]"


@dataclass(frozen=True)
class Geometry:
    """The shapes and options of one call of ``bconv2d``, without the values.

    >>> same = Geometry((1, 5, 5, 1), (3, 3, 1, 1), stride=(2, 2), padding="SAME")
    >>> same.spans, same.pads, same.out
    ((3, 3), ((1, 1), (1, 1)), (3, 3))
    """

    images: tuple[int, int, int, int]  # (N, H, W, C)
    filters: tuple[int, int, int, int]  # (R, S, C, O)
    stride: Pair = (1, 1)  # for rows and for columns
    padding: Padding = "VALID"  # or (vertical, horizontal), or ((top, bottom), (left, right))
    dilation: Pair = (1, 1)
    groups: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of ``bconv2d``; ``groups`` is among them if it is not 1."""
        groups = {} if self.groups == 1 else {"groups": self.groups}
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, **groups}

    @property
    def spans(self) -> Pair:
        """The numbers of rows and of columns that the dilated filter spans."""
        (rows, columns), (down, across) = self.filters[:2], self.dilation
        return (rows - 1) * down + 1, (columns - 1) * across + 1

    @property
    def pads(self) -> tuple[Pair, Pair]:
        """The padding as ((top, bottom), (left, right))."""
        if not isinstance(self.padding, str):
            return self.padding
        top, left = (self._pad(axis) for axis in (0, 1))
        return top, left

    def _pad(self, axis: int) -> Pair:
        """The padding before and after along an axis, for a name of padding."""
        if self.padding == "VALID":
            return 0, 0
        size, stride = self.images[1 + axis], self.stride[axis]
        total = max((-(-size // stride) - 1) * stride + self.spans[axis] - size, 0)
        return total // 2, total - total // 2

    @property
    def out(self) -> Pair:
        """The numbers of rows and of columns of the output, (P, Q)."""
        rows, columns = (
            (self.images[1 + axis] + sum(self.pads[axis]) - self.spans[axis]) // self.stride[axis] + 1
            for axis in (0, 1)
        )
        return rows, columns

    @property
    def excluded(self) -> npt.NDArray[np.intp]:
        """The number of taps outside the image for each output pixel, (P, Q).

        >>> Geometry((1, 3, 3, 1), (3, 3, 1, 1), padding="SAME").excluded.tolist()
        [[5, 3, 5], [3, 0, 3], [5, 3, 5]]
        """
        rows, columns = (self._inside(axis) for axis in (0, 1))
        return self.filters[0] * self.filters[1] - np.outer(rows, columns)

    def _inside(self, axis: int) -> npt.NDArray[np.intp]:
        """The number of taps inside the image along an axis, for each output row or column."""
        first = np.arange(self.out[axis]) * self.stride[axis] - self.pads[axis][0]
        taps = first[:, None] + np.arange(self.filters[axis]) * self.dilation[axis]
        return ((taps >= 0) & (taps < self.images[1 + axis])).sum(axis=1)

    def __str__(self) -> str:
        (n, h, w, c), (r, s, _, o) = self.images, self.filters
        padding = self.padding if isinstance(self.padding, str) else str(self.padding).replace(" ", "")
        groups = "" if self.groups == 1 else f", in {self.groups} groups"
        (down, across), (below, beside) = self.stride, self.dilation
        return (
            f"{n} x {h} x {w} x {c} by {r} x {s} to {o} channels, padding {padding}, "
            f"stride {down},{across}, dilation {below},{beside}{groups}"
        )


def window_picture(geometry: Geometry, element: Sequence[int], result: int) -> Picture:
    """Draw the window of an output (n, p, q, o) over the image, and the terms of its sum."""
    _, p, q, _ = element
    taps, channels = geometry.filters[0] * geometry.filters[1], geometry.filters[2]
    (top, _), (left, _) = geometry.pads
    return exclude_picture(
        geometry.images[1:3],
        geometry.filters[:2],
        geometry.out,
        pad=(top, left),
        stride=geometry.stride,
        dilation=geometry.dilation,
        pixel=(p, q),
        channels=channels,
        popc=((taps - int(geometry.excluded[p, q])) * channels - result) // 2,
    )
