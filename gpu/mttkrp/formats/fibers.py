"""Fibers along one mode, each with all its other indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.mttkrp.formats.modes import checked_count, checked_modes
from gpu.mttkrp.formats.nonzeros import Nonzeros, arranged, nonzeros_of
from gpu.mttkrp.formats.runs import depths_of, starts_of
from gpu.mttkrp.formats.sort import taken
from reference.types import Coo, Fibers


def fibers(coo: Coo, modes: Sequence[int], *, split: int = 128) -> Fibers:
    """A tensor as fibers along the last of ``modes``.

    Parameters
    ----------
    coo : Coo
    modes : sequence of int
        All modes; fibers are sorted by the ones before the last.
    split : int
        The most nonzeros of a fiber; longer ones are cut.

    Returns
    -------
    Fibers

    Raises
    ------
    FormatError
        If a place occurs twice.
    ShapeError
        If ``modes`` are not all modes, a dimension is above 2**32, or ``split`` is less than 1.

    Notes
    -----
    Source: MM-CSF (SC'19), section 5.1.

    Examples
    --------
    >>> made = fibers(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)), (0, 1, 2))
    >>> made.uppers.tolist(), made.pointers.tolist(), made.leaves.tolist()
    ([[0, 1], [1, 0]], [0, 2, 3], [0, 4, 2])
    """
    nonzeros = nonzeros_of(coo)
    split = checked_count("split", split)
    return fibers_of(arranged(nonzeros, checked_modes(modes, coo.shape)), split)


def fibers_of(nonzeros: Nonzeros, split: int) -> Fibers:
    """Nonzeros as fibers along the last of their modes.

    Examples
    --------
    >>> nonzeros = nonzeros_of(Coo([[0, 0, 0, 1], [1, 3, 4, 0]], [1.0, 2.0, 3.0, 4.0], (2, 5)))
    >>> fibers_of(nonzeros, split=2).pointers
    array([0, 2, 3, 4], dtype=uint32)
    """
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    starts = starts_of(depths_of(coords, modes, order), len(modes) - 2, split)
    firsts = taken(order, starts[:-1])
    return Fibers(
        modes,
        np.stack([taken(coords[n], firsts) for n in modes[:-1]]),
        starts,
        taken(coords[modes[-1]], order),
        taken(nonzeros.values, order),
        nonzeros.shape,
        split,
    )
