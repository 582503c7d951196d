"""The decomposition of a sparse tensor into a sum of outer products, by alternating least squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import NotANumberError, ShapeError
from reference.memory import check_memory
from reference.mttkrp import mttkrp
from reference.residual import precise_fit
from reference.sparse import coalesce, to_coo
from reference.types import Coo, Cpd, SparseTensor
from reference.types.arguments import as_matrix, as_sequence, check_iterations, check_start

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]

_EPS = float(np.finfo(np.float64).eps)
# With a smaller share left of the residual's terms, their roundings exceed 1e-12 of it.
_ENOUGH = 2.0**-13


def cpd_als(
    tensor: SparseTensor,
    rank: int,
    *,
    start: Sequence[npt.ArrayLike] | None = None,
    seed: int = 0,
    iterations: int = 50,
    tolerance: float = 1e-5,
    progress: Callable[[int, float], None] | None = None,
) -> Cpd:
    """Approximate a tensor by ``rank`` outer products, with alternating least squares.

    An iteration solves one mode after the other for its factor, the others being fixed: the result of
    `mttkrp` times the pseudo-inverse of V, the elementwise product of the other factors' Gram matrices.
    The columns are then divided by their norms, which become the weights. Where V is numerically singular
    (two equal columns, a column of zeros, more components than the other modes can tell apart), the
    pseudo-inverse counts eigenvalues up to ``rank * eps`` times the largest as 0; otherwise it is the
    inverse. Computed in float64, whatever the type of the values. The fit is right to about 1e-12, also where
    model and tensor are almost equal. ``gpu.cpd_als`` answers the same question.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`, on the host
        Of several values for one place the sum counts.
    rank : int, at least 1
    start : sequence of (dimension, rank) arrays of finite real numbers, one per mode, optional
        The factors to begin with. The first iteration replaces that of mode 0 without reading it.
    seed : int, 0 to 2**64 - 1
        Which start is taken if none is given: in mode n, element (i, r) is
        ``(word >> 11) * 2**-53``, with ``word`` the (rank * i + r)-th of
        ``np.random.Philox(key=[seed, n]).random_raw``.
    iterations : int, at least 1
        No more than so many.
    tolerance : float
        From the second iteration on, a change of the fit below it ends the work.
    progress : callable, optional
        Called after each iteration with its number, from 1 on, and the fit. May raise, to stop.

    Returns
    -------
    Cpd
        Arrays of float64.

    Raises
    ------
    ShapeError
        For a rank or a number of iterations below 1, a rank whose matrices this machine cannot hold, a start
        that does not fit, and a tensor whose values are all 0.
    DtypeError
        For a start that is not of real numbers; for anything but a sparse tensor.
    FormatError
        For a tensor whose arrays do not fit one another.
    NotANumberError
        For a NaN or an infinity in the tensor, the start or the tolerance.
    SchemeError
        For a seed that is not in its range.

    Notes
    -----
    Source: MM-CSF (SC'19), section 2.2, equation 2 and algorithm 1, for any order. Line 12 of the algorithm
    computes C from Y_2; Y_3, of line 11, is meant.

    Examples
    --------
    The outer product of (1, 2), (3, 4) and (2, 1), of which every element is stored:

    >>> places = np.indices((2, 2, 2)).reshape(3, 8)
    >>> values = np.einsum("i,j,k->ijk", [1, 2], [3, 4], [2, 1]).reshape(8)
    >>> model = cpd_als(Coo(places, values, (2, 2, 2)), 1)
    >>> model.converged, round(model.fits[-1], 6), round(float(model.weights[0] ** 2))
    (True, 1.0, 625)
    >>> (model.factors[1] * 5).round(6)
    array([[3.],
           [4.]])
    """
    check_iterations(rank, seed, iterations, tolerance)
    coo = coalesce(tensor) if isinstance(tensor, Coo) else to_coo(tensor)
    _check_memory(coo.shape, rank)
    exponent = _check_values(coo)
    # A power of two, exact: no square overflows, and the tensor's scale changes the weights alone.
    coo = Coo(coo.coords, np.ldexp(coo.values.astype(np.float64), -exponent), coo.shape)
    norm = float(np.linalg.norm(coo.values))
    factors = _seeded(coo.shape, rank, seed) if start is None else _checked(start, coo.shape, rank)
    grams = [factor.T @ factor for factor in factors]
    weights = np.ones(rank)
    fits: list[float] = []
    converged = False
    while len(fits) < iterations and not converged:
        y = np.zeros(0)
        for mode in range(len(factors)):
            y = mttkrp(coo, factors, mode)
            factor = _solve(y, _product(grams, mode))
            weights = np.linalg.norm(factor, axis=0)
            factors[mode] = factor / np.where(weights > 0.0, weights, 1.0)
            grams[mode] = factors[mode].T @ factors[mode]
        fit = _fit(norm, y, factors[-1], grams, weights)
        fits.append(precise_fit(coo, factors, weights) if fit is None else fit)
        converged = len(fits) > 1 and abs(fits[-1] - fits[-2]) < tolerance
        if progress is not None:
            progress(len(fits), fits[-1])
    return Cpd(np.ldexp(weights, exponent), tuple(factors), tuple(fits), converged)


def _product(grams: Sequence[Matrix], leave_out: int | None = None) -> Matrix:
    """The elementwise product of Gram matrices."""
    return np.prod([gram for n, gram in enumerate(grams) if n != leave_out], axis=0)


def _solve(y: Matrix, v: Matrix) -> Matrix:
    """``y`` times the pseudo-inverse of ``v``, which is symmetric and positive semidefinite."""
    smallest = len(v) * _EPS
    try:
        pivots = np.diagonal(np.linalg.cholesky(v)) ** 2
    except np.linalg.LinAlgError:
        pivots = np.zeros(len(v))
    # A pivot is what the columns before it leave of a column's own length.
    if (pivots > smallest * np.diagonal(v)).all():
        return np.linalg.solve(v, y.T).T
    return y @ np.linalg.pinv(v, rcond=smallest, hermitian=True)


def _fit(norm: float, y: Matrix, last: Matrix, grams: Sequence[Matrix], weights: Matrix) -> float | None:
    """1 - ||X - model|| / ||X||, or None if the terms of the residual cancel.

    ``y`` is the MTTKRP from which the last factor was solved. Columns have norm 1, so the magnitudes behind
    the three terms add up to no more than the square of the sum of norm and weights.
    """
    model_model = weights @ _product(grams) @ weights
    tensor_model = np.sum(y * last, axis=0) @ weights
    residual = float(norm**2 + model_model - 2.0 * tensor_model)
    if residual < _ENOUGH * (norm + float(weights.sum())) ** 2:
        return None
    return 1.0 - float(np.sqrt(residual)) / norm


def _seeded(shape: tuple[int, ...], rank: int, seed: int) -> list[Matrix]:
    """Factors of numbers from 0 up to but not including 1."""
    keys = [np.array([seed, n], np.uint64) for n in range(len(shape))]  # a list of large ones may be rounded
    words = [np.random.Philox(key=k).random_raw(size * rank) for k, size in zip(keys, shape, strict=True)]
    return [(w >> 11).astype(np.float64).reshape(-1, rank) * 2.0**-53 for w in words]


def _checked(start: Sequence[npt.ArrayLike], shape: tuple[int, ...], rank: int) -> list[Matrix]:
    arrays = [as_matrix(x, f"start[{n}]") for n, x in enumerate(as_sequence(start, "start"))]
    check_start(arrays, shape, rank)
    return [array.astype(np.float64) for array in arrays]


def _check_memory(shape: tuple[int, ...], rank: int) -> None:
    """Gram matrices and their product; factors, the words that a start is made of, and an MTTKRP."""
    numbers = (len(shape) + 3) * rank**2 + (2 * sum(shape) + max(shape)) * rank
    advice = (
        f"give a smaller rank; {math.prod(shape) // max(shape)} components explain any tensor of its shape"
    )
    check_memory(numbers, f"rank is {rank}: factors of {' x '.join(map(str, shape))} and matrices", advice)


def _check_values(coo: Coo) -> int:
    """The binary exponent of the largest magnitude, if there is something to decompose."""
    if not np.isfinite(coo.values).all():
        z = int(np.flatnonzero(~np.isfinite(coo.values))[0])
        place = tuple(int(i) for i in coo.coords[:, z])
        raise NotANumberError(
            f"the value at {place} is {coo.values[z]}\nfinite numbers have a decomposition\nremove it"
        )
    largest: Any = np.abs(coo.values).max()
    if largest == 0.0:
        raise ShapeError(
            f"all {coo.values.size} values of the tensor are 0: there is nothing to decompose\n"
            "at least one other value is needed\ncheck what was read"
        )
    return int(np.frexp(largest)[1])
