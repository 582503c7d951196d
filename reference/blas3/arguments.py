"""Arguments of level-3 BLAS: checks by name, and matrices as their flags mean them.

>>> stored = np.array([[1.0, 2.0], [9.0, 3.0]])
>>> symmetric(stored, "U")
array([[1., 2.],
       [2., 3.]])
>>> triangle(stored, "U", "U")
array([[1., 2.],
       [0., 1.]])
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import as_array

Matrix: TypeAlias = npt.NDArray[Any]
Side: TypeAlias = Literal["L", "R"]
Uplo: TypeAlias = Literal["U", "L"]
Trans: TypeAlias = Literal["N", "T", "C"]
Diag: TypeAlias = Literal["N", "U"]

DTYPES = tuple(map(np.dtype, ("float32", "float64", "complex64", "complex128")))
_FLAGS = {
    "side": (("L", "R"), "the special matrix is on the left or on the right"),
    "uplo": (("U", "L"), "the upper or the lower triangle is stored"),
    "trans": (("N", "T", "C"), "as it is, transposed, or transposed and conjugated"),
    "trans_a": (("N", "T", "C"), "as it is, transposed, or transposed and conjugated"),
    "trans_b": (("N", "T", "C"), "as it is, transposed, or transposed and conjugated"),
    "diag": (("N", "U"), "the diagonal is read, or taken as ones"),
}


def check_flags(**flags: str) -> None:
    """Raise SchemeError for a flag whose letter is unknown."""
    for name, value in flags.items():
        known, reason = _FLAGS[name]
        check_option(name, value, known, reason)


def matrices(**given: Any) -> list[Matrix]:
    """Convert matrices to arrays of one dtype, keeping None; raise ShapeError or DtypeError with the name."""
    arrays = {name: as_array(x, name, "a matrix") for name, x in given.items() if x is not None}
    for name, x in arrays.items():
        if x.ndim != 2:
            raise ShapeError(f"{name} has shape {x.shape}: give a matrix")
        if x.dtype not in DTYPES:
            raise DtypeError(f"{name} is of {x.dtype}: give float32, float64, complex64 or complex128")
    dtypes = {name: x.dtype for name, x in arrays.items()}
    if len(set(dtypes.values())) > 1:
        shown = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        raise DtypeError(f"the dtypes differ: {shown}; convert all to one")
    return [*arrays.values()]


def wide(x: Any, like: Matrix) -> Matrix:
    """A matrix or number in extended precision, complex if ``like`` is."""
    return np.asarray(x, np.clongdouble if like.dtype.kind == "c" else np.longdouble)


def scaled(number: complex, x: Matrix) -> Matrix:
    """Scale a matrix in extended precision; a real number scales real and imaginary parts separately."""
    if x.dtype.kind != "c" or complex(number).imag:
        return wide(number, x) * x
    parts = np.stack([np.real(x), np.imag(x)]) * np.longdouble(complex(number).real)
    return np.ascontiguousarray(np.moveaxis(parts, 0, -1)).view(x.dtype)[..., 0]


def op(x: Matrix, trans: Trans) -> Matrix:
    """op(X): X, its transpose, or its conjugate transpose."""
    return x if trans == "N" else x.T if trans == "T" else x.conj().T


def shape_of(shape: tuple[int, ...], trans: Trans) -> tuple[int, ...]:
    """The shape of op(X) for an X of this shape: swapped if transposed."""
    return shape if trans == "N" else shape[::-1]


def square(a: Matrix, name: str = "a") -> int:
    """Check that a matrix is square; return its number of rows."""
    if a.shape[0] != a.shape[1]:
        raise ShapeError(f"{name} has shape {a.shape}: a square matrix is needed")
    return int(a.shape[0])


def symmetric(a: Matrix, uplo: Uplo, *, hermitian: bool = False) -> Matrix:
    """The symmetric matrix from its stored triangle; a Hermitian matrix gets a real diagonal."""
    strict = np.triu(a, 1) if uplo == "U" else np.tril(a, -1)
    diagonal = np.diagonal(a)
    mirrored = strict.conj().T if hermitian else strict.T
    return strict + mirrored + np.diag(np.real(diagonal).astype(a.dtype) if hermitian else diagonal)


def triangle(a: Matrix, uplo: Uplo, diag: Diag) -> Matrix:
    """The triangular matrix: zeros in the other triangle and, with diag="U", ones on the diagonal."""
    kept = np.triu(a, 1) if uplo == "U" else np.tril(a, -1)
    return kept + np.diag(np.ones(len(a), a.dtype) if diag == "U" else np.diagonal(a))


def is_stored(order: int, uplo: Uplo) -> npt.NDArray[np.bool_]:
    """A boolean mask of the elements in the stored triangle of a square matrix."""
    full = np.ones((order, order), np.bool_)
    return np.triu(full) if uplo == "U" else np.tril(full)
