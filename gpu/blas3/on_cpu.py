"""Tile routines on the host's cores: SciPy's BLAS by the addresses of its routines.

SciPy's Python functions copy what is not contiguous, and keep Python's lock. Called by their addresses, the
same routines take parts of matrices as they lie, while the thread that feeds the GPUs goes on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.blas3.problem import PREFIX_OF, Shape
from gpu.blas3.routines import blas, compute, operations_of
from gpu.blas3.table import LETTERS, ROWS
from gpu.blas3.tasks import Kernel

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class CpuRoutine:
    """A step of a tile on the host, as a `gpu.machine.CpuRoutine`.

    ``buffer`` is the tile's sum. The first step takes its old values from ``loaded``, the last one writes it
    to ``stored``, both the tile's block in the result.
    """

    kernel: Kernel
    operands: tuple[Array, ...]
    buffer: Array
    loaded: Array | None = None
    stored: Array | None = None

    @property
    def name(self) -> str:
        """The kernel's BLAS name with the dtype's letter, e.g. "dgemm"."""
        return PREFIX_OF[self.buffer.dtype] + (self.kernel.name if self.operands else "scal")

    @property
    def operations(self) -> float:
        """Floating-point operations, by the usual counts."""
        shapes = [shape_of(x) for x in self.operands]
        return operations_of(self.kernel, shapes, shape_of(self.buffer), self.buffer.dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tile."""
        return self.buffer.dtype

    @property
    def reads(self) -> tuple[Array, ...]:
        """The parts of the host's matrices that the step reads."""
        return self.operands if self.loaded is None else (*self.operands, self.loaded)

    @property
    def writes(self) -> tuple[Array, ...]:
        """The part of the result that the step writes, if it is the tile's last one."""
        return () if self.stored is None else (self.stored,)

    def compute(self) -> None:
        """Compute the step, in the calling thread and those of the BLAS."""
        if self.loaded is not None:
            self.buffer[...] = self.loaded
        compute_tile(self.kernel, self.operands, self.buffer)
        if self.stored is not None:
            self.stored[...] = self.buffer


def compute_tile(kernel: Kernel, operands: Sequence[Array], output: Array) -> None:
    """As `gpu.blas3.routines.compute`, without copies of operands and without Python's lock."""
    function = _function(PREFIX_OF[output.dtype] + kernel.name) if operands else None
    if function is None:  # a sum, a scaled tile, and GEMMT, which SciPy does not have
        compute(kernel, operands, output)
        return
    row, rest = ROWS[kernel.name], operands
    if row.result == "b" and len(operands) == 2:  # BLAS has TRMM in place only
        output[...] = operands[1]
        rest = operands[:1]
    a, inner = operands[0], operands[0].shape[kernel.trans_a == "N"]
    matrices = {"b": output, "c": output, **dict(zip("ab", rest, strict=False))}
    values: dict[str, Any] = {flag: ctypes.c_char(getattr(kernel, flag).encode()) for flag in LETTERS}
    sizes = {"m": output.shape[0], "n": output.shape[1], "k": inner}
    sizes |= {f"ld{name}": _stride(x) for name, x in {"a": a, **matrices}.items()}
    values |= {name: ctypes.c_int(size) for name, size in sizes.items()}
    for name in ("alpha", "beta"):
        is_real = name in row.real and output.dtype.kind == "c"
        dtype = np.dtype(f"f{output.itemsize // 2}") if is_real else output.dtype
        number = complex(getattr(kernel, name))
        values[name] = np.array(number if dtype.kind == "c" else number.real, dtype)
    function(*(_address(matrices[name] if name in "abc" else values[name]) for name in row.positions))


def shape_of(x: Array) -> Shape:
    """The shape of a matrix."""
    rows, columns = x.shape
    return rows, columns


def _stride(x: Array) -> int:
    """Elements from one column to the next."""
    return max(x.strides[1] // x.itemsize, x.shape[0], 1) if x.shape[1] > 1 else max(x.shape[0], 1)


def _address(value: Any) -> Any:
    """The address of an argument, as every argument of a Fortran routine is given."""
    return ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else ctypes.byref(value)


@cache
def _function(name: str) -> Callable[..., None] | None:
    """A routine of SciPy's BLAS, which runs without Python's lock; None if SciPy does not have it."""
    blas()
    capsule = import_module("scipy.linalg.cython_blas").__pyx_capi__.get(name)
    if capsule is None:
        return None
    name_of, pointer_of = (ctypes.pythonapi[f"PyCapsule_Get{what}"] for what in ("Name", "Pointer"))
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(ROWS[name[1:]].positions))(address)
