"""Tile routines: computations of a device on its tiles; on the host, SciPy's BLAS computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.blas3.on_cuda import queue_kernel
from gpu.blas3.problem import PREFIX_OF, Shape
from gpu.blas3.table import LETTERS, ROWS
from gpu.blas3.tasks import Kernel
from gpu.machine import Tile
from reference.errors import MissingExtraError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TileRoutine:
    """A BLAS kernel and the tiles that it reads and writes, as a `gpu.machine.Routine`."""

    kernel: Kernel
    operands: tuple[Tile, ...]
    output: Tile

    @property
    def name(self) -> str:
        """The kernel's BLAS name with the dtype's letter, e.g. "dgemm"."""
        return PREFIX_OF[self.output.dtype] + (self.kernel.name if self.operands else "scal")

    @property
    def operations(self) -> float:
        """Floating-point operations, by the usual counts."""
        shapes = [tile.shape for tile in self.operands]
        return operations_of(self.kernel, shapes, self.output.shape, self.output.dtype)

    @property
    def reads(self) -> tuple[Tile, ...]:
        """The operands, and the output if it is updated."""
        return (*self.operands, self.output) if self.kernel.updates else self.operands

    @property
    def writes(self) -> tuple[Tile, ...]:
        """The one tile that the kernel writes."""
        return (self.output,)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the kernel on host arrays with SciPy."""
        compute(self.kernel, reads[: len(self.operands)], writes[0])

    def queue_on(self, queue: Any) -> None:
        """Queue it on a GPU, with cuBLAS; see `gpu.cuda_machine.CudaRoutine`."""
        queue_kernel(queue, self.kernel, self.operands, self.output)


def operations_of(kernel: Kernel, operands: Sequence[Shape], output: Shape, dtype: np.dtype[Any]) -> float:
    """Floating-point operations of a kernel on operands of these shapes, by the usual counts."""
    m, n = map(float, output)
    factor = 4.0 if dtype.kind == "c" else 1.0
    if not operands:
        return factor * m * n
    if kernel.name == "geam":
        return factor * 2 * m * n
    rows, columns = operands[0]
    row, k = ROWS[kernel.name], columns if kernel.trans_a == "N" else rows
    if row.is_triangle:
        return factor * row.products * n * (n + 1) * k
    return factor * (1 if row.form == "triangular" else 2) * m * n * k


def compute(kernel: Kernel, operands: Sequence[Array], output: Array) -> None:
    """Compute a kernel into a column-major array, which contains the old values if the kernel updates it."""
    if not operands:
        _scale(kernel, output)
        return
    if kernel.name == "geam":
        product = scaled(kernel.alpha, operands[0])
        output[...] = product + scaled(kernel.beta, output) if kernel.beta else product
        return
    into = _in_b if ROWS[kernel.name].result == "b" else _in_c
    result = into(kernel, operands, output)
    if result is not output:
        output[...] = result


@cache
def blas() -> Any:
    """Import SciPy's module of BLAS routines."""
    try:
        return import_module("scipy.linalg.blas")
    except ImportError as error:
        raise MissingExtraError(
            f"level-3 BLAS on the host needs SciPy, which is not installed ({error})\n"
            "the host computes small problems without device=, and what a simulated machine computes\n"
            "pip install 'simwarp[blas]', or pass device=gpu.CudaMachine()"
        ) from None


def _scale(kernel: Kernel, output: Array) -> None:
    """Compute ``beta C``; if the routine writes one triangle, only in that triangle."""
    row = ROWS[kernel.name]
    if not row.is_triangle:
        output[...] = 0 if kernel.beta == 0 else scaled(kernel.beta, output)
        return
    if row.hermitian:  # the imaginary part of a Hermitian diagonal counts as 0, and may be NaN
        np.fill_diagonal(output, np.real(np.diagonal(output)).copy())
    kept = _triangle(len(output), kernel.uplo)
    output[kept] = 0 if kernel.beta == 0 else scaled(kernel.beta, output[kept])


def _triangle(order: int, uplo: str) -> npt.NDArray[np.bool_]:
    """A boolean mask of the lower (or, for "U", upper) triangle of a square matrix."""
    lower = np.tri(order, dtype=np.bool_)
    return lower.T if uplo == "U" else lower


def scaled(number: complex, x: Array) -> Array:
    """Multiply by a number; a real one scales both parts separately, where NumPy would add ``0 x.imag``."""
    factor = x.dtype.type(number)
    if x.dtype.kind != "c" or factor.imag:
        return x * factor
    product = np.empty_like(x)
    product.real, product.imag = np.real(x) * factor.real, np.imag(x) * factor.real
    return product


def _in_c(kernel: Kernel, operands: Sequence[Array], output: Array) -> Array:
    """Compute ``alpha op(A) op(B) + beta C`` with SciPy, into the output C."""
    if kernel.name == "gemmt":  # SciPy does not have gemmt
        whole = output.copy(order="F")
        compute(replace(kernel, name="gemm"), operands, whole)
        np.copyto(output, whole, where=_triangle(len(output), kernel.uplo))
        return output
    beta = kernel.beta
    if kernel.name == "gemm" and output.dtype.kind == "c" and not complex(beta).imag and beta not in (0, 1):
        output[...], beta = scaled(beta, output), 1.0  # a real beta, as HERK's, is applied here, not by gemm
    function, flags = _function(kernel, output)
    return function(kernel.alpha, *operands, beta=beta, c=output, overwrite_c=1, **flags)


def _in_b(kernel: Kernel, operands: Sequence[Array], output: Array) -> Array:
    """Compute TRMM into another matrix, or TRSM in place, with SciPy."""
    function, flags = _function(kernel, output)
    is_solution = kernel.name == "trsm"
    right = output if is_solution else operands[1]
    return function(kernel.alpha, operands[0], right, overwrite_b=int(is_solution), **flags)


def _function(kernel: Kernel, output: Array) -> tuple[Any, dict[str, int]]:
    """SciPy's BLAS function for a kernel, and its integer flag arguments."""
    letters = {flag: getattr(kernel, flag) for flag in LETTERS}
    return getattr(blas(), PREFIX_OF[output.dtype] + kernel.name), ROWS[kernel.name].numbers(letters)
