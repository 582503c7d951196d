"""The program of `mpiexec -n 2`: products over processes, and errors of both. Rank 0 prints "right"."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from mpi4py import MPI

import simwarp
from gpu.blas3 import Options, ProcessGrid, dgemm, summa, zgemm
from reference.errors import LaunchError, ShapeError

WORLD = MPI.COMM_WORLD
FIRST = Options(addend="first")


def block(x: np.ndarray, grid: ProcessGrid) -> np.ndarray:
    return np.array(x[grid.owned(WORLD.rank, *x.shape)], order="F")


def check_product(grid: ProcessGrid | None, sizes: tuple[int, int, int], dtype: str) -> None:
    """Two processes have the bits of one."""
    m, n, k = sizes
    rng = np.random.default_rng(2)
    shapes = ((m, k), (k, n), (m, n))
    a, b, c = (np.asfortranarray(rng.standard_normal(shape).astype(dtype)) for shape in shapes)
    one = {"float64": dgemm, "complex128": zgemm}[dtype]
    expected = one(2.0, a, b, 0.5, c, device=simwarp.Machine(), tile=8, options=FIRST)
    used = grid or ProcessGrid.of(WORLD.size)
    parts = [block(x, used) for x in (a, b, c)]
    machine = simwarp.Machine()
    summa(2.0, *parts[:2], 0.5, parts[2], grid=grid, panel=16, device=machine, tile=8, options=FIRST)
    assert np.array_equal(parts[2], block(expected, used))


def check_errors() -> None:
    """An error of one process is raised on both."""
    x = np.ones((4, 4))
    wrong = x if WORLD.rank == 0 else np.ones(3)
    with pytest.raises(ShapeError, match=r"rank 1: dgemm, argument 9 \(b\)"):
        summa(1.0, x, wrong, 0.0, np.empty((4, 4)))
    budget = 10 if WORLD.rank else None
    with pytest.raises(LaunchError, match="budget of 10 bytes"):
        summa(1.0, x, np.ones((8, 4)), 0.0, np.empty((4, 4)), device=simwarp.Machine(), memory_budget=budget)


check_errors()
for dtype in ("float64", "complex128"):
    check_product(None, (48, 32, 40), dtype)
    check_product(ProcessGrid(2, 1), (32, 24, 33), dtype)
    check_product(None, (0, 16, 8), dtype)
if WORLD.rank == 0:
    sys.stdout.write(f"right {WORLD.size}\n")
