"""The order of modes, the order of nonzeros, and places that occur more than once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError
from reference.sparse.arguments import check_coo, check_mode
from reference.types import Coo

Indices: TypeAlias = npt.NDArray[np.uint32]
Values: TypeAlias = npt.NDArray[Any]


def by_dimension(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The modes by ascending dimension, of equal dimensions the lower mode first.

    Source: MM-CSF (SC'19), section 3.2: the shortest mode at the root, the longest at the leaves.

    Examples
    --------
    >>> by_dimension((7, 3, 9, 3))
    (1, 3, 0, 2)
    """
    return tuple(sorted(range(len(shape)), key=lambda mode: shape[mode]))


def root_first(shape: tuple[int, ...], root: int) -> tuple[int, ...]:
    """The modes with ``root`` first and the others by ascending dimension.

    Raises
    ------
    ShapeError
        If there is no such mode.

    Source: MM-CSF (SC'19), section 3.2.

    Examples
    --------
    >>> root_first((7, 3, 9, 3), 2)
    (2, 1, 3, 0)
    """
    check_mode(root, shape)
    return (int(root), *(mode for mode in by_dimension(shape) if mode != root))


def leaf_last(shape: tuple[int, ...], leaf: int) -> tuple[int, ...]:
    """The modes by ascending dimension, but ``leaf`` last: how a partition of MM-CSF has them.

    Raises
    ------
    ShapeError
        If there is no such mode.

    Source: MM-CSF (SC'19), section 4.1.

    Examples
    --------
    >>> leaf_last((7, 3, 9, 3), 1)
    (3, 0, 2, 1)
    """
    check_mode(leaf, shape)
    return (*(mode for mode in by_dimension(shape) if mode != leaf), int(leaf))


def sort_nonzeros(coo: Coo, modes: tuple[int, ...]) -> tuple[Indices, Values]:
    """Indices and values in lexicographic order of the indices taken by ``modes``.

    Parameters
    ----------
    coo : Coo
        On the host. Nonzeros at the same place stay in their order.
    modes : tuple of int
        Every mode once.

    Returns
    -------
    indices : array of uint32, (order, M)
        Row l is of mode ``modes[l]``.
    values : array, (M,)

    Raises
    ------
    DtypeError
        If ``coo`` is no Coo.
    FormatError
        If its arrays lie on a device.
    ShapeError
        If a dimension exceeds 2**32.

    Examples
    --------
    >>> coo = Coo([[1, 0, 0], [0, 2, 1]], [5.0, 6.0, 7.0], (2, 3))
    >>> sort_nonzeros(coo, (0, 1))[0].tolist()
    [[0, 0, 1], [1, 2, 0]]
    >>> sort_nonzeros(coo, (1, 0))[0].tolist()
    [[0, 1, 2], [1, 0, 0]]
    """
    check_coo(coo)
    indices = coo.coords[list(modes)].astype(np.uint32)
    order = np.lexsort(indices[::-1])  # the last key of lexsort is the first to compare
    return np.ascontiguousarray(indices[:, order]), coo.values[order]


def sort_places(coo: Coo, modes: tuple[int, ...]) -> tuple[Indices, Values]:
    """As `sort_nonzeros`, for formats in which a place occurs once.

    Raises
    ------
    FormatError
        If a place occurs twice; names it.
    DtypeError, ShapeError
        As `sort_nonzeros`.

    Examples
    --------
    >>> sort_places(Coo([[0, 0], [2, 2]], [5.0, 6.0], (2, 3)), (0, 1))
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: the place (0, 2) occurs 2 times
    this format has each place once
    sum them first: coalesce(coo)
    """
    indices, values = sort_nonzeros(coo, modes)
    starts = prefix_starts(indices)[-1]
    counts = np.diff(np.append(starts, values.size))
    if counts.max() > 1:
        node = int(np.argmax(counts > 1))
        level_of = [modes.index(mode) for mode in range(len(modes))]
        place = tuple(int(indices[level, starts[node]]) for level in level_of)
        raise FormatError(
            f"the place {place} occurs {counts[node]} times\n"
            "this format has each place once\n"
            "sum them first: coalesce(coo)"
        )
    return indices, values


def prefix_starts(indices: Indices) -> list[npt.NDArray[np.int64]]:
    """Where each new prefix begins: the nodes of a tree over sorted nonzeros, level by level.

    Parameters
    ----------
    indices : array of uint32, (order, M)
        In lexicographic order.

    Returns
    -------
    list of arrays of int64, one per level
        Array l has, ascending, the nonzeros whose first l + 1 indices are not those of the nonzero
        before.

    Examples
    --------
    >>> indices = np.array([[0, 0, 0, 2], [1, 1, 3, 3], [0, 5, 5, 5]], np.uint32)
    >>> [starts.tolist() for starts in prefix_starts(indices)]
    [[0, 3], [0, 2, 3], [0, 1, 2, 3]]
    """
    starts: list[npt.NDArray[np.int64]] = []
    begins = np.zeros(indices.shape[1], bool)
    begins[0] = True
    for level in indices:
        begins[1:] |= level[1:] != level[:-1]
        starts.append(np.flatnonzero(begins))
    return starts


def coalesce(coo: Coo) -> Coo:
    """Every place once, in lexicographic order by mode 0, 1, …; values at one place are added.

    They are added in the order in which they occur, in their own type. A value of 0 stays, whether it
    was given or is a sum.

    Parameters
    ----------
    coo : Coo

    Returns
    -------
    Coo
        With uint32 indices.

    Raises
    ------
    DtypeError, FormatError, ShapeError
        As `sort_nonzeros`.
    NotANumberError
        If a sum overflows, unless ``coo.nonfinite``.

    Examples
    --------
    >>> coo = coalesce(Coo([[1, 0, 1], [2, 0, 2]], [5.0, 6.0, 7.0], (2, 3)))
    >>> coo.coords.tolist(), coo.values.tolist()
    ([[0, 1], [0, 2]], [6.0, 12.0])
    """
    check_coo(coo)
    indices, values = sort_nonzeros(coo, tuple(range(len(coo.shape))))
    starts = prefix_starts(indices)[-1]
    place = np.searchsorted(starts, np.arange(values.size), side="right") - 1
    again = np.ones(values.size, bool)
    again[starts] = False
    sums = values[starts]
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(sums, place[again], values[again])
    return Coo(np.ascontiguousarray(indices[:, starts]), sums, coo.shape, coo.nonfinite)
