"""Compressed sparse fibers: one tree, or one for each mode."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from gpu.mttkrp.formats.entry import Columns, Format, by_mode
from gpu.mttkrp.formats.nonzeros import Nonzeros, per_mode, sorted_nonzeros
from gpu.mttkrp.formats.runs import depths_of, ranks_of, starts_of
from gpu.mttkrp.formats.sort import taken
from reference.types import Coo, Csf, Fibers, PerMode

SPLIT = 128
"""The most nonzeros of a fiber that the kernel gets, as for MM-CSF."""


def csf(coo: Coo, modes: Sequence[int] | None = None) -> Csf:
    """Build a CSF tensor as one tree.

    ``modes`` are all modes, from the root to the leaves; by dimension, the shortest first, if not given
    (CSF-ONE). FormatError if coordinates occur twice; ShapeError for other modes or dimensions above 2**32.
    Source: MM-CSF (SC'19), section 3.1 and figure 2(b).

    >>> tree = csf(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [nodes.tolist() for nodes in tree.indices], [ends.tolist() for ends in tree.pointers]
    ([[0, 1], [1, 0], [0, 4, 2]], [[0, 1, 2], [0, 2, 3]])
    """
    return _tree(sorted_nonzeros(coo, modes))


def csf_all(coo: Coo) -> PerMode:
    """Build one CSF tree for each mode, with that mode at the root; see `csf`.

    Source: MM-CSF (SC'19), section 3.2 and algorithm 3.

    >>> trees = csf_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [tree.modes for tree in trees.tensors]
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    return per_mode(coo, _tree)


def _tree(nonzeros: Nonzeros) -> Csf:
    """Build the CSF tree of sorted nonzeros."""
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


def _columns(tensor: Csf) -> Columns:
    columns = [tensor.indices[-1]]
    for level, nodes in enumerate(tensor.indices[:-1]):
        ends = tensor.pointers[level]
        for pointers in tensor.pointers[level + 1 :]:
            ends = pointers[ends]
        columns.insert(level, np.repeat(nodes, np.diff(ends)))
    return by_mode(columns, tensor.modes), tensor.values


def fibers_of(tensor: Csf) -> Fibers:
    """Cut a tree on the host into fibers of at most 128 nonzeros, in its order, for ``fibers.cu``.

    >>> tree = csf(Coo([[0, 3, 3], [4, 4, 4], [5, 1, 2]], [1.0, 2.0, 3.0], (6, 5, 7)), (1, 0, 2))
    >>> fibers_of(tree).uppers.tolist(), fibers_of(tree).pointers.tolist()
    ([[4, 4], [0, 3]], [0, 1, 3])
    """
    *inner, of_fibers = (pointers.astype(np.int64) for pointers in tensor.pointers)
    lengths = np.diff(of_fibers)
    pieces = -(-lengths // SPLIT)
    begins = np.repeat(of_fibers[:-1], pieces)
    first_piece = np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins += SPLIT * (np.arange(begins.size) - first_piece)
    below = pieces  # the number of pieces below each node of a level, from the lowest level up
    uppers = [np.repeat(tensor.indices[-2], below)]
    for pointers, indices in zip(reversed(inner), reversed(tensor.indices[:-2]), strict=True):
        below = np.add.reduceat(below, pointers[:-1])
        uppers.insert(0, np.repeat(indices, below))
    bounds = np.append(begins, tensor.values.shape[0]).astype(np.uint32)
    leaves = tensor.indices[-1]
    return Fibers(tensor.modes, np.stack(uppers), bounds, leaves, tensor.values, tensor.shape, SPLIT)


FORMAT = Format(Csf, _columns, builders={"csf-one": csf, "csf-all": csf_all}, for_kernels=fibers_of)
