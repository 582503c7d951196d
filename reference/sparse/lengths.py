"""How many nonzeros fibers and slices have: their lengths, and histograms of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from reference.sparse.coordinates import coordinate_keys
from reference.types import Coo
from reference.types.arguments import check_host, check_mode

Lengths = npt.NDArray[np.int64]

PAPER_BOUNDS = (100, 5_000, 10_000)
"""The bounds of the paper's table 2."""


def fiber_lengths(coo: Coo, mode: int) -> Lengths:
    """Return the nonzeros of each fiber along a mode: those that agree in all other indices.

    Parameters
    ----------
    coo : Coo
        On the host, in any order. Repeated coordinates count as often as they are stored; `coalesce` sums
        them.
    mode : int
        The leaf mode of the fibers.

    Returns
    -------
    (fibers,) int64
        In lexicographic order of the other indices. Fibers without nonzeros are left out.

    Raises
    ------
    DtypeError, FormatError
        If ``coo`` is not a Coo on the host.
    ShapeError
        If the tensor does not have the mode.

    Notes
    -----
    Source: MM-CSF (SC'19), sections 2.1 and 4, table 2.

    Examples
    --------
    >>> coo = Coo([[0, 0, 0, 1], [1, 1, 1, 0], [0, 2, 3, 3]], [1.0, 2.0, 3.0, 4.0], (2, 3, 4))
    >>> fiber_lengths(coo, 2).tolist(), fiber_lengths(coo, 0).tolist()
    ([3, 1], [1, 1, 1, 1])
    """
    check_host(coo)
    mode = check_mode(mode, len(coo.shape))
    return _runs(coo, [other for other in range(len(coo.shape)) if other != mode])


def slice_lengths(coo: Coo, mode: int) -> Lengths:
    """Return the nonzeros of each slice of a mode: those that have its index there.

    The paper defines a slice by fixing all indices but two; of a tree of any order it is what hangs on one
    root. Both are the same for three modes.

    Parameters
    ----------
    coo : Coo
        As for `fiber_lengths`.
    mode : int

    Returns
    -------
    (slices,) int64
        By ascending index. Slices without nonzeros are left out.

    Raises
    ------
    DtypeError, FormatError, ShapeError
        As `fiber_lengths`.

    Notes
    -----
    Source: MM-CSF (SC'19), sections 2.1 and 5.2.

    Examples
    --------
    >>> coo = Coo([[0, 0, 0, 2], [1, 1, 1, 0], [0, 2, 3, 3]], [1.0, 2.0, 3.0, 4.0], (3, 3, 4))
    >>> slice_lengths(coo, 0).tolist()
    [3, 1]
    """
    check_host(coo)
    return _runs(coo, [check_mode(mode, len(coo.shape))])


def length_histogram(lengths: npt.ArrayLike, bounds: tuple[int, ...] = PAPER_BOUNDS) -> tuple[int, ...]:
    """Count lengths by size: up to the first bound, up to the second, …, and above the last.

    Parameters
    ----------
    lengths : array of int
        As `fiber_lengths` or `slice_lengths` returns.
    bounds : tuple of int
        Ascending. The default ones are those of the paper's table 2, which does not say to which side a
        bound belongs; here a length that equals a bound is counted below it.

    Returns
    -------
    tuple of int
        One more than there are bounds.

    Raises
    ------
    ShapeError
        If the bounds do not ascend.

    Notes
    -----
    Source: MM-CSF (SC'19), table 2.

    Examples
    --------
    >>> length_histogram([1, 100, 101, 7000, 20_000])
    (2, 1, 1, 1)
    >>> length_histogram([1, 1, 2, 3, 9], bounds=(1, 4))
    (2, 2, 1)
    """
    given = np.asarray(bounds)
    if given.ndim != 1 or (given[1:] <= given[:-1]).any():
        raise ShapeError(
            f"bounds are {bounds!r}\nbounds of a histogram ascend\ngive e.g. {PAPER_BOUNDS}, those of table 2"
        )
    bins = np.searchsorted(given, np.asarray(lengths))
    return tuple(np.bincount(bins, minlength=given.size + 1).tolist())


def _runs(coo: Coo, modes: list[int]) -> Lengths:
    """How many nonzeros share their indices in some modes, for all that occur."""
    chosen: Any = coo.coords[modes]
    keys = np.sort(coordinate_keys(chosen, tuple(coo.shape[mode] for mode in modes)))
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return np.diff(np.append(starts, keys.size))
