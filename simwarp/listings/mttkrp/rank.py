"""The rank, spread over the lanes of a warp: what "rank-parallel across threads" means.

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
    """``for r = 0 to R``: each step, and the lanes' r in it; lanes past R do not take part.

    Examples
    --------
    >>> from simwarp.warp import launch
    >>> def count(warp, out):
    ...     for step, r in columns(warp, 40):
    ...         warp.store(out, r, np.int32(step))
    >>> out = GlobalArray("out", 40, np.int32)
    >>> launch(count, 1, 32, out)
    >>> out.numpy()[30:34].tolist()
    [0, 0, 1, 1]
    """
    for step in range(-(-R // WARP_SIZE)):
        r = step * WARP_SIZE + warp.lane
        with warp.where(r < R):
            yield step, r


def zeros(dtype: npt.DTypeLike, R: int) -> Row:
    """Registers for a row of R sums.

    Examples
    --------
    >>> len(zeros(np.float32, 33))
    2
    """
    return [np.zeros(WARP_SIZE, dtype) for _ in range(-(-R // WARP_SIZE))]


def ones(dtype: npt.DTypeLike, R: int) -> Row:
    """Registers for a row of R products.

    Examples
    --------
    >>> ones(np.float32, 1)[0][:2]
    array([1., 1.], dtype=float32)
    """
    return [register + 1 for register in zeros(dtype, R)]


def index(warp: Warp, array: GlobalArray, position: int) -> int:
    """One index, the same for all lanes.

    Examples
    --------
    >>> from simwarp.warp import launch
    >>> launch(lambda warp, x: print(index(warp, x, 1)), 1, 32, GlobalArray.of("x", np.array([5, 7])))
    7
    """
    return int(warp.load(array, position)[0])


def add_nonzero(warp: Warp, tmp: Row, value: Register, C: GlobalArray, k: int, R: int) -> None:
    """``tmp[r] += vals[z] * C[k][r]``.

    Examples
    --------
    >>> from simwarp.warp import launch
    >>> def kernel(warp, C, out):
    ...     tmp = zeros(np.float32, 3)
    ...     add_nonzero(warp, tmp, np.float32(2), C, 1, 3)
    ...     add_nonzero(warp, tmp, np.float32(1), C, 0, 3)
    ...     for step, r in columns(warp, 3):
    ...         warp.store(out, r, tmp[step])
    >>> C, out = GlobalArray.of("C", np.arange(6, dtype=np.float32)), GlobalArray("out", 3, np.float32)
    >>> launch(kernel, 1, 32, C, out)
    >>> out.numpy().tolist()
    [6.0, 9.0, 12.0]
    """
    for step, r in columns(warp, R):
        tmp[step] = tmp[step] + value * warp.load(C, k * R + r)


def times_rows(
    warp: Warp, row: Row, inds: Sequence[GlobalArray], matrices: Sequence[GlobalArray], fiber: int, R: int
) -> Row:
    """``row[r] * B[j][r]``, for every matrix B and its index j of the fiber.

    Examples
    --------
    >>> from simwarp.warp import launch
    >>> def kernel(warp, j, B, out):
    ...     row = times_rows(warp, [np.full(32, 10.0)], [j], [B], 0, 2)
    ...     for step, r in columns(warp, 2):
    ...         warp.store(out, r, row[step])
    >>> arrays = GlobalArray.of("j", np.array([1])), GlobalArray.of("B", np.array([0.0, 0, 3, 4]))
    >>> out = GlobalArray("out", 2, np.float64)
    >>> launch(kernel, 1, 32, *arrays, out)
    >>> out.numpy().tolist()
    [30.0, 40.0]
    """
    row = list(row)
    for indices, B in zip(inds, matrices, strict=True):
        j = index(warp, indices, fiber)
        for step, r in columns(warp, R):
            row[step] = row[step] * warp.load(B, j * R + r)
    return row


def add_to_row(warp: Warp, A: GlobalArray, i: int, row: Row, R: int) -> None:
    """``A[i][r] += row[r]``, atomically.

    Examples
    --------
    >>> from simwarp.warp import launch
    >>> A = GlobalArray.of("A", np.ones((2, 2)))
    >>> launch(lambda warp, A: add_to_row(warp, A, 1, [np.full(32, 0.5)], 2), 2, 32, A)
    >>> A.numpy().tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    for step, r in columns(warp, R):
        warp.atomic_add(A, i * R + r, row[step])
