"""Softmax with cross-entropy: the loss of a classifier, and its gradient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, RangeError, ShapeError
from reference.training.layouts import Array, doubles
from reference.types.fields import as_array


def softmax(logits: npt.ArrayLike) -> Array:
    """Compute the probability of each class, without overflow.

    Parameters
    ----------
    logits : array_like of real numbers, (N, classes)

    Returns
    -------
    array of float64, (N, classes)

    Raises
    ------
    ShapeError, DtypeError

    Examples
    --------
    >>> softmax([[0.0, 0.0], [1000.0, 0.0]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    return np.exp(_log_softmax(logits))


def cross_entropy(logits: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Compute the mean of ``-log(softmax(logits)[label])`` over the images.

    Parameters
    ----------
    logits : array_like of real numbers, (N, classes)
    labels : array_like of integers, (N,)

    Returns
    -------
    float

    Raises
    ------
    ShapeError, DtypeError
    RangeError
        For a label that is not a class.

    Examples
    --------
    >>> cross_entropy([[0.0, 0.0]], [1])
    0.6931471805599453
    """
    log_p = _log_softmax(logits)
    return float(-log_p[np.arange(len(log_p)), _labels(labels, log_p.shape)].mean())


def cross_entropy_backward(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """Compute the gradient of `cross_entropy` by the logits.

    Parameters
    ----------
    logits, labels
        As of `cross_entropy`.

    Returns
    -------
    array of float64, (N, classes)

    Raises
    ------
    ShapeError, DtypeError, RangeError
        As `cross_entropy`.

    Examples
    --------
    >>> cross_entropy_backward([[0.0, 0.0]], [1])
    array([[ 0.5, -0.5]])
    """
    p = softmax(logits)
    p[np.arange(len(p)), _labels(labels, p.shape)] -= 1
    return p / len(p)


def _log_softmax(logits: npt.ArrayLike) -> Array:
    """The logarithms of the softmax probabilities, for each image."""
    scores = doubles(logits, "logits")
    if scores.ndim != 2 or 0 in scores.shape:
        raise ShapeError(
            f"logits have shape {scores.shape}\n(N, classes) is needed, each at least 1\nreshape them"
        )
    below = scores - scores.max(1, keepdims=True)
    return below - np.log(np.exp(below).sum(1, keepdims=True))


def _labels(labels: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Check the class labels, and return them as int64."""
    ids = as_array(labels, "labels", "one integer for each image")
    if ids.dtype.kind not in "iu":
        raise DtypeError(f"labels are of {ids.dtype}\nintegers are needed\nconvert them")
    if ids.shape != shape[:1]:
        raise ShapeError(
            f"labels have shape {ids.shape}\none label for each of {shape[0]} images is needed\nreshape them"
        )
    if not ((ids >= 0) & (ids < shape[1])).all():
        raise RangeError(
            f"labels are {ids.min()} to {ids.max()}\nclasses are 0 to {shape[1] - 1}\ncheck the labels"
        )
    return ids.astype(np.int64)
