"""Tile routines as calls of cuBLAS: see `gpu.cuda_machine`, whose queues make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gpu.blas3.problem import HERMITIAN, PREFIX_OF, RANK_K, TRIANGULAR
from gpu.blas3.tasks import Kernel
from gpu.cuda_machine.cublas import DIAG, SIDE, TRANS, UPLO, scalar
from gpu.cuda_machine.memory import Place
from gpu.cuda_machine.queues import Queue
from gpu.machine import Tile

Pointer: TypeAlias = tuple[int, int]
"""An address and a leading dimension, as BLAS has them."""

_REAL = {"s": "s", "d": "d", "c": "s", "z": "d"}


def queue_kernel(queue: Queue, kernel: Kernel, operands: Sequence[Tile], output: Tile) -> None:
    """Queue a kernel on tiles of the queue's device."""
    prefix = PREFIX_OF[output.dtype]
    result = queue.address(output), output.stride
    pointers = [(queue.address(tile), tile.stride) for tile in operands]
    if not operands:
        _scale(queue, prefix, kernel, output, result)
    elif kernel.name == "gemm":
        _general(queue, prefix, kernel, operands[0], pointers, output, result)
    elif kernel.name == "geam":  # which may be in place where C is its B
        alpha, beta = scalar(prefix, kernel.alpha), scalar(prefix, kernel.beta)
        queue.call(prefix, "geam", 0, 0, *output.shape, alpha, *pointers[0], beta, *result, *result)
    elif kernel.name in TRIANGULAR:
        _triangular(queue, prefix, kernel, pointers, output, result)
    elif kernel.name in RANK_K:
        _rank_k(queue, prefix, kernel, operands[0], pointers, output, result)
    else:
        flags = SIDE[kernel.side], UPLO[kernel.uplo], *output.shape
        scalars = scalar(prefix, kernel.alpha), scalar(prefix, kernel.beta)
        queue.call(prefix, kernel.name, *flags, scalars[0], *pointers[0], *pointers[1], scalars[1], *result)


def _general(
    queue: Queue, prefix: str, kernel: Kernel, a: Tile, pointers: list[Pointer], output: Tile, result: Pointer
) -> None:
    """GEMM."""
    k = a.columns if kernel.trans_a == "N" else a.rows
    flags = TRANS[kernel.trans_a], TRANS[kernel.trans_b], *output.shape, k
    alpha, beta = scalar(prefix, kernel.alpha), scalar(prefix, kernel.beta)
    queue.call(prefix, "gemm", *flags, alpha, *pointers[0], *pointers[1], beta, *result)


def _rank_k(
    queue: Queue, prefix: str, kernel: Kernel, a: Tile, pointers: list[Pointer], output: Tile, result: Pointer
) -> None:
    """SYRK, HERK, SYR2K, HER2K; the last has a complex alpha and a real beta, HERK both real."""
    k = a.columns if kernel.trans_a == "N" else a.rows
    flags = UPLO[kernel.uplo], TRANS[kernel.trans_a], output.rows, k
    alpha = scalar(_REAL[prefix] if kernel.name == "herk" else prefix, kernel.alpha)
    beta = scalar(_REAL[prefix] if kernel.name in HERMITIAN else prefix, kernel.beta)
    operands = [number for pointer in pointers for number in pointer]
    if kernel.name in HERMITIAN and kernel.beta:  # cuBLAS reads what BLAS does not
        _make_diagonal_real(queue, output, result)
    queue.call(prefix, kernel.name, *flags, alpha, *operands, beta, *result)


def _make_diagonal_real(queue: Queue, output: Tile, result: Pointer) -> None:
    """Clear the imaginary parts of the diagonal."""
    item = output.dtype.itemsize
    queue.clear(Place(result[0] + item // 2, (result[1] + 1) * item), item // 2, output.columns)


def _triangular(
    queue: Queue, prefix: str, kernel: Kernel, pointers: list[Pointer], output: Tile, result: Pointer
) -> None:
    """TRMM from B to another tile, and TRSM in place."""
    flags = SIDE[kernel.side], UPLO[kernel.uplo], TRANS[kernel.trans_a], DIAG[kernel.diag], *output.shape
    operands = [number for pointer in pointers for number in pointer]
    queue.call(prefix, kernel.name, *flags, scalar(prefix, kernel.alpha), *operands, *result)


def _scale(queue: Queue, prefix: str, kernel: Kernel, output: Tile, result: Pointer) -> None:
    """``beta C``; of a rank-k update's diagonal tile in one triangle.

    Each call does what cuBLAS documents: an update with K = 0 or alpha = 0 is not, so triangles are scaled
    column by column. A real beta multiplies real numbers, two for each complex one: otherwise 0 times a part
    that is infinite, or that BLAS does not read, would get into the other part.
    """
    (rows, columns), item = output.shape, output.dtype.itemsize
    place = Place(result[0], result[1] * item)
    parts = 1
    if output.dtype.kind == "c" and not complex(kernel.beta).imag:
        prefix, parts = _REAL[prefix], 2
    if kernel.name not in RANK_K:
        if kernel.beta == 0:
            queue.clear(place, rows * item, columns)
        else:
            beta, zero = scalar(prefix, kernel.beta), scalar(prefix, 0)
            tile = result[0], result[1] * parts
            queue.call(prefix, "geam", 0, 0, rows * parts, columns, beta, *tile, zero, *tile, *tile)
        return
    for column in range(columns):
        first, count = (0, column + 1) if kernel.uplo == "U" else (column, rows - column)
        start = place.address + column * place.pitch + first * item
        if kernel.beta == 0:
            queue.clear(Place(start, place.pitch), count * item, 1)
        elif kernel.beta != 1:
            queue.call(prefix, "scal", count * parts, scalar(prefix, kernel.beta), start, 1)
    if kernel.name in HERMITIAN:
        _make_diagonal_real(queue, output, result)
