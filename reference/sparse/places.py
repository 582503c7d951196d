"""Places in numbers: how many there are, and which occurs again. Dimensions may be of any size."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Keys: TypeAlias = npt.NDArray[np.uint64]


def place_keys(coords: npt.NDArray[Any], shape: tuple[int, ...]) -> Keys:
    """A number for each nonzero, equal where all indices are equal, in the order of the indices.

    The key is the place's number in C order. Where these numbers could exceed 64 bits, indices are
    replaced by their ranks among those in use.

    Parameters
    ----------
    coords : (modes, M) array of integers
        Some modes of a `Coo`, or all.
    shape : tuple of int
        Their dimensions.

    Returns
    -------
    array of uint64, (M,)

    Examples
    --------
    >>> place_keys(np.array([[1, 0, 1], [2, 3, 2]]), (2, 5)).tolist()
    [7, 3, 7]
    >>> place_keys(np.array([[1, 0, 1], [2, 3, 2]]), (2**60, 2**60)).tolist()
    [1152921504606846978, 3, 1152921504606846978]
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
    used, ranks = np.unique(numbers, return_inverse=True)
    return ranks.astype(np.uint64), used.size


def count_places(coords: npt.NDArray[Any], shape: tuple[int, ...]) -> int:
    """How many different places there are.

    Parameters
    ----------
    coords, shape
        As for `place_keys`: of one mode, its slices; of all modes but one, the fibers along that one.

    Examples
    --------
    >>> count_places(np.array([[1, 0, 1], [2, 3, 2]]), (2, 5))
    2
    """
    keys = np.sort(place_keys(coords, shape))
    return 1 + int(np.count_nonzero(keys[1:] != keys[:-1]))


def first_repeated(coords: npt.NDArray[Any], shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The first nonzero whose place has occurred before it.

    Returns
    -------
    (int, int) or None
        The last nonzero before it at the same place, and the nonzero; None if all places differ.

    Examples
    --------
    >>> first_repeated(np.array([[1, 0, 1], [2, 3, 2]]), (2, 5))
    (0, 2)
    """
    keys = place_keys(coords, shape)
    ascending = np.sort(keys)
    if not (ascending[1:] == ascending[:-1]).any():
        return None
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    first = again[np.argmin(order[again + 1])]
    return int(order[first]), int(order[first + 1])
