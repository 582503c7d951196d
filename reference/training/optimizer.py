"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from reference.training.layouts import Array, doubles
from reference.values import not_an_array, shortened


@not_an_array("pass one of its arrays by its name")
@shortened
class Step(NamedTuple):
    """The state after a step.

    Attributes
    ----------
    w, velocity : array of float64
    """

    w: Array
    velocity: Array


def sgd(
    w: npt.ArrayLike,
    gradient: npt.ArrayLike,
    velocity: npt.ArrayLike | None = None,
    *,
    rate: float,
    momentum: float = 0.0,
) -> Step:
    """Compute ``v = momentum * velocity + gradient`` and ``w - rate * v``.

    Parameters
    ----------
    w, gradient : array_like of real numbers, of one shape
    velocity : array_like of that shape, optional
        Default: zeros.
    rate, momentum : float

    Returns
    -------
    Step

    Raises
    ------
    ShapeError, DtypeError

    Notes
    -----
    Source: ``torch.optim.SGD``; other definitions multiply the rate into the velocity.

    Examples
    --------
    >>> sgd([1.0], [2.0], [4.0], rate=0.25, momentum=0.5)
    Step(w=array([0.]), velocity=array([4.]))
    """
    weights, g = doubles(w, "w"), doubles(gradient, "gradient")
    v = np.zeros_like(weights) if velocity is None else doubles(velocity, "velocity")
    if not weights.shape == g.shape == v.shape:
        raise ShapeError(
            f"w has shape {weights.shape}, the gradient {g.shape}, the velocity {v.shape}\n"
            "all three must have the same shape\ngive the gradient with respect to w"
        )
    v = momentum * v + g
    return Step(weights - rate * v, v)
