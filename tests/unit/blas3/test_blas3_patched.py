"""Calls of NumPy and SciPy inside `patched`: what is routed, what is passed on, and what is put back."""

import contextvars
import random
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.linalg.blas as blas

import gpu
import simwarp
from gpu.blas3 import patched
from gpu.blas3.table import NAMES as OURS
from gpu.blas3.table import PREFIXES, ROWS
from reference.errors import NoGpuError, ShapeError
from support.shuffled_machine import InjectedError, ShuffledMachine

NAMES = [name for name in OURS if hasattr(blas, name)]
RNG = np.random.default_rng(20)
ORIGINALS = {
    (module, name): getattr(module, name)
    for module, names in (
        (np, ("matmul", "dot")),
        (blas, (*NAMES, "get_blas_funcs")),
        (scipy.linalg, ("get_blas_funcs",)),
    )
    for name in names
}


@pytest.fixture(autouse=True)
def _originals_are_put_back() -> Any:
    yield
    assert all(getattr(module, name) is original for (module, name), original in ORIGINALS.items())


def matrix(rows: int, columns: int, dtype: Any = np.float64, order: Any = "C") -> Any:
    x = RNG.standard_normal((rows, columns)) + 1j * RNG.standard_normal((rows, columns))
    return np.asarray(x if np.dtype(dtype).kind == "c" else x.real, dtype, order=order)


def routing_of(**keywords: Any) -> Any:
    return patched(ShuffledMachine(2), **{"above": 1, "tile": 3} | keywords)


def assert_same(found: Any, expected: Any) -> None:
    assert (type(found), found.dtype, found.shape) == (type(expected), expected.dtype, expected.shape)
    assert found.strides == expected.strides
    tolerance = 2e-3 if found.dtype in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def draw_call(draw: random.Random, routine: str) -> tuple[list[Any], dict[str, Any]]:
    dtype, names = PREFIXES[routine[0]], ROWS[routine[1:]].arguments
    keywords: dict[str, Any] = {
        name: matrix(7, 7, dtype, draw.choice("CF")) for name in "abc" if name in names
    }
    if routine.endswith("trsm"):
        keywords["a"] += 7 * np.eye(7, dtype=dtype)
    if "c" in keywords and draw.random() < 0.5:
        del keywords["c"]
    for name in ("side", "lower", "diag", "overwrite_c", "overwrite_b", "beta"):
        if name in names and draw.random() < 0.8:
            keywords[name] = draw.randint(0, 1)
    for name in ("trans", "trans_a", "trans_b"):
        if name in names:
            keywords[name] = draw.choice([0, 2] if "her" in routine else [0, 1])
    return [1.5, keywords.pop("a")], keywords


@pytest.mark.parametrize("routine", NAMES)
def test_routed_routines_answer_and_overwrite_as_scipy_does(routine: str) -> None:
    draw = random.Random(routine)
    for _ in range(6):
        args, keywords = draw_call(draw, routine)
        theirs = {name: x.copy("K") if isinstance(x, np.ndarray) else x for name, x in keywords.items()}
        expected = getattr(blas, routine)(*args, **theirs)
        with routing_of() as routing:
            found = getattr(blas, routine)(*args, **keywords)
        assert routing.routed == {f"scipy.linalg.blas.{routine}": 1}
        assert not routing.passed
        assert_same(found, expected)
        for name in {"b", "c"} & set(keywords):
            assert (found is keywords[name]) == (expected is theirs[name])
            np.testing.assert_allclose(keywords[name], theirs[name], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["matmul", "dot"])
@pytest.mark.parametrize("dtype", [*PREFIXES.values()])
def test_routed_products_are_those_of_numpy(name: str, dtype: str) -> None:
    for orders in ("CC", "CF", "FC", "FF"):
        a, b = matrix(7, 5, dtype, orders[0]), matrix(5, 4, dtype, orders[1])
        expected = getattr(np, name)(a, b)
        with routing_of() as routing:
            assert_same(getattr(np, name)(a, b), expected)
        assert routing.routed == {f"numpy.{name}": 1}


SQUARE = matrix(4, 4)


