"""Integer keys of coordinates of any size, by which distinct ones are counted and repeated ones found.

>>> coords = np.array([[1, 0, 1], [2, 3, 2]])
>>> coordinate_keys(coords, (2, 5)).tolist(), count_distinct(coords, (2, 5)), first_repeated(coords, (2, 5))
([7, 3, 7], 2, (0, 2))
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.types import Coo

Keys: TypeAlias = npt.NDArray[np.uint64]


def coordinate_keys(coords: npt.NDArray[Any], shape: tuple[int, ...]) -> Keys:
    """Compute an integer key for each nonzero; keys sort in the lexicographic order of coordinates.

    A key is the offset of the element in C order. Where that could exceed 64 bits, indices are replaced by
    their ranks among the distinct ones. ``coords`` and ``shape`` may cover all modes or some.
    """
    keys, count = coords[0].astype(np.uint64), shape[0]
    for indices, dimension in zip(coords[1:], shape[1:], strict=True):
        if count * dimension >= 2**64:
            keys, count = _ranks(keys)
        if count * dimension >= 2**64:
            indices, dimension = _ranks(indices)
        keys = keys * np.uint64(dimension) + indices.astype(np.uint64)
        count *= dimension
    return keys


def _ranks(numbers: npt.NDArray[Any]) -> tuple[Keys, int]:
    """The rank of each number among the distinct ones, and how many are distinct."""
    used, ranks = np.unique(numbers, return_inverse=True)
    return ranks.astype(np.uint64), used.size


def count_distinct(coords: npt.NDArray[Any], shape: tuple[int, ...]) -> int:
    """The number of distinct coordinates: of slices for one mode, of fibers for all modes except one."""
    keys = np.sort(coordinate_keys(coords, shape))
    return 1 + int(np.count_nonzero(keys[1:] != keys[:-1]))


def distinct(coo: Coo) -> Coo:
    """The tensor with the first nonzero of each coordinates only, sorted.

    >>> distinct(Coo([[1, 0, 1], [2, 3, 2]], [5.0, 6.0, 7.0], (2, 5))).values.tolist()
    [6.0, 5.0]
    """
    first = np.unique(coordinate_keys(coo.coords, coo.shape), return_index=True)[1]
    return Coo(coo.coords[:, first], coo.values[first], coo.shape, coo.nonfinite)


def first_repeated(coords: npt.NDArray[Any], shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The positions of a nonzero and of the first one that repeats its coordinates; None if all differ."""
    keys = coordinate_keys(coords, shape)
    ascending = np.sort(keys)
    if not (ascending[1:] == ascending[:-1]).any():
        return None
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    first = again[np.argmin(order[again + 1])]
    return int(order[first]), int(order[first + 1])
