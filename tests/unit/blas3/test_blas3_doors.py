"""The doors of level-3 BLAS: SciPy's signatures, answers and arguments."""

import doctest
import inspect
import pickle
import random
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.linalg.blas

import gpu.blas3
import simwarp
from gpu.blas3 import routines
from gpu.blas3.table import NAMES, PREFIXES
from reference.errors import (
    DtypeError,
    FormatError,
    LaunchError,
    MissingExtraError,
    NoGpuError,
    NotANumberError,
    SchemeError,
    ShapeError,
)
from simwarp.machine import H200x2
from support.offenders import every_case
from support.shuffled_machine import ShuffledMachine

IN_SCIPY = [name for name in NAMES if hasattr(scipy.linalg.blas, name)]
RNG = np.random.default_rng(20)


def matrix(rows: int, columns: int, dtype: Any = np.float64, order: Any = "C") -> Any:
    x = RNG.standard_normal((rows, columns)) + 1j * RNG.standard_normal((rows, columns))
    return np.asarray(x if np.dtype(dtype).kind == "c" else x.real, dtype, order=order)


def scipy_call(routine: str, *args: Any, **keywords: Any) -> Any:
    return getattr(scipy.linalg.blas, routine)(*args, **keywords)


def test_scipy_has_all_but_gemmt() -> None:
    assert {name[1:] for name in NAMES if name not in IN_SCIPY} == {"gemmt"}


@every_case("routine", IN_SCIPY)
def test_signatures_are_those_of_scipy(routine: str) -> None:
    first = getattr(scipy.linalg.blas, routine).__doc__.split("\n")[0]
    names = first.partition("(")[2].rstrip(")").replace("[", "").replace("]", "").split(",")
    ours = inspect.signature(getattr(gpu.blas3, routine)).parameters.values()
    assert [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD] == names


@pytest.mark.parametrize("routine", IN_SCIPY)
@pytest.mark.parametrize("device", [None, ShuffledMachine(2)])
def test_answers_are_those_of_scipy(routine: str, device: Any) -> None:
    draw = random.Random(routine)
    dtype = PREFIXES[routine[0]]
    parameters = inspect.signature(getattr(gpu.blas3, routine)).parameters
    for _ in range(3):
        arrays = {name: matrix(7, 7, dtype, draw.choice("CF")) for name in "abc" if name in parameters}
        if routine.endswith("trsm"):
            arrays["a"] += 7 * np.eye(7, dtype=dtype)
        flags = {name: draw.randint(0, 1) for name in ("side", "lower", "diag") if name in parameters}
        for name in ("trans", "trans_a", "trans_b"):
            if name in parameters:
                flags[name] = draw.choice([0, 2] if "her" in routine else [0, 1])
        beta = {"beta": 0.5} if "beta" in parameters else {}
        keywords = {} if device is None else {"device": device, "tile": 3}
        before = {name: x.copy() for name, x in arrays.items()}
        got = getattr(gpu.blas3, routine)(1.5, **arrays, **flags, **beta, **keywords)
        expected = scipy_call(routine, 1.5, **arrays, **flags, **beta)
        np.testing.assert_allclose(got, expected, rtol=2e-3 if dtype in ("float32", "complex64") else 1e-10)
        for name, x in arrays.items():
            np.testing.assert_array_equal(x, before[name])


