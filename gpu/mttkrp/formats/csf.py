"""Compressed sparse fibers: one tree, or one for each mode."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gpu.mttkrp.formats.modes import ascending, checked_modes, rooted
from gpu.mttkrp.formats.nonzeros import Nonzeros, arranged, nonzeros_of
from gpu.mttkrp.formats.runs import depths_of, ranks_of, starts_of
from gpu.mttkrp.formats.sort import taken
from reference.types import Coo, Csf, PerMode


def csf(coo: Coo, modes: Sequence[int] | None = None) -> Csf:
    """A tensor as one tree.

    Parameters
    ----------
    coo : Coo
    modes : sequence of int, optional
        From the root to the leaves; by dimension if not given, the shortest first (CSF-ONE).

    Returns
    -------
    Csf

    Raises
    ------
    FormatError
        If a place occurs twice.
    ShapeError
        If ``modes`` are not all modes, or a dimension is above 2**32.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.1 and figure 2(b).

    Examples
    --------
    >>> tree = csf(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [nodes.tolist() for nodes in tree.indices], [ends.tolist() for ends in tree.pointers]
    ([[0, 1], [1, 0], [0, 4, 2]], [[0, 1, 2], [0, 2, 3]])
    """
    nonzeros = nonzeros_of(coo)
    modes = ascending(coo.shape) if modes is None else checked_modes(modes, coo.shape)
    return _tree(arranged(nonzeros, modes))


def csf_all(coo: Coo) -> PerMode:
    """A tensor as one tree for each mode, which is its root.

    Parameters
    ----------
    coo : Coo

    Returns
    -------
    PerMode of Csf

    Raises
    ------
    FormatError, ShapeError
        As `csf`.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.2 and algorithm 3.

    Examples
    --------
    >>> trees = csf_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [tree.modes for tree in trees.tensors]
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    shortest_first = arranged(nonzeros_of(coo), ascending(coo.shape))
    trees = (_tree(arranged(shortest_first, rooted(coo.shape, n))) for n in range(len(coo.shape)))
    return PerMode(tuple(trees), coo.shape)


def _tree(nonzeros: Nonzeros) -> Csf:
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    depths = depths_of(coords, modes, order)
    starts = [starts_of(depths, level) for level in range(len(modes) - 1)]
    nodes = [taken(coords[n], taken(order, begin[:-1])) for n, begin in zip(modes, starts, strict=False)]
    pointers = [ranks_of(outer, inner) for outer, inner in pairwise(starts)]
    return Csf(
        modes,
        (*nodes, taken(coords[modes[-1]], order)),
        (*pointers, starts[-1]),
        taken(nonzeros.values, order),
        nonzeros.shape,
    )
