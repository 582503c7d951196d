"""Flagged COO: sorted for one mode, with a bit where its index changes."""

from __future__ import annotations

import numpy as np

from gpu.mttkrp.formats.modes import ascending, checked_count, checked_mode, rooted
from gpu.mttkrp.formats.nonzeros import Nonzeros, arranged, nonzeros_of
from gpu.mttkrp.formats.runs import Depths, depths_of, starts_of
from gpu.mttkrp.formats.sort import Indices, taken
from reference.types import Coo, FCoo, PerMode


def f_coo(coo: Coo, mode: int, *, partition: int = 64) -> FCoo:
    """A tensor sorted and flagged for the result of one mode.

    Parameters
    ----------
    coo : Coo
    mode : int
    partition : int
        How many nonzeros a thread takes: a multiple of 32.

    Returns
    -------
    FCoo

    Raises
    ------
    FormatError
        If a place occurs twice.
    ShapeError
        For another mode or partition, and for a dimension above 2**32.

    Notes
    -----
    Source: MM-CSF (SC'19), sections 3 and 6.8; F-COO (CLUSTER'17).

    Examples
    --------
    >>> made = f_coo(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)), 0)
    >>> made.products.tolist(), bin(made.flags[0]), made.rows.tolist()
    ([[1, 1, 0], [0, 4, 2]], '0b101', [0, 1])
    """
    nonzeros = nonzeros_of(coo)
    modes = rooted(coo.shape, checked_mode(mode, coo.shape))
    return _flagged(arranged(nonzeros, modes), checked_count("partition", partition, 32))


def f_coo_all(coo: Coo, *, partition: int = 64) -> PerMode:
    """A tensor sorted and flagged for each mode.

    Parameters
    ----------
    coo : Coo
    partition : int
        As in `f_coo`.

    Returns
    -------
    PerMode of FCoo

    Raises
    ------
    FormatError, ShapeError
        As `f_coo`.

    Examples
    --------
    >>> copies = f_coo_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [copy.rows.tolist() for copy in copies.tensors]
    [[0, 1], [0, 1], [0, 2, 4]]
    """
    shortest_first = arranged(nonzeros_of(coo), ascending(coo.shape))
    partition = checked_count("partition", partition, 32)
    orders = (rooted(coo.shape, n) for n in range(len(coo.shape)))
    return PerMode(tuple(_flagged(arranged(shortest_first, modes), partition) for modes in orders), coo.shape)


def _flagged(nonzeros: Nonzeros, partition: int) -> FCoo:
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    depths = depths_of(coords, modes, order)
    segments = starts_of(depths, 0)[:-1]
    begins = np.arange(0, order.size, partition, dtype=np.uint32)
    return FCoo(
        modes,
        np.stack([taken(coords[n], order) for n in modes[1:]]),
        taken(nonzeros.values, order),
        _flags(depths),
        taken(coords[modes[0]], taken(order, segments)),
        (np.searchsorted(segments, begins, side="right") - 1).astype(np.uint32),
        nonzeros.shape,
        partition,
    )


def _flags(depths: Depths) -> Indices:
    """One bit for each nonzero, the first the least significant, in words of 32."""
    words = np.zeros(-(-depths.size // 32), "<u4")
    bits = np.packbits(depths == 0, bitorder="little")
    words.view(np.uint8)[: bits.size] = bits
    return words.astype(np.uint32, copy=False)
