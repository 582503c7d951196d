"""Coordinates with each place once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats.compiled import compiled
from gpu.mttkrp.formats.nonzeros import in_natural_order
from gpu.mttkrp.formats.runs import depths_of, starts_of
from gpu.mttkrp.formats.sort import taken
from reference.types import Coo


def coalesce(coo: Coo) -> Coo:
    """Sum the values of each place, and sort the places by mode 0, 1, ….

    Parameters
    ----------
    coo : Coo

    Returns
    -------
    Coo
        With uint32 coordinates. Values are added in the order in which they occur, in their own type; a sum
        of 0 stays.

    Raises
    ------
    ShapeError
        For a dimension above 2**32.
    NotANumberError
        If a sum is infinite and the tensor was not said to be ``nonfinite``.

    Examples
    --------
    >>> once = coalesce(Coo([[1, 0, 1], [2, 0, 2]], [5.0, 6.0, 7.0], (2, 3)))
    >>> once.coords.tolist(), once.values.tolist()
    ([[0, 1], [0, 2]], [6.0, 12.0])
    """
    coords, values = in_natural_order(coo)
    order = np.arange(values.size, dtype=np.uint32)
    starts = starts_of(depths_of(coords, range(len(coords)), order), len(coords) - 1)
    if starts.size <= values.size:
        coords = np.stack([taken(indices, starts[:-1]) for indices in coords])
        values = _sums(values, starts)
    return Coo(coords, values, coo.shape, coo.nonfinite)


def _sums(values: npt.NDArray[Any], starts: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
    sums = np.empty(starts.size - 1, values.dtype)
    compiled(_add_runs)(values, starts, sums)
    return sums


def _add_runs(values: Any, starts: Any, sums: Any) -> None:
    for run in range(sums.size):
        total = values[starts[run]]
        for z in range(starts[run] + 1, starts[run + 1]):
            total += values[z]
        sums[run] = total
