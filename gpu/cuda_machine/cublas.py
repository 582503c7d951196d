"""cuBLAS through ctypes: handles, the level-3 routines with 64-bit sizes, and their statuses.

A thin layer of ctypes rather than nvmath-python: a call costs a few microseconds either way, the wheel of
cuBLAS is then all that has to be installed, and the same library has cublasXt, to which benchmarks compare.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from reference.errors import MachineError

_TRANS = {"N": 0, "T": 1, "C": 2}
FLAGS = {
    "side": {"L": 0, "R": 1},
    "uplo": {"L": 0, "U": 1},
    "trans_a": _TRANS,
    "trans_b": _TRANS,
    "diag": {"N": 0, "U": 1},
}
"""The numbers of flags, by their names in the Fortran interface."""
_EXTENSIONS = ("geam", "gemmStridedBatched")
"""Functions that BLAS does not have, which are of one version."""
_SCALARS_AND_MATRICES = ("alpha", "beta", "a", "b", "c", "x")
_DEFAULT_MATH = 0


class RoutineError(MachineError, RuntimeError):
    """A routine that cuBLAS or cuDNN refused.

    Attributes
    ----------
    routine : str
        The function of the library.
    status : str
    device : int
    """

    routine: str = ""
    status: str = ""
    device: int = -1


class Cublas:
    """The functions of cuBLAS that are used.

    Attributes
    ----------
    library : ctypes.CDLL
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self._functions: dict[tuple[str, str], Any] = {}
        self._text = library.cublasGetStatusString
        self._text.argtypes, self._text.restype = [ctypes.c_int], ctypes.c_char_p
        self._create, self._destroy = library.cublasCreate_v2, library.cublasDestroy_v2
        self._set_stream, self._set_math = library.cublasSetStream_v2, library.cublasSetMathMode
        self._create.argtypes = [ctypes.c_void_p]
        self._destroy.argtypes = [ctypes.c_void_p]
        self._set_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._set_math.argtypes = [ctypes.c_void_p, ctypes.c_int]

    def create(self, stream: int, device: int) -> int:
        """A handle of the current context for a stream; with the default math, which has no TF32."""
        handle = ctypes.c_void_p()
        try:
            self._check("cublasCreate", self._create(ctypes.byref(handle)), device)
            self._check("cublasSetStream", self._set_stream(handle.value, stream), device)
            self._check("cublasSetMathMode", self._set_math(handle.value, _DEFAULT_MATH), device)
        except BaseException:
            if handle.value:
                self._destroy(handle.value)
            raise
        return handle.value or 0

    def destroy(self, handle: int, device: int) -> None:
        """Destroy a cuBLAS handle."""
        self._check("cublasDestroy", self._destroy(handle), device)

    def call(self, handle: int, device: int, prefix: str, routine: str, **arguments: Any) -> None:
        """Queue a routine in the handle's stream; `RoutineError` if cuBLAS refuses it.

        The arguments are in the routine's order, under their names in the Fortran interface.
        """
        function = self._functions.get((prefix, routine))
        if function is None:
            function = self._functions[prefix, routine] = self._function(prefix, routine, arguments)
        if status := function(handle, *arguments.values()):
            self._check(symbol(prefix, routine), status, device)

    def _function(self, prefix: str, routine: str, names: Iterable[str]) -> Any:
        """Look up a cuBLAS function, and set its argument types."""
        function = getattr(self.library, symbol(prefix, routine))
        function.argtypes = [ctypes.c_void_p, *map(type_of, names)]
        function.restype = ctypes.c_int
        return function

    def _check(self, routine: str, status: int, device: int) -> None:
        """Raise `RoutineError` unless a cuBLAS status is success."""
        if not status:
            return
        text = self._text(status)
        name = text.decode() if isinstance(text, bytes) else str(status)
        raise RoutineError(
            f"{routine} of device {device} failed",
            f"cuBLAS returned {name}",
            "no later work is queued; if memory is short, pass a smaller memory_budget",
            routine=routine,
            status=name,
            device=device,
        )


def type_of(name: str) -> Any:
    """The C type of an argument: a flag, a pointer, or a size or leading dimension."""
    if name in FLAGS:
        return ctypes.c_int
    return ctypes.c_void_p if name in _SCALARS_AND_MATRICES else ctypes.c_int64


def symbol(prefix: str, routine: str) -> str:
    """The function's name in the library, with 64-bit sizes."""
    return f"cublas{prefix.upper()}{routine}{'' if routine in _EXTENSIONS else '_v2'}_64"


@lru_cache(1024)
def scalar(dtype: str, value: complex) -> Any:
    """A number in host memory: ``s``, ``d``, ``c`` or ``z``."""
    kind: Any = ctypes.c_float if dtype in "sc" else ctypes.c_double
    if dtype in "sd":
        return (kind * 1)(complex(value).real)
    return (kind * 2)(complex(value).real, complex(value).imag)
