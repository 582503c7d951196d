"""Batch normalization over all images and pixels of a batch, and its gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.errors import RangeError, ShapeError
from reference.training.layouts import Array, Layout, doubles, from_nchw, images
from reference.training.taps import check_gradient
from reference.values import not_an_array, shortened

EPSILON = 1e-5


@not_an_array("pass one of its gradients by its name")
@shortened
class BatchNormGradients(NamedTuple):
    """The gradients of a batch normalization.

    Attributes
    ----------
    x : array of float64, of the shape of the images
    gamma, beta : array of float64, (C,)
    """

    x: Array
    gamma: Array
    beta: Array


def batch_norm(
    x: npt.ArrayLike,
    gamma: npt.ArrayLike,
    beta: npt.ArrayLike,
    *,
    epsilon: float = EPSILON,
    layout: Layout = "NCHW",
) -> Array:
    """Compute ``gamma (x - mean) / sqrt(variance + epsilon) + beta`` for each channel.

    Mean and variance are those of the channel's pixels in all images; the variance divides by their number.

    Parameters
    ----------
    x : array_like of real numbers, (N, C, H, W) or (N, H, W, C)
    gamma, beta : array_like, (C,)
    epsilon : float, above 0
    layout : {"NCHW", "NHWC"}

    Returns
    -------
    array of float64, of the shape of ``x``

    Raises
    ------
    ShapeError
        For shapes that do not fit.
    RangeError
        For an epsilon that is not above 0.
    DtypeError, SchemeError
        As `conv2d`.

    Notes
    -----
    Source: Ioffe and Szegedy, Batch Normalization, algorithm 1.

    Examples
    --------
    >>> batch_norm([[[[1.0, 3.0]]]], [2.0], [0.5], epsilon=1e-12)[0, 0]
    array([[-1.5,  2.5]])
    """
    x = images(x, layout)
    scale, shift = _per_channel(gamma, x, "gamma"), _per_channel(beta, x, "beta")
    return from_nchw(scale * _normalized(x, epsilon)[0] + shift, layout)


def batch_norm_backward(
    gradient: npt.ArrayLike,
    x: npt.ArrayLike,
    gamma: npt.ArrayLike,
    *,
    epsilon: float = EPSILON,
    layout: Layout = "NCHW",
) -> BatchNormGradients:
    """Compute the gradients with respect to `batch_norm`'s operands; mean and variance depend on ``x``.

    Parameters
    ----------
    gradient : array_like, of the shape of ``x``
        The gradient with respect to the result.
    x, gamma, epsilon, layout
        As of `batch_norm`.

    Returns
    -------
    BatchNormGradients

    Raises
    ------
    ShapeError, RangeError, DtypeError, SchemeError
        As `batch_norm`.

    Notes
    -----
    Source: Ioffe and Szegedy, Batch Normalization, section 3.

    Examples
    --------
    >>> batch_norm_backward([[[[1.0, 3.0]]]], [[[[1.0, 3.0]]]], [2.0]).beta
    array([4.])
    """
    x, dy = images(x, layout), images(gradient, layout, "gradient")
    check_gradient(dy.shape, x.shape)
    scale = _per_channel(gamma, x, "gamma")
    normalized, deviation = _normalized(x, epsilon)
    beta, weights = dy.sum((0, 2, 3)), (dy * normalized).sum((0, 2, 3))
    count = x.size / x.shape[1]
    centred = dy - (beta[:, None, None] + normalized * weights[:, None, None]) / count
    return BatchNormGradients(from_nchw(scale / deviation * centred, layout), weights, beta)


def _normalized(x: Array, epsilon: float) -> tuple[Array, Array]:
    """Images with mean 0 and variance 1 in each channel, and the square root that they were divided by."""
    if not epsilon > 0:
        raise RangeError(
            f"epsilon is {epsilon}\nit keeps the divisor from 0, since a variance may be 0\n"
            "give a number above 0"
        )
    centred = x - x.mean((0, 2, 3), keepdims=True)
    deviation = np.sqrt((centred * centred).mean((0, 2, 3), keepdims=True) + epsilon)
    return centred / deviation, deviation


def _per_channel(given: npt.ArrayLike, x: Array, name: str) -> Array:
    """Check a vector with one number per channel; reshape it to broadcast along (N, C, H, W)."""
    numbers = doubles(given, name)
    if numbers.shape != (x.shape[1],):
        raise ShapeError(
            f"{name} has shape {numbers.shape}\none number for each of {x.shape[1]} channels is needed\n"
            "reshape it"
        )
    return numbers.reshape(-1, 1, 1)
