"""Algorithms 2, 6, 7 and 8: MTTKRP for the mode at the root, in the middle or at the leaf of a tree.

Slice 0 has fibers 0 and 1, each of one nonzero. The example computes the product of the slices' mode twice,
then that of the fibers' mode, and that of the nonzeros':

>>> from simwarp.warp import launch
>>> of = GlobalArray.of
>>> zeros_of_two, zero_one = of("sliceInds", np.array([0, 0])), of("fiberInds", np.array([0, 1]))
>>> pointers = of("fiberPtr", np.array([0, 1, 2]))
>>> nonzeros = of("indK", np.array([0, 1])), of("vals", np.array([2.0, 3.0]))
>>> B, C = of("B", np.array([[4.0], [5.0]])), of("C", np.array([[1.0], [10.0]]))
>>> A = of("A", np.zeros((1, 1)))
>>> slices = of("slicePtr", np.array([0, 2])), of("sliceInds", np.array([0]))
>>> launch(slice_alg, 1, 64, *slices, pointers, [zero_one], *nonzeros, [B], C, A, 1)
>>> A.numpy().tolist()  # 2 · 1 · 4 + 3 · 10 · 5
[[158.0]]
>>> launch(opt_slice_alg, 1, 64, zeros_of_two, pointers, [zero_one], *nonzeros, [B], C, A, 1, 2)
>>> A.numpy().tolist()  # added once more
[[316.0]]
>>> A, J, K = of("A", np.array([[4.0]])), of("J", np.zeros((2, 1))), of("K", np.zeros((2, 1)))
>>> launch(fiber_alg, 2, 64, pointers, [zeros_of_two], zero_one, *nonzeros, [A], C, J, 1)
>>> launch(nonzero_alg, 2, 64, pointers, [zeros_of_two, zero_one], *nonzeros, [A, B], K, 1)
>>> J.numpy().tolist(), K.numpy().tolist()  # 2 · 1 · 4 and 3 · 10 · 4; 2 · 4 · 4 and 3 · 4 · 5
([[8.0], [120.0]], [[32.0], [60.0]])

Source: MM-CSF (SC'19), sections 3.1 and 5, algorithms 2, 6, 7 and 8, figure 5.
"""

# The kernels keep the paper's names.
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.warp import GlobalArray, Register, Warp


