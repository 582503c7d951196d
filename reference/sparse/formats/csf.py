"""Builders of compressed sparse fibers: one tree over all nonzeros, or one for each mode."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

from reference.sparse.formats.entry import WORD, Coordinates, Format, by_mode, for_every_mode
from reference.sparse.sort import prefix_starts, sort_distinct
from reference.types import Coo, Csf, PerMode
from reference.types.arguments import by_dimension, check_coo, check_modes


def csf(coo: Coo, modes: tuple[int, ...] | None = None) -> Csf:
    """Build the CSF tree of a tensor; ``modes=None`` is CSF-ONE, the shortest mode at the root.

    A node of level l is a distinct prefix of l + 1 indices, in the order of ``modes``.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    modes : tuple of int, optional
        From the root to the leaves. By default in ascending order of dimension.

    Returns
    -------
    Csf

    Raises
    ------
    FormatError
        If coordinates are repeated, or the arrays are on a device.
    DtypeError
        If ``coo`` is not a Coo.
    ShapeError
        If a dimension exceeds 2**32, or ``modes`` does not name every mode once.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.1, figure 2(b), and section 3.2 for the order of modes.

    Examples
    --------
    >>> tree = csf(Coo([[0, 0, 1], [1, 1, 0], [0, 3, 3]], [1.0, 2.0, 3.0], (2, 3, 4)))
    >>> [level.tolist() for level in tree.indices]
    [[0, 1], [1, 0], [0, 3, 3]]
    >>> [level.tolist() for level in tree.pointers]
    [[0, 1, 2], [0, 2, 3]]
    """
    check_coo(coo)
    modes = by_dimension(coo.shape) if modes is None else check_modes(modes, coo.shape)
    indices, values = sort_distinct(coo, modes)
    starts = prefix_starts(indices)
    return Csf(
        modes,
        tuple(level[nodes] for level, nodes in zip(indices, starts, strict=True)),
        tuple(
            np.searchsorted(children, np.append(nodes, values.size)).astype(np.uint32)
            for nodes, children in pairwise(starts)
        ),
        values,
        coo.shape,
    )


def csf_all(coo: Coo) -> PerMode:
    """Build CSF-ALL: one tree per mode, with that mode at the root and the others by ascending dimension.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.

    Returns
    -------
    PerMode

    Raises
    ------
    FormatError, DtypeError, ShapeError
        As `csf`.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.2 and figure 3(b).

    Examples
    --------
    >>> coo = Coo([[0, 0, 1], [1, 1, 0], [0, 3, 3]], [1.0, 2.0, 3.0], (2, 3, 4))
    >>> [tree.modes for tree in csf_all(coo).tensors]
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    return for_every_mode(coo, partial(csf, coo))


def _coordinates(tree: Csf) -> tuple[Coordinates, Coordinates]:
    """Coordinates and values of a tree: the indices of each level, repeated for the leaves below."""
    levels = [tree.indices[-1]]
    leaves_below = np.ones(tree.values.size, np.int64)
    for indices, pointers in zip(reversed(tree.indices[:-1]), reversed(tree.pointers), strict=True):
        leaves_below = np.add.reduceat(leaves_below, pointers[:-1])
        levels.insert(0, np.repeat(indices, leaves_below))
    return by_mode(levels, tree.modes), tree.values


def _paper_bytes(tree: Csf) -> int:
    return WORD * (2 * sum(nodes.size for nodes in tree.indices[:-1]) + tree.values.size)


def _slices_and_fibers(tree: Csf) -> tuple[int, int]:
    return tree.indices[0].size, tree.indices[-2].size


FORMAT = Format(Csf, _coordinates, _paper_bytes, {"csf-one": csf, "csf-all": csf_all}, _slices_and_fibers)
