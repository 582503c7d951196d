"""The rank, spread over the lanes of a warp: "rank-parallel across threads".

A warp has 32 lanes and a row R numbers, so a lane holds every 32nd of them: one register for each step
of 32. (One register for all steps would add columns r and r + 32 together.)
"""

# The kernels keep the paper's names.
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.warp import GlobalArray, Register, Warp

Row = list[Register]
"""R numbers: register s of lane l is number ``32 * s + l``."""


def columns(warp: Warp, R: int) -> Iterator[tuple[int, Register]]:
    """``for r = 0 to R``: each step, and the lanes' r in it; lanes past R do not take part."""
    for step in range(-(-R // WARP_SIZE)):
        r = step * WARP_SIZE + warp.lane
        with warp.where(r < R):
            yield step, r


def zeros(dtype: npt.DTypeLike, R: int) -> Row:
    """Registers for a row of R sums."""
    return [np.zeros(WARP_SIZE, dtype) for _ in range(-(-R // WARP_SIZE))]


def ones(dtype: npt.DTypeLike, R: int) -> Row:
    """Registers for a row of R products."""
    return [register + 1 for register in zeros(dtype, R)]


def index(warp: Warp, array: GlobalArray, position: int) -> int:
    """One index, the same for all lanes."""
    return int(warp.load(array, position)[0])


def add_nonzero(warp: Warp, tmp: Row, value: Register, C: GlobalArray, k: int, R: int) -> None:
    """``tmp[r] += vals[z] * C[k][r]``."""
    for step, r in columns(warp, R):
        tmp[step] = tmp[step] + value * warp.load(C, k * R + r)


def times_rows(
    warp: Warp, row: Row, inds: Sequence[GlobalArray], matrices: Sequence[GlobalArray], fiber: int, R: int
) -> Row:
    """``row[r] * B[j][r]``, for every matrix B and its index j of the fiber."""
    row = list(row)
    for indices, B in zip(inds, matrices, strict=True):
        j = index(warp, indices, fiber)
        for step, r in columns(warp, R):
            row[step] = row[step] * warp.load(B, j * R + r)
    return row


def add_to_row(warp: Warp, A: GlobalArray, i: int, row: Row, R: int) -> None:
    """``A[i][r] += row[r]``, atomically."""
    for step, r in columns(warp, R):
        warp.atomic_add(A, i * R + r, row[step])
