"""Tile routines as calls of cuBLAS, queued by `gpu.cuda_machine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu.blas3.problem import PREFIX_OF
from gpu.blas3.table import LETTERS, ROWS, Row
from gpu.blas3.tasks import Kernel
from gpu.cuda_machine.cublas import FLAGS, scalar
from gpu.cuda_machine.memory import Place
from gpu.cuda_machine.queues import Queue
from gpu.machine import Tile

_REAL = {"s": "s", "d": "d", "c": "s", "z": "d"}


def queue_kernel(queue: Queue, kernel: Kernel, operands: Sequence[Tile], output: Tile) -> None:
    """Queue a kernel on tiles of the queue's device."""
    prefix = PREFIX_OF[output.dtype]
    if not operands:
        _scale(queue, prefix, kernel, output)
    elif kernel.name == "geam":  # geam may run in place if its C is its B
        _add(queue, prefix, kernel.alpha, operands[0], kernel.beta, output)
    elif kernel.name == "gemmt":
        _multiply_triangle(queue, prefix, kernel, operands, output)
    else:
        _multiply(queue, prefix, kernel, operands, output)


def library_arguments(row: Row) -> tuple[str, ...]:
    """The argument names of NVIDIA's libraries: Fortran's, and for TRMM also C."""
    return (*row.positions, "c", "ldc") if row.name == "trmm" else row.positions


def _multiply(queue: Queue, prefix: str, kernel: Kernel, operands: Sequence[Tile], output: Tile) -> None:
    """Queue the cuBLAS call of one tile product."""
    row = ROWS[kernel.name]
    # cuBLAS reads imaginary parts of the diagonal that BLAS does not read
    if row.is_triangle and row.hermitian and kernel.beta:
        _make_diagonal_real(queue, output)
    values = _values(queue, prefix, kernel, operands, output)
    queue.call(prefix, kernel.name, **{name: values[name] for name in library_arguments(row)})


def _values(
    queue: Queue, prefix: str, kernel: Kernel, operands: Sequence[Tile], output: Tile
) -> dict[str, Any]:
    """The values of all arguments that a routine of cuBLAS may have."""
    a, row = operands[0], ROWS[kernel.name]
    values: dict[str, Any] = {flag: FLAGS[flag][getattr(kernel, flag)] for flag in LETTERS}
    values |= {"m": output.rows, "n": output.columns, "k": a.columns if kernel.trans_a == "N" else a.rows}
    for name in ("alpha", "beta"):
        values[name] = scalar(_REAL[prefix] if name in row.real else prefix, getattr(kernel, name))
    for name, tile in {"b": output, "c": output, **dict(zip("ab", operands, strict=False))}.items():
        values |= {name: queue.address(tile), f"ld{name}": tile.stride}
    return values


_BATCHED = "trans_a trans_b m n k alpha a lda stride_a b ldb stride_b beta c ldc stride_c count"


def _multiply_triangle(
    queue: Queue, prefix: str, kernel: Kernel, operands: Sequence[Tile], output: Tile
) -> None:
    """GEMM into one triangle, which cuBLAS lacks: the diagonal, then squares beside it of 1, 2, 4 … rows.

    Squares of one size are one batched call, whose last one may be narrower and is another call. Nothing else
    of the tile is written, and no memory is needed.
    """
    order, item, is_upper = output.rows, output.dtype.itemsize, kernel.uplo == "U"
    values = _values(queue, prefix, kernel, operands, output)
    down = 1 if kernel.trans_a == "N" else operands[0].stride  # elements to the next row of op(A)
    right = operands[1].stride if kernel.trans_b == "N" else 1  # elements to the next column of op(B)

    def multiply(row: int, column: int, m: int, n: int, apart: int, count: int) -> None:
        """Multiply ``count`` parts of C, each ``apart`` rows and columns behind the previous one."""
        part = values | {"m": m, "n": n, "count": count}
        for name, first, step in (
            ("a", row * down, down),
            ("b", column * right, right),
            ("c", row + column * output.stride, 1 + output.stride),
        ):
            part |= {name: values[name] + first * item, f"stride_{name}": apart * step}
        queue.call(prefix, "gemmStridedBatched", **{name: part[name] for name in _BATCHED.split()})

    multiply(0, 0, 1, 1, 1, order)
    side = 1
    while side < order:
        count, rest = divmod(order, 2 * side)
        if count:
            multiply(*((0, side) if is_upper else (side, 0)), side, side, 2 * side, count)
        if rest > side:
            first, more = order - rest, order - rest + side
            at = (first, more, side, rest - side) if is_upper else (more, first, rest - side, side)
            multiply(*at, 2 * side, 1)
        side *= 2


def _add(queue: Queue, prefix: str, alpha: complex, a: Tile, beta: complex, output: Tile) -> None:
    """Queue ``alpha A + beta C``: a copy with alpha 1 and beta 0."""
    prefix, parts = _parts(prefix, alpha, beta)
    address, ld = queue.address(output), output.stride * parts
    queue.call(
        prefix,
        "geam",
        trans_a=FLAGS["trans_a"]["N"],
        trans_b=FLAGS["trans_b"]["N"],
        m=output.rows * parts,
        n=output.columns,
        alpha=scalar(prefix, alpha),
        a=queue.address(a),
        lda=a.stride * parts,
        beta=scalar(prefix, beta),
        b=address,
        ldb=ld,
        c=address,
        ldc=ld,
    )


def _parts(prefix: str, *numbers: complex) -> tuple[str, int]:
    """The letter and the count of the real numbers in an element, if only real numbers multiply it.

    Otherwise 0 times a part that is infinite, or that BLAS does not read, would get into the other part.
    """
    is_real = not any(complex(number).imag for number in numbers)
    return (_REAL[prefix], 2) if prefix in "cz" and is_real else (prefix, 1)


def _make_diagonal_real(queue: Queue, output: Tile) -> None:
    """Set the imaginary parts of a tile's diagonal to 0."""
    item = output.dtype.itemsize
    place = Place(queue.address(output) + item // 2, (output.stride + 1) * item)
    queue.clear(place, item // 2, output.columns)


def _scale(queue: Queue, prefix: str, kernel: Kernel, output: Tile) -> None:
    """Queue ``beta C``; if the routine writes one triangle, only in that triangle.

    Each call does what cuBLAS documents: an update with K = 0 or alpha = 0 is not, so triangles are scaled
    column by column.
    """
    (rows, columns), item = output.shape, output.dtype.itemsize
    place = Place(queue.address(output), output.stride * item)
    row = ROWS[kernel.name]
    if not row.is_triangle:
        if kernel.beta == 0:
            queue.clear(place, rows * item, columns)
        else:
            _add(queue, prefix, kernel.beta, output, 0, output)
        return
    scaled, parts = _parts(prefix, kernel.beta)
    for column in range(columns):
        first, count = (0, column + 1) if kernel.uplo == "U" else (column, rows - column)
        start = place.address + column * place.pitch + first * item
        if kernel.beta == 0:
            queue.clear(Place(start, place.pitch), count * item, 1)
        elif kernel.beta != 1:
            queue.call(scaled, "scal", n=count * parts, alpha=scalar(scaled, kernel.beta), x=start, incx=1)
    if row.hermitian:
        _make_diagonal_real(queue, output)
