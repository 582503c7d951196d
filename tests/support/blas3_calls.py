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
from gpu.blas3.problem import Problem
from gpu.blas3.table import PREFIXES, ROWS
from reference.blas3 import error_of
from simwarp.verify.cases.blas3 import poison

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
        return ROWS[self.routine[1:]].result

    def call(self) -> Call:
        return call_of(self.routine, self.alpha, self.beta, self.matrices, self.flags)


def draw_call(draw: random.Random, kind: str, largest: int = 13) -> Drawn:
    """Draw flags, scalars, sizes, layouts and matrices of a routine."""
    row = ROWS[kind]
    prefix = draw.choice(row.prefixes)
    is_complex = prefix in "cz"
    letters = row.letters(is_real=not is_complex)
    flags: dict[str, Any] = {flag: draw.choice(those) for flag, those in letters.items()}
    m, n, k = (draw.choice([0, 1, *range(2, largest)]) for _ in range(3))
    k = k if row.has_k else m if flags["side"] == "L" else n
    m = n if row.is_triangle else m
    alpha = draw_scalar(draw, is_complex and "alpha" not in row.real)
    beta = draw_scalar(draw, is_complex and "beta" not in row.real)
    problem = Problem(kind, np.dtype(PREFIXES[prefix]), m, n, k, alpha, beta, **flags)
    matrices = {name: draw_matrix(draw, shape, problem.dtype) for name, shape in problem.shapes.items()}
    poison(problem, matrices)
    return Drawn(prefix + kind, alpha, beta, flags, matrices)


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


def judged(drawn: Drawn, before: dict[Any, Array], result: Array) -> float:
    """The error of a result in units of the bound."""
    kind = drawn.routine[1:]
    flags, row = dict(drawn.flags), ROWS[kind]
    if "trans_a" in flags and "trans_b" not in flags:
        flags["trans"] = flags.pop("trans_a")
    # the oracle computes with absolute values of the whole matrix: give it zeros for poison
    is_poisoned = row.form in ("symmetric", "triangular")
    operands = [np.nan_to_num(before["a"]) if is_poisoned else before["a"]]
    operands += [before["b"]] if "b" in before else []
    operands += [drawn.beta, before["c"]] if "c" in before else []
    return error_of(kind, result, drawn.alpha, *operands, **flags)


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
        cpu=draw.random() < 0.3,
    )


def product(n: int, *, dtype: Any = np.float64) -> Drawn:
    generator = np.random.default_rng(n)
    matrices: dict[Any, Any] = {
        name: np.asfortranarray(generator.standard_normal((n, n)).astype(dtype)) for name in "abc"
    }
    return Drawn("dgemm", 1.0, 0.5, {}, matrices)
