"""One call of level-3 BLAS without its matrices: routine, sizes, flags and scalars.

>>> problem = Problem("symm", np.dtype("f8"), 5, 3, 5, 2.0, 0.0)
>>> problem.name, problem.shapes
('dsymm', {'a': (5, 5), 'b': (5, 3), 'c': (5, 3)})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

Side: TypeAlias = Literal["L", "R"]
Uplo: TypeAlias = Literal["U", "L"]
Trans: TypeAlias = Literal["N", "T", "C"]
Diag: TypeAlias = Literal["N", "U"]
Name: TypeAlias = Literal["a", "b", "c"]
Shape: TypeAlias = tuple[int, int]

PREFIXES = {"s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}
PREFIX_OF = {np.dtype(dtype): prefix for prefix, dtype in PREFIXES.items()}

SYMMETRIC = ("symm", "hemm")
RANK_K = ("syrk", "herk", "syr2k", "her2k")
TRIANGULAR = ("trmm", "trsm")
HERMITIAN = ("hemm", "herk", "her2k")
ROUTINES = ("gemm", *SYMMETRIC, *RANK_K, *TRIANGULAR)


@dataclass(frozen=True)
class Problem:
    """A call's routine, sizes, flags and scalars; all matrices are column-major.

    Attributes
    ----------
    routine : str
    dtype : numpy.dtype
    m, n : int
        Rows and columns of the result.
    k : int
        The length of the sums: of `gemm` and rank-k updates, their K; else the order of A.
    alpha, beta : complex
        ``beta`` of `trmm` and `trsm` is 0.
    side, uplo, trans_a, trans_b, diag
        Flags that a routine does not have are at their defaults.
    """

    routine: str
    dtype: np.dtype[Any]
    m: int
    n: int
    k: int
    alpha: complex
    beta: complex
    side: Side = "L"
    uplo: Uplo = "U"
    trans_a: Trans = "N"
    trans_b: Trans = "N"
    diag: Diag = "N"

    @property
    def name(self) -> str:
        """The BLAS name."""
        return PREFIX_OF[self.dtype] + self.routine

    @property
    def result(self) -> Name:
        """The matrix that is written."""
        return "b" if self.routine in TRIANGULAR else "c"

    @property
    def adjoint(self) -> Trans:
        """The flag of the transpose that the routine's symmetry is about."""
        return "C" if self.routine in HERMITIAN else "T"

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shape of each matrix."""
        of_a, of_b = (self.m, self.k), (self.k, self.n)
        if self.routine in RANK_K:
            of_b = of_a
        elif self.routine != "gemm":
            of_a, of_b = (self.k, self.k), (self.m, self.n)
        shapes = {"a": flipped(of_a, self.trans_a) if self.routine not in TRIANGULAR else of_a}
        if self.routine not in ("syrk", "herk"):
            trans_b = self.trans_a if self.routine in RANK_K else self.trans_b
            shapes["b"] = flipped(of_b, trans_b)
        if self.result == "c":
            shapes["c"] = (self.m, self.n)
        return shapes

    @property
    def is_scaling(self) -> bool:
        """Whether A and B are not read: alpha is 0 or the sums have no terms."""
        return self.alpha == 0 or self.k == 0

    @property
    def operations(self) -> float:
        """Floating-point operations, by the usual counts."""
        m, n, k = float(self.m), float(self.n), float(self.k)
        factor = 4.0 if self.dtype.kind == "c" else 1.0
        if self.is_scaling:
            return factor * m * n
        if self.routine in ("syrk", "herk"):
            return factor * n * (n + 1) * k
        if self.routine in TRIANGULAR:
            return factor * m * n * k
        return factor * 2 * m * n * k * (1 + (1 / n) if self.routine in RANK_K else 1)


def flipped(shape: Shape, trans: Trans) -> Shape:
    """The shape of op(X)."""
    return shape if trans == "N" else (shape[1], shape[0])
