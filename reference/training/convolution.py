"""Convolution of images, and its gradients, by definition: tap by tap, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.conv_geometry import ConvGeometry, Padding, PerAxis, conv_geometry
from reference.errors import ShapeError
from reference.training.layouts import Array, Layout, doubles, filters, from_nchw, images, shape_of
from reference.training.taps import check_gradient, taps_of


def conv2d(
    x: npt.ArrayLike,
    w: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    stride: PerAxis = 1,
    padding: Padding = "SAME",
    dilation: PerAxis = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
) -> Array:
    """Cross-correlate images with filters, and add a bias to each channel.

    ``y[n, o, p, q]`` is the sum over c, r and s of ``x[n, c, h, v] * w[o, c, r, s]`` with
    ``h = p * stride_h - top + r * dilation_h`` and ``v = q * stride_w - left + s * dilation_w``, over the
    taps inside the image.

    Parameters
    ----------
    x : array_like of real numbers, (N, C, H, W), or (N, H, W, C) with layout "NHWC"
    w : array_like, (O, C / groups, R, S), or (O, R, S, C / groups)
    bias : array_like, (O,), optional
    stride, dilation : int or (vertical, horizontal), at least 1
    padding : {"SAME", "VALID"}, int, (vertical, horizontal) or ((top, bottom), (left, right))
        The names are TensorFlow's; see `reference.conv_geometry`.
    groups : int
        Filter o reads the channels of group ``o // (O / groups)`` only.
    layout : {"NCHW", "NHWC"}

    Returns
    -------
    array of float64, (N, O, P, Q) or (N, P, Q, O)

    Raises
    ------
    ShapeError
        For shapes that do not fit, and for stride, padding, dilation or groups out of range.
    DtypeError
        For numbers that are not real.
    SchemeError
        For an unknown layout or name of padding.

    Notes
    -----
    Source: the cuDNN API, convolution in mode cross-correlation.

    Examples
    --------
    >>> conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 3, 3)), [0.5])[0, 0]
    array([[4.5, 6.5, 4.5],
           [6.5, 9.5, 6.5],
           [4.5, 6.5, 4.5]])
    """
    x, w = images(x, layout, least=0), filters(w, layout)
    g = _geometry(x.shape, w.shape, groups, stride=stride, padding=padding, dilation=dilation)
    y = np.zeros((groups, len(x), len(w) // groups, g.out_height, g.out_width))
    x, w = _by_group(x, groups), w.reshape(groups, -1, *w.shape[1:])
    for r, s, taps, outputs in taps_of(g):
        y[outputs] += np.einsum("gnchw,goc->gnohw", x[taps], w[..., r, s])
    y = _joined(y)
    if bias is not None:
        y += _bias(bias, y.shape[1])
    return from_nchw(y, layout)


def conv2d_backward_data(
    gradient: npt.ArrayLike,
    w: npt.ArrayLike,
    shape: tuple[int, ...],
    *,
    stride: PerAxis = 1,
    padding: Padding = "SAME",
    dilation: PerAxis = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
) -> Array:
    """Compute the gradient of a loss with respect to the images of `conv2d`.

    Parameters
    ----------
    gradient : array_like, of the shape of the convolution's result
        The gradient by that result.
    w : array_like, (O, C / groups, R, S), or (O, R, S, C / groups)
    shape : (N, C, H, W) or (N, H, W, C)
        The shape of the images.
    stride, padding, dilation, groups, layout
        As of `conv2d`.

    Returns
    -------
    array of float64, of that shape

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As `conv2d`.

    Notes
    -----
    Source: the cuDNN API, ``cudnnConvolutionBackwardData``.

    Examples
    --------
    Each pixel was read as often as a window covers it:

    >>> dy, w = np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2))
    >>> conv2d_backward_data(dy, w, (1, 1, 3, 3), padding="VALID")[0, 0]
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]])
    """
    w, dy = filters(w, layout), images(gradient, layout, "gradient", least=0)
    of = shape_of(shape, layout, "shape", least=0)
    g = _geometry(of, w.shape, groups, stride=stride, padding=padding, dilation=dilation)
    check_gradient(dy.shape, (of[0], len(w), g.out_height, g.out_width))
    dx = np.zeros((groups, of[0], of[1] // groups, *of[2:]))
    dy, w = _by_group(dy, groups), w.reshape(groups, -1, *w.shape[1:])
    for r, s, taps, outputs in taps_of(g):
        dx[taps] += np.einsum("gnohw,goc->gnchw", dy[outputs], w[..., r, s])
    return from_nchw(_joined(dx), layout)


def conv2d_backward_filter(
    x: npt.ArrayLike,
    gradient: npt.ArrayLike,
    shape: tuple[int, ...],
    *,
    stride: PerAxis = 1,
    padding: Padding = "SAME",
    dilation: PerAxis = 1,
    groups: int = 1,
    layout: Layout = "NCHW",
) -> Array:
    """Compute the gradient of a loss with respect to the filters of `conv2d`.

    Parameters
    ----------
    x : array_like, (N, C, H, W) or (N, H, W, C)
        The images.
    gradient : array_like, of the shape of the convolution's result
        The gradient by that result.
    shape : (O, C / groups, R, S) or (O, R, S, C / groups)
        The shape of the filters.
    stride, padding, dilation, groups, layout
        As of `conv2d`.

    Returns
    -------
    array of float64, of that shape

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As `conv2d`.

    Notes
    -----
    Source: the cuDNN API, ``cudnnConvolutionBackwardFilter``.

    Examples
    --------
    >>> x, dy = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
    >>> conv2d_backward_filter(x, dy, (1, 1, 2, 2), padding="VALID")[0, 0]
    array([[ 8., 12.],
           [20., 24.]])
    """
    x, dy = images(x, layout, least=0), images(gradient, layout, "gradient", least=0)
    of = shape_of(shape, layout, "shape", is_filters=True)
    g = _geometry(x.shape, of, groups, stride=stride, padding=padding, dilation=dilation)
    check_gradient(dy.shape, (len(x), of[0], g.out_height, g.out_width))
    dw = np.zeros((groups, of[0] // groups, *of[1:]))
    x, dy = _by_group(x, groups), _by_group(dy, groups)
    for r, s, taps, outputs in taps_of(g):
        dw[..., r, s] = np.einsum("gnchw,gnohw->goc", x[taps], dy[outputs])
    return from_nchw(dw.reshape(of), layout)


def conv2d_backward_bias(gradient: npt.ArrayLike, *, layout: Layout = "NCHW") -> Array:
    """Compute the gradient of a loss with respect to the bias of `conv2d`: the sum over images and pixels.

    Parameters
    ----------
    gradient : array_like, (N, O, P, Q) or (N, P, Q, O)
        The gradient by the convolution's result.
    layout : {"NCHW", "NHWC"}

    Returns
    -------
    array of float64, (O,)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As `conv2d`.

    Notes
    -----
    Source: the cuDNN API, ``cudnnConvolutionBackwardBias``.

    Examples
    --------
    >>> conv2d_backward_bias(np.ones((2, 3, 4, 5)))
    array([40., 40., 40.])
    """
    return images(gradient, layout, "gradient", least=0).sum((0, 2, 3))


def _geometry(images: tuple[int, ...], filters: tuple[int, ...], groups: int, **options: Any) -> ConvGeometry:
    """Check the channels, and return the taps for one channel of one image."""
    channels, of_filters = images[1], filters[1]
    if type(groups) is not int or groups < 1 or channels != groups * of_filters or filters[0] % groups:
        raise ShapeError(
            f"the images have {channels} channels, the {filters[0]} filters have {of_filters}, "
            f"groups={groups!r}\n"
            "a filter has the channels of one group, and groups must divide the number of filters\n"
            "check the layout, and the number of groups"
        )
    return conv_geometry((1, *images[2:], 1), (*filters[2:], 1, 1), **options)


def _by_group(x: Array, groups: int) -> Array:
    """(N, C, H, W) as (groups, N, C / groups, H, W)."""
    return np.moveaxis(x.reshape(len(x), groups, x.shape[1] // groups, *x.shape[2:]), 1, 0)


def _joined(x: Array) -> Array:
    """(groups, N, C / groups, H, W) as (N, C, H, W)."""
    groups, count, channels, *rest = x.shape
    return np.moveaxis(x, 0, 1).reshape(count, groups * channels, *rest)


def _bias(bias: npt.ArrayLike, filters: int) -> Array:
    """The bias of each channel, along the channels of (N, O, P, Q)."""
    numbers = doubles(bias, "bias")
    if numbers.shape != (filters,):
        raise ShapeError(
            f"bias has shape {numbers.shape}\none number for each of {filters} filters is needed\nreshape it"
        )
    return numbers.reshape(-1, 1, 1)