@pytest.mark.pairwise
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("device", [None, ShuffledMachine(2), simwarp.Machine(H200x2)])
@pytest.mark.parametrize(
    ("n", "k", "alpha", "beta"),
    [(17, 9, 1.5, 0.5), (17, 9, 1.5, 0.0), (13, 0, 1.0, 2.0), (8, 3, 0.0, 0.0), (1, 2, 1.0, 1.0)],
)
def test_gemmt_is_one_triangle_of_the_dense_product(
    prefix: str, device: Any, n: int, k: int, alpha: float, beta: float
) -> None:
    """The other triangle keeps its bits: a negative zero, a subnormal, a NaN with its payload."""
    draw, dtype = random.Random(f"{prefix} {n} {beta}"), PREFIXES[prefix]
    lower, trans_a, trans_b = draw.randint(0, 1), draw.randint(0, 2), draw.randint(0, 2)
    a = matrix(*((k, n) if trans_a else (n, k)), dtype, draw.choice("CF"))
    b = matrix(*((n, k) if trans_b else (k, n)), dtype, draw.choice("CF"))
    c = matrix(n, n, dtype, draw.choice("CF"))
    kept = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    op = [np.asarray, np.transpose, lambda x: x.conj().T]
    expected = alpha * op[trans_a](a) @ op[trans_b](b) + beta * c
    special = np.frombuffer(np.uint64([1 << 63, 1, 0x7FFC_BEEF_7FFC_BEEF, 0xFFF8_0000_FFC0_0001]), dtype)
    c[~kept] = np.resize(special, np.count_nonzero(~kept))
    c[kept] = np.nan if beta == 0 else c[kept]
    before = c.copy()
    flags = {"trans_a": trans_a, "trans_b": trans_b, "lower": lower, "overwrite_c": 1}
    keywords = {} if device is None else {"device": device, "tile": 5}
    got = getattr(gpu.blas3, prefix + "gemmt")(alpha, a, b, beta, c, **flags, **keywords)
    assert got is c
    tolerance = 1e-4 if prefix in "sc" else 1e-12
    np.testing.assert_allclose(got[kept], expected[kept], rtol=tolerance, atol=tolerance)
    assert got[~kept].tobytes() == before[~kept].tobytes()


def test_gemmt_without_c_has_zeros_in_the_other_triangle() -> None:
    a, b = matrix(7, 4), matrix(4, 7)
    got = gpu.blas3.dgemmt(1.0, a, b, lower=1, device=ShuffledMachine(2), tile=2)
    np.testing.assert_allclose(got, np.tril(a @ b))


def test_gemmt_of_a_product_that_is_not_square_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"dgemmt, argument 9 \(b\): shape \(4, 6\)\n\(4, 7\) is needed"):
        gpu.blas3.dgemmt(1.0, matrix(7, 4), matrix(4, 6))


def test_an_overwritten_result_is_the_given_array() -> None:
    a, c = matrix(5, 5), matrix(5, 5)
    expected = a @ a + c
    got = gpu.blas3.dgemm(1.0, a, a, 1.0, c, overwrite_c=1, device=ShuffledMachine(), tile=2)
    assert got is c
    np.testing.assert_allclose(c, expected)


def test_a_result_of_row_major_operands_is_row_major() -> None:
    a = matrix(5, 4)
    assert gpu.blas3.dgemm(1.0, a, a, trans_b=1).flags.c_contiguous
    assert gpu.blas3.dgemm(1.0, a.T, a.T, trans_a=1).flags.f_contiguous


def test_a_large_problem_without_a_machine_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise NoGpuError("CUDA cannot start\ncheck nvidia-smi")

    monkeypatch.setattr(gpu.blas3.execute, "default_machine", none)
    a = np.broadcast_to(np.float64(0), (1, 1)).copy()
    with pytest.raises(NoGpuError, match="dgemm of 1 x 1, sums of 1001"):
        gpu.blas3.dgemm(1.0, np.zeros((1, 1001)), np.zeros((1001, 1)))
    assert gpu.blas3.dgemm(1.0, a, a)[0, 0] == 0


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"trans_a": 3}, SchemeError, r"argument 1 \(trans_a\): trans_a=3"),
        ({"beta": 1.0, "c": np.zeros((2, 2))}, ShapeError, r"argument 12 \(c\)"),
        ({"beta": 1.0, "c": np.zeros((5, 5), np.float32)}, DtypeError, "call sgemm"),
        ({"device": ShuffledMachine(), "tile": 0}, ShapeError, "tile is 0"),
        ({"device": ShuffledMachine(), "memory_budget": 100}, LaunchError, "budget of 100 bytes"),
    ],
)
def test_wrong_arguments_are_refused(keywords: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        gpu.blas3.dgemm(1.0, matrix(5, 5), matrix(5, 5), **keywords)


def test_an_overwritten_result_that_shares_memory_is_refused() -> None:
    a = matrix(5, 5)
    with pytest.raises(FormatError, match="shares memory with a"):
        gpu.blas3.dgemm(1.0, a, matrix(5, 5), 1.0, a, overwrite_c=1)
    np.testing.assert_allclose(gpu.blas3.dgemm(1.0, a, a, 1.0, a), a @ a + a)


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.linalg.blas", None)
    routines.blas.cache_clear()
    with pytest.raises(MissingExtraError, match=r"simwarp\[blas\]"):
        gpu.blas3.dgemm(1.0, matrix(2, 2), matrix(2, 2))
    monkeypatch.undo()
    routines.blas.cache_clear()


def test_doors_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(gpu.blas3.dgemm)) is gpu.blas3.dgemm


