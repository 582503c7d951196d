"""The share of GEMM in the routines of level 3: table I of the BLASX paper, from plans."""

from __future__ import annotations

from collections.abc import Iterable

from gpu.blas3 import Options
from simwarp.lab.blas.request import Request
from simwarp.lab.network_studies import Facts

PRINTED = {
    "dsyrk": {5000: 74.5, 10000: 86.3, 20000: 92.8},
    "dtrsm": {5000: 68.5, 10000: 80.4, 20000: 89.0},
    "dtrmm": {5000: 69.0, 10000: 81.5, 20000: 92.8},
    "dsyr2k": {5000: 74.4, 10000: 85.4, 20000: 92.9},
    "dsymm": {5000: 71.7, 10000: 84.9, 20000: 92.1},
}
"""Percent by N, of table I; it prints 5K, 10K and 20K, and does not say of which tiles."""
SIZES, TILE = (5000, 10000, 20000), 1024


def gemm_shares(
    routines: Iterable[str] = tuple(PRINTED), sizes: Iterable[int] = SIZES, tile: int = TILE
) -> list[Facts]:
    """A row for each routine and size N of square matrices: how many of its operations are of GEMM.

    ``share`` is counted from the steps of the plan, from 0 to 1; ``printed`` is that of the paper, or None.
    ``tasks`` and ``operations`` are those of the plan.
    """
    return [_row(routine, n, tile) for routine in routines for n in sizes]


def _row(routine: str, n: int, tile: int) -> Facts:
    """The share of one routine and size."""
    plan = Request.of(routine, n).plan(tile, [1 << 62], Options.paper())
    printed = PRINTED.get(routine, {}).get(n)
    return {
        "routine": routine,
        "n": n,
        "tile": tile,
        "tasks": len(plan.tasks),
        "operations": plan.problem.operations,
        "share": plan.gemm_share,
        "printed": None if printed is None else printed / 100,
    }
