"""Tile forms of products: GEMM, SYMM and HEMM, rank-k updates (BLASX, equations 1a, 1b, 1e and 1f)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gpu.blas3.blocks import Block, Span, spans, stored
from gpu.blas3.problem import Problem, Trans
from gpu.blas3.tasks import Kernel, Output, Step, Steps

FIRST = 4
"""So many rows and columns of tiles add ``beta C`` late: at the start products wait for copies."""
ENOUGH = 4
"""With fewer steps a late sum, which is a pass over memory, costs more than it hides."""


def outputs_of(problem: Problem, tile: int, *, adds_late: bool = False) -> Iterator[Output]:
    """The tiles of a product that are written, block row after block row."""
    is_triangle, along = problem.row.is_triangle, spans(problem.k, tile)
    adds_late = adds_late and not is_triangle and problem.beta != 0 and len(along) >= ENOUGH
    for row in spans(problem.m, tile):
        for column in spans(problem.n, tile):
            if is_triangle and (row > column if problem.uplo == "U" else row < column):
                continue
            if problem.is_scaling:
                steps = _scaling(problem, row, column)
            else:
                is_late = adds_late and max(row[0], column[0]) < FIRST * tile
                steps = Steps(partial(_with_beta, problem, row, column, along, is_late))
            if steps:
                yield Output(Block("c", row, column), steps)


def _scaling(problem: Problem, row: Span, column: Span) -> tuple[Step, ...]:
    """``beta C`` without reads of A and B; none if it changes nothing."""
    is_diagonal = problem.row.is_triangle and row == column
    if problem.beta == 1 and not (is_diagonal and problem.row.hermitian):
        return ()
    name = problem.routine if is_diagonal else "gemm"
    return (Step(Kernel(name, 0.0, problem.beta, uplo=problem.uplo)),)


def _with_beta(problem: Problem, row: Span, column: Span, along: list[Span], is_late: bool) -> Iterator[Step]:
    """The steps that add to one tile: beta is of the first, or a last step adds ``beta C``."""
    make = {"general": _general, "symmetric": _symmetric, "rank_k": _rank_k}[problem.row.form]
    steps = make(problem, row, column, along)
    first = next(steps)
    yield replace(first, kernel=replace(first.kernel, beta=0.0 if is_late else problem.beta))
    yield from steps
    if is_late:
        yield Step(Kernel("geam", problem.beta, 1.0), (Block("c", row, column),))


def _general(problem: Problem, row: Span, column: Span, along: list[Span]) -> Iterator[Step]:
    """``alpha Σ op(A)[i,k] op(B)[k,j]``, of GEMMT's diagonal tiles in one triangle."""
    a, b = problem.trans_a, problem.trans_b
    name = "gemmt" if problem.row.is_triangle and row == column else "gemm"
    kernel = Kernel(name, problem.alpha, 1.0, uplo=problem.uplo, trans_a=a, trans_b=b)
    for k in along:
        yield Step(kernel, (stored("a", row, k, a), stored("b", k, column, b)))


def _symmetric(problem: Problem, row: Span, column: Span, along: list[Span]) -> Iterator[Step]:
    """``alpha Σ S[i,k] B[k,j]`` or ``alpha Σ B[i,k] S[k,j]``: tiles as stored, mirrored and diagonal."""
    alpha, is_left = problem.alpha, problem.side == "L"
    diagonal = Kernel(problem.routine, alpha, 1.0, side=problem.side, uplo=problem.uplo)
    as_stored = Kernel("gemm", alpha, 1.0)
    mirrored = replace(as_stored, **{"trans_a" if is_left else "trans_b": problem.adjoint})
    for k in along:
        i, j = (row, k) if is_left else (k, column)
        b = Block("b", k, column) if is_left else Block("b", row, k)
        if i == j:
            yield Step(diagonal, (Block("a", k, k), b))
            continue
        is_stored = i < j if problem.uplo == "U" else i > j
        a = stored("a", i, j, "N" if is_stored else "T")
        yield Step(as_stored if is_stored else mirrored, (a, b) if is_left else (b, a))


def _rank_k(problem: Problem, row: Span, column: Span, along: list[Span]) -> Iterator[Step]:
    """``alpha Σ A[i,k] A[j,k]ᵀ``, or with B the two products of a rank-2k update."""
    trans, alpha = problem.trans_a, problem.alpha
    other: Trans = problem.adjoint if trans == "N" else "N"
    is_double = problem.row.products == 2
    conjugated = complex(alpha).conjugate() if problem.row.hermitian else alpha
    diagonal = Kernel(problem.routine, alpha, 1.0, uplo=problem.uplo, trans_a=trans)
    product = Kernel("gemm", alpha, 1.0, trans_a=trans, trans_b=other)
    mirrored = Kernel("gemm", conjugated, 1.0, trans_a=trans, trans_b=other)
    for k in along:
        a, a_of_column = stored("a", row, k, trans), stored("a", column, k, trans)
        b, b_of_column = stored("b", row, k, trans), stored("b", column, k, trans)
        if row == column:
            yield Step(diagonal, (a, b) if is_double else (a,))
        elif is_double:
            yield Step(product, (a, b_of_column))
            yield Step(mirrored, (b, a_of_column))
        else:
            yield Step(product, (a, a_of_column))
