"""The plan of a call, made before the call and without its matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu.blas3.options import Options
from gpu.blas3.plan import Plan, plan_of
from gpu.blas3.problem import Problem
from gpu.blas3.table import NAMES, PREFIXES, ROWS
from gpu.device import name_of
from reference.errors import DtypeError, ShapeError
from reference.types.arguments import check_option
from reference.types.fields import is_integer

PLENTY = 1 << 62


def explain(
    routine: str,
    m: int,
    n: int | None = None,
    k: int | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    tile: int | None = None,
    memory_budget: int | Sequence[int] | None = None,
    devices: int = 1,
    options: Options | None = None,
    **flags: Any,
) -> Plan:
    """Plan a call: its tasks, the memory that they need, and the bytes that they copy.

    Parameters
    ----------
    routine : str
        A BLAS name, such as "dgemm".
    m, n : int
        Rows and columns of the result; ``n`` is by default ``m``.
    k : int, optional
        The length of the sums, where that is an argument; by default ``m``.
    alpha, beta : number
        With ``beta`` 0, C is not moved to a device.
    tile, memory_budget, options
        As of `dgemm`. Default of the budget: unbounded.
    devices : int
    **flags
        ``side``, ``uplo``, ``trans_a``, ``trans_b`` and ``diag``, as letters.

    Returns
    -------
    Plan

    Raises
    ------
    SchemeError
        For an unknown routine.
    ShapeError
        For a negative size, or a result that is not square, of which one triangle is written.
    DtypeError
        For devices that are not a number.
    LaunchError
        For a budget that does not hold one batch of tiles.

    Notes
    -----
    Source: BLASX, section IV.A and table V.

    Examples
    --------
    >>> plan = explain("dgemm", 16384, beta=1.0, tile=1024)
    >>> round(plan.bytes_without_reuse / 1e9, 1), round(plan.bytes_least / 1e9, 1), len(plan.tasks)
    (73.0, 8.6, 256)
    """
    check_option("routine", routine, NAMES, "these are the routines of level 3")
    row, n = ROWS[routine[1:]], m if n is None else n
    if not row.has_k:
        k = m if flags.get("side", "L") == "L" else n
    k = m if k is None else k
    if min(m, n, k) < 0 or (row.is_triangle and m != n):
        raise ShapeError(
            f"{routine} of {m} x {n} with sums of {k}\nsizes are 0 or more,"
            " and a result of which one triangle is written is square\ngive other sizes"
        )
    if not is_integer(devices) or devices < 1:
        raise DtypeError(
            f"devices is {name_of(devices)}\na plan needs only their number\n"
            "pass an int from 1 on, such as machine.devices"
        )
    problem = Problem(row.name, np.dtype(PREFIXES[routine[0]]), m, n, k, alpha, beta, **flags)
    budget = PLENTY if memory_budget is None else memory_budget
    budgets = [budget] * devices if isinstance(budget, int) else budget
    return plan_of(problem, tile, budgets, options or Options())
