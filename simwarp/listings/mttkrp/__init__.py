"""Sparse MTTKRP on trees: the algorithms of the MM-CSF paper as warp kernels in Python.

================== ==========================================================================
``slice_alg``      algorithm 2: a block for each slice of a B-CSF, a warp for each of its fibers
``opt_slice_alg``  algorithm 6: a block for some fibers, written back where the slice changes
``fiber_alg``      algorithm 7: a block for each fiber, whose own index is updated
``nonzero_alg``    algorithm 8: a block for each fiber, whose nonzeros' indices are updated
``mttkrp``         algorithm 5 from line 18 on: the product of a mode, partition by partition
================== ==========================================================================

The paper prints them for three modes; here there may be more. Instead of one array of fiber indices and one
matrix, the kernels take an array and a matrix for each level between slice and nonzero.

Source: MM-CSF (SC'19), sections 3.1 and 5, algorithms 2 and 5 to 8.
"""

from simwarp.listings.mttkrp.algorithms import fiber_alg, nonzero_alg, opt_slice_alg, slice_alg
from simwarp.listings.mttkrp.product import mttkrp

__all__ = ["fiber_alg", "mttkrp", "nonzero_alg", "opt_slice_alg", "slice_alg"]
