"""cuBLAS on a `FakeDriver`: the level-3 routines by their definitions, queued in the handle's stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from support.fake_driver import FakeDriver, Work, demand

DTYPES = {"S": "f4", "D": "f8", "C": "c8", "Z": "c16"}
REAL = {"S": "f4", "D": "f8", "C": "f4", "Z": "f8"}


@dataclass
class Handle:
    context: int
    stream: int = 0


class Function:
    """A function of the library: its arguments pass through the types that it was given."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run, self.argtypes, self.restype = run, None, ctypes.c_int

    def __call__(self, *args: Any) -> Any:
        demand(
            self.argtypes is not None and len(args) == len(self.argtypes or ()), "wrong number of arguments"
        )
        return self.run(
            *(self._converted(kind, one) for kind, one in zip(self.argtypes or (), args, strict=True))
        )

    def _converted(self, kind: Any, value: Any) -> Any:
        if isinstance(value, ctypes.Array):
            demand(kind is ctypes.c_void_p, "an array for a number")
            return value
        if kind is ctypes.c_void_p and not isinstance(value, int):
            return value  # a reference
        return kind(value).value or 0


class FakeCublas:
    """The library; ``failing`` is a function's name, which of its calls fails, and the status."""

    def __init__(self, driver: FakeDriver, failing: tuple[str, int, int] | None = None) -> None:
        self.driver, self.failing = driver, failing
        self.handles: dict[int, Handle] = {}
        self.calls: dict[str, int] = {}
        self._functions: dict[str, Function] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cublas"):
            raise AttributeError(name)
        return self._functions.setdefault(name, Function(partial(self._call, name)))

    def _call(self, name: str, *args: Any) -> Any:
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.failing and self.failing[:2] == (name, self.calls[name]):
            return self.failing[2]
        own = getattr(self, "_" + name, None)
        if own is not None:
            return own(*args)
        prefix, routine = name[6], name[7:].removesuffix("_64").removesuffix("_v2")
        is_extension = routine in ("geam", "gemmStridedBatched")
        demand(name.endswith("_v2_64") != is_extension, f"{name} does not exist")
        handle = self.handles[args[0]]
        demand(handle.context == self.driver.current(), "another context is current than that of the handle")
        self._routine(handle, routine, Matrices(self, prefix), *args[1:])
        return 0

    def _cublasGetStatusString(self, status: int) -> bytes:  # noqa: N802
        return f"status {status}".encode()

    def _cublasCreate_v2(self, out: Any) -> int:  # noqa: N802
        number = 500 + sum(self.calls.values())
        self.handles[number] = Handle(self.driver.current())
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = number
        return 0

    def _cublasDestroy_v2(self, handle: int) -> int:  # noqa: N802
        demand(self.handles[handle].context == self.driver.current(), "destroyed in another context")
        del self.handles[handle]
        return 0

    def _cublasSetStream_v2(self, handle: int, stream: int) -> int:  # noqa: N802
        self.driver.stream(stream)
        self.handles[handle].stream = stream
        return 0

    def _cublasSetMathMode(self, handle: int, mode: int) -> int:  # noqa: N802
        demand(handle in self.handles and mode == 0, "another math mode")
        return 0

    def _routine(self, handle: Handle, routine: str, of: Matrices, *args: Any) -> None:
        run = getattr(of, routine)(*args)
        queue = self.driver.stream(handle.stream)
        for one in of.used:
            demand(one.context == handle.context, "memory of another device than that of the handle")
        queue.work.append(Work(run, tuple(of.used)))


