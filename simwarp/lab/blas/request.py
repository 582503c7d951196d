"""A call of level-3 BLAS: its routine, sizes and flags, and generated matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import gpu.blas3
from gpu.blas3.problem import Problem
from gpu.blas3.table import LETTERS, NAMES, ROWS, Name
from reference.blas3 import error_of
from reference.errors import SchemeError
from reference.types.arguments import check_option
from simwarp.lab.network_studies import room
from simwarp.lab.unbacked import unbacked

Matrices: TypeAlias = dict[Name, npt.NDArray[Any]]


@dataclass(frozen=True)
class Request:
    """A level-3 BLAS call without its matrices: routine, sizes, scalars and flags."""

    routine: str  # the BLAS name
    problem: Problem
    flags: dict[str, str]  # the letters of the flags that the caller set

    @classmethod
    def of(
        cls,
        routine: str,
        m: int,
        n: int | None = None,
        k: int | None = None,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        **flags: str | None,
    ) -> Request:
        """A checked request: SchemeError for an unknown routine or flag, ShapeError for other sizes.

        >>> Request.of("dtrsm", 64, 32, side="R").problem.k
        32
        """
        check_option("routine", routine, NAMES, "these are the routines of level 3")
        given: dict[str, Any] = {name: letter for name, letter in flags.items() if letter is not None}
        _check_flags(routine, given)
        row = ROWS[routine[1:]]
        if k is not None and not row.has_k:
            raise SchemeError(
                f"{routine} has no K={k}\nthe length of its sums is the order of A\nleave K out"
            )
        beta = beta if row.result == "c" else 0.0
        # one tile: only the checked problem is needed here
        plan = gpu.blas3.explain(routine, m, n, k, alpha=alpha, beta=beta, tile=1 << 40, **given)
        return cls(routine, plan.problem, given)

    def plan(self, tile: int | None, budgets: Sequence[int], options: gpu.blas3.Options) -> gpu.blas3.Plan:
        """The plan of tiles and tasks for the call, on devices with these memory budgets in bytes."""
        problem = self.problem
        return gpu.blas3.explain(
            self.routine,
            problem.m,
            problem.n,
            problem.k,
            alpha=problem.alpha,
            beta=problem.beta,
            tile=tile,
            memory_budget=budgets,
            devices=len(budgets),
            options=options,
            **self.flags,
        )

    def matrices(self, *, values: bool) -> Matrices:
        """Matrices of random numbers, or without values: addresses that nothing touches."""
        with room(f"{self.routine} of {self.problem.m} x {self.problem.n}", "give smaller sizes"):
            found: Any = {
                name: self._numbers(shape) if values else unbacked(shape, self.problem.dtype)
                for name, shape in self.problem.shapes.items()
            }
        if values and self.problem.row.form == "triangular":
            np.einsum("ii->i", found["a"])[...] += 2 * self.problem.k
        return found

    def _numbers(self, shape: tuple[int, int]) -> npt.NDArray[Any]:
        """A matrix of random numbers between -1 and 1, in the problem's dtype."""
        rng = np.random.default_rng(shape)
        found = rng.uniform(-1, 1, shape).astype(self.problem.dtype, order="F")
        if self.problem.dtype.kind == "c":
            found += 1j * rng.uniform(-1, 1, shape)
        return found

    def error(self, matrices: Matrices, result: npt.NDArray[Any]) -> float:
        """The error of a result against NumPy's, in units of the rounding error that is allowed."""
        problem = self.problem
        flags: dict[str, Any] = dict(self.flags)
        if "trans_a" in flags and "trans_b" not in flags:
            flags["trans"] = flags.pop("trans_a")
        operands: list[Any] = [matrices[name] for name in ("a", "b") if name in matrices]
        operands += [problem.beta, matrices["c"]] if "c" in matrices else []
        return error_of(problem.routine, result, problem.alpha, *operands, **flags)


def _check_flags(routine: str, given: dict[str, str]) -> None:
    """Raise SchemeError for a flag that the routine does not have, and for an unknown letter."""
    row = ROWS[routine[1:]]
    known = row.letters(is_real=routine[0] in "sd")
    for name, letter in given.items():
        if name not in known:
            has = ", ".join(name for name in row.positions if name in known)
            raise SchemeError(f"{routine} has no flag {name}={letter}\nit has {has}\nleave the flag out")
        check_option(name, letter, tuple(LETTERS[name]), "flags have the letters of BLAS")
        if letter not in known[name]:
            raise SchemeError(
                f"{routine} has no {name}={letter}\nit has {' and '.join(known[name])}\nchoose one of them"
            )