def slice_alg(
    warp: Warp,
    slicePtr: GlobalArray,
    sliceInds: GlobalArray,
    fiberPtr: GlobalArray,
    fiberInds: Sequence[GlobalArray],
    indK: GlobalArray,
    vals: GlobalArray,
    B: Sequence[GlobalArray],
    C: GlobalArray,
    A: GlobalArray,
    R: int,
) -> None:
    """Algorithm 2, slice-alg of B-CSF: a block per slice, whose warps share its fibers.

    ``slicePtr`` and ``fiberPtr`` have one element more than there are slices and fibers. ``fiberInds``, each
    (fibers,), and B, each (dimension, R), have one array for each level between slice and nonzero. C is the
    factor of the nonzeros' mode, (K, R), A the output, (I, R), which is added to.

    Other than in print: ``tmp`` and ``tmp_2`` start at 0 for every fiber and every slice. Each warp adds the
    sum of its own fibers, so writes are atomic. Grid: a block for each slice, of any number of warps.
    """
    slice = warp.block.x
    i = index(warp, sliceInds, slice)
    tmp_2 = zeros(vals.dtype, R)
    first, end = index(warp, slicePtr, slice), index(warp, slicePtr, slice + 1)
    for fiber in range(first + warp.index, end, warp.block_dim.x // 32):  # fibers-parallel across warps
        tmp = zeros(vals.dtype, R)
        for z in range(index(warp, fiberPtr, fiber), index(warp, fiberPtr, fiber + 1)):
            add_nonzero(warp, tmp, warp.load(vals, z), C, index(warp, indK, z), R)
        tmp = times_rows(warp, tmp, fiberInds, B, fiber, R)
        tmp_2 = [a + b for a, b in zip(tmp_2, tmp, strict=True)]
    add_to_row(warp, A, i, tmp_2, R)


def opt_slice_alg(
    warp: Warp,
    sliceInds: GlobalArray,
    fiberPtr: GlobalArray,
    fiberInds: Sequence[GlobalArray],
    indK: GlobalArray,
    vals: GlobalArray,
    B: Sequence[GlobalArray],
    C: GlobalArray,
    A: GlobalArray,
    R: int,
    fibersGrp: int,
) -> None:
    """Algorithm 6, opt-slice-alg of MM-CSF: a block per ``fibersGrp`` fibers, of one slice or several.

    ``sliceInds``, (fibers,), is the index of each fiber's slice; the other arrays are those of `slice_alg`.

    Other than in print: the last fiber of a group writes too, since the sum would be lost if the next group
    continued the slice; and it does not read the slice of the next fiber, since the last fiber of all has
    none. ``tmp`` starts at 0 for every fiber and ``tmp_2`` after every write. The last group may have fewer
    fibers. Grid: a block for each group of fibers, of any number of warps, which take nonzeros in turn.
    """
    fiber, fibers = warp.block.x * fibersGrp, sliceInds.size
    end = min(fiber + fibersGrp, fibers)
    tmp_2 = zeros(vals.dtype, R)
    for localFiber in range(fiber, end):
        i = index(warp, sliceInds, localFiber)
        tmp = zeros(vals.dtype, R)
        first, last = index(warp, fiberPtr, localFiber), index(warp, fiberPtr, localFiber + 1)
        for z in range(first + warp.index, last, warp.block_dim.x // 32):  # cyclically processed by warps
            add_nonzero(warp, tmp, warp.load(vals, z), C, index(warp, indK, z), R)
        tmp = times_rows(warp, tmp, fiberInds, B, localFiber, R)
        tmp_2 = [a + b for a, b in zip(tmp_2, tmp, strict=True)]
        if localFiber + 1 == end or index(warp, sliceInds, localFiber + 1) != i:
            add_to_row(warp, A, i, tmp_2, R)
            tmp_2 = zeros(vals.dtype, R)


def fiber_alg(
    warp: Warp,
    fiberPtr: GlobalArray,
    sliceInds: Sequence[GlobalArray],
    fiberInds: GlobalArray,
    indK: GlobalArray,
    vals: GlobalArray,
    A: Sequence[GlobalArray],
    C: GlobalArray,
    B: GlobalArray,
    R: int,
) -> None:
    """Algorithm 7, fiber-alg: a block per fiber, which adds to the row of the fiber's own index.

    ``fiberInds``, (fibers,), is the index of each fiber in the output's mode. ``sliceInds``, each (fibers,),
    and A, each (dimension, R), have one array for each level above the nonzeros except the output's. C is the
    factor of the nonzeros' mode, (K, R), B the output, (J, R), which is added to.

    Other than in print: ``tmp`` starts at 0, and the output is B. The write is atomic, as in the paper's
    text, since other fibers and other warps of the block add to the same row. Grid: a block for each fiber,
    of any number of warps, which take nonzeros in turn.
    """
    fiber = warp.block.x
    j = index(warp, fiberInds, fiber)
    tmp = zeros(vals.dtype, R)
    first, end = index(warp, fiberPtr, fiber), index(warp, fiberPtr, fiber + 1)
    for z in range(first + warp.index, end, warp.block_dim.x // 32):  # nonzeros-parallel across warps
        add_nonzero(warp, tmp, warp.load(vals, z), C, index(warp, indK, z), R)
    add_to_row(warp, B, j, times_rows(warp, tmp, sliceInds, A, fiber, R), R)


def nonzero_alg(
    warp: Warp,
    fiberPtr: GlobalArray,
    inds: Sequence[GlobalArray],
    indK: GlobalArray,
    vals: GlobalArray,
    matrices: Sequence[GlobalArray],
    C: GlobalArray,
    R: int,
) -> None:
    """Algorithm 8, nonzero-alg: a block per fiber; each of its nonzeros adds to another row.

    ``inds``, sliceInds and fiberInds, each (fibers,), and ``matrices``, A and B, each (dimension, R), have
    one array for each level above the nonzeros. C is the output, (K, R), which is added to.

    The text we have shows only the title; section 5.3 describes the rest: the nonzeros of a fiber share row i
    of A and row j of B, so (S + F) R elements are read and M R written, in parallel as in algorithm 7. Grid:
    a block for each fiber, of any number of warps, which take nonzeros in turn.
    """
    fiber = warp.block.x
    row = times_rows(warp, ones(vals.dtype, R), inds, matrices, fiber, R)
    first, end = index(warp, fiberPtr, fiber), index(warp, fiberPtr, fiber + 1)
    for z in range(first + warp.index, end, warp.block_dim.x // 32):  # nonzeros-parallel across warps
        value = warp.load(vals, z)
        add_to_row(warp, C, index(warp, indK, z), [value * product for product in row], R)


# ---- Rows of R numbers over the lanes of a warp: "rank-parallel across threads" ------------------------
# A lane holds every 32nd number of a row, in one register for each step of 32. (One register for all steps
# would add columns r and r + 32 together.)

Row = list[Register]
"""A row of R numbers: register s of lane l holds number ``32 * s + l``."""


def columns(warp: Warp, R: int) -> Iterator[tuple[int, Register]]:
    """Loop ``for r = 0 to R``: yield each step and its lanes' r; lanes with r ≥ R are inactive."""
    for step in range(-(-R // WARP_SIZE)):
        r = step * WARP_SIZE + warp.lane
        with warp.where(r < R):
            yield step, r


def zeros(dtype: npt.DTypeLike, R: int) -> Row:
    """A row of R zeros, the start of a sum."""
    return [np.zeros(WARP_SIZE, dtype) for _ in range(-(-R // WARP_SIZE))]


def ones(dtype: npt.DTypeLike, R: int) -> Row:
    """A row of R ones, the start of a product."""
    return [register + 1 for register in zeros(dtype, R)]


def index(warp: Warp, array: GlobalArray, position: int) -> int:
    """Load the index at a position of an array, the same in all lanes of the warp."""
    return int(warp.load(array, position)[0])


def add_nonzero(warp: Warp, tmp: Row, value: Register, C: GlobalArray, k: int, R: int) -> None:
    """Add a nonzero times its row of C: ``tmp[r] += vals[z] * C[k][r]``."""
    for step, r in columns(warp, R):
        tmp[step] = tmp[step] + value * warp.load(C, k * R + r)


def times_rows(
    warp: Warp, row: Row, inds: Sequence[GlobalArray], matrices: Sequence[GlobalArray], fiber: int, R: int
) -> Row:
    """The row times the fiber's row of each factor B: ``row[r] * B[j][r]``."""
    row = list(row)
    for indices, B in zip(inds, matrices, strict=True):
        j = index(warp, indices, fiber)
        for step, r in columns(warp, R):
            row[step] = row[step] * warp.load(B, j * R + r)
    return row


def add_to_row(warp: Warp, A: GlobalArray, i: int, row: Row, R: int) -> None:
    """Add a row to row i of the output, atomically: ``A[i][r] += row[r]``."""
    for step, r in columns(warp, R):
        warp.atomic_add(A, i * R + r, row[step])
