"""Tile forms of products: GEMM, SYMM and HEMM, rank-k updates (BLASX, equations 1a, 1b, 1e and 1f)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpu.blas3.blocks import Block, Span, spans, stored
from gpu.blas3.problem import Problem, Trans
from gpu.blas3.tasks import Kernel, Output, Step

FIRST = 4
"""So many rows and columns of tiles add ``beta C`` late: at the start products wait for copies."""
ENOUGH = 4
"""With fewer steps a late sum, which is a pass over memory, costs more than it hides."""


def outputs_of(problem: Problem, tile: int, *, adds_late: bool = False) -> Iterator[Output]:
    """The tiles of a product that are written, block row after block row."""
    steps_of = {"general": _general, "symmetric": _symmetric, "rank_k": _rank_k}[problem.row.form]
    is_triangle = problem.row.is_triangle
    adds_late = adds_late and not is_triangle
    for row in spans(problem.m, tile):
        for column in spans(problem.n, tile):
            if is_triangle and (row > column if problem.uplo == "U" else row < column):
                continue
            if problem.is_scaling:
                steps = _scaling(problem, row, column)
            else:
                found = steps_of(problem, row, column, tile)
                is_first = max(row[0], column[0]) < FIRST * tile
                steps = _with_beta(problem, found, row, column, is_late=adds_late and is_first)
            if steps:
                yield Output(Block("c", row, column), steps)


def _scaling(problem: Problem, row: Span, column: Span) -> tuple[Step, ...]:
    """``beta C`` without reads of A and B; none if it changes nothing."""
    is_diagonal = problem.row.is_triangle and row == column
    if problem.beta == 1 and not (is_diagonal and problem.row.hermitian):
        return ()
    name = problem.routine if is_diagonal else "gemm"
    return (Step(Kernel(name, 0.0, problem.beta, uplo=problem.uplo)),)


def _with_beta(
    problem: Problem,
    steps: Iterator[tuple[Kernel, tuple[Block, ...]]],
    row: Span,
    column: Span,
    is_late: bool,
) -> tuple[Step, ...]:
    """Apply beta in the first of the steps that add to one tile, or in a last step that adds ``beta C``."""
    found = [Step(replace(kernel, beta=1.0), reads) for kernel, reads in steps]
    is_late = is_late and problem.beta != 0 and len(found) >= ENOUGH
    first = found[0]
    found[0] = replace(first, kernel=replace(first.kernel, beta=0.0 if is_late else problem.beta))
    if is_late:
        found.append(Step(Kernel("geam", problem.beta, 1.0), (Block("c", row, column),)))
    return tuple(found)


def _general(
    problem: Problem, row: Span, column: Span, tile: int
) -> Iterator[tuple[Kernel, tuple[Block, ...]]]:
    """``alpha Σ op(A)[i,k] op(B)[k,j]``, of GEMMT's diagonal tiles in one triangle."""
    a, b = problem.trans_a, problem.trans_b
    name = "gemmt" if problem.row.is_triangle and row == column else "gemm"
    kernel = Kernel(name, problem.alpha, 0.0, uplo=problem.uplo, trans_a=a, trans_b=b)
    for k in spans(problem.k, tile):
        yield kernel, (stored("a", row, k, a), stored("b", k, column, b))


def _symmetric(
    problem: Problem, row: Span, column: Span, tile: int
) -> Iterator[tuple[Kernel, tuple[Block, ...]]]:
    """``alpha Σ S[i,k] B[k,j]`` or ``alpha Σ B[i,k] S[k,j]``: tiles as stored, mirrored and diagonal."""
    is_left = problem.side == "L"
    for k in spans(problem.k, tile):
        across, along = (row, k) if is_left else (k, column)
        b = Block("b", k, column) if is_left else Block("b", row, k)
        if across == along:
            kernel = Kernel(problem.routine, problem.alpha, 0.0, side=problem.side, uplo=problem.uplo)
            yield kernel, (Block("a", k, k), b)
            continue
        is_stored = across < along if problem.uplo == "U" else across > along
        trans: Trans = "N" if is_stored else problem.adjoint
        a = stored("a", across, along, trans)
        if is_left:
            yield Kernel("gemm", problem.alpha, 0.0, trans_a=trans), (a, b)
        else:
            yield Kernel("gemm", problem.alpha, 0.0, trans_b=trans), (b, a)


def _rank_k(
    problem: Problem, row: Span, column: Span, tile: int
) -> Iterator[tuple[Kernel, tuple[Block, ...]]]:
    """``alpha Σ A[i,k] A[j,k]ᵀ``, or with B the two products of a rank-2k update."""
    trans, alpha = problem.trans_a, problem.alpha
    other: Trans = problem.adjoint if trans == "N" else "N"
    is_double = problem.row.products == 2
    conjugated = complex(alpha).conjugate() if problem.row.hermitian else alpha
    for k in spans(problem.k, tile):
        a, a_of_column = stored("a", row, k, trans), stored("a", column, k, trans)
        b, b_of_column = stored("b", row, k, trans), stored("b", column, k, trans)
        if row == column:
            kernel = Kernel(problem.routine, alpha, 0.0, uplo=problem.uplo, trans_a=trans)
            yield kernel, (a, b) if is_double else (a,)
        elif is_double:
            yield Kernel("gemm", alpha, 0.0, trans_a=trans, trans_b=other), (a, b_of_column)
            yield Kernel("gemm", conjugated, 0.0, trans_a=trans, trans_b=other), (b, a_of_column)
        else:
            yield Kernel("gemm", alpha, 0.0, trans_a=trans, trans_b=other), (a, a_of_column)
