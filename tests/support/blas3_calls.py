"""Drawn calls of level-3 BLAS, with poison where a routine must not read, and their judgement."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.blas3.arguments import call_of
from gpu.blas3.layouts import Call
from gpu.blas3.options import Options
from gpu.blas3.problem import HERMITIAN, PREFIXES, RANK_K, SYMMETRIC, TRIANGULAR, Problem
from reference.blas3 import error_of

Array = npt.NDArray[Any]


@dataclass
class Drawn:
    routine: str
    alpha: Any
    beta: Any
    flags: dict[str, Any]
    matrices: dict[Any, Array]

    @property
    def result(self) -> str:
        return "b" if self.routine[1:] in TRIANGULAR else "c"

    def call(self) -> Call:
        return call_of(self.routine, self.alpha, self.beta, self.matrices, self.flags)


def draw_call(draw: random.Random, kind: str, largest: int = 13) -> Drawn:
    """Draw flags, scalars, sizes, layouts and matrices of a routine."""
    prefix = draw.choice("cz" if kind in HERMITIAN else "sdcz")
    is_complex = prefix in "cz"
    flags = draw_flags(draw, kind, is_complex)
    m, n, k = (draw.choice([0, 1, *range(2, largest)]) for _ in range(3))
    k = (m if flags.get("side") == "L" else n) if kind in (*SYMMETRIC, *TRIANGULAR) else k
    m = n if kind in RANK_K else m
    alpha = draw_scalar(draw, is_complex and kind != "herk")
    beta = draw_scalar(draw, is_complex and kind not in ("herk", "her2k"))
    problem = Problem(kind, np.dtype(PREFIXES[prefix]), m, n, k, alpha, beta, **flags)
    matrices = {name: draw_matrix(draw, shape, problem.dtype) for name, shape in problem.shapes.items()}
    poison(problem, matrices)
    return Drawn(prefix + kind, alpha, beta, flags, matrices)


def draw_flags(draw: random.Random, kind: str, is_complex: bool) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if kind == "gemm":
        return {"trans_a": draw.choice("NTC"), "trans_b": draw.choice("NTC")}
    if kind in RANK_K:
        adjoint = "C" if kind in HERMITIAN else "T"
        flags["trans_a"] = draw.choice(["N", adjoint] if is_complex else "NTC")
    if kind in (*SYMMETRIC, *TRIANGULAR):
        flags["side"] = draw.choice("LR")
    if kind in TRIANGULAR:
        flags |= {"trans_a": draw.choice("NTC"), "diag": draw.choice("NU")}
    return flags | {"uplo": draw.choice("UL")}


def draw_scalar(draw: random.Random, is_complex: bool) -> Any:
    number = draw.choice([0.0, 1.0, -1.0, 0.7, 2.5])
    return complex(number, draw.choice([0.0, -0.6])) if is_complex and number else number


def draw_matrix(draw: random.Random, shape: tuple[int, int], dtype: Any) -> Array:
    """Numbers of both signs, row- or column-major, sometimes a part of a larger matrix."""
    rows, columns = shape
    order: Any = draw.choice("CF")
    spare = draw.choice([0, 0, 3])
    whole = np.zeros((rows + spare, columns + 1), dtype, order=order)
    generator = np.random.default_rng(draw.randrange(2**32))
    x = whole[:rows, :columns] if spare else np.zeros(shape, dtype, order=order)
    x[...] = generator.standard_normal(shape)
    if dtype.kind == "c":
        x += 1j * generator.standard_normal(shape)
    return x


def poison(problem: Problem, matrices: dict[str, Array]) -> None:
    """NaN in the triangle, diagonal or result that must not be read; a safe diagonal to divide by."""
    a = matrices["a"]
    if problem.routine in (*SYMMETRIC, *TRIANGULAR):
        is_kept = np.tri(len(a), dtype=bool)
        a[~(is_kept.T if problem.uplo == "U" else is_kept)] = np.nan
    if problem.routine in TRIANGULAR:
        at = np.arange(len(a))
        a[at, at] = np.nan if problem.diag == "U" else a[at, at] + np.copysign(len(a), a[at, at].real)
    if problem.routine == "hemm":
        a.imag[np.arange(len(a)), np.arange(len(a))] = np.nan
    if "c" in matrices and problem.beta == 0:
        matrices["c"][...] = np.nan
    elif problem.routine in RANK_K:
        c = matrices["c"]
        is_kept = np.tri(len(c), dtype=bool)
        c[~(is_kept.T if problem.uplo == "U" else is_kept)] = np.nan
        if problem.routine in HERMITIAN:
            c.imag[np.arange(len(c)), np.arange(len(c))] = np.nan


def judged(drawn: Drawn, before: dict[Any, Array], result: Array) -> float:
    """The error of a result in units of the bound."""
    kind = drawn.routine[1:]
    flags = dict(drawn.flags)
    if kind in RANK_K:
        flags["trans"] = flags.pop("trans_a")
    if kind in TRIANGULAR:
        flags["trans"] = flags.pop("trans_a")
        # the oracle computes with absolute values of the whole matrix: give it zeros for poison
        return error_of(kind, result, drawn.alpha, np.nan_to_num(before["a"]), before["b"], **flags)
    operands = [np.nan_to_num(before["a"]) if kind in SYMMETRIC else before["a"]]
    operands += [before["b"]] if "b" in before else []
    return error_of(kind, result, drawn.alpha, *operands, drawn.beta, before["c"], **flags)


def draw_options(draw: random.Random) -> Options:
    return Options(
        peer=draw.choice(["arriving", "completed", "none"]),
        cache=draw.random() < 0.85,
        order=draw.choice(["priority", "fifo"]),
        queue=draw.choice(["squares", "rows"]),
        steal=draw.random() < 0.8,
        streams=draw.choice([1, 2, 4, 8]),
        allocation=draw.choice(["heap", "native"]),
        advance=draw.choice(["stream", "batch"]),
        ahead=draw.choice([1, 2, 4]),
        station=draw.choice([1, 3, 8]),
        copies=draw.choice(["ordered", "stream"]),
        addend=draw.choice(["late", "first"]),
    )


def product(n: int, *, dtype: Any = np.float64) -> Drawn:
    generator = np.random.default_rng(n)
    matrices: dict[Any, Any] = {
        name: np.asfortranarray(generator.standard_normal((n, n)).astype(dtype)) for name in "abc"
    }
    return Drawn("dgemm", 1.0, 0.5, {}, matrices)
