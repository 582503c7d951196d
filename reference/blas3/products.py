"""Products of level-3 BLAS by definition: general, symmetric and Hermitian.

All sums are in extended precision and rounded once. C is read where ``beta`` is not 0, and never changed.
Source: the reference BLAS; BLASX, section III.A, equation 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.blas3.arguments import (
    Matrix,
    Side,
    Trans,
    Uplo,
    check_flags,
    is_stored,
    matrices,
    op,
    scaled,
    shape_of,
    square,
    symmetric,
    wide,
)
from reference.blas3.bounds import Bounded
from reference.errors import DtypeError, SchemeError, ShapeError

__all__ = ["gemm", "gemmt", "hemm", "her2k", "herk", "symm", "syr2k", "syrk"]


@Bounded(products=1)
def gemm(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    beta: complex = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    trans_a: Trans = "N",
    trans_b: Trans = "N",
) -> Matrix:
    """Compute ``alpha * op(A) op(B) + beta * C``.

    Parameters
    ----------
    alpha, beta : number
        With ``beta`` 0, C is not read: a NaN in it does not matter.
    a : array_like of float32, float64, complex64 or complex128, (M, K), or (K, M) unless trans_a is "N"
    b : likewise, (K, N) or (N, K)
    c : likewise, (M, N), optional
        Default: zeros.
    trans_a, trans_b : {"N", "T", "C"}

    Returns
    -------
    array of the operands' dtype, (M, N)

    Raises
    ------
    ShapeError, DtypeError
        For shapes that do not fit, and for other dtypes or different ones.
    SchemeError
        For an unknown flag.

    Notes
    -----
    Source: the reference BLAS; BLASX, equation 1a.

    Examples
    --------
    >>> gemm(2.0, [[1.0, 2.0]], [[3.0], [4.0]], -1.0, [[5.0]])
    array([[17.]])
    """
    check_flags(trans_a=trans_a, trans_b=trans_b)
    a, b, *rest = matrices(a=a, b=b, c=c)
    (m, k), (k_of_b, n) = shape_of(a.shape, trans_a), shape_of(b.shape, trans_b)
    if k != k_of_b:
        raise ShapeError(
            f"a {a.shape} and b {b.shape} with {trans_a}, {trans_b}: K is {k} in a and {k_of_b} in b"
        )
    product = op(wide(a, a), trans_a) @ op(wide(b, a), trans_b)
    return _plus(wide(alpha, a) * product, beta, rest, (m, n), a)


@Bounded(products=1, triangle=True)
def gemmt(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    beta: complex = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    uplo: Uplo = "U",
    trans_a: Trans = "N",
    trans_b: Trans = "N",
) -> Matrix:
    """Compute one triangle of ``alpha * op(A) op(B) + beta * C``.

    Parameters
    ----------
    alpha, a, b, beta, trans_a, trans_b
        As of `gemm`; the product is (N, N).
    c : (N, N), optional
        Its other triangle is returned as it is.
    uplo : {"U", "L"}

    Returns
    -------
    array, (N, N)

    Raises
    ------
    ShapeError
        For a product that is not square, and as of `gemm`.
    DtypeError, SchemeError
        As of `gemm`.

    Notes
    -----
    Source: the reference BLAS, which calls it GEMMTR; Intel MKL and OpenBLAS call it GEMMT.

    Examples
    --------
    >>> gemmt(1.0, [[1.0], [2.0]], [[3.0, 4.0]])
    array([[3., 4.],
           [0., 8.]])
    """
    check_flags(uplo=uplo)
    product = gemm(alpha, a, b, beta, c, trans_a=trans_a, trans_b=trans_b)
    order = square(product, "the product")
    before = np.zeros_like(product) if c is None else matrices(c=c)[0]
    return np.where(is_stored(order, uplo), product, before)


@Bounded()
def symm(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    beta: complex = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    side: Side = "L",
    uplo: Uplo = "U",
) -> Matrix:
    """Compute ``alpha * A B + beta * C`` or ``alpha * B A + beta * C`` with A symmetric.

    Parameters
    ----------
    alpha, beta, c
        As of `gemm`.
    a : (M, M), or (N, N) with side "R"
        The triangle that ``uplo`` does not name is not read.
    b : (M, N)
    side : {"L", "R"}
        Where A stands.
    uplo : {"U", "L"}

    Returns
    -------
    array, (M, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.

    Notes
    -----
    Source: the reference BLAS; BLASX, equation 1f, whose diagonal tile has to be the symmetric one.

    Examples
    --------
    >>> symm(1.0, [[1.0, 2.0], [9.0, 3.0]], [[1.0], [1.0]])
    array([[3.],
           [5.]])
    """
    return _symmetric_product(alpha, a, b, beta, c, side, uplo, hermitian=False)


@Bounded(like="symm", real_diagonal="a")
def hemm(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    beta: complex = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    side: Side = "L",
    uplo: Uplo = "U",
) -> Matrix:
    """Compute ``alpha * A B + beta * C`` or ``alpha * B A + beta * C`` with A Hermitian.

    Parameters
    ----------
    alpha, a, b, beta, c, side, uplo
        As of `symm`. Imaginary parts on A's diagonal are not read.

    Returns
    -------
    array, (M, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.

    Examples
    --------
    >>> hemm(1.0, [[1.0, 2.0j], [9.0, 3.0]], [[1.0 + 0j], [0.0]])
    array([[1.+0.j],
           [0.-2.j]])
    """
    return _symmetric_product(alpha, a, b, beta, c, side, uplo, hermitian=True)


@Bounded(products=1, triangle=True)
def syrk(
    alpha: complex,
    a: npt.ArrayLike,
    beta: complex = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    uplo: Uplo = "U",
    trans: Trans = "N",
) -> Matrix:
    """Compute one triangle of ``alpha * A Aᵀ + beta * C``, or of ``alpha * Aᵀ A + beta * C``.

    Parameters
    ----------
    alpha, beta
        As of `gemm`.
    a : (N, K), or (K, N) with trans "T"
    c : (N, N), optional
        Its other triangle is returned as it is.
    uplo : {"U", "L"}
    trans : {"N", "T"}

    Returns
    -------
    array, (N, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.

    Notes
    -----
    Source: the reference BLAS; BLASX, equation 1b.

    Examples
    --------
    >>> syrk(1.0, [[1.0], [2.0]], uplo="L")
    array([[1., 0.],
           [2., 4.]])
    """
    return _rank_k(alpha, a, None, beta, c, uplo, trans, hermitian=False)


@Bounded(products=1, like="syrk", triangle=True, real_diagonal="c")
def herk(
    alpha: float,
    a: npt.ArrayLike,
    beta: float = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    uplo: Uplo = "U",
    trans: Trans = "N",
) -> Matrix:
    """Compute one triangle of ``alpha * A Aᴴ + beta * C``, or of ``alpha * Aᴴ A + beta * C``.

    Parameters
    ----------
    alpha, beta : real number
    a, c, uplo
        As of `syrk`. Imaginary parts on C's diagonal are not read, and 0 in the result.
    trans : {"N", "C"}

    Returns
    -------
    array, (N, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.

    Examples
    --------
    >>> herk(1.0, [[1.0j], [2.0]])
    array([[1.+0.j, 0.+2.j],
           [0.+0.j, 4.+0.j]])
    """
    return _rank_k(alpha, a, None, beta, c, uplo, trans, hermitian=True)


@Bounded(products=2, triangle=True)
def syr2k(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    beta: complex = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    uplo: Uplo = "U",
    trans: Trans = "N",
) -> Matrix:
    """Compute one triangle of ``alpha * (A Bᵀ + B Aᵀ) + beta * C``, or with trans "T" of AᵀB + BᵀA.

    Parameters
    ----------
    alpha, a, beta, c, uplo, trans
        As of `syrk`.
    b : of the shape of a

    Returns
    -------
    array, (N, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.

    Notes
    -----
    Source: the reference BLAS; BLASX, equation 1e.

    Examples
    --------
    >>> syr2k(1.0, [[1.0], [2.0]], [[3.0], [4.0]])
    array([[ 6., 10.],
           [ 0., 16.]])
    """
    return _rank_k(alpha, a, b, beta, c, uplo, trans, hermitian=False)


@Bounded(products=2, like="syr2k", triangle=True, real_diagonal="c")
def her2k(
    alpha: complex,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    beta: float = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    uplo: Uplo = "U",
    trans: Trans = "N",
) -> Matrix:
    """Compute one triangle of ``alpha * A Bᴴ + conj(alpha) * B Aᴴ + beta * C``, or with trans "C" of AᴴB.

    Parameters
    ----------
    alpha : number
    beta : real number
    a, c, uplo, trans
        As of `herk`.
    b : of the shape of a

    Returns
    -------
    array, (N, N)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        As of `gemm`.

    Examples
    --------
    >>> her2k(1.0j, [[1.0], [0.0j]], [[1.0], [1.0 + 0j]])
    array([[0.+0.j, 0.+1.j],
           [0.+0.j, 0.+0.j]])
    """
    return _rank_k(alpha, a, b, beta, c, uplo, trans, hermitian=True)


def _symmetric_product(
    alpha: complex, a: Any, b: Any, beta: complex, c: Any, side: Side, uplo: Uplo, *, hermitian: bool
) -> Matrix:
    """Compute `symm` or, if hermitian, `hemm`: a product with a symmetric matrix."""
    check_flags(side=side, uplo=uplo)
    a, b, *rest = matrices(a=a, b=b, c=c)
    order, across = square(a), b.shape[0 if side == "L" else 1]
    if order != across:
        raise ShapeError(f"a {a.shape} and b {b.shape} with side {side!r}: a must be of order {across}")
    full = symmetric(wide(a, a), uplo, hermitian=hermitian)
    product = full @ wide(b, a) if side == "L" else wide(b, a) @ full
    return _plus(wide(alpha, a) * product, beta, rest, b.shape, a)


def _rank_k(
    alpha: complex, a: Any, b: Any, beta: complex, c: Any, uplo: Uplo, trans: Trans, *, hermitian: bool
) -> Matrix:
    """Compute the rank-k updates `syrk`, `herk`, `syr2k` and `her2k`."""
    check_flags(uplo=uplo, trans=trans)
    turned: Trans = "C" if hermitian else "T"
    given = matrices(a=a, b=b, c=c)
    a, rest = given[0], given[2 if b is not None else 1 :]
    is_real = a.dtype.kind == "f"
    if trans not in ("N", turned) and not (is_real and trans in ("T", "C")):
        raise SchemeError(f"trans is {trans!r}: choose 'N' or {turned!r}")
    if (hermitian and complex(beta).imag) or (hermitian and b is None and complex(alpha).imag):
        raise DtypeError(f"alpha is {alpha}, beta {beta}: a Hermitian matrix needs real ones")
    left = wide(a, a) if trans == "N" else op(wide(a, a), turned)
    if b is None:
        product = wide(alpha, a) * (left @ op(left, turned))
    else:
        if given[1].shape != a.shape:
            raise ShapeError(f"a has shape {a.shape}, b {given[1].shape}: give them one shape")
        right = wide(given[1], a) if trans == "N" else op(wide(given[1], a), turned)
        first = wide(alpha, a) * (left @ op(right, turned))
        product = first + op(first, turned)
    order = len(product)
    before = rest[0] if rest else np.zeros((order, order), a.dtype)
    if hermitian:  # the diagonal of a Hermitian matrix is real
        before = before.copy()
        np.fill_diagonal(before, np.real(np.diagonal(before)))
    after = _plus(product, beta, [before] if rest else [], product.shape, a)
    if hermitian:
        np.fill_diagonal(after, np.real(np.diagonal(after)))
    other = rest[0] if rest else np.zeros((order, order), a.dtype)
    return np.where(is_stored(order, uplo), after, other)


def _plus(product: Matrix, beta: complex, rest: list[Matrix], shape: tuple[int, ...], like: Matrix) -> Matrix:
    """``product + beta * C``, rounded once."""
    if rest and rest[0].shape != tuple(shape):
        raise ShapeError(f"c has shape {rest[0].shape}: the result has {tuple(shape)}")
    if beta != 0:
        if not rest:
            raise ShapeError(f"beta is {beta} and c is missing: give c, or beta=0")
        product = product + scaled(beta, wide(rest[0], like))
    return product.astype(like.dtype)
