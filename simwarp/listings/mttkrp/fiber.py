"""Algorithm 7: the product of a mode between the slices' and the nonzeros'.

Two fibers of slice 0 with the indices 1 and 0, each of one nonzero:

>>> import numpy as np
>>> from simwarp.warp import launch
>>> of = GlobalArray.of
>>> inds = [of("sliceInds", np.array([0, 0]))], of("fiberInds", np.array([1, 0]))
>>> tree = of("fiberPtr", np.array([0, 1, 2])), *inds
>>> nonzeros = of("indK", np.array([0, 1])), of("vals", np.array([2.0, 3.0]))
>>> A, C = of("A", np.array([[4.0]])), of("C", np.array([[1.0], [10.0]]))
>>> B = of("B", np.zeros((2, 1)))
>>> launch(fiber_alg, 2, 64, *tree, *nonzeros, [A], C, B, 1)
>>> B.numpy().tolist()  # 3 · 10 · 4 and 2 · 1 · 4
[[120.0], [8.0]]

Source: MM-CSF (SC'19), section 5.2, algorithm 7, figure 5(c).
"""

# The kernels keep the paper's names.
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence

from simwarp.listings.mttkrp.rank import add_nonzero, add_to_row, index, times_rows, zeros
from simwarp.warp import GlobalArray, Warp


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
    """Algorithm 7, fiber-alg: a block for each fiber, which adds to the row of the fiber's own index.

    Parameters
    ----------
    fiberPtr : (fibers + 1,)
    sliceInds : for each level above the nonzeros but the output's (fibers,)
    fiberInds : (fibers,)
        The index of each fiber in the output's mode.
    indK, vals : (nonzeros,)
    A : for each level above the nonzeros but the output's (dimension, R)
    C : (K, R), of the nonzeros' mode
    B : (J, R), the output, to which is added

    Notes
    -----
    Other than in print: ``tmp`` begins at 0, it is B that is returned, and the write is atomic, as the
    text says, since other fibers, and the block's other warps, add to the row as well.

    Grid: a block for each fiber, of any number of warps; they take the nonzeros by turns.
    """
    fiber = warp.block.x
    j = index(warp, fiberInds, fiber)
    tmp = zeros(vals.dtype, R)
    first, end = index(warp, fiberPtr, fiber), index(warp, fiberPtr, fiber + 1)
    for z in range(first + warp.index, end, warp.block_dim.x // 32):  # nonzeros-parallel across warps
        add_nonzero(warp, tmp, warp.load(vals, z), C, index(warp, indK, z), R)
    add_to_row(warp, B, j, times_rows(warp, tmp, sliceInds, A, fiber, R), R)
