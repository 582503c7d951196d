"""Sums of convolutions with NumPy: the tile routines of simulated devices.

Each number is summed tap by tap and channel by channel, whatever the size of its piece; so pieces have the
bits of the whole. The gradient of filters sums images and pixels of a tap at once, pairwise as NumPy does.
Arrays are in double precision, images (N, C, H, W) and filters (O, I, R, S).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """The convolution of pieces; pairs are (down, across).

    Tap (r, s) of output pixel (p, q) reads pixel ``p * stride[0] - offset[0] + r * dilation[0]`` down, and
    likewise across, of its piece of the images, if that is inside.
    """

    offset: tuple[int, int]  # padding above and left of the piece; negative if windows start inside the piece
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int  # groups of the pieces

    def taps(self, image: Shape, filters: Shape, output: Shape) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield each tap's row and column, an index of the pixels that it reads, and one of their outputs."""
        axes = [
            [self._along(axis, tap, image[axis - 2], output[axis - 2]) for tap in range(filters[axis - 2])]
            for axis in (0, 1)
        ]
        for (r, (rows, outputs)), (s, (columns, across)) in product(*map(enumerate, axes)):
            yield r, s, (..., rows, columns), (..., outputs, across)

    def _along(self, axis: int, tap: int, size: int, outputs: int) -> tuple[slice, slice]:
        """The pixels that a tap reads along an axis, and the output pixels that read them."""
        stride, start = self.stride[axis], tap * self.dilation[axis] - self.offset[axis]
        first = min(max(-(start // stride), 0), outputs)
        end = max(min((size - 1 - start) // stride + 1, outputs), first)
        begin = start + first * stride
        return slice(begin, begin + (end - first) * stride, stride), slice(first, end)


def convolved(window: Window, x: Array, w: Array, shape: Shape) -> Array:
    """Compute the convolution of images x with filters w."""
    y, x, w = np.zeros(_grouped(shape, window, 1)), _by_group(x, window, 1), _by_group(w, window, 0)
    for r, s, pixels, outputs in window.taps(x.shape, w.shape, shape):
        read = x[pixels]
        for channel in range(w.shape[2]):
            y[outputs] += read[:, :, channel, None] * w[:, :, channel, r, s, None, None]
    return y.reshape(shape)


def data_gradient(window: Window, dy: Array, w: Array, shape: Shape) -> Array:
    """Compute a convolution's gradient with respect to the images."""
    dx, dy, w = np.zeros(_grouped(shape, window, 1)), _by_group(dy, window, 1), _by_group(w, window, 0)
    for r, s, pixels, outputs in window.taps(shape, w.shape, dy.shape):
        of_outputs = dy[outputs]
        for filters in range(w.shape[1]):
            dx[pixels] += of_outputs[:, :, filters, None] * w[:, filters, :, r, s, None, None]
    return dx.reshape(shape)


def filter_gradient(window: Window, x: Array, dy: Array, shape: Shape) -> Array:
    """Compute a convolution's gradient with respect to the filters."""
    dw, x, dy = np.zeros(_grouped(shape, window, 0)), _by_group(x, window, 1), _by_group(dy, window, 1)
    for r, s, pixels, outputs in window.taps(x.shape, shape, dy.shape):
        read, of_outputs = x[pixels], dy[outputs]
        for filters in range(dw.shape[1]):
            terms = np.moveaxis(read * of_outputs[:, :, filters, None], 0, 2)
            dw[:, filters, :, r, s] = terms.reshape(*terms.shape[:2], -1).sum(-1)
    return dw.reshape(shape)


def _grouped(shape: Shape, window: Window, axis: int) -> Shape:
    """A shape with an axis split into groups and their members."""
    return (*shape[:axis], window.groups, shape[axis] // window.groups, *shape[axis + 1 :])


def _by_group(x: Array, window: Window, axis: int) -> Array:
    """An array with an axis split into groups and their members."""
    return x.reshape(_grouped(x.shape, window, axis))


SUMS: dict[str, Callable[[Window, Array, Array, Shape], Array]] = {
    "conv2d": convolved,
    "conv2d_backward_data": data_gradient,
    "conv2d_backward_filter": filter_gradient,
}
"""The sums of each routine."""


def rounded_to_tf32(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Round to TF32, which has 10 fraction bits, to nearest; halves are rounded away from zero.

    >>> rounded_to_tf32(np.array([1 + 2**-11, 1 + 2**-12, np.inf], np.float32)).tolist()
    [1.0009765625, 1.0, inf]
    """
    bits = np.ascontiguousarray(x).view(np.uint32)
    kept = (bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), kept.view(np.float32), x)


def _sigmoid(x: Array) -> Array:
    """The logistic function, computed from -|x| so that it does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


ACTIVATE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
}
"""Activations."""