@pytest.mark.parametrize(
    ("arguments", "keywords", "reason"),
    [
        ((SQUARE, SQUARE), {"out": np.empty((4, 4))}, "arguments"),
        ((SQUARE, matrix(1, 4)[0]), {}, "operands"),
        ((np.ones((2, 4, 4)), np.ones((2, 4, 4))), {}, "operands"),
        ((SQUARE, SQUARE.astype(np.float32)), {}, "operands"),
        ((SQUARE.astype(int), SQUARE.astype(int)), {}, "operands"),
        ((SQUARE.astype(">f8"), SQUARE.astype(">f8")), {}, "operands"),
        ((SQUARE.tolist(), SQUARE), {}, "operands"),
        ((np.ma.masked_array(SQUARE), SQUARE), {}, "operands"),
        ((SQUARE[::2, ::2], SQUARE[::2, ::2]), {}, "layout"),
        ((SQUARE[::-1], SQUARE), {}, "layout"),
        ((np.ones((0, 4)), SQUARE), {}, "size"),
        ((np.ones((1, 1)), np.ones((1, 1))), {}, "size"),
    ],
)
def test_unsupported_products_go_to_the_original(arguments: Any, keywords: Any, reason: str) -> None:
    expected = np.matmul(*arguments, **keywords)
    with routing_of() as routing:
        found = np.matmul(*arguments, **keywords)
    np.testing.assert_array_equal(found, expected)
    assert type(found) is type(expected)
    assert (dict(routing.routed), dict(routing.passed)) == ({}, {("numpy.matmul", reason): 1})


@pytest.mark.parametrize(
    ("arguments", "keywords", "reason"),
    [
        ((1.0, SQUARE.astype(np.float32), SQUARE), {}, "operands"),
        ((1.0, SQUARE.tolist(), SQUARE), {}, "operands"),
        ((1.0, SQUARE, SQUARE[0]), {}, "operands"),
        ((1.0, SQUARE[::2, ::2], SQUARE[:2]), {}, "layout"),
        ((np.ones(1), SQUARE, SQUARE), {}, "arguments"),
        ((1.0, SQUARE, SQUARE), {"trans_a": 1.0}, "arguments"),
        ((1.0, SQUARE[:1, :1], SQUARE[:1, :1]), {}, "size"),
    ],
)
def test_unsupported_calls_of_scipy_go_to_the_original(arguments: Any, keywords: Any, reason: str) -> None:
    expected = blas.dgemm(*arguments, **keywords)
    with routing_of() as routing:
        np.testing.assert_array_equal(blas.dgemm(*arguments, **keywords), expected)
    assert dict(routing.passed) == {("scipy.linalg.blas.dgemm", reason): 1}


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((1.0, SQUARE, None), {}),
        ((1.0, SQUARE, matrix(3, 4)), {}),
        ((1.0, SQUARE, SQUARE), {"trans_a": 3}),
        ((1.0, SQUARE, SQUARE), {"device": None}),
        ((1.0,), {}),
    ],
)
def test_wrong_arguments_raise_the_errors_of_the_original(arguments: Any, keywords: Any) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever SciPy raises
        blas.dgemm(*arguments, **keywords)
    with routing_of(), pytest.raises(expected.type) as found:
        blas.dgemm(*arguments, **keywords)
    assert str(found.value) == str(expected.value)


def test_a_result_that_shares_memory_is_left_to_scipy() -> None:
    c = matrix(4, 4, order="F")
    with routing_of() as routing:
        blas.dgemm(1.0, c, SQUARE, 1.0, c, overwrite_c=1)
    assert dict(routing.passed) == {("scipy.linalg.blas.dgemm", "layout"): 1}


def test_small_products_are_those_up_to_the_cube_of_a_number() -> None:
    with routing_of(above=4) as routing:
        np.matmul(SQUARE, SQUARE)
        np.matmul(matrix(4, 4), matrix(4, 5))
    assert (routing.routed.total(), routing.passed.total()) == (1, 1)


def test_functions_by_dtype_are_routed() -> None:
    a = matrix(5, 5, np.complex64)
    for module in (blas, scipy.linalg):
        plain = module.get_blas_funcs("gemm", (a,))
        with routing_of() as routing:
            gemm, axpy = module.get_blas_funcs(("gemm", "axpy"), (a,))
            assert (gemm.typecode, gemm.dtype) == (plain.typecode, plain.dtype)
            assert "patched" in repr(gemm)
            assert "patched" not in repr(axpy)
            assert_same(gemm(1.0, a, a), plain(1.0, a, a))
            blas.get_blas_funcs("symm", dtype=np.float64)(1.0, SQUARE, SQUARE)
        assert dict(routing.routed) == {"scipy.linalg.blas.cgemm": 1, "scipy.linalg.blas.dsymm": 1}
        gemm(1.0, a, a)  # outlives the block, and calls the original
        assert routing.routed.total() == 2


