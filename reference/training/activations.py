"""Activations and their gradients.

The gradient is computed from the result ``y``, which training keeps; the argument is not needed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from reference.training.layouts import Array, doubles


def relu(x: npt.ArrayLike) -> Array:
    """Compute max(x, 0); NaN stays NaN.

    Examples
    --------
    >>> relu([-1.0, 2.0])
    array([0., 2.])
    """
    return np.maximum(doubles(x, "x"), 0.0)


def relu_backward(gradient: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Compute the gradient with respect to the argument of `relu`; 0 where ``y`` is 0.

    Examples
    --------
    >>> relu_backward([3.0, 4.0], relu([-1.0, 2.0]))
    array([0., 4.])
    """
    dy, y = _pair(gradient, y)
    return np.where(y > 0, dy, 0.0)


def tanh(x: npt.ArrayLike) -> Array:
    """Compute the hyperbolic tangent.

    Examples
    --------
    >>> tanh([0.0])
    array([0.])
    """
    return np.tanh(doubles(x, "x"))


def tanh_backward(gradient: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Compute the gradient with respect to the argument of `tanh`.

    Examples
    --------
    >>> tanh_backward([3.0], [0.5])
    array([2.25])
    """
    dy, y = _pair(gradient, y)
    return dy * (1 - y * y)


def sigmoid(x: npt.ArrayLike) -> Array:
    """Compute 1 / (1 + exp(-x)), without overflow.

    Examples
    --------
    >>> sigmoid([0.0, -1000.0])
    array([0.5, 0. ])
    """
    x = doubles(x, "x")
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


def sigmoid_backward(gradient: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Compute the gradient with respect to the argument of `sigmoid`.

    Examples
    --------
    >>> sigmoid_backward([4.0], [0.5])
    array([1.])
    """
    dy, y = _pair(gradient, y)
    return dy * y * (1 - y)


ACTIVATIONS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "relu": (relu, relu_backward),
    "tanh": (tanh, tanh_backward),
    "sigmoid": (sigmoid, sigmoid_backward),
}
"""Each activation and its gradient by name."""


def _pair(gradient: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
    """Check that a gradient and a result have the same shape; return both as arrays."""
    dy, result = doubles(gradient, "gradient"), doubles(y, "y")
    if dy.shape != result.shape:
        raise ShapeError(
            f"the gradient has shape {dy.shape}, y {result.shape}\nboth must have the same shape\n"
            "give the y that the forward call returned"
        )
    return dy, result
