"""The calls that `blas3.py` measures: operands in host memory, the call of each routine, and its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu.blas3
from gpu.blas3.arguments import call_of
from gpu.blas3.plan import plan_of
from gpu.blas3.routines import TileRoutine
from gpu.blas3.tasks import Kernel

Array = npt.NDArray[Any]
ALPHA, BETA = 0.75, 0.5
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemm": ({}, {}),
    "symm": ({"side": 0, "lower": 1}, {"side": "L", "uplo": "L"}),
    "syrk": ({"lower": 1}, {"uplo": "L"}),
    "syr2k": ({"lower": 1}, {"uplo": "L"}),
    "trmm": ({"side": 0, "lower": 1}, {"side": "L", "uplo": "L"}),
    "trsm": ({"side": 0, "lower": 1}, {"side": "L", "uplo": "L"}),
}
"""The flags of each routine, as SciPy's and as BLAS's: lower triangles, on the left, not transposed."""
DTYPES = {"s": np.float32, "d": np.float64}
SAMPLES = 24


def filled(rows: int, columns: int, dtype: Any, seed: int, threads: int = 16) -> Array:
    """A column-major matrix of uniform numbers between -0.5 and 0.5."""
    x = np.empty((rows, columns), dtype, order="F")
    parts = np.array_split(x.T, min(4 * threads, columns))
    seeds = np.random.SeedSequence(seed).spawn(len(parts))

    def fill(part: Array, seed: np.random.SeedSequence) -> None:
        np.random.default_rng(seed).random(out=part, dtype=dtype)
        part -= dtype(0.5)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, parts, seeds))
    return x


@dataclass
class Operands:
    """The (n, n) matrices of all calls of one size and dtype.

    A has a large diagonal, so that triangular systems are well conditioned.
    """

    n: int
    prefix: str

    def __post_init__(self) -> None:
        made = [filled(self.n, self.n, DTYPES[self.prefix], seed) for seed in range(3)]
        self.a, self.b, self.c = made
        at = np.arange(self.n)
        self.a[at, at] += np.sqrt(self.n).astype(self.a.dtype)

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        """All three."""
        return self.a, self.b, self.c


class Case:
    """One routine on some operands; ``kind`` is the routine without its prefix.

    The result is computed in place, and grows or shrinks with each call.
    """

    def __init__(self, operands: Operands, kind: str) -> None:
        self.of, self.kind = operands, kind
        self.name = operands.prefix + kind
        self.n = operands.n

    @property
    def result(self) -> Array:
        """The matrix that is written."""
        return self.of.b if self.kind in ("trmm", "trsm") else self.of.c

    @cached_property
    def matrices(self) -> dict[Any, Array]:
        """The matrices by their names in the call."""
        names = {"syrk": "ac", "trmm": "ab", "trsm": "ab"}.get(self.kind, "abc")
        return {name: getattr(self.of, name) for name in names}

    @cached_property
    def operations(self) -> float:
        """2 N^3, or N^3 of SYRK and triangular routines."""
        return float(self.n) ** 3 * (1 if self.kind in ("syrk", "trmm", "trsm") else 2)

    def run(self, machine: Any, **options: Any) -> None:
        """Compute it once."""
        door: Callable[..., Any] = getattr(gpu.blas3, self.name)
        scipys, result = CALLS[self.kind][0], "b" if "c" not in self.matrices else "c"
        scalars = {"beta": BETA} if result == "c" else {}
        given = {**self.matrices, **scalars, **scipys, f"overwrite_{result}": 1}
        answer = door(ALPHA, device=machine, **given, **options)
        if answer is not self.result:
            raise SystemExit(f"{self.name}: the result is a copy")

    def plan(self, budgets: list[int], tile: int | None) -> Any:
        """The plan of the call."""
        beta = BETA if "c" in self.matrices else 0.0
        call = call_of(self.name, ALPHA, beta, self.matrices, CALLS[self.kind][1])
        return plan_of(call.problem, tile, budgets, gpu.blas3.Options())

    def in_core(self, operands: Mapping[str, Any]) -> TileRoutine:
        """The routine on whole matrices of a device: of TRMM from B to C."""
        beta = BETA if "c" in self.matrices else 0.0
        kernel = Kernel(self.kind, ALPHA, beta, **CALLS[self.kind][1])
        if self.kind == "trmm":
            return TileRoutine(kernel, (operands["a"], operands["b"]), operands["c"])
        result = "c" if "c" in self.matrices else "b"
        reads = tuple(operands[name] for name in self.matrices if name != result)
        return TileRoutine(kernel, reads, operands[result])

    # ---- checks

    def sample(self, result: Array | None = None) -> Samples:
        """Old values for the check of the next call, which may have another result matrix."""
        rng = np.random.default_rng(7)
        rows, columns = rng.integers(0, self.n, (2, SAMPLES))
        rows[:4], columns[:4] = [0, self.n - 1, self.n - 1, 0], [0, self.n - 1, 0, 0]
        if self.kind in ("syrk", "syr2k"):
            rows, columns = np.maximum(rows, columns), np.minimum(rows, columns)
        old = self.result[:, columns].astype(np.float64)
        return Samples(self, self.result if result is None else result, rows, columns, old)


@dataclass
class Samples:
    """Entries of a result, and the columns with their old values."""

    case: Case
    result: Array
    rows: Array
    columns: Array
    old: Array

    def error(self) -> float:
        """The largest error of the entries, in units of N eps times the sum of absolute terms; at most 1."""
        case = self.case
        eps = float(np.finfo(case.result.dtype).eps)
        entries = [self._entry(i, *pair) for i, pair in enumerate(zip(self.rows, self.columns, strict=True))]
        return max(abs(off) / (eps * (case.n + 4) * size) for off, size in entries)

    def check(self, what: str) -> float:
        """The error; the end of the program if it is above 1."""
        error = self.error()
        if not error <= 1:
            raise SystemExit(f"{what}: an entry is off by {error} times its bound\nthe answer is wrong")
        return error

    def _entry(self, number: int, row: int, column: int) -> tuple[float, float]:
        """The distance of an entry from its value in float64, and the sum of absolute terms."""
        case, old = self.case, self.old[:, number]
        a, b = case.of.a, case.of.b
        got = self.result[:, column].astype(np.float64)
        if case.kind == "trsm":
            terms = a[row, : row + 1].astype(np.float64) * got[: row + 1]
            return terms.sum() - ALPHA * old[row], np.abs(terms).sum() + ALPHA * abs(old[row])
        terms = np.concatenate(self._terms(a, b, row, column, old))
        if case.kind != "trmm":
            terms = np.append(terms, BETA * old[row])
        return got[row] - terms.sum(), np.abs(terms).sum()

    def _terms(self, a: Array, b: Array, row: int, column: int, old: Array) -> list[Array]:
        """The terms of a sum of products."""
        left = a[row].astype(np.float64)
        if self.case.kind == "gemm":
            return [ALPHA * left * b[:, column]]
        if self.case.kind == "symm":
            return [ALPHA * left[:row] * b[:row, column], ALPHA * a[row:, row] * b[row:, column]]
        if self.case.kind == "syrk":
            return [ALPHA * left * a[column]]
        if self.case.kind == "syr2k":
            return [ALPHA * left * b[column], ALPHA * b[row].astype(np.float64) * a[column]]
        return [ALPHA * left[: row + 1] * old[: row + 1]]