def test_the_innermost_block_decides() -> None:
    with routing_of() as outer:
        with routing_of(above=100) as inner:
            np.matmul(SQUARE, SQUARE)
        assert (inner.passed.total(), outer.passed.total(), outer.routed.total()) == (1, 0, 0)
        np.matmul(SQUARE, SQUARE)
        assert outer.routed.total() == 1


def test_blocks_may_end_in_any_order() -> None:
    first, second = routing_of(), routing_of()
    one, two = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    np.matmul(SQUARE, SQUARE)
    second.__exit__(None, None, None)
    np.matmul(SQUARE, SQUARE)
    assert (one.routed.total(), two.routed.total()) == (0, 1)


def test_an_error_inside_the_block_puts_the_originals_back() -> None:
    with pytest.raises(ZeroDivisionError), routing_of():
        raise ZeroDivisionError
    for above, tile in ((-1, None), (1, 0)):
        with pytest.raises(ShapeError, match=f"above is {above}"), patched(above=above, tile=tile):
            pass


def test_an_error_of_the_machine_is_raised_and_later_calls_are_routed_again() -> None:
    machine = ShuffledMachine(fail_at=3)
    with patched(machine, above=1, tile=2) as routing:
        with pytest.raises(InjectedError):
            np.matmul(SQUARE, SQUARE)
        machine.fail_at = -1
        np.matmul(SQUARE, SQUARE)
    assert (routing.routed.total(), routing.passed.total()) == (2, 0)


def test_a_large_problem_without_a_machine_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with patched(), pytest.raises(NoGpuError, match="dgemm of 1001 x 1001"):
        np.matmul(np.zeros((1001, 1001)), np.zeros((1001, 1001)))


def test_tile_routines_are_not_routed() -> None:
    with patched(simwarp.Machine(), above=0, tile=2) as routing:
        blas.dgemm(1.0, SQUARE, SQUARE)
    assert (routing.routed.total(), routing.passed.total()) == (1, 0)


def test_other_threads_reach_the_originals_and_copied_contexts_are_routed() -> None:
    with routing_of() as routing:
        context = contextvars.copy_context()
        for target in (np.matmul, context.run):
            thread = threading.Thread(
                target=target, args=(SQUARE, SQUARE) if target is np.matmul else (np.matmul, SQUARE, SQUARE)
            )
            thread.start()
            thread.join()
    assert (routing.routed.total(), routing.passed.total()) == (1, 0)
    context.run(np.matmul, SQUARE, SQUARE)
    assert routing.routed.total() == 1


def test_blocks_of_many_threads_count_their_own_calls() -> None:
    totals: list[int] = []
    barrier = threading.Barrier(4)

    def work(count: int) -> None:
        barrier.wait()
        for _ in range(10):
            with routing_of() as routing:
                for _ in range(count):
                    np.matmul(SQUARE, SQUARE)
            totals.append(routing.routed.total() - count)

    threads = [threading.Thread(target=work, args=(count,)) for count in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [0] * 40


def test_what_others_replaced_in_the_block_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with routing_of():
        monkeypatch.setattr(np, "dot", mine := object())
    assert np.dot is mine
    monkeypatch.setattr(np, "dot", ORIGINALS[np, "dot"])
    monkeypatch.undo()
    np.dot = ORIGINALS[np, "dot"]


def test_the_operator_is_not_routed() -> None:
    with routing_of() as routing:
        SQUARE @ SQUARE
        SQUARE.dot(SQUARE)
        assert np.matmul.nin == 2
    assert not routing.routed
    assert not routing.passed


def test_without_scipy_the_functions_of_numpy_are_routed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.linalg.blas", None)
    gpu.blas3.routines.blas.cache_clear()
    with routing_of():
        assert "patched" in repr(np.matmul)
        assert blas.dgemm is ORIGINALS[blas, "dgemm"]
    monkeypatch.undo()
    gpu.blas3.routines.blas.cache_clear()


def test_the_package_has_level_3_blas() -> None:
    program = (
        "import sys, gpu; assert gpu.blas3.dgemm and not any(n.startswith('scipy') for n in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0
