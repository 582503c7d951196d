"""Checks of the arguments of level-3 BLAS, by their names and positions in the Fortran interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from gpu.blas3.device_matrix import DeviceMatrix, device_matrix, is_on_device
from gpu.blas3.layouts import Call, Matrix, arranged, is_column_major
from gpu.blas3.problem import PREFIX_OF, Problem, flipped
from gpu.blas3.table import PREFIXES, ROWS, Name, Row
from gpu.device_tensor import share
from gpu.machine import Machine
from reference.errors import DtypeError, FormatError, SchemeError, ShapeError, SimwarpError

Array = npt.NDArray[Any]


def refuse(
    kind: type[SimwarpError], routine: str, argument: str, found: str, needed: str, advice: str
) -> NoReturn:
    """Raise an error that names the argument and its position."""
    position = ROWS[routine[1:]].positions.index(argument) + 1
    raise kind(f"{routine}, argument {position} ({argument}): {found}\n{needed}\n{advice}")


def operand(routine: str, name: Name, given: Any, device: Machine | None = None) -> Matrix:
    """A matrix operand, checked without the other operands; lists are converted."""
    dtype = np.dtype(PREFIXES[routine[0]])
    x: Matrix
    if isinstance(given, np.ndarray):
        x = cast("Array", given)
    elif is_on_device(given):
        x = device_matrix(given, device)
    else:
        x = np.asarray(given, dtype, order="F")
    if x.ndim != 2:
        refuse(ShapeError, routine, name, f"shape {x.shape}", "a matrix is needed", "reshape it")
    if x.dtype != dtype:
        found, advice = f"dtype {x.dtype}", f"convert it, or call {_kin(routine, x.dtype)}"
        refuse(DtypeError, routine, name, found, f"{routine} is for {dtype}", advice)
    if not is_column_major(x) and not is_column_major(x.T):
        refuse(
            FormatError,
            routine,
            name,
            f"strides {x.strides} of shape {x.shape}",
            f"rows or columns must be contiguous: one stride is {x.itemsize}, the other at least a line",
            "copy it with numpy.asfortranarray",
        )
    return x


def _kin(routine: str, dtype: np.dtype[Any]) -> str:
    """The name of a routine for a dtype, or the routine's own name if there is none."""
    prefix = PREFIX_OF.get(dtype)
    known = prefix is not None and prefix in ROWS[routine[1:]].prefixes
    return f"{prefix}{routine[1:]}" if known else "another routine"


def scalar(routine: str, name: str, given: Any, *, is_real: bool) -> complex:
    """Alpha or beta as a Python number."""
    try:
        number = complex(given)
    except (TypeError, ValueError):
        refuse(DtypeError, routine, name, f"{given!r}", "a number is needed", "give a Python number")
    if not is_real:
        return number
    if number.imag != 0:
        refuse(DtypeError, routine, name, f"{given!r}", "a real number is needed", "give its real part")
    return number.real


def call_of(
    routine: str,
    alpha: Any,
    beta: Any,
    matrices: Mapping[Name, Matrix],
    flags: Mapping[str, Any],
) -> Call:
    """A checked call; the result is among the matrices and will be computed in place.

    Raises ShapeError, DtypeError, FormatError or SchemeError with the argument's name and position.
    """
    row, dtype = ROWS[routine[1:]], np.dtype(PREFIXES[routine[0]])
    scalars = {"alpha": alpha, "beta": beta} if row.result == "c" else {"alpha": alpha}
    numbers = {
        name: scalar(routine, name, number, is_real=dtype.kind == "f" or name in row.real)
        for name, number in scalars.items()
    }
    sizes = sizes_of(row, matrices, flags)
    problem = Problem(row.name, dtype, *sizes, **{"beta": 0.0} | numbers, **flags)
    _check_trans(routine, problem)
    _check_shapes(routine, problem, matrices)
    _check_result(routine, problem, matrices)
    return arranged(problem, dict(matrices))


def sizes_of(row: Row, matrices: Mapping[Name, Matrix], flags: Mapping[str, Any]) -> tuple[int, int, int]:
    """M, N and K from the shapes of the first operands; the others are not checked yet."""
    rows, columns = flipped(matrices["a"].shape, flags.get("trans_a", "N"))
    if row.is_triangle:
        return rows, rows, columns
    if row.form == "general":
        return rows, flipped(matrices["b"].shape, flags.get("trans_b", "N"))[1], columns
    m, n = matrices["b"].shape
    return m, n, m if flags.get("side", "L") == "L" else n


def _check_trans(routine: str, problem: Problem) -> None:
    """Raise SchemeError for a transpose that a rank-k update does not have."""
    known = problem.row.letters(is_real=problem.dtype.kind == "f").get("trans_a")
    if known and problem.trans_a not in known:
        needed = "a Hermitian update" if problem.adjoint == "C" else "a symmetric update"
        advice = f"choose {problem.adjoint!r}, or 'N'"
        refuse(SchemeError, routine, "trans_a", f"{problem.trans_a!r}", f"{needed} has no such form", advice)


def _check_shapes(routine: str, problem: Problem, matrices: Mapping[Name, Matrix]) -> None:
    """Raise ShapeError for a matrix whose shape does not fit the flags and the other matrices."""
    for name, shape in problem.shapes.items():
        found = matrices[cast("Name", name)].shape
        if found == shape:
            continue
        others = ", ".join(f"{other} {x.shape}" for other, x in matrices.items() if other != name)
        refuse(
            ShapeError,
            routine,
            name,
            f"shape {found}",
            f"{shape} is needed beside {others}",
            "check the shapes, and the flags for transposes and the side",
        )


def _check_result(routine: str, problem: Problem, matrices: Mapping[Name, Matrix]) -> None:
    """Raise FormatError for a result that cannot be written, or whose writing changes an operand."""
    result = matrices[problem.result]
    if not (result.is_writeable if isinstance(result, DeviceMatrix) else result.flags.writeable):
        refuse(FormatError, routine, problem.result, "read-only", "it would be overwritten", "copy it")
    for name, x in matrices.items():
        if name != problem.result and share(x, result):
            refuse(
                FormatError,
                routine,
                problem.result,
                f"it shares memory with {name}",
                f"{name} is read while {problem.result} is written",
                f"copy {name}",
            )


def is_whole(x: Any) -> bool:
    """Whether a number is an integer of Python or NumPy; True and False are not."""
    kinds: Any = (int, np.integer)
    return isinstance(x, kinds) and not isinstance(x, bool)
