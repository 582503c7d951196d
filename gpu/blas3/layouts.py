"""Row-major matrices as column-major ones: a row-major X is a column-major Xᵀ in the same memory.

The result decides. If it is row-major, the transposed equation is computed: factors change places, and so do
sides and triangles. An operand of the other layout changes its flag. BLAS has no flag for a conjugate without
a transpose, nor for a transposed B of SYMM: such an operand is copied into the result's layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gpu.blas3.device_matrix import DeviceMatrix
from gpu.blas3.problem import Problem, Trans
from gpu.blas3.table import Name
from reference.errors import FormatError

Array = npt.NDArray[Any]
Matrix: TypeAlias = Array | DeviceMatrix
_OTHER: dict[str, Any] = {"L": "R", "R": "L"}
_OTHER_TRIANGLE: dict[str, Any] = {"L": "U", "U": "L"}


@dataclass(frozen=True)
class Call:
    """A problem and its matrices, all column-major; the result is computed in place."""

    problem: Problem
    matrices: dict[Name, Matrix]

    @property
    def on_host(self) -> dict[Name, Array]:
        """The matrices in host memory, by name."""
        return {name: x for name, x in self.matrices.items() if not isinstance(x, DeviceMatrix)}

    @property
    def on_devices(self) -> dict[Name, DeviceMatrix]:
        """The matrices in device memory, by name."""
        return {name: x for name, x in self.matrices.items() if isinstance(x, DeviceMatrix)}


def is_column_major(x: Matrix) -> bool:
    """True if a matrix is column-major, so that BLAS takes it without a copy."""
    (rows, columns), (down, right) = x.shape, x.strides
    if x.size == 0:
        return True
    return (rows == 1 or down == x.itemsize) and (columns == 1 or right >= rows * x.itemsize)


def arranged(problem: Problem, matrices: dict[Name, Matrix]) -> Call:
    """The call on column-major views of matrices that may be row-major."""
    if problem.dtype.kind == "f":
        problem = replace(problem, trans_a=_real(problem.trans_a), trans_b=_real(problem.trans_b))
    result = matrices[problem.result]
    is_turned = not is_column_major(result)
    arrange = {
        "general": _general,
        "symmetric": _symmetric,
        "rank_k": _rank_k,
        "triangular": _triangular,
    }[problem.row.form]
    arranged_problem, operands = arrange(problem, matrices, is_turned)
    if is_turned:
        arranged_problem = replace(arranged_problem, m=problem.n, n=problem.m, side=_OTHER[problem.side])
    views: dict[Name, Matrix] = {**operands, problem.result: result.T if is_turned else result}
    return Call(arranged_problem, views)


def _real(trans: Trans) -> Trans:
    """The transpose flag for a real matrix: "T" instead of "C"."""
    return "T" if trans == "C" else trans


def _is_row_major(x: Matrix, is_turned: bool) -> bool:
    """The layout that an operand is taken in; a vector has both."""
    return is_turned if is_column_major(x) and is_column_major(x.T) else not is_column_major(x)


def _copied(x: Matrix, is_turned: bool) -> Array:
    """A copy of a matrix in the memory layout of the result."""
    if isinstance(x, DeviceMatrix):
        raise FormatError(
            f"a matrix of {x.shape} on device {x.memory.device} is {'column' if is_turned else 'row'}-major\n"
            f"the call needs it {'row' if is_turned else 'column'}-major, as the result is\n"
            "lay it out like the result, or give it in the host's memory"
        )
    return np.array(x, order="C" if is_turned else "F")


def _operand(x: Matrix, trans: Trans, is_turned: bool) -> tuple[Matrix, Trans, bool]:
    """op(X), or its transpose if turned, as op of a column-major view; and whether X is row-major."""
    is_row = _is_row_major(x, is_turned)
    if is_row != is_turned and trans == "C":
        x, is_row = _copied(x, is_turned), is_turned
    view = x.T if is_row else x
    return view, trans if is_row == is_turned else cast("Trans", "T" if trans == "N" else "N"), is_row


def _general(
    problem: Problem, given: dict[Name, Matrix], is_turned: bool
) -> tuple[Problem, dict[Name, Matrix]]:
    """GEMM with a row-major result: Cᵀ is op(B)ᵀ op(A)ᵀ; a triangle of C becomes the other triangle."""
    a, trans_a, _ = _operand(given["a"], problem.trans_a, is_turned)
    b, trans_b, _ = _operand(given["b"], problem.trans_b, is_turned)
    if is_turned:
        uplo = _OTHER_TRIANGLE[problem.uplo]
        return replace(problem, trans_a=trans_b, trans_b=trans_a, uplo=uplo), {"a": b, "b": a}
    return replace(problem, trans_a=trans_a, trans_b=trans_b), {"a": a, "b": b}


def _symmetric(
    problem: Problem, given: dict[Name, Matrix], is_turned: bool
) -> tuple[Problem, dict[Name, Matrix]]:
    """SYMM and HEMM with a row-major result: Cᵀ is Bᵀ Aᵀ; a row-major A stores its other triangle."""
    a, b = given["a"], given["b"]
    is_row = _is_row_major(a, is_turned)
    if problem.row.hermitian and is_row != is_turned:
        a, is_row = _copied(a, is_turned), is_turned
    if _is_row_major(b, is_turned) != is_turned:
        b = _copied(b, is_turned)
    uplo = _OTHER_TRIANGLE[problem.uplo] if is_row else problem.uplo
    return replace(problem, uplo=uplo), {"a": a.T if is_row else a, "b": b.T if is_turned else b}


def _rank_k(
    problem: Problem, given: dict[Name, Matrix], is_turned: bool
) -> tuple[Problem, dict[Name, Matrix]]:
    """Rank-k updates with a row-major result: Cᵀ stores its other triangle, and is conj(C) if Hermitian."""
    operands = [given[name] for name in ("a", "b") if name in given]
    is_hermitian = problem.row.hermitian
    is_row = is_turned if is_hermitian else _is_row_major(operands[0], is_turned)
    views = [x if _is_row_major(x, is_row) == is_row else _copied(x, is_row) for x in operands]
    views = [x.T if is_row else x for x in views]
    trans = problem.trans_a
    if is_row:
        trans = problem.adjoint if trans == "N" else cast("Trans", "N")
    problem = replace(
        problem,
        trans_a=trans,
        uplo=_OTHER_TRIANGLE[problem.uplo] if is_turned else problem.uplo,
        alpha=complex(problem.alpha).conjugate() if is_turned and is_hermitian else problem.alpha,
    )
    return problem, dict(zip(cast("tuple[Name, ...]", ("a", "b")), views, strict=False))


def _triangular(
    problem: Problem, given: dict[Name, Matrix], is_turned: bool
) -> tuple[Problem, dict[Name, Matrix]]:
    """TRMM and TRSM: Bᵀ is multiplied from the other side."""
    a, trans, is_row = _operand(given["a"], problem.trans_a, is_turned)
    uplo = _OTHER_TRIANGLE[problem.uplo] if is_row else problem.uplo
    return replace(problem, uplo=uplo, trans_a=trans), {"a": a}
