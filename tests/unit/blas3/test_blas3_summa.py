"""`summa` over processes that are threads, and over two processes of MPI."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu.blas3
from gpu.blas3 import OneProcess, ProcessGrid, summa
from gpu.blas3.problem import PREFIXES
from reference.blas3 import error_of
from reference.errors import (
    DtypeError,
    FormatError,
    LaunchError,
    MissingExtraError,
    SchemeError,
    ShapeError,
)
from support.shuffled_machine import InjectedError, ShuffledMachine
from support.thread_world import run_processes

ROOT = Path(__file__).resolve().parents[3]


def matrices(m: int, n: int, k: int, dtype: Any = np.float64) -> list[Any]:
    rng = np.random.default_rng(m + 100 * n + 10000 * k)
    found = [rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in ((m, k), (k, n), (m, n))]
    return [np.asfortranarray(x if np.dtype(dtype).kind == "c" else x.real, dtype) for x in found]


def computed(grid: ProcessGrid, wholes: list[Any], alpha: Any = 1.5, beta: Any = 0.5, **keywords: Any) -> Any:
    """The whole C, from blocks that the processes computed."""
    c = wholes[2]
    result = np.full_like(c, np.nan)

    def program(comm: Any) -> None:
        blocks = [np.array(x[grid.owned(comm.rank, *x.shape)], order="CF"[comm.rank % 2]) for x in wholes]
        machine = ShuffledMachine(1 + comm.rank % 2, seed=comm.rank)
        own = summa(alpha, *blocks[:2], beta, blocks[2], comm=comm, grid=grid, device=machine, **keywords)
        assert own is blocks[2]
        result[grid.owned(comm.rank, *c.shape)] = own

    for found in run_processes(grid.size, program):
        if found is not None:
            raise found
    return result


@pytest.mark.at_most(5)
@pytest.mark.parametrize("dtype", [*PREFIXES.values()])
@pytest.mark.parametrize("grid", [(1, 1), (1, 3), (3, 1), (2, 2), (2, 3), (5, 1)])
def test_every_grid_computes_the_product(grid: tuple[int, int], dtype: str) -> None:
    for sizes, panel in (
        ((7, 5, 11), 4),
        ((13, 17, 19), 3),
        ((6, 6, 6), 100),
        ((2, 3, 1), 1),
        ((4, 1, 30), 7),
    ):
        wholes = matrices(*sizes, dtype)
        found = computed(ProcessGrid(*grid), wholes, panel=panel, tile=3)
        assert error_of("gemm", found, 1.5, *wholes[:2], 0.5, wholes[2]) <= 1


@pytest.mark.parametrize("sizes", [(5, 4, 0), (0, 4, 3), (5, 0, 3), (0, 0, 0), (1, 1, 1)])
def test_empty_matrices_and_sums_are_computed(sizes: tuple[int, int, int]) -> None:
    wholes = matrices(*sizes)
    found = computed(ProcessGrid(2, 2), wholes, panel=2, tile=2)
    assert error_of("gemm", found, 1.5, *wholes[:2], 0.5, wholes[2]) <= 1


def test_what_must_not_be_read_is_not() -> None:
    a, b, c = matrices(5, 6, 7)
    empty = np.full_like(c, np.nan)
    found = computed(ProcessGrid(2, 2), [a, b, empty], beta=0.0, panel=3, tile=2)
    assert error_of("gemm", found, 1.5, a, b, 0.0, c) <= 1
    unread = [np.full_like(x, np.nan) for x in (a, b)]
    assert np.array_equal(computed(ProcessGrid(2, 2), [*unread, c], alpha=0.0, panel=3, tile=2), 0.5 * c)


@pytest.mark.parametrize("grid", [(1, 2), (2, 2), (4, 1)])
def test_bits_are_those_of_one_process_if_tiles_divide_the_blocks(grid: tuple[int, int]) -> None:
    a, b, c = matrices(32, 48, 37)
    keywords: dict[str, Any] = {"tile": 8, "options": gpu.blas3.Options(addend="first")}
    expected = gpu.blas3.dgemm(1.5, a, b, 0.5, c, device=ShuffledMachine(), **keywords)
    found = computed(ProcessGrid(*grid), [a, b, c], panel=16, **keywords)
    assert np.array_equal(found, expected)


def test_blocks_of_any_lengths_fit_if_lines_agree() -> None:
    a, b, c = matrices(9, 8, 10)
    rows, columns, of_a, of_b = (0, 2, 9), (0, 7, 8), (0, 1, 10), (0, 6, 10)
    result = np.empty_like(c)

    def program(comm: Any) -> None:
        i, j = divmod(comm.rank, 2)
        mine, yours = slice(*rows[i : i + 2]), slice(*columns[j : j + 2])
        own = c[mine, yours].copy()
        blocks = a[mine, of_a[j] : of_a[j + 1]], b[of_b[i] : of_b[i + 1], yours]
        summa(1.0, *blocks, 1.0, own, comm=comm, panel=4, device=ShuffledMachine(), tile=3)
        result[mine, yours] = own

    assert [*run_processes(4, program)] == [None] * 4
    np.testing.assert_allclose(result, a @ b + c)


def arguments(**changes: Any) -> dict[str, Any]:
    x = np.ones((3, 3))
    return {"alpha": 1.0, "a": x, "b": x, "beta": 0.0, "c": np.full((3, 3), 7.0), "panel": 2} | changes


OVERLAPPING = np.ones((3, 3))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"b": np.ones((2, 3))}, ShapeError, r"K is 6 in the blocks of A and 5 in those of B"),
        ({"a": np.ones((2, 3))}, ShapeError, r"rank 2: its block of c has shape \(3, 3\)"),
        ({"c": np.ones((3, 2))}, ShapeError, r"rank 2: its block of c has shape \(3, 2\)"),
        ({"a": np.ones(3)}, ShapeError, r"rank 2: dgemm, argument 7 \(a\): shape \(3,\)"),
        ({"b": [[1.0]]}, DtypeError, r"rank 2: dgemm, argument 9 \(b\): list"),
        ({"a": np.ones((3, 3), int)}, DtypeError, r"rank 2: dgemm, argument 7 \(a\)"),
        ({n: np.ones((3, 3), "f4") for n in "abc"}, DtypeError, "float64 on rank 0 and float32 on rank 2"),
        ({"alpha": 2.0}, SchemeError, "alpha is 1.0 on rank 0 and 2.0 on rank 2"),
        ({"alpha": "x"}, DtypeError, "rank 2: dgemm, argument 6"),
        ({"panel": 3}, SchemeError, "panel is 2 on rank 0 and 3 on rank 2"),
        ({"panel": 0}, ShapeError, "rank 2: panel is 0"),
        ({"grid": ProcessGrid(4, 1)}, SchemeError, "grid is 2 x 2 on rank 0 and 4 x 1 on rank 2"),
        ({"grid": ProcessGrid(3, 1)}, ShapeError, "rank 2: a grid of 3 x 1 for 4 processes"),
        ({"c": np.ones((6, 6))[::2, ::2]}, FormatError, r"rank 2: dgemm, argument 12 \(c\): strides"),
        ({"a": OVERLAPPING, "c": OVERLAPPING}, FormatError, "rank 2: .* it shares memory with a"),
        ({"c": np.broadcast_to(1.0, (1, 1)), "a": np.ones((1, 3))}, FormatError, "rank 2: .* read-only"),
    ],
)
def test_an_error_of_one_process_is_raised_on_all(changes: Any, error: Any, text: str) -> None:
    results: list[Any] = []

    def program(comm: Any) -> None:
        given = arguments(**(changes if comm.rank == 2 else {}))
        results.append(given["c"])
        before = np.array(given["c"])
        try:
            summa(comm=comm, device=ShuffledMachine(), **given)
        finally:
            np.testing.assert_array_equal(given["c"], before)

    if text.startswith("K is"):  # of both processes of row 1

        def program(comm: Any) -> None:
            summa(comm=comm, device=ShuffledMachine(), **arguments(**(changes if comm.rank > 1 else {})))

    for found in run_processes(4, program):
        with pytest.raises(error, match=text):
            raise found


def test_a_machine_that_fails_on_one_process_does_not_hang_the_others() -> None:
    def program(comm: Any) -> Any:
        machine = ShuffledMachine(fail_at=5 if comm.rank == 1 else -1)
        return summa(comm=comm, device=machine, tile=2, **arguments())

    found = run_processes(4, program)
    assert isinstance(found[1], InjectedError)
    for rank in (0, 2, 3):
        assert isinstance(found[rank], LaunchError)
        assert "rank 1 failed: InjectedError" in str(found[rank])


def test_without_memory_for_panels_all_processes_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused:
        def __init__(self, line: Any, *_: Any) -> None:
            if line.rank == 1:
                raise MemoryError("no room for panels")

    monkeypatch.setattr(sys.modules["gpu.blas3.summa"], "_Operand", Refused)
    for found in run_processes(2, lambda comm: summa(comm=comm, grid=ProcessGrid(1, 2), **flat_arguments())):
        assert isinstance(found, MemoryError)
        assert str(found) == "rank 1: no room for panels"


def flat_arguments() -> dict[str, Any]:
    return arguments(a=np.ones((3, 2)), b=np.ones((4, 3)))


def test_without_mpi_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(MissingExtraError, match=r"simwarp\[mpi\]"):
        summa(**arguments())


def test_grids_divide_matrices_into_almost_equal_parts() -> None:
    for size in range(1, 20):
        grid = ProcessGrid.of(size)
        assert grid.size == size
        for rows, columns in ((0, 5), (7, 23), (64, 1)):
            seen = np.zeros((rows, columns), int)
            for rank in range(size):
                seen[grid.owned(rank, rows, columns)] += 1
            assert (seen == 1).all()
    with pytest.raises(ShapeError, match="0 x 2"):
        ProcessGrid(0, 2)


def test_one_process_needs_no_mpi() -> None:
    a, b, c = matrices(5, 6, 7)
    found = summa(1.0, a, b, 0.0, c, comm=OneProcess(), panel=3)
    np.testing.assert_allclose(found, a @ b)


@pytest.mark.slow
def test_two_processes_of_mpi_agree_with_one() -> None:
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py or mpiexec is not installed")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "-m", "support.summa_program"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stdout.split()) == (0, ["right", "2"]), done.stderr
