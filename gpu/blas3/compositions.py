"""`matmul`, `solve_triangular` and `cholesky`: what level-3 BLAS composes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.blas3 import doors
from gpu.blas3.problem import PREFIX_OF
from gpu.machine import check_machine
from reference.errors import DtypeError, NotANumberError, SchemeError, ShapeError

Array = npt.NDArray[Any]


def matmul(a: npt.ArrayLike, b: npt.ArrayLike, **keywords: Any) -> Array:
    """Compute the product of two matrices over all devices of a machine.

    Parameters
    ----------
    a : array of float32, float64, complex64 or complex128, (M, K)
    b : array of the same dtype, (K, N)
    **keywords
        ``device``, ``tile``, ``memory_budget``, ``options`` and ``statistics``, as of `dgemm`.

    Returns
    -------
    array, (M, N)

    Raises
    ------
    ShapeError, DtypeError, FormatError, LaunchError, NoGpuError, MissingExtraError
        As of `dgemm`.

    Notes
    -----
    Source: BLASX, equation 1a.

    Examples
    --------
    >>> import simwarp
    >>> matmul(np.ones((2, 3)), np.ones((3, 2)), device=simwarp.Machine()).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    left, right = _matrix(a, "a"), _matrix(b, "b")
    if left.shape[1] != right.shape[0]:
        raise ShapeError(
            f"a and b: K is {left.shape[1]} in one and {right.shape[0]} in the other\n"
            "the columns of A must be as many as the rows of B\ncheck the shapes"
        )
    return _routine(left, "gemm")(1.0, left, right, **keywords)


def solve_triangular(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    **keywords: Any,
) -> Array:
    """Solve ``op(A) X = B`` with A triangular over all devices of a machine.

    Parameters
    ----------
    a : array of float32, float64, complex64 or complex128, (M, M)
    b : array of the same dtype, (M,) or (M, N)
    trans : {0, 1, 2, "N", "T", "C"}
        A as it is, transposed, or transposed and conjugated.
    lower, unit_diagonal, overwrite_b : bool
        As of `scipy.linalg.solve_triangular`.
    **keywords
        ``device``, ``tile``, ``memory_budget``, ``options`` and ``statistics``, as of `dgemm`.

    Returns
    -------
    array of the shape of b

    Raises
    ------
    SchemeError
        For another ``trans``.
    NotANumberError
        For a 0 on the diagonal.
    ShapeError, DtypeError, FormatError, LaunchError, NoGpuError, MissingExtraError
        As of `dtrsm`.

    Notes
    -----
    Source: BLASX, equation 1c.

    Examples
    --------
    >>> import simwarp
    >>> solve_triangular(np.array([[1.0, 2.0], [0.0, 4.0]]), np.array([4.0, 4.0]), device=simwarp.Machine())
    array([2., 1.])
    """
    known = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}
    if trans not in known:
        raise SchemeError(
            f"trans is {trans!r}\nA is taken as it is, transposed or conjugated\ngive 0, 1 or 2"
        )
    matrix, right = _matrix(a, "a"), np.asarray(b)
    if not unit_diagonal and (zeros := np.flatnonzero(np.diagonal(matrix) == 0)).size:
        at = int(zeros[0])
        raise NotANumberError(f"a[{at}, {at}] is 0\nthe triangular matrix has no inverse\ncheck the matrix")
    columns = right[:, None] if right.ndim == 1 else right
    solved = _routine(matrix, "trsm")(
        1.0,
        matrix,
        columns,
        lower=int(lower),
        trans_a=known[trans],
        diag=int(unit_diagonal),
        overwrite_b=int(overwrite_b),
        **keywords,
    )
    return solved[:, 0] if right.ndim == 1 else solved


def cholesky(a: npt.ArrayLike, lower: bool = False, *, block: int = 2048, **keywords: Any) -> Array:
    """Factor a positive definite matrix: ``A = L Lᴴ`` or ``A = Uᴴ U``.

    Block columns from the left: a rank-k update and a product with the columns before, a small factor on the
    host, and a solution with it.

    Parameters
    ----------
    a : array of float32, float64, complex64 or complex128, (N, N)
        Only one triangle is read.
    lower : bool
        Which triangle is read and returned; the other one is returned as zeros.
    block : int
        Columns of a block.
    **keywords
        ``device``, ``tile``, ``memory_budget`` and ``options``, as of `dgemm`.

    Returns
    -------
    array, (N, N)

    Raises
    ------
    ShapeError
        For a matrix that is not square, and a ``block`` below 1.
    numpy.linalg.LinAlgError
        For a matrix that is not positive definite.
    DtypeError, LaunchError, NoGpuError, MissingExtraError
        As of `dgemm`.

    Notes
    -----
    Source: Golub and Van Loan, Matrix Computations, fourth edition, section 4.2.

    Examples
    --------
    >>> import simwarp
    >>> a = np.array([[4.0, 2.0], [2.0, 5.0]])
    >>> cholesky(a, lower=True, block=1, device=simwarp.Machine()).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    matrix = _matrix(a, "a")
    if keywords.get("device") is not None:  # a small matrix does not need a device
        check_machine(keywords["device"])
    n = len(matrix)
    if matrix.shape != (n, n) or block < 1:
        raise ShapeError(
            f"a has shape {matrix.shape}, block is {block}\n"
            "a square matrix and at least one column are needed\ngive others"
        )
    factor = np.array(np.tril(matrix) if lower else np.triu(matrix).conj().T, order="F")
    is_complex = factor.dtype.kind == "c"
    update, product = _routine(factor, "herk" if is_complex else "syrk"), _routine(factor, "gemm")
    solve = _routine(factor, "trsm")
    for start in range(0, n, block):
        end = min(start + block, n)
        before, panel = factor[start:end, :start], factor[start:end, start:end]
        rest = factor[end:, start:end]
        if start:
            update(-1.0, before, 1.0, panel, lower=1, overwrite_c=1, **keywords)
        panel[...] = np.linalg.cholesky(panel)
        if rest.size and start:
            product(-1.0, factor[end:, :start], before, 1.0, rest, trans_b=2, overwrite_c=1, **keywords)
        if rest.size:
            solve(1.0, panel, rest, side=1, lower=1, trans_a=2, overwrite_b=1, **keywords)
    return factor if lower else np.ascontiguousarray(factor.conj().T)


def _matrix(given: npt.ArrayLike, name: str) -> Array:
    """Check that an argument is a matrix of a BLAS dtype, and return it."""
    x = np.asarray(given)
    if x.ndim != 2:
        raise ShapeError(f"{name} has shape {x.shape}\na matrix is needed\nreshape it")
    if x.dtype not in PREFIX_OF:
        raise DtypeError(
            f"{name} is of {x.dtype}\nfloat32, float64, complex64 or complex128 is needed\nconvert it"
        )
    return x


def _routine(x: Array, kind: str) -> doors.Door:
    """The BLAS routine of a kind (e.g. "gemm") for an array's dtype."""
    return getattr(doors, PREFIX_OF[x.dtype] + kind)
