"""TRMM and TRSM in place, tile by tile (BLASX, equations 1c and 1d, with α in the right place).

The paper holds that the reads of a task depend on no other task. Here a tile overwrites what others read, or
reads what others write. A task is therefore a whole block column of B (side L) or block row (side R), whose
tiles are computed in an order that is safe in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpu.blas3.blocks import Block, Span, spans, stored
from gpu.blas3.problem import Problem, Trans
from gpu.blas3.tasks import Kernel, Output, Step, Steps


def tasks_of(problem: Problem, tile: int, width: int) -> Iterator[tuple[Output, ...]]:
    """The outputs of each block column or row, of at most ``width`` right-hand sides."""
    across = spans(problem.n if problem.side == "L" else problem.m, width)
    along = spans(problem.k, tile)
    outputs = _zeros if problem.alpha == 0 else _products if problem.routine == "trmm" else _solutions
    for panel in across:
        yield tuple(outputs(problem, panel, along))


def is_upper(problem: Problem) -> bool:
    """Whether op(A) is upper triangular."""
    return (problem.uplo == "U") == (problem.trans_a == "N")


def reads_later(problem: Problem) -> bool:
    """True if tile i of B depends on the tiles after it rather than on those before it."""
    return is_upper(problem) == (problem.side == "L")


def _zeros(problem: Problem, panel: Span, along: list[Span]) -> Iterator[Output]:
    """Output tiles of zeros, which read no operand."""
    for span in along:
        yield Output(_block(problem, span, panel), (Step(Kernel("gemm", 0.0, 0.0)),))


def _products(problem: Problem, panel: Span, along: list[Span]) -> Iterator[Output]:
    """``alpha (op(A)[i,i] B[i,j] + Σ op(A)[i,k] B[k,j])``, beginning with tiles that no other tile reads."""
    order = along if reads_later(problem) else along[::-1]
    for i in order:
        yield Output(_block(problem, i, panel), Steps(partial(_multiplied, problem, i, panel, along)))


def _multiplied(problem: Problem, i: Span, panel: Span, along: list[Span]) -> Iterator[Step]:
    """The steps of a product's tile: first the diagonal one, which reads the tile's old values."""
    yield _diagonal(problem, "trmm", problem.alpha, i, (_block(problem, i, panel),))
    for k in _needed(problem, i, along):
        yield _product(problem, problem.alpha, 1.0, i, k, panel)


def _solutions(problem: Problem, panel: Span, along: list[Span]) -> Iterator[Output]:
    """``op(A)[i,i]⁻¹ (alpha B[i,j] - Σ op(A)[i,k] X[k,j])``, beginning with tiles that read no other tile."""
    order = along[::-1] if reads_later(problem) else along
    for i in order:
        steps = Steps(partial(_solved, problem, i, panel, along))
        yield Output(_block(problem, i, panel), steps, is_reused=i != order[-1])


def _solved(problem: Problem, i: Span, panel: Span, along: list[Span]) -> Iterator[Step]:
    """The steps of a solution's tile: last the diagonal one."""
    scale = problem.alpha
    for k in _needed(problem, i, along):
        yield _product(problem, -1.0, scale, i, k, panel)
        scale = 1.0
    yield _diagonal(problem, "trsm", scale, i, ())


def _needed(problem: Problem, i: Span, along: list[Span]) -> list[Span]:
    """The tiles of B that tile i needs besides its own, in ascending order."""
    return [k for k in along if (k > i if reads_later(problem) else k < i)]


def _block(problem: Problem, along: Span, panel: Span) -> Block:
    """The block of B at one position along A's order and one panel of the other axis."""
    return Block("b", along, panel) if problem.side == "L" else Block("b", panel, along)


def _diagonal(problem: Problem, name: str, alpha: complex, i: Span, rest: tuple[Block, ...]) -> Step:
    """The TRMM or TRSM step with the triangular tile A[i,i]."""
    kernel = Kernel(
        name,
        alpha,
        0.0,
        side=problem.side,
        uplo=problem.uplo,
        trans_a=problem.trans_a,
        diag=problem.diag,
    )
    return Step(kernel, (Block("a", i, i), *rest))


def _product(problem: Problem, alpha: complex, beta: complex, i: Span, k: Span, panel: Span) -> Step:
    """The GEMM step with the full tile A[i,k]."""
    trans: Trans = problem.trans_a
    b = _block(problem, k, panel)
    if problem.side == "L":
        return Step(Kernel("gemm", alpha, beta, trans_a=trans), (stored("a", i, k, trans), b))
    return Step(Kernel("gemm", alpha, beta, trans_b=trans), (b, stored("a", k, i, trans)))
