"""The ranks and types of factors that the kernels take."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from gpu.mttkrp.kernels import MOST_PASSES, WARP
from reference.errors import DtypeError, ShapeError


def check_rank(rank: Any) -> int:
    """The rank as an integer.

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> check_rank(0)
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: rank 0 is not possible
    1 to 2097120 is
    give factors with at least one column
    """
    try:
        known = 0 if isinstance(rank, bool) else operator.index(rank)
    except TypeError:
        known = 0
    if not 1 <= known <= MOST_PASSES * WARP:
        raise ShapeError(
            f"rank {rank!r} is not possible\n1 to {MOST_PASSES * WARP} is\n"
            "give factors with at least one column"
        )
    return known


def check_dtype(dtype: Any, values: Any) -> np.dtype[Any]:
    """The factors' dtype, which must be that of the values.

    Raises
    ------
    DtypeError

    Examples
    --------
    >>> check_dtype("float32", np.dtype(np.float64))
    Traceback (most recent call last):
    ...
    reference.errors.DtypeError: factors are float32, the tensor's values are float64
    both are float32, or both float64
    convert one of them
    """
    known = np.dtype(dtype)
    if known.name not in ("float32", "float64") or known != np.dtype(values):
        raise DtypeError(
            f"factors are {known}, the tensor's values are {np.dtype(values)}\n"
            "both are float32, or both float64\nconvert one of them"
        )
    return known
