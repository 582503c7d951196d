"""MTTKRP: the definition in NumPy, a Numba version for large tensors, and a bound on the rounding error.

The definition computes all terms of a chunk of nonzeros, then adds them by row (equation 3). The Numba
version loops over the nonzeros. The tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.bits import compiled
from reference.errors import DtypeError
from reference.memory import check_memory
from reference.sparse import to_coo
from reference.types import Coo
from reference.types.arguments import as_matrix, as_sequence, check_alike, check_factors, check_mode
from reference.types.libraries import read_sparse

Matrix: TypeAlias = npt.NDArray[np.float64]

# Products from which Numba is used. NumPy takes 0.5 s for as many; importing and compiling with Numba, 2 s.
_LARGE = 1 << 24
# Terms of a chunk: 32 MiB.
_CHUNK = 1 << 22


def mttkrp(tensor: Any, factors: Sequence[npt.ArrayLike], mode: int) -> Matrix:
    """Multiply a sparse tensor, matricized by one mode, with the Khatri-Rao product of the other factors.

    ``y[i, r]`` is the sum, over the nonzeros whose index in ``mode`` is i, of the value times the elements
    ``factors[n][index in mode n, r]`` for all n except ``mode``. Rows without a nonzero are 0. Computed in
    float64, whatever the dtypes of values and factors. ``gpu.mttkrp`` answers the same question.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`, on the host
        A `Coo` may have repeated coordinates; all their values are added. Or a sparse tensor of SciPy,
        pydata/sparse, PyTorch or pyttb, in any of their formats, which is read into a `Coo`.
    factors : sequence of (dimension, R) arrays of float32 or float64, one per mode and all of one dtype
        In the order of the modes. That of ``mode`` is not read. NaN and infinite elements follow IEEE 754.
    mode : int, 0 to order - 1

    Returns
    -------
    array of float64, (dimension of mode, R), C order

    Raises
    ------
    ShapeError
        For a mode that the tensor does not have (a negative one is an error), if there is not one factor per
        mode, for a factor of another shape, or R = 0.
    DtypeError
        For factors of another dtype or of several dtypes, or if ``tensor`` is not a sparse tensor.
    FormatError
        For a tensor whose arrays do not fit one another; for one of another library that is dense, on a GPU,
        or whose fill value is not 0.
    NotANumberError
        For a NaN or an infinity in a tensor of another library.

    Notes
    -----
    Source: MM-CSF (SC'19), section 2.3, equation 3.

    Examples
    --------
    >>> tensor = Coo([[0, 1, 1], [0, 0, 2], [1, 0, 1]], [2.0, 3.0, 4.0], (2, 3, 2))
    >>> a, b, c = np.ones((2, 1)), np.array([[1.0], [10.0], [100.0]]), np.array([[5.0], [7.0]])
    >>> mttkrp(tensor, [a, b, c], 0)  # 2 * 1 * 7 and 3 * 1 * 5 + 4 * 100 * 7
    array([[  14.],
           [2815.]])

    A matrix of SciPy:

    >>> from scipy.sparse import csr_array
    >>> mttkrp(csr_array([[0.0, 0.0, 5.0], [7.0, 0.0, 0.0]]), [np.ones((2, 1)), [[1.0], [2.0], [3.0]]], 0)
    array([[15.],
           [ 7.]])
    """
    coo = _as_coo(tensor)
    matrices = _checked(coo.shape, factors, mode)
    y = np.zeros((coo.shape[mode], matrices[0].shape[1]))
    others = [n for n in range(len(coo.shape)) if n != mode]
    rows, indices = coo.coords[mode], [coo.coords[n] for n in others]
    is_large = coo.values.size * y.shape[1] * len(others) >= _LARGE
    add_terms = _add_terms_numba if is_large else _add_terms_numpy
    add_terms(rows, indices, coo.values, [matrices[n] for n in others], y)
    return y


def mttkrp_bound(tensor: Any, factors: Sequence[npt.ArrayLike], mode: int, dtype: npt.DTypeLike) -> Matrix:
    """Bound the difference of a correct MTTKRP in ``dtype`` from `mttkrp`, for any order of operations.

    Each term of an element is rounded at most k times, where k is the number of nonzeros of the row plus the
    order of the tensor. The bound is ``γ_k * (sum of the terms' magnitudes)`` with ``γ_k = k u / (1 - k u)``
    and u half the distance from 1 to the next number, once for ``dtype`` and once for `mttkrp` itself. For
    underflow, also with subnormal numbers flushed to 0, it adds the smallest normal number for each nonzero
    and mode, times the largest magnitudes that it may be multiplied with. Summing by fibers, factoring out,
    and atomic additions stay within the bound; an overflow does not.

    Parameters
    ----------
    tensor, factors, mode
        As for `mttkrp`.
    dtype : float32 or float64

    Returns
    -------
    array of float64, (dimension of mode, R)
        Infinite for a row with k u >= 1; not finite where a term is not finite.

    Raises
    ------
    ShapeError, DtypeError, FormatError
        As `mttkrp`; a DtypeError also for another ``dtype``.

    Notes
    -----
    Source: N. Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1 and section 4.2.

    Examples
    --------
    >>> tensor = Coo([[0, 0], [0, 1]], [1.0, -1.0], (2, 2))
    >>> factors = [np.ones((2, 1)), np.ones((2, 1))]
    >>> (mttkrp_bound(tensor, factors, 0, np.float32) / 2**-24).round(6)  # two terms of magnitude 1, k = 4
    array([[8.000002],
           [0.      ]])
    """
    kind = np.dtype(dtype).type
    if kind not in (np.float32, np.float64):
        raise DtypeError(
            f"dtype is {np.dtype(dtype)}\nfloat32 and float64 are supported\ngive the type of the computation"
        )
    coo = _as_coo(tensor)
    matrices = [np.abs(matrix) for matrix in _checked(coo.shape, factors, mode)]
    values = np.abs(coo.values)
    magnitudes = mttkrp(Coo(coo.coords, values, coo.shape, nonfinite=True), matrices, mode)
    nonzeros = np.bincount(coo.coords[mode].astype(np.intp), minlength=coo.shape[mode])
    roundings = nonzeros + len(matrices)
    others = [float(matrix.max()) for n, matrix in enumerate(matrices) if n != mode]
    with np.errstate(over="ignore", invalid="ignore"):
        relative = _gamma(roundings, kind) + _gamma(roundings, np.float64)
        lost = float(np.finfo(kind).tiny) * np.prod(np.maximum(1.0, [float(values.max()), *others]))
        rounded = np.where(magnitudes == 0.0, 0.0, relative[:, None] * magnitudes)
        return rounded + (lost * len(matrices) * nonzeros)[:, None]


def _as_coo(tensor: Any) -> Coo:
    """The tensor as a Coo, whose nonzeros stay in their order if it is one or is of another library."""
    known = read_sparse(tensor)
    return known if isinstance(known, Coo) else to_coo(known)


def _gamma(roundings: npt.NDArray[np.intp], dtype: Any) -> npt.NDArray[np.float64]:
    """The relative error γ_k of k roundings in ``dtype``; infinite from k u = 1 on."""
    product = roundings * (float(np.finfo(dtype).eps) / 2.0)
    return np.divide(product, 1.0 - product, out=np.full(product.shape, np.inf), where=product < 1.0)


def _checked(shape: tuple[int, ...], factors: Sequence[npt.ArrayLike], mode: Any) -> list[npt.NDArray[Any]]:
    """Convert the factors to arrays; raise unless they and the mode fit the tensor's shape."""
    rows = shape[check_mode(mode, len(shape))]
    matrices = [as_matrix(x, f"factors[{n}]") for n, x in enumerate(as_sequence(factors, "factors"))]
    rank = check_factors(matrices, shape)
    check_alike(matrices)
    if matrices[0].dtype.type not in (np.float32, np.float64):
        raise DtypeError(f"factors are {matrices[0].dtype}\nfloat32 and float64 are supported\nconvert them")
    advice = "drop indices without nonzeros, or use a smaller rank"
    check_memory(rows * rank, f"{rows} rows of {rank} numbers", advice)
    return matrices


def _add_terms_numpy(rows: Any, indices: list[Any], values: Any, matrices: list[Any], y: Matrix) -> None:
    """Add the terms of equation 3 to y, in chunks of nonzeros sorted by row."""
    by_row = np.argsort(rows, kind="stable")
    step = max(1, _CHUNK // y.shape[1])
    for start in range(0, by_row.size, step):
        chosen = by_row[start : start + step]
        terms = values[chosen, None].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            for index, matrix in zip(indices, matrices, strict=True):
                terms = terms * matrix[index[chosen]]
            row = rows[chosen]
            first = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
            y[row[first]] += np.add.reduceat(terms, first, axis=0)


def _add_terms_numba(rows: Any, indices: list[Any], values: Any, matrices: list[Any], y: Matrix) -> None:
    """Add the terms of equation 3 to y, in a Numba loop over the nonzeros."""
    add_terms = compiled(_nonzero_by_nonzero)
    add_terms(_alike(rows), tuple(map(_alike, indices)), _alike(values), tuple(map(_alike, matrices)), y)


def _alike(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only, contiguous, native-endian view: Numba needs one type for all elements of a tuple."""
    view = np.require(array, array.dtype.newbyteorder("="), ["C", "A"]).view()
    view.flags.writeable = False
    return view


def _nonzero_by_nonzero(rows: Any, indices: Any, values: Any, matrices: Any, y: Any) -> None:
    """The Numba-compiled loop of `_add_terms_numba` over nonzeros."""
    rank = y.shape[1]
    term = np.empty(rank, np.float64)
    for z in range(values.size):
        term[:] = values[z]
        for n in range(len(indices)):
            index = indices[n][z]
            for r in range(rank):
                term[r] *= matrices[n][index, r]
        row = rows[z]
        for r in range(rank):
            y[row, r] += term[r]
