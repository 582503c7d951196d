"""The fully connected layer and its gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy.typing as npt

from reference.errors import ShapeError
from reference.training.layouts import Array, doubles
from reference.values import not_an_array, shortened


@not_an_array("pass one of its gradients by its name")
@shortened
class DenseGradients(NamedTuple):
    """The gradients of a fully connected layer.

    Attributes
    ----------
    x : array of float64, (N, I)
    w : array of float64, (O, I)
    bias : array of float64, (O,)
    """

    x: Array
    w: Array
    bias: Array


def dense(x: npt.ArrayLike, w: npt.ArrayLike, bias: npt.ArrayLike | None = None) -> Array:
    """Compute ``x w^T + bias``.

    Parameters
    ----------
    x : array_like of real numbers, (N, I)
    w : array_like, (O, I)
    bias : array_like, (O,), optional

    Returns
    -------
    array of float64, (N, O)

    Raises
    ------
    ShapeError, DtypeError

    Examples
    --------
    >>> dense([[1.0, 2.0]], [[3.0, 4.0]], [0.5])
    array([[11.5]])
    """
    x, w = _operands(x, w)
    y = x @ w.T
    if bias is None:
        return y
    numbers = doubles(bias, "bias")
    if numbers.shape != (len(w),):
        raise ShapeError(
            f"bias has shape {numbers.shape}\none number for each of {len(w)} outputs is needed\nreshape it"
        )
    return y + numbers


def dense_backward(gradient: npt.ArrayLike, x: npt.ArrayLike, w: npt.ArrayLike) -> DenseGradients:
    """Compute the gradients with respect to the operands of `dense`.

    Parameters
    ----------
    gradient : array_like, (N, O)
        The gradient with respect to the result.
    x, w : array_like
        The layer's operands.

    Returns
    -------
    DenseGradients

    Raises
    ------
    ShapeError, DtypeError

    Examples
    --------
    >>> dense_backward([[1.0]], [[1.0, 2.0]], [[3.0, 4.0]])
    DenseGradients(x=array([[3., 4.]]), w=array([[1., 2.]]), bias=array([1.]))
    """
    x, w = _operands(x, w)
    dy = doubles(gradient, "gradient")
    if dy.shape != (len(x), len(w)):
        raise ShapeError(
            f"the gradient has shape {dy.shape}\nthe result has {(len(x), len(w))}\ncheck x and w"
        )
    return DenseGradients(dy @ w, dy.T @ x, dy.sum(0))


def _operands(x: npt.ArrayLike, w: npt.ArrayLike) -> tuple[Array, Array]:
    """Check that x and w are matrices with rows of the same length; return both as arrays."""
    rows, weights = doubles(x, "x"), doubles(w, "w")
    if rows.ndim != 2 or weights.ndim != 2 or rows.shape[1] != weights.shape[1]:
        raise ShapeError(
            f"x has shape {rows.shape}, w {weights.shape}\n"
            "x must be (N, I) and w (O, I), with the same I\nflatten images"
        )
    return rows, weights
