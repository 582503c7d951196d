"""What a caller may pass beside the tensor: a mode, a rank, factors that fit."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

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


def as_sequence(factors: Any) -> Sequence[Any]:
    """What was given for factors, if there can be several.

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> as_sequence(None)
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: factors is NoneType
    a sequence of matrices is needed
    give one (dimension, rank) matrix for each mode
    """
    if isinstance(factors, list | tuple):
        return cast("Sequence[Any]", factors)
    try:
        return list(factors)
    except TypeError:
        raise ShapeError(
            f"factors is {type(factors).__name__}\na sequence of matrices is needed\n"
            "give one (dimension, rank) matrix for each mode"
        ) from None


def check_factors(factors: Sequence[Any], shape: Sequence[int]) -> tuple[int, np.dtype[Any]]:
    """The rank and the dtype of factors, host or device arrays, one for each dimension.

    Raises
    ------
    ShapeError, DtypeError
        Naming the factor.

    Examples
    --------
    >>> check_factors([np.ones((2, 5)), np.ones((3, 5))], (2, 3))
    (5, dtype('float64'))
    >>> check_factors([np.ones((2, 5)), np.ones((3, 4))], (2, 3))
    Traceback (most recent call last):
    ...
    reference.errors.ShapeError: factors[1] has shape (3, 4)
    (3, 5) is needed: mode 1 has dimension 3, and factors[0] has 5 columns
    give one (dimension, rank) matrix for each mode
    """
    advice = "give one (dimension, rank) matrix for each mode"
    if len(factors) != len(shape):
        raise ShapeError(f"there are {len(factors)} factors\nthe tensor has {len(shape)} modes\n{advice}")
    rank = int(factors[0].shape[1]) if len(factors[0].shape) == 2 else 0
    for mode, (factor, dimension) in enumerate(zip(factors, shape, strict=True)):
        if tuple(factor.shape) != (dimension, rank) or rank == 0:
            needed = f"({dimension}, {rank or 'R'})"
            raise ShapeError(
                f"factors[{mode}] has shape {tuple(factor.shape)}\n{needed} is needed: mode {mode} has "
                f"dimension {dimension}, and factors[0] has {rank or 'R >= 1'} columns\n{advice}"
            )
        if factor.dtype != factors[0].dtype:
            raise DtypeError(
                f"factors[{mode}] is {factor.dtype}\nfactors[0] is {factors[0].dtype}\ngive all one dtype"
            )
    return check_rank(rank), np.dtype(factors[0].dtype)
