"""Max and average pooling, and their gradients. Pixels outside the image are ignored."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.conv_geometry import ConvGeometry, Padding, PerAxis, conv_geometry, excluded_taps
from reference.errors import ShapeError
from reference.training.layouts import Array, Layout, from_nchw, images, shape_of
from reference.training.taps import check_gradient, taps_of


def max_pool2d(
    x: npt.ArrayLike,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "VALID",
    layout: Layout = "NCHW",
) -> Array:
    """Take the largest pixel of each window; a window with a NaN gives NaN.

    Parameters
    ----------
    x : array_like of real numbers, (N, C, H, W) or (N, H, W, C)
    window : int or (vertical, horizontal)
    stride : likewise, optional
        Default: the window.
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right))
        Each window must have a pixel inside the image.
    layout : {"NCHW", "NHWC"}

    Returns
    -------
    array of float64, (N, C, P, Q) or (N, P, Q, C)

    Raises
    ------
    ShapeError
        For shapes and options that do not fit, and for a window outside the image.
    DtypeError, SchemeError
        As `conv2d`.

    Notes
    -----
    Source: the cuDNN API, ``CUDNN_POOLING_MAX``.

    Examples
    --------
    >>> max_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 2)[0, 0]
    array([[ 5.,  7.],
           [13., 15.]])
    """
    x = images(x, layout, least=0)
    g = _geometry(x.shape, window, stride, padding)
    y = np.full((*x.shape[:2], g.out_height, g.out_width), -np.inf)
    for _, _, taps, outputs in taps_of(g):
        y[outputs] = np.maximum(y[outputs], x[taps])
    return from_nchw(y, layout)


def max_pool2d_backward(
    gradient: npt.ArrayLike,
    x: npt.ArrayLike,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "VALID",
    layout: Layout = "NCHW",
) -> Array:
    """Compute the gradient with respect to the images of `max_pool2d`.

    The gradient of a window goes to its largest pixel; of equal ones to the first, row by row.

    Parameters
    ----------
    gradient : array_like, of the shape of the pooling's result
    x : array_like, (N, C, H, W) or (N, H, W, C)
    window, stride, padding, layout
        As of `max_pool2d`.

    Returns
    -------
    array of float64, of the shape of ``x``

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As `max_pool2d`.

    Notes
    -----
    Source: the cuDNN API, ``CUDNN_POOLING_MAX_DETERMINISTIC``.

    Examples
    --------
    >>> max_pool2d_backward([[[[5.0]]]], [[[[1.0, 3.0], [3.0, 2.0]]]], 2)[0, 0]
    array([[0., 5.],
           [0., 0.]])
    """
    x, dy = images(x, layout, least=0), images(gradient, layout, "gradient", least=0)
    g = _geometry(x.shape, window, stride, padding)
    check_gradient(dy.shape, (*x.shape[:2], g.out_height, g.out_width))
    y = images(max_pool2d(x, window, stride=stride, padding=padding), "NCHW", least=0)
    dx, is_open = np.zeros_like(x), np.ones(dy.shape, np.bool_)
    for _, _, taps, outputs in taps_of(g):
        is_first = is_open[outputs] & ((x[taps] == y[outputs]) | (np.isnan(x[taps]) & np.isnan(y[outputs])))
        dx[taps] += np.where(is_first, dy[outputs], 0.0)
        is_open[outputs] &= ~is_first
    return from_nchw(dx, layout)


def average_pool2d(
    x: npt.ArrayLike,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "VALID",
    layout: Layout = "NCHW",
) -> Array:
    """Average the pixels of each window that are inside the image.

    Parameters
    ----------
    x : array_like of real numbers, (N, C, H, W) or (N, H, W, C)
    window, stride, padding, layout
        As of `max_pool2d`.

    Returns
    -------
    array of float64, (N, C, P, Q) or (N, P, Q, C)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As `max_pool2d`.

    Notes
    -----
    Source: the cuDNN API, ``CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING``.

    Examples
    --------
    >>> average_pool2d(np.arange(16.0).reshape(1, 1, 4, 4), 2)[0, 0]
    array([[ 2.5,  4.5],
           [10.5, 12.5]])
    """
    x = images(x, layout, least=0)
    g = _geometry(x.shape, window, stride, padding)
    y = np.zeros((*x.shape[:2], g.out_height, g.out_width))
    for _, _, taps, outputs in taps_of(g):
        y[outputs] += x[taps]
    return from_nchw(y / _pixels(g), layout)


def average_pool2d_backward(
    gradient: npt.ArrayLike,
    shape: tuple[int, ...],
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = "VALID",
    layout: Layout = "NCHW",
) -> Array:
    """Compute the gradient with respect to the images of `average_pool2d`; a window's pixels share equally.

    Parameters
    ----------
    gradient : array_like, of the shape of the pooling's result
    shape : (N, C, H, W) or (N, H, W, C)
        The shape of the images.
    window, stride, padding, layout
        As of `max_pool2d`.

    Returns
    -------
    array of float64, of that shape

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As `max_pool2d`.

    Notes
    -----
    Source: the cuDNN API, ``CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING``.

    Examples
    --------
    >>> average_pool2d_backward([[[[8.0]]]], (1, 1, 2, 2), 2)[0, 0]
    array([[2., 2.],
           [2., 2.]])
    """
    dy, of = images(gradient, layout, "gradient", least=0), shape_of(shape, layout, "shape", least=0)
    g = _geometry(of, window, stride, padding)
    check_gradient(dy.shape, (*of[:2], g.out_height, g.out_width))
    dx, part = np.zeros(of), dy / _pixels(g)
    for _, _, taps, outputs in taps_of(g):
        dx[taps] += part[outputs]
    return from_nchw(dx, layout)


def _geometry(
    images: tuple[int, ...], window: PerAxis, stride: PerAxis | None, padding: Padding
) -> ConvGeometry:
    """Check window, stride and padding; return the geometry of a convolution with the same windows."""
    rows, columns = window if isinstance(window, tuple | list) else (window, window)
    stride = window if stride is None else stride
    g = conv_geometry((1, *images[2:], 1), (rows, columns, 1, 1), stride=stride, padding=padding)
    if (_pixels(g) == 0).any():
        raise ShapeError(
            f"a window of {rows} x {columns} with padding={padding!r} is outside the image\n"
            "each window has a pixel inside\ngive less padding than the window"
        )
    return g


def _pixels(g: ConvGeometry) -> Any:
    """The pixels of each window that are inside the image."""
    return g.filter_height * g.filter_width - excluded_taps(g)
