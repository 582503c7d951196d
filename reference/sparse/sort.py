"""Sorting of nonzeros, and the start of each run of equal index prefixes.

>>> indices, _ = sort_nonzeros(Coo([[1, 0, 0], [0, 2, 1]], [5.0, 6.0, 7.0], (2, 3)), (0, 1))
>>> indices.tolist(), [starts.tolist() for starts in prefix_starts(indices)]
([[0, 0, 1], [1, 2, 0]], [[0, 2], [0, 1, 2]])
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError
from reference.types import Coo

Indices: TypeAlias = npt.NDArray[np.uint32]
Values: TypeAlias = npt.NDArray[Any]


def sort_nonzeros(coo: Coo, modes: tuple[int, ...]) -> tuple[Indices, Values]:
    """Sort nonzeros stably by ``modes``; return indices, row l of mode ``modes[l]``, and values."""
    indices = coo.coords[list(modes)].astype(np.uint32)
    order = np.lexsort(indices[::-1])  # the last key of lexsort is the first to compare
    return np.ascontiguousarray(indices[:, order]), coo.values[order]


def sort_distinct(coo: Coo, modes: tuple[int, ...]) -> tuple[Indices, Values]:
    """Sort nonzeros as `sort_nonzeros` does; raise FormatError for repeated coordinates."""
    indices, values = sort_nonzeros(coo, modes)
    starts = prefix_starts(indices)[-1]
    counts = np.diff(np.append(starts, values.size))
    if counts.max() > 1:
        node = int(np.argmax(counts > 1))
        level_of = [modes.index(mode) for mode in range(len(modes))]
        coordinates = tuple(int(indices[level, starts[node]]) for level in level_of)
        raise FormatError(
            f"the coordinates {coordinates} occur {counts[node]} times\n"
            "this format holds each nonzero once\n"
            "add their values first: coalesce(coo)"
        )
    return indices, values


def prefix_starts(indices: Indices) -> list[npt.NDArray[np.int64]]:
    """The start of each run of equal prefixes of sorted indices, for each level: the nodes of a CSF tree."""
    starts: list[npt.NDArray[np.int64]] = []
    begins = np.zeros(indices.shape[1], bool)
    begins[0] = True
    for level in indices:
        begins[1:] |= level[1:] != level[:-1]
        starts.append(np.flatnonzero(begins))
    return starts
