"""Small problems: one tile for the whole problem, computed by SciPy."""

from __future__ import annotations

import numpy as np

from gpu.blas3.layouts import Call
from gpu.blas3.routines import compute
from gpu.blas3.taskizer import taskize

LARGEST = 1000
"""Problems with no dimension above it are small (the paper's program has the same bound)."""


def is_small(call: Call) -> bool:
    """True if all matrices are on the host and too small to be worth a device."""
    if call.on_devices:
        return False
    return max(call.problem.m, call.problem.n, call.problem.k) <= LARGEST


def compute_on_host(call: Call) -> None:
    """Compute a BLAS call on the host, into its output matrix."""
    matrices, problem = call.on_host, call.problem
    for task in taskize(problem, max(problem.m, problem.n, problem.k, 1)):
        for output, step in task.steps():
            result = output.block.of(matrices[output.block.matrix])
            reads = [block.of(matrices[block.matrix]) for block in step.reads]
            held = result if result.flags.f_contiguous else np.asfortranarray(result)
            compute(step.kernel, reads, held)
            if held is not result:
                result[...] = held