class Matrices:
    """The routines of one dtype: each takes its arguments at once, and returns what runs later."""

    def __init__(self, cublas: FakeCublas, prefix: str) -> None:
        self.driver, self.dtype = cublas.driver, np.dtype(DTYPES[prefix])
        self.real = np.dtype(REAL[prefix])
        self.used: list[Any] = []

    def matrix(self, address: int, ld: int, rows: int, columns: int) -> Any:
        demand(ld >= max(rows, 1), "a leading dimension below the rows")
        item = self.dtype.itemsize
        found, _ = self.driver.view(address, ld * item, rows * item, columns)
        demand(address % item == 0, "not aligned")
        self.used.append(found)
        return np.ndarray((rows, columns), self.dtype, found.data, address - found.start, (item, ld * item))

    def number(self, pointer: Any, is_real: bool = False) -> Any:
        dtype = self.real if is_real else self.dtype
        demand(ctypes.sizeof(pointer) == dtype.itemsize, "a scalar of another size")
        return np.frombuffer(pointer, dtype)[0].copy()

    def gemm(self, ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a, lda, b, ldb, beta, c, ldc: int):
        x = self.matrix(a, lda, *((m, k) if ta == 0 else (k, m)))
        y = self.matrix(b, ldb, *((k, n) if tb == 0 else (n, k)))
        z, alpha, beta = self.matrix(c, ldc, m, n), self.number(alpha), self.number(beta)

        def run() -> None:
            put(z, alpha * (op(x, ta) @ op(y, tb)), beta)

        return run

    def gemmStridedBatched(  # noqa: N802
        self, ta, tb, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc, step_c, count
    ):
        item = self.dtype.itemsize
        runs = [
            self.gemm(
                *(ta, tb, m, n, k, alpha, a + i * step_a * item, lda, b + i * step_b * item, ldb),
                *(beta, c + i * step_c * item, ldc),
            )
            for i in range(count)
        ]
        return lambda: [run() for run in runs]

    def symm(self, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc, hermitian=False):
        order = m if side == 0 else n
        x, y, z = self.matrix(a, lda, order, order), self.matrix(b, ldb, m, n), self.matrix(c, ldc, m, n)
        alpha, beta = self.number(alpha), self.number(beta)

        def run() -> None:
            kept = half(x, uplo)
            other = np.tril(kept, -1) + np.triu(kept, 1)
            diagonal = np.diag(np.diag(kept).real) if hermitian else np.diag(np.diag(kept))
            full = other + (other.conj().T if hermitian else other.T) + diagonal.astype(x.dtype)
            put(z, alpha * (full @ y if side == 0 else y @ full), beta)

        return run

    def hemm(self, *args):
        return self.symm(*args, hermitian=True)

    def syrk(self, uplo, trans, n, k, alpha, a, lda, beta, c, ldc, hermitian=False):
        demand(trans == 0 or (trans == 2) == hermitian or self.dtype.kind == "f", "a wrong transpose")
        x, z = self.matrix(a, lda, *((n, k) if trans == 0 else (k, n))), self.matrix(c, ldc, n, n)
        alpha, beta = self.number(alpha, hermitian), self.number(beta, hermitian)

        def run() -> None:
            y = op(x, trans)
            put(z, alpha * (y @ (y.conj().T if hermitian else y.T)), beta, uplo, hermitian)

        return run

    def herk(self, *args):
        return self.syrk(*args, hermitian=True)

    def syr2k(self, uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc, hermitian=False):
        shape = (n, k) if trans == 0 else (k, n)
        x, w, z = self.matrix(a, lda, *shape), self.matrix(b, ldb, *shape), self.matrix(c, ldc, n, n)
        alpha, beta = self.number(alpha), self.number(beta, hermitian)

        def run() -> None:
            p, q = op(x, trans), op(w, trans)
            if hermitian:
                put(z, alpha * (p @ q.conj().T) + np.conj(alpha) * (q @ p.conj().T), beta, uplo, True)
            else:
                put(z, alpha * (p @ q.T + q @ p.T), beta, uplo)

        return run

    def her2k(self, *args):
        return self.syr2k(*args, hermitian=True)

    def trmm(self, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, c, ldc):
        order = m if side == 0 else n
        x, y, z = self.matrix(a, lda, order, order), self.matrix(b, ldb, m, n), self.matrix(c, ldc, m, n)
        alpha = self.number(alpha)

        def run() -> None:
            t = op(triangle(x, uplo, diag), trans)
            z[...] = alpha * (t @ y if side == 0 else y @ t)

        return run

    def trsm(self, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb):
        order = m if side == 0 else n
        x, z, alpha = self.matrix(a, lda, order, order), self.matrix(b, ldb, m, n), self.number(alpha)

        def run() -> None:
            t = op(triangle(x, uplo, diag), trans)
            lower = (uplo == 0) == (trans == 0)
            solve = scipy.linalg.solve_triangular
            if side == 0:
                z[...] = solve(t, alpha * z, lower=lower)
            else:
                z[...] = solve(t.T, (alpha * z).T, lower=not lower).T

        return run

    def geam(self, ta, tb, m, n, alpha, a, lda, beta, b, ldb, c, ldc):
        demand((ta, tb) == (0, 0) and b == c and ldb == ldc, "not in place")
        demand(a != c or lda == ldc, "another leading dimension in place")
        x, z = self.matrix(a, lda, m, n), self.matrix(c, ldc, m, n)
        alpha, beta = self.number(alpha), self.number(beta)
        return lambda: put(z, alpha * x, beta)

    def scal(self, n, alpha, x, stride):
        demand(stride == 1, "a stride")
        z, alpha = self.matrix(x, n, n, 1), self.number(alpha)
        return lambda: np.multiply(z, alpha, out=z)


def op(x: Any, trans: int) -> Any:
    return x if trans == 0 else x.T if trans == 1 else x.conj().T


def half(x: Any, uplo: int) -> Any:
    kept = np.tri(len(x), dtype=bool)
    return np.where(kept if uplo == 0 else kept.T, x, 0)


def triangle(x: Any, uplo: int, diag: int) -> Any:
    kept = half(x, uplo)
    if diag:
        np.fill_diagonal(kept, 1)
    return kept


def put(z: Any, value: Any, beta: Any, uplo: int | None = None, hermitian: bool = False) -> None:
    """Write a result plus ``beta z``, which is not read if beta is 0; of a triangle nothing else."""
    found = value if beta == 0 else value + beta * z
    if hermitian:
        found[np.diag_indices(len(found))] = np.diag(found).real
    if uplo is None:
        z[...] = found
    else:
        kept = np.tri(len(z), dtype=bool)
        np.copyto(z, found, where=kept if uplo == 0 else kept.T)
