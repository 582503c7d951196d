"""Algorithm 8: the product of the mode that the nonzeros' own indices belong to.

One fiber, with index 1 in slice 0, of two nonzeros:

>>> import numpy as np
>>> from simwarp.warp import launch
>>> of = GlobalArray.of
>>> tree = of("fiberPtr", np.array([0, 2])), [of("sliceInds", np.array([0])), of("fiberInds", np.array([1]))]
>>> nonzeros = of("indK", np.array([2, 0])), of("vals", np.array([2.0, 3.0]))
>>> A, B = of("A", np.array([[4.0]])), of("B", np.array([[0.0], [10.0]]))
>>> C = of("C", np.zeros((3, 1)))
>>> launch(nonzero_alg, 1, 64, *tree, *nonzeros, [A, B], C, 1)
>>> C.numpy().tolist()  # 3 · 4 · 10, nothing, 2 · 4 · 10
[[120.0], [0.0], [80.0]]

Source: MM-CSF (SC'19), section 5.3, algorithm 8, figure 5(d).
"""

# The kernels keep the paper's names.
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence

from simwarp.listings.mttkrp.rank import add_to_row, index, ones, times_rows
from simwarp.warp import GlobalArray, Warp


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
    """Algorithm 8, nonzero-alg: a block for each fiber, whose nonzeros add to a row each.

    Parameters
    ----------
    fiberPtr : (fibers + 1,)
    inds : sliceInds, fiberInds: for each level above the nonzeros (fibers,)
    indK, vals : (nonzeros,)
    matrices : A, B: for each level above the nonzeros (dimension, R)
    C : (K, R), the output, to which is added

    Notes
    -----
    Of the print we have the title alone; section 5.3 tells the rest: a nonzero reads row i of A and row j
    of B, which a fiber has in common, so that (S + F) R is read and M R written, the same way that
    algorithm 7 is parallel.

    Grid: a block for each fiber, of any number of warps; they take the nonzeros by turns.
    """
    fiber = warp.block.x
    row = times_rows(warp, ones(vals.dtype, R), inds, matrices, fiber, R)
    first, end = index(warp, fiberPtr, fiber), index(warp, fiberPtr, fiber + 1)
    for z in range(first + warp.index, end, warp.block_dim.x // 32):  # nonzeros-parallel across warps
        value = warp.load(vals, z)
        add_to_row(warp, C, index(warp, indK, z), [value * product for product in row], R)
