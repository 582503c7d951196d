"""Compressed sparse fibers as fibers with all their indices, which kernels start from."""

from __future__ import annotations

import numpy as np

from reference.types import Csf, Fibers

SPLIT = 128
"""The longest fiber: as for MM-CSF."""


def fibers_of(tensor: Csf) -> Fibers:
    """The tree's fibers, in the same order, each with the indices on its path from the root.

    Parameters
    ----------
    tensor : Csf
        On the host.

    Returns
    -------
    Fibers
        With ``split=128``.

    Examples
    --------
    One root with two children, of two leaves and one:

    >>> def u(*x): return np.array(x, np.uint32)
    >>> tree = Csf((1, 0, 2), (u(4), u(0, 3), u(1, 5, 2)), (u(0, 2), u(0, 2, 3)), np.ones(3), (6, 5, 7))
    >>> fibers_of(tree).uppers.tolist(), fibers_of(tree).pointers.tolist()
    ([[4, 4], [0, 3]], [0, 2, 3])
    """
    *inner, of_fibers = (pointers.astype(np.int64) for pointers in tensor.pointers)
    lengths = np.diff(of_fibers)
    pieces = -(-lengths // SPLIT)
    begins = np.repeat(of_fibers[:-1], pieces)
    first_piece = np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins += SPLIT * (np.arange(begins.size) - first_piece)
    below = pieces  # how many pieces hang off each node of a level, from the lowest up
    uppers = [np.repeat(tensor.indices[-2], below)]
    for pointers, indices in zip(reversed(inner), reversed(tensor.indices[:-2]), strict=True):
        below = np.add.reduceat(below, pointers[:-1])
        uppers.insert(0, np.repeat(indices, below))
    bounds = np.append(begins, tensor.values.shape[0]).astype(np.uint32)
    leaves = tensor.indices[-1]
    return Fibers(tensor.modes, np.stack(uppers), bounds, leaves, tensor.values, tensor.shape, SPLIT)
