"""CP decomposition of a sparse tensor into a sum of outer products, by alternating least squares."""

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
from reference.types import Coo, Cpd
from reference.types.arguments import as_matrix, as_sequence, check_iterations, check_start
from reference.types.libraries import read_sparse

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]

_EPS = float(np.finfo(np.float64).eps)
# If the residual is a smaller part of its terms, their rounding errors exceed 1e-12 of it.
_ENOUGH = 2.0**-13


def cpd_als(
    tensor: Any,
    rank: int,
    *,
    start: Sequence[npt.ArrayLike] | None = None,
    seed: int = 0,
    iterations: int = 50,
    tolerance: float = 1e-5,
    progress: Callable[[int, float], None] | None = None,
) -> Cpd:
    """Approximate a tensor by ``rank`` outer products, with alternating least squares.

    An iteration solves for the factor of each mode in turn, with the others fixed: the result of `mttkrp`
    times the pseudo-inverse of V, the elementwise product of the Gram matrices of the other factors. The
    columns are then divided by their norms, which become the weights. If V is numerically singular (two
    equal columns, a column of zeros, a rank above that of the other modes), the pseudo-inverse treats
    eigenvalues up to ``rank * eps`` times the largest as 0; otherwise it is the inverse. Computed in float64,
    whatever the dtype of the values. The error of the fit is about 1e-12, even if model and tensor are almost
    equal. ``gpu.cpd_als`` answers the same question.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`, on the host
        Values of repeated coordinates are added. Or a sparse tensor of SciPy, pydata/sparse, PyTorch or
        pyttb, in any of their formats, which is read into a Coo.
    rank : int, at least 1
    start : sequence of (dimension, rank) arrays of finite real numbers, one per mode, optional
        The initial factors. The first iteration replaces that of mode 0 without reading it.
    seed : int, 0 to 2**64 - 1
        Selects the initial factors if ``start`` is not given: in mode n, element (i, r) is
        ``(word >> 11) * 2**-53``, with ``word`` the (rank * i + r)-th of
        ``np.random.Philox(key=[seed, n]).random_raw``.
    iterations : int, at least 1
        The largest number of iterations.
    tolerance : float
        Iteration stops, from the second on, when the fit changes by less.
    progress : callable, optional
        Called after each iteration with its number, counted from 1, and the fit. It may raise, to stop.

    Returns
    -------
    Cpd
        Arrays of float64.

    Raises
    ------
    ShapeError
        For a rank or a number of iterations below 1, a rank whose matrices do not fit into memory, a start of
        other shapes, or a tensor whose values are all 0.
    DtypeError
        For a start that is not of real numbers, or if ``tensor`` is not a sparse tensor.
    FormatError
        For a tensor whose arrays do not fit one another; for one of another library that is dense, on a GPU,
        or whose fill value is not 0.
    NotANumberError
        For a NaN or an infinity in the tensor, the start or the tolerance; for a weight that exceeds float64.
    SchemeError
        For a seed out of range.

    Notes
    -----
    Source: MM-CSF (SC'19), section 2.2, equation 2 and algorithm 1, for any order. Line 12 of the algorithm
    computes C from Y_2; Y_3, of line 11, is meant.

    Examples
    --------
    The outer product of (1, 2), (3, 4) and (2, 1), with every element stored:

    >>> places = np.indices((2, 2, 2)).reshape(3, 8)
    >>> values = np.einsum("i,j,k->ijk", [1, 2], [3, 4], [2, 1]).reshape(8)
    >>> model = cpd_als(Coo(places, values, (2, 2, 2)), 1)
    >>> model.converged, round(model.fits[-1], 6), round(float(model.weights[0] ** 2))
    (True, 1.0, 625)
    >>> (model.factors[1] * 5).round(6)
    array([[3.],
           [4.]])

    The same from pydata/sparse:

    >>> import sparse
    >>> cpd_als(sparse.COO(places, values, shape=(2, 2, 2)), 1).fits == model.fits
    True
    """
    check_iterations(rank, seed, iterations, tolerance)
    tensor = read_sparse(tensor)
    coo = coalesce(tensor) if isinstance(tensor, Coo) else to_coo(tensor)
    _check_memory(coo.shape, rank)
    exponent = _check_values(coo)
    # Scaled by a power of two, exactly: no square overflows, and only the weights depend on the scale.
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
    return Cpd(_scaled_back(weights, exponent), tuple(factors), tuple(fits), converged)


