"""The calls of a program's BLAS, computed by `gpu.blas3` in the program's memory.

``SIMWARP_BLAS_MACHINE`` names a simulated machine; without it all GPUs compute. ``SIMWARP_BLAS_TILE`` is the
rows and columns of a tile.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from threading import Lock
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from gpu.blas3.arguments import call_of
from gpu.blas3.execute import execute
from gpu.blas3.layouts import Call, Matrix
from gpu.blas3.on_host import compute_on_host
from gpu.blas3.problem import Problem
from gpu.blas3.table import LETTERS, PREFIXES, ROWS, Name
from reference.errors import DtypeError, FormatError, MissingExtraError, NoGpuError, SchemeError, ShapeError
from simwarp.machine import Machine

Array = npt.NDArray[Any]
COMPUTED, REFUSED, FAILED, OFF = range(4)
"""What a call's end is; as in ``blas.c``."""
_ROWS, _COLUMNS = 101, 102
_LOCK = Lock()
"""One thread may use a machine at a time."""
_said: list[str] = []


class GivenCall(ctypes.Structure):
    """A call as the library has it: ``struct call`` of ``blas.c``."""

    _fields_: ClassVar[Any] = [
        ("routine", ctypes.c_char_p),
        ("order", ctypes.c_int),
        *((name, ctypes.c_char) for name in ("side", "uplo", "trans_a", "trans_b", "diag")),
        *((name, ctypes.c_int) for name in ("m", "n", "k", "lda", "ldb", "ldc")),
        *((name, ctypes.c_void_p) for name in ("alpha", "beta", "a", "b", "c")),
    ]


def give(address: int) -> None:
    """Write the address of `computed`, as a function of C, to an address of the library."""
    ctypes.c_void_p.from_address(address).value = ctypes.cast(_FUNCTION, ctypes.c_void_p).value


def computed(given: Any, must: int) -> int:
    """Compute a call; what fails leaves its result as it was. With ``must`` no other BLAS can compute it."""
    try:
        call = call_from(given.contents)
    except (ShapeError, DtypeError, FormatError, SchemeError) as error:  # the next BLAS says what it says
        if must:
            _say(error)
        return REFUSED
    result = call.on_host[call.problem.result]
    before = result.copy(order="K") if _is_updated(call.problem) else None
    try:
        with _LOCK:
            if must:
                compute_on_host(call)
            else:
                tile = os.environ.get("SIMWARP_BLAS_TILE")
                used = machine()
                execute(call, used, int(tile) if tile else None, None, None, None)
                if used is not None:
                    used.timeline.clear()
    except BaseException as error:
        if before is not None:
            result[...] = before
        _say(error)
        return OFF if isinstance(error, NoGpuError | MissingExtraError | SchemeError) else FAILED
    return COMPUTED


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(GivenCall), ctypes.c_int)(computed)


@cache
def machine() -> Machine | None:
    """The simulated machine that the environment names; None for all GPUs."""
    name = os.environ.get("SIMWARP_BLAS_MACHINE")
    return Machine(name) if name else None


def call_from(given: GivenCall) -> Call:
    """The checked call on arrays of the program's memory."""
    routine = given.routine.decode()
    row, dtype = ROWS[routine[1:]], np.dtype(PREFIXES[routine[0]])
    flags = {name: getattr(given, name).decode() for name in LETTERS if name in row.positions}
    wrong = [name for name, letter in flags.items() if letter not in [*LETTERS[name]]]
    if wrong or given.order not in (_ROWS, _COLUMNS):
        raise SchemeError(
            f"{routine}: a wrong {', '.join(wrong) or 'order'}\nflags have the letters of BLAS\ngive others"
        )
    sizes = (given.m, given.n, given.k)
    shapes = Problem(row.name, dtype, *sizes, 1.0, 0.0, **cast("Any", flags)).shapes
    matrices: dict[Name, Matrix] = {
        cast("Name", name): _matrix(given, name, shape, dtype) for name, shape in shapes.items()
    }
    alpha, beta = (
        _scalar(getattr(given, name), dtype, is_real=name in row.real) if name in row.positions else 0.0
        for name in ("alpha", "beta")
    )
    return call_of(routine, alpha, beta, matrices, flags)


def _matrix(given: GivenCall, name: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """A matrix in the program's memory, without a copy."""
    address, across = getattr(given, name), getattr(given, f"ld{name}")
    by_columns = given.order == _COLUMNS
    lines, length = shape[::-1] if by_columns else shape
    if address is None or across < max(length, 1):
        raise ShapeError(
            f"{name} of {shape} at {address}, {across} elements from line to line\n"
            f"a line has {length} elements\ngive an address, and at least that"
        )
    count = (lines - 1) * across + length if lines and length else 0
    strides = (across * dtype.itemsize, dtype.itemsize)
    whole = np.lib.stride_tricks.as_strided(_at(address, count, dtype), (lines, length), strides)
    return whole.T if by_columns else whole


def _at(address: int, count: int, dtype: np.dtype[Any]) -> Array:
    """Elements of the program's memory, without a copy."""
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


def _scalar(address: int, dtype: np.dtype[Any], *, is_real: bool) -> complex:
    """Alpha or beta, at its address."""
    kind = np.dtype(f"f{dtype.itemsize // 2}") if is_real and dtype.kind == "c" else dtype
    return complex(_at(address, 1, kind)[0])


def _is_updated(problem: Problem) -> bool:
    """True if the old values of the result matter: it is read, or only a triangle of it is written."""
    return problem.beta != 0 or problem.result == "b" or problem.row.is_triangle


def _say(error: BaseException) -> None:
    """Say once on stderr what has failed."""
    if not _said:
        _said.append(str(error))
        text = str(error).splitlines()[0] if str(error) else ""
        os.write(2, f"simwarp: {type(error).__name__}: {text}; calls go to the next BLAS\n".encode())
