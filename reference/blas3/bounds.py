"""Bounds on the rounding errors of level-3 BLAS, against the definition.

A product whose terms are added in any order, with or without fused multiply-adds, is within γ_n times the sum
of the terms' absolute values. A solution is judged by its residual: substitution in any order solves a system
whose matrix is within γ_n of the given one, element by element.

Source: Higham, Accuracy and Stability of Numerical Algorithms, second edition, sections 3.1, 3.6 and 8.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reference.blas3.arguments import Matrix, is_stored, matrices, op, triangle, wide
from reference.types.arguments import check_option

Routine = TypeVar("Routine", bound=Callable[..., Matrix])

ROUTINES: dict[str, Callable[..., Matrix]] = {}
"""The definitions by their names."""


@dataclass(frozen=True)
class Bounded:
    """A decorator that registers a definition in `ROUTINES`, with the terms that bound a result's errors."""

    products: int = 0  # terms that one element of the result sums along K; 0: as many as op(A) has columns
    like: str = ""  # the routine that sums the terms' absolute values; "": the routine itself
    triangle: bool = False  # whether one triangle is computed, and the other keeps C's bits
    real_diagonal: str = ""  # the matrix whose diagonal is real
    solves: bool = False  # whether a result is judged by its residual

    def __call__(self, routine: Routine) -> Routine:
        """Register a routine under its name."""
        ROUTINES[routine.__name__], _BOUNDS[routine.__name__] = routine, self
        return routine


_BOUNDS: dict[str, Bounded] = {}


def error_of(routine: str, result: npt.ArrayLike, alpha: complex, *operands: Any, **flags: Any) -> float:
    """Compute the largest error of a result in units of its bound: the result is right up to 1.

    Parameters
    ----------
    routine : str
        A name of `ROUTINES`.
    result : array_like
        What is judged. Where one triangle is computed, the other one must be C's, to the bit.
    alpha, *operands, **flags
        The routine's arguments.

    Returns
    -------
    float
        Infinity for a wrong shape or dtype, for a NaN, and for an element of the other triangle that differs.

    Raises
    ------
    SchemeError
        For an unknown routine; and the routine's own errors.

    Examples
    --------
    >>> a, b = np.full((2, 3), 0.1), np.full((3, 2), 0.3)
    >>> error_of("gemm", a @ b, 1.0, a, b) <= 1, error_of("gemm", a @ b * (1 + 1e-14), 1.0, a, b) <= 1
    (True, False)
    """
    check_option("routine", routine, tuple(ROUTINES), "these are the routines of level 3")
    given, definition = np.asarray(result), ROUTINES[routine](alpha, *operands, **flags)
    if given.shape != definition.shape or given.dtype != definition.dtype:
        return float("inf")
    if given.size == 0:
        return 0.0
    of = _BOUNDS[routine]
    if of.solves:
        return _residual(given, alpha, *operands, **flags)
    arguments = signature(ROUTINES[routine]).bind(alpha, *operands, **flags).arguments
    sizes = {name: _size(value, name == of.real_diagonal) for name, value in arguments.items()}
    terms = ROUTINES[of.like or routine](**sizes).astype(np.longdouble) * (1 + 2.0**-50)
    # a bound of 0 means that the result is an exact 0, which cannot underflow
    bound = _gamma(of, arguments, given.dtype) * terms
    error = np.abs(wide(given, given) - wide(definition, given))
    if of.triangle:
        stored = is_stored(len(given), flags.get("uplo", "U"))
        if not np.array_equal(given[~stored], definition[~stored], equal_nan=True):
            return float("inf")
        error, bound = np.where(stored, error, 0), np.where(stored, bound, 1)
    return _largest(error, bound)


def _residual(solution: Matrix, alpha: complex, a: Any, b: Any, **flags: Any) -> float:
    """The error of a solution X in units of its bound, by the residual op(A) X - alpha B."""
    a, b = matrices(a=a, b=b)
    side = flags.get("side", "L")
    factor = op(triangle(wide(a, a), flags.get("uplo", "U"), flags.get("diag", "N")), flags.get("trans", "N"))
    x, right = wide(solution, a), wide(alpha, a) * wide(b, a)
    product = factor @ x if side == "L" else x @ factor
    terms = np.abs(factor) @ np.abs(x) if side == "L" else np.abs(x) @ np.abs(factor)
    count = len(a) + 3 + 2 * (a.dtype.kind == "c")
    return _largest(np.abs(product - right), _gamma_of(count, a.dtype) * (terms + np.abs(right)))


def _size(value: Any, is_diagonal_real: bool) -> Any:
    """The absolute values of a matrix or number, in double precision; a flag that does not conjugate."""
    if value is None or isinstance(value, str):
        return "T" if value == "C" else value
    if np.ndim(value) != 2:
        return abs(value)
    sizes = np.abs(value).astype(np.float64)
    if is_diagonal_real:
        np.fill_diagonal(sizes, np.abs(np.real(np.diagonal(value))))
    return sizes


def _gamma(of: Bounded, arguments: dict[str, Any], dtype: Any) -> float:
    """γ_n for the roundings that an element goes through."""
    shape = np.shape(arguments["a"])
    transposed = arguments.get("trans_a", arguments.get("trans", "N")) != "N"
    terms = of.products * shape[0 if transposed else 1] if of.products else shape[0]
    # more roundings: alpha, beta * C, their sum, the result; complex operations round more often
    return _gamma_of(terms + 4 + 3 * (np.dtype(dtype).kind == "c"), dtype)


def _gamma_of(count: int, dtype: Any) -> float:
    """γ_n = n u / (1 - n u), for complex numbers with √2 more for each product."""
    unit = float(np.finfo(dtype).eps) / 2 * (2**0.5 * 2 if np.dtype(dtype).kind == "c" else 1)
    return count * unit / (1 - count * unit)


def _largest(error: Matrix, bound: Matrix) -> float:
    """The largest error in units of its bound; 0 of 0 is right."""
    with np.errstate(invalid="ignore", divide="ignore"):
        units = np.where(error == 0, 0, error / bound)
    return float(np.where(np.isnan(units), np.inf, units).max())
