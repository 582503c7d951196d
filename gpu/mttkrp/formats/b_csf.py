"""Balanced CSF: long fibers cut into pieces, slices in bins by their nonzeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.mttkrp.formats.modes import ascending, checked_count, checked_modes, rooted
from gpu.mttkrp.formats.nonzeros import Nonzeros, arranged, nonzeros_of
from gpu.mttkrp.formats.runs import depths_of, ranks_of, starts_of
from gpu.mttkrp.formats.sort import Indices, taken
from reference.types import BCsf, Coo, PerMode


def b_csf(coo: Coo, modes: Sequence[int] | None = None, *, split: int = 128, share: int = 512) -> BCsf:
    """A tensor as one balanced tree of three levels: slices, fibers, nonzeros.

    Parameters
    ----------
    coo : Coo
    modes : sequence of int, optional
        First the mode of the slices, last that of the leaves; by dimension if not given.
    split : int
        The most nonzeros of a fiber; longer ones are cut.
    share : int
        The nonzeros of a slice that one warp takes; twice as many warps for each further bin.

    Returns
    -------
    BCsf

    Raises
    ------
    FormatError
        If a place occurs twice.
    ShapeError
        If ``modes`` are not all modes, a dimension is above 2**32, or ``split`` or ``share`` is less than 1.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.1, figure 2(c) and algorithm 2.

    Examples
    --------
    >>> made = b_csf(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)), share=1)
    >>> made.slice_pointers.tolist(), made.order.tolist(), made.bins
    ([0, 1, 2], [1, 0], (0, 1, 2))
    """
    nonzeros = nonzeros_of(coo)
    modes = ascending(coo.shape) if modes is None else checked_modes(modes, coo.shape)
    sizes = checked_count("split", split), checked_count("share", share)
    return _balanced(arranged(nonzeros, modes), *sizes)


def b_csf_all(coo: Coo, *, split: int = 128, share: int = 512) -> PerMode:
    """A tensor as one balanced tree for each mode, which is that of the slices.

    Parameters
    ----------
    coo : Coo
    split, share : int
        As in `b_csf`.

    Returns
    -------
    PerMode of BCsf

    Raises
    ------
    FormatError, ShapeError
        As `b_csf`.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.2.

    Examples
    --------
    >>> trees = b_csf_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [tree.slices.tolist() for tree in trees.tensors]
    [[0, 1], [0, 1], [0, 2, 4]]
    """
    shortest_first = arranged(nonzeros_of(coo), ascending(coo.shape))
    sizes = checked_count("split", split), checked_count("share", share)
    orders = (rooted(coo.shape, n) for n in range(len(coo.shape)))
    return PerMode(tuple(_balanced(arranged(shortest_first, modes), *sizes) for modes in orders), coo.shape)


def _balanced(nonzeros: Nonzeros, split: int, share: int) -> BCsf:
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    depths = depths_of(coords, modes, order)
    slices, fibers = starts_of(depths, 0), starts_of(depths, len(modes) - 2, split)
    firsts = taken(order, fibers[:-1])
    uppers = np.empty((len(modes) - 2, firsts.size), np.uint32)
    for indices, n in zip(uppers, modes[1:-1], strict=True):
        indices[:] = taken(coords[n], firsts)
    in_bins, bounds = _binned(np.diff(slices), share)
    return BCsf(
        modes,
        taken(coords[modes[0]], taken(order, slices[:-1])),
        ranks_of(slices, fibers),
        uppers,
        fibers,
        taken(coords[modes[-1]], order),
        taken(nonzeros.values, order),
        in_bins,
        bounds,
        nonzeros.shape,
        split,
        share,
    )


def _binned(lengths: Indices, share: int) -> tuple[Indices, tuple[int, ...]]:
    """Slices by bin, and where each bin begins: bin b holds those of up to ``share * 2**b`` nonzeros."""
    most = [share]
    while most[-1] < int(lengths.max()):
        most.append(2 * most[-1])
    bins = np.searchsorted(np.array(most, np.int64), lengths).astype(np.uint8)
    counts = np.bincount(bins, minlength=len(most))
    return np.argsort(bins, kind="stable").astype(np.uint32), (0, *counts.cumsum().tolist())
