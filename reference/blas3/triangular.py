"""Products and solutions with a triangular matrix by definition, in extended precision, rounded once.

Source: the reference BLAS; BLASX, section III.A, equations 1c and 1d, whose α is misplaced in print.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.blas3.arguments import (
    Diag,
    Matrix,
    Side,
    Trans,
    Uplo,
    check_flags,
    matrices,
    op,
    square,
    triangle,
    wide,
)
from reference.blas3.bounds import Bounded
from reference.errors import NotANumberError, ShapeError

__all__ = ["trmm", "trsm"]


@Bounded()
def trmm(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    side: Side = "L",
    uplo: Uplo = "U",
    trans: Trans = "N",
    diag: Diag = "N",
) -> Matrix:
    """Compute ``alpha * op(A) B`` or ``alpha * B op(A)`` with A triangular.

    Parameters
    ----------
    alpha : number
    a : (M, M), or (N, N) with side "R"; a dtype of `gemm`
        The other triangle is not read, nor with diag "U" the diagonal.
    b : (M, N)
    side, uplo, trans, diag
        Where A stands, its stored triangle, op, and whether its diagonal is ones.

    Returns
    -------
    array of the operands' dtype, (M, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.

    Notes
    -----
    Source: the reference BLAS; BLASX, equation 1d: α scales the diagonal's term, too.

    Examples
    --------
    >>> trmm(2.0, [[1.0, 2.0], [9.0, 3.0]], [[1.0], [1.0]])
    array([[6.],
           [6.]])
    """
    a, b, factor = _ready(a, b, side, uplo, trans, diag)
    product = factor @ wide(b, a) if side == "L" else wide(b, a) @ factor
    return (wide(alpha, a) * product).astype(a.dtype)


@Bounded(solves=True)
def trsm(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    side: Side = "L",
    uplo: Uplo = "U",
    trans: Trans = "N",
    diag: Diag = "N",
) -> Matrix:
    """Solve ``op(A) X = alpha * B`` or ``X op(A) = alpha * B`` with A triangular, by substitution.

    Parameters
    ----------
    alpha, a, b, side, uplo, trans, diag
        As of `trmm`.

    Returns
    -------
    array of the operands' dtype, (M, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.
    NotANumberError
        For a 0 on the diagonal.

    Notes
    -----
    Source: the reference BLAS; BLASX, equation 1c: α scales B alone.

    Examples
    --------
    >>> trsm(6.0, [[1.0, 2.0], [9.0, 3.0]], [[1.0], [1.0]])
    array([[2.],
           [2.]])
    """
    a, b, factor = _ready(a, b, side, uplo, trans, diag)
    singular = np.flatnonzero(np.diagonal(factor) == 0)
    if singular.size:
        at = int(singular[0])
        raise NotANumberError(f"a[{at}, {at}] is 0: the triangular matrix has no inverse")
    right = wide(alpha, a) * wide(b, a)
    if side == "R":  # X op(A) = B is op(A)ᵀ Xᵀ = Bᵀ
        return np.ascontiguousarray(_substituted(factor.T, right.T).T.astype(a.dtype))
    return _substituted(factor, right).astype(a.dtype)


def _ready(a: Any, b: Any, side: Side, uplo: Uplo, trans: Trans, diag: Diag) -> tuple[Matrix, Matrix, Matrix]:
    """Both matrices, checked, and op of the triangular one."""
    check_flags(side=side, uplo=uplo, trans=trans, diag=diag)
    a, b = matrices(a=a, b=b)
    order, across = square(a), b.shape[0 if side == "L" else 1]
    if order != across:
        raise ShapeError(f"a {a.shape} and b {b.shape} with side {side!r}: a must be of order {across}")
    return a, b, op(triangle(wide(a, a), uplo, diag), trans)


def _substituted(factor: Matrix, right: Matrix) -> Matrix:
    """Solve a triangular system row by row, beginning with the row that has one unknown."""
    is_upper = not np.tril(factor, -1).any()
    solved = np.zeros_like(right)
    order = range(len(factor) - 1, -1, -1) if is_upper else range(len(factor))
    for i in order:
        known = slice(i + 1, None) if is_upper else slice(0, i)
        solved[i] = (right[i] - factor[i, known] @ solved[known]) / factor[i, i]
    return solved