def _scaled_back(weights: Matrix, exponent: int) -> Matrix:
    """The weights times a power of two; raise if one exceeds float64."""
    with np.errstate(over="ignore"):
        scaled = np.ldexp(weights, exponent)
    if np.isinf(scaled).any():
        r = int(np.flatnonzero(np.isinf(scaled))[0])
        raise NotANumberError(
            f"weight {r} is {float(weights[r]):.6g} * 2**{exponent}: more than float64 holds\n"
            "the norm of a component may exceed every value of the tensor\n"
            "scale the tensor down by a power of two, and the weights up again"
        )
    return scaled


def _product(grams: Sequence[Matrix], leave_out: int | None = None) -> Matrix:
    """The elementwise product of all Gram matrices, or of all except that of the mode ``leave_out``."""
    return np.prod([gram for n, gram in enumerate(grams) if n != leave_out], axis=0)


def _solve(y: Matrix, v: Matrix) -> Matrix:
    """``y`` times the pseudo-inverse of ``v``, which is symmetric and positive semidefinite."""
    smallest = len(v) * _EPS
    try:
        pivots = np.diagonal(np.linalg.cholesky(v)) ** 2
    except np.linalg.LinAlgError:
        pivots = np.zeros(len(v))
    # A pivot is the squared norm of a column's part orthogonal to the columns before it.
    if (pivots > smallest * np.diagonal(v)).all():
        return np.linalg.solve(v, y.T).T
    return y @ np.linalg.pinv(v, rcond=smallest, hermitian=True)


def _fit(norm: float, y: Matrix, last: Matrix, grams: Sequence[Matrix], weights: Matrix) -> float | None:
    """The fit 1 - ||X - model|| / ||X||, or None if the terms of the residual cancel.

    ``y`` is the MTTKRP from which the last factor was solved. As columns have norm 1, the magnitudes of the
    three terms add up to at most ``(norm + sum of weights) ** 2``.
    """
    model_model = weights @ _product(grams) @ weights
    tensor_model = np.sum(y * last, axis=0) @ weights
    residual = float(norm**2 + model_model - 2.0 * tensor_model)
    if residual < _ENOUGH * (norm + float(weights.sum())) ** 2:
        return None
    return 1.0 - float(np.sqrt(residual)) / norm


def _seeded(shape: tuple[int, ...], rank: int, seed: int) -> list[Matrix]:
    """The initial factors that a seed selects: numbers in [0, 1)."""
    keys = [
        np.array([seed, n], np.uint64) for n in range(len(shape))
    ]  # np.array of ints from 2**63 on would be float64
    words = [np.random.Philox(key=k).random_raw(size * rank) for k, size in zip(keys, shape, strict=True)]
    return [(w >> 11).astype(np.float64).reshape(-1, rank) * 2.0**-53 for w in words]


def _checked(start: Sequence[npt.ArrayLike], shape: tuple[int, ...], rank: int) -> list[Matrix]:
    """Convert initial factors to float64; raise unless they fit the tensor."""
    arrays = [as_matrix(x, f"start[{n}]") for n, x in enumerate(as_sequence(start, "start"))]
    check_start(arrays, shape, rank)
    return [array.astype(np.float64) for array in arrays]


def _check_memory(shape: tuple[int, ...], rank: int) -> None:
    """Raise ShapeError unless all matrices of the decomposition fit into memory."""
    # Gram matrices and their product; factors, the random words of an initial factor, and an MTTKRP.
    numbers = (len(shape) + 3) * rank**2 + (2 * sum(shape) + max(shape)) * rank
    advice = f"give a smaller rank; {math.prod(shape) // max(shape)} is enough for any tensor of this shape"
    check_memory(
        numbers,
        f"rank is {rank}: the factors of {' x '.join(map(str, shape))} and their Gram matrices",
        advice,
    )


def _check_values(coo: Coo) -> int:
    """The binary exponent of the largest magnitude; raise if a value is not finite, or all are 0."""
    if not np.isfinite(coo.values).all():
        z = int(np.flatnonzero(~np.isfinite(coo.values))[0])
        place = tuple(int(i) for i in coo.coords[:, z])
        raise NotANumberError(
            f"the value at {place} is {coo.values[z]}\nonly finite numbers have a decomposition\nremove it"
        )
    largest: Any = np.abs(coo.values).max()
    if largest == 0.0:
        raise ShapeError(
            f"all {coo.values.size} values of the tensor are 0: there is nothing to decompose\n"
            "a decomposition needs at least one other value\ncheck the file or the values"
        )
    return int(np.frexp(largest)[1])
