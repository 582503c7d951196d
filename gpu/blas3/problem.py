"""One call of level-3 BLAS without its matrices: routine, sizes, flags and scalars.

>>> problem = Problem("symm", np.dtype("f8"), 5, 3, 5, 2.0, 0.0)
>>> problem.name, problem.shapes
('dsymm', {'a': (5, 5), 'b': (5, 3), 'c': (5, 3)})
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from gpu.blas3.table import PREFIXES, ROWS, Name, Row

Side: TypeAlias = Literal["L", "R"]
Uplo: TypeAlias = Literal["U", "L"]
Trans: TypeAlias = Literal["N", "T", "C"]
Diag: TypeAlias = Literal["N", "U"]
Shape: TypeAlias = tuple[int, int]

PREFIX_OF = {np.dtype(dtype): prefix for prefix, dtype in PREFIXES.items()}


@dataclass(frozen=True)
class Problem:
    """A call's routine, sizes, flags and scalars; all matrices are column-major.

    Flags that a routine does not have are at their defaults.
    """

    routine: str
    dtype: np.dtype[Any]
    m: int  # rows of the result
    n: int  # columns of the result
    k: int  # the number of terms of a sum: K where it is an argument, else the order of A
    alpha: complex
    beta: complex  # 0 for `trmm` and `trsm`, which do not have beta
    side: Side = "L"
    uplo: Uplo = "U"
    trans_a: Trans = "N"
    trans_b: Trans = "N"
    diag: Diag = "N"

    @property
    def name(self) -> str:
        """The routine's BLAS name with the dtype's letter, e.g. "dgemm"."""
        return PREFIX_OF[self.dtype] + self.routine

    @property
    def row(self) -> Row:
        """The routine's row in the table of BLAS routines."""
        return ROWS[self.routine]

    @property
    def result(self) -> Name:
        """The name of the matrix that the routine writes."""
        return self.row.result

    @property
    def adjoint(self) -> Trans:
        """The flag of the transpose that the routine's symmetry is about."""
        return "C" if self.row.hermitian else "T"

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shape of each matrix, by name."""
        result, square = (self.m, self.n), (self.k, self.k)
        of_a, of_b = flipped((self.m, self.k), self.trans_a), flipped((self.k, self.n), self.trans_b)
        if self.row.form in ("symmetric", "triangular"):
            of_a, of_b = square, result
        elif self.row.form == "rank_k":
            of_b = of_a
        inputs: dict[str, Shape] = dict(zip(self.row.inputs, (of_a, of_b), strict=False))
        return inputs | {self.result: result}

    @property
    def is_scaling(self) -> bool:
        """True if A and B are not read, since alpha is 0 or K is 0."""
        return self.alpha == 0 or self.k == 0

    @property
    def operations(self) -> float:
        """Floating-point operations, by the usual counts."""
        m, n, k = float(self.m), float(self.n), float(self.k)
        factor = 4.0 if self.dtype.kind == "c" else 1.0
        if self.is_scaling:
            return factor * m * n
        if self.row.is_triangle:
            return factor * self.row.products * n * (n + 1) * k
        return factor * (1 if self.row.form == "triangular" else 2) * m * n * k


def flipped(shape: Shape, trans: Trans) -> Shape:
    """The shape of op(X) for an X of this shape: swapped if transposed."""
    return shape if trans == "N" else (shape[1], shape[0])
