"""The tasks of every routine, interpreted one after the other with NumPy arrays, against the definition."""

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import reference.blas3
from gpu.blas3.arguments import call_of
from gpu.blas3.layouts import Call, is_column_major
from gpu.blas3.routines import compute
from gpu.blas3.table import PREFIXES, ROWS
from gpu.blas3.taskizer import taskize
from support.blas3_calls import Drawn, draw_call, judged

Array = npt.NDArray[Any]


def interpret(call: Call, tile: int, width: int | None = None) -> None:
    """Run all tasks in order; every block is read from the host at its step."""
    matrices = call.matrices
    for task in taskize(call.problem, tile, width):
        for output in task.outputs:
            host = output.block.of(matrices[output.block.matrix])
            old = host if output.is_loaded else np.full_like(host, np.nan)
            held = np.array(old, order="F")
            for step in output.steps:
                reads = [np.array(block.of(matrices[block.matrix]), order="F") for block in step.reads]
                compute(step.kernel, reads, held)
            host[...] = held


def check(drawn: Drawn, tile: int, width: int | None = None) -> None:
    call = drawn.call()
    before = {name: x.copy() for name, x in drawn.matrices.items()}
    interpret(call, tile, width)
    result = drawn.matrices[drawn.result]
    assert judged(drawn, before, result) <= 1, drawn
    for name, x in drawn.matrices.items():
        if name != drawn.result:
            np.testing.assert_array_equal(x, before[name])


@pytest.mark.parametrize("routine", ROWS)
def test_tasks_in_order_equal_the_definition(routine: str) -> None:
    draw = random.Random(f"tiles of {routine}")
    for _ in range(60):
        check(draw_call(draw, routine), draw.randint(1, 7), draw.choice([None, 1, 3]))


@pytest.mark.at_most(2)
@pytest.mark.slow
@pytest.mark.gate_cases("1000-*")
@pytest.mark.parametrize("routine", ROWS)
@pytest.mark.parametrize("count", [300, 1000])
def test_many_tasks_in_order_equal_the_definition(routine: str, count: int) -> None:
    draw = random.Random(f"many tiles of {routine}")
    for _ in range(count):
        check(draw_call(draw, routine), draw.randint(1, 7), draw.choice([None, 1, 3]))


@pytest.mark.parametrize("tile", [3, 4, 5, 12])
def test_an_update_has_the_tasks_of_one_triangle(tile: int) -> None:
    call = call_of("dsyrk", 1.0, 1.0, {"a": np.ones((12, 5)), "c": np.ones((12, 12))}, {})
    across = -(-12 // tile)
    assert len(taskize(call.problem, tile)) == across * (across + 1) // 2


@pytest.mark.parametrize("routine", ["trmm", "trsm"])
def test_a_triangular_task_is_a_panel_of_right_hand_sides(routine: str) -> None:
    a, b = np.eye(9, order="F"), np.ones((9, 10), order="F")
    call = call_of("d" + routine, 1.0, 0.0, {"a": a, "b": b}, {})
    assert [len(task.outputs) for task in taskize(call.problem, 4, 3)] == [3, 3, 3, 3]


@pytest.mark.parametrize("routine", [name for name, row in ROWS.items() if row.result == "c"])
def test_a_product_with_alpha_0_reads_no_operand(routine: str) -> None:
    prefix = "z" if ROWS[routine].hermitian else "d"
    ones = np.ones((5, 5), PREFIXES[prefix], order="F")
    operands = {"a": ones, "c": ones.copy(order="F")} | ({} if routine[-2:] == "rk" else {"b": ones})
    for beta in (0.0, 2.0):
        tasks = taskize(call_of(prefix + routine, 0.0, beta, operands, {}).problem, 2)
        assert tasks
        assert not [*tasks[0].reads()]


def test_alpha_0_and_beta_1_leave_no_task() -> None:
    ones = np.ones((5, 5), order="F")
    call = call_of("dgemm", 0.0, 1.0, {"a": ones, "b": ones, "c": ones.copy(order="F")}, {})
    assert taskize(call.problem, 2) == []


@pytest.mark.parametrize("order", ["C", "F"])
def test_real_matrices_of_one_order_are_not_copied(order: Any) -> None:
    given = {name: np.ones((4, 4), order=order) for name in "abc"}
    for routine in ("dgemm", "dsymm", "dsyr2k"):
        call = call_of(routine, 1.0, 0.0, given, {})
        assert all(is_column_major(x) for x in call.matrices.values())
        assert all(any(np.shares_memory(x, y) for y in given.values()) for x in call.matrices.values())


def test_a_wrong_tile_form_is_found() -> None:
    """The drawn calls can fail: solutions in the wrong order are outside the bound."""
    drawn = next(
        found
        for k in range(100)
        if (found := draw_call(random.Random(k), "trsm")).call().problem.k > 4 and found.alpha != 0
    )
    before = {name: x.copy() for name, x in drawn.matrices.items()}
    call = drawn.call()
    for task in taskize(call.problem, 2):
        for output in task.outputs[::-1]:
            host = output.block.of(call.matrices["b"])
            held = np.array(host, order="F")
            for step in output.steps:
                compute(
                    step.kernel,
                    [np.array(r.of(call.matrices[r.matrix]), order="F") for r in step.reads],
                    held,
                )
            host[...] = held
    assert judged(drawn, before, drawn.matrices["b"]) > 1


def test_the_reference_is_another_implementation() -> None:
    assert set(ROWS) == set(reference.blas3.ROUTINES)


@pytest.mark.parametrize("routine", ["herk", "her2k"])
@pytest.mark.parametrize(("alpha", "k"), [(0.0, 3), (1.0, 0), (1.0, 3)])
@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_a_real_beta_multiplies_real_and_imaginary_parts_apart(
    routine: str, alpha: float, k: int, beta: float
) -> None:
    """Imaginary parts of C's diagonal count as 0, and one part that is infinite leaves the other alone."""
    draw = np.random.default_rng(k)
    a, b, *parts = draw.integers(-3, 4, (4, 5, 5)).astype(np.complex128)
    c = parts[0] + 1j * parts[1]
    c.imag[range(5), range(5)] = np.nan
    c.imag[0, 3] = c.imag[4, 1] = np.inf
    given = {"a": a[:, :k], "b": b[:, :k]} if routine == "her2k" else {"a": a[:, :k]}
    product = a[:, :k] @ (b if routine == "her2k" else a)[:, :k].T
    product = alpha * (product + product.T if routine == "her2k" else product)
    stored = np.tri(5, dtype=np.bool_)
    for tile in (9, 2):
        result = c.copy()
        interpret(call_of(f"z{routine}", alpha, beta, {**given, "c": result}, {"uplo": "L"}), tile)
        np.testing.assert_array_equal(result.real[stored], (product.real + beta * c.real)[stored])
        np.testing.assert_array_equal(result.imag, np.where(np.eye(5), 0, np.where(stored, beta, 1) * c.imag))
    expected = getattr(reference.blas3, routine)(alpha, *given.values(), beta, c, uplo="L")
    np.testing.assert_array_equal(result, expected)