def test_the_machine_may_be_simulated_with_a_clock() -> None:
    a, b, statistics = matrix(20, 30), matrix(30, 10), gpu.blas3.Statistics()
    got = gpu.blas3.matmul(a, b, device=simwarp.Machine(), tile=8, statistics=statistics)
    np.testing.assert_allclose(got, a @ b)
    assert statistics.seconds > 0
    assert statistics.total("tasks") == 6


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_composes_the_routines(dtype: str, lower: bool) -> None:
    x = matrix(23, 23, dtype)
    a = x @ x.conj().T + 23 * np.eye(23, dtype=dtype)
    a[np.triu_indices(23, 1) if lower else np.tril_indices(23, -1)] = np.nan
    got = gpu.blas3.cholesky(a, lower, block=7, device=ShuffledMachine(2), tile=3)
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(
        got, scipy.linalg.cholesky(a, lower, check_finite=False), rtol=tolerance, atol=tolerance
    )


def test_cholesky_refuses_a_matrix_that_is_not_positive_definite() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        gpu.blas3.cholesky(-np.eye(4), block=2)
    with pytest.raises(ShapeError, match=r"a has shape \(2, 3\)"):
        gpu.blas3.cholesky(np.ones((2, 3)))


@pytest.mark.parametrize("trans", [0, "T", 2])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("columns", [None, 5])
def test_solve_triangular_is_that_of_scipy(trans: Any, lower: bool, columns: int | None) -> None:
    a = matrix(11, 11) + 11 * np.eye(11)
    b = matrix(11, columns or 1)
    b = b if columns else b[:, 0].copy()
    got = gpu.blas3.solve_triangular(a, b, trans, lower, device=ShuffledMachine(), tile=4)
    np.testing.assert_allclose(got, scipy.linalg.solve_triangular(a, b, trans, lower), rtol=1e-9)
    assert got.shape == b.shape


def test_a_zero_on_the_diagonal_is_refused() -> None:
    with pytest.raises(NotANumberError, match=r"a\[1, 1\] is 0"):
        gpu.blas3.solve_triangular(np.diag([1.0, 0.0]), np.ones(2))


@pytest.mark.parametrize(
    ("routine", "without", "least"), [("dgemm", 73.0, 8.6), ("dsyrk", 37.0, None), ("dsymm", 73.0, None)]
)
def test_traffic_without_reuse_is_that_of_the_papers_table(
    routine: str, without: float, least: float | None
) -> None:
    plan = gpu.blas3.explain(routine, 16384, beta=1.0, tile=1024)
    if routine != "dsyrk":  # whose diagonal tiles read one operand
        assert round(plan.bytes_without_reuse / 1e9, 1) == without
    else:
        assert abs(plan.bytes_without_reuse / 1e9 / without - 1) < 0.04
    assert least is None or round(plan.bytes_least / 1e9, 1) == least


def test_explain_refuses_wrong_sizes() -> None:
    with pytest.raises(ShapeError, match="16 x 8"):
        gpu.blas3.explain("dsyrk", 16, 8)
    with pytest.raises(SchemeError, match="xgemm"):
        gpu.blas3.explain("xgemm", 16)
    with pytest.raises(LaunchError):
        gpu.blas3.explain("dgemm", 1024, tile=256, memory_budget=1000)


@pytest.mark.parametrize("routine", NAMES)
def test_examples_of_the_routines_run(routine):
    example = doctest.DocTestFinder().find(getattr(gpu.blas3, routine), routine)[0]
    assert doctest.DocTestRunner().run(example) == (0, 4)
