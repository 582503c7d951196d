"""Builders of flagged COO, which marks each change of the index in the result's mode by a bit."""

from __future__ import annotations

import numpy as np

from reference.sparse.formats.entry import WORD, Coordinates, Format, by_mode, for_every_mode
from reference.sparse.sort import prefix_starts, sort_distinct
from reference.types import Coo, FCoo, PerMode
from reference.types.arguments import check_coo, check_mode, check_number, root_first
from reference.types.sparse import FLAGS, flag_bits


def f_coo(coo: Coo, mode: int, *, partition: int = 64) -> FCoo:
    """Build the flagged COO of a tensor for one mode, the other modes by ascending dimension.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    mode : int
        The mode of the MTTKRP's result.
    partition : int
        The number of nonzeros of a partition, a multiple of 32.

    Returns
    -------
    FCoo

    Raises
    ------
    FormatError
        If coordinates are repeated, or the arrays are on a device.
    DtypeError
        If ``coo`` is not a Coo.
    ShapeError
        If a dimension exceeds 2**32, ``mode`` is not a mode of the tensor, or ``partition`` is not a
        multiple of 32.

    Notes
    -----
    Source: F-COO (CLUSTER'17): bit flag and start flag; MM-CSF (SC'19), section 3.

    Examples
    --------
    >>> flagged = f_coo(Coo([[0, 0, 2, 2], [0, 1, 0, 3]], [1.0, 2.0, 3.0, 4.0], (3, 4)), 0)
    >>> bin(flagged.flags[0]), flagged.rows.tolist(), flagged.products.tolist(), flagged.first.tolist()
    ('0b101', [0, 2], [[0, 1, 0, 3]], [0])
    """
    check_coo(coo)
    partition = check_number("partition", partition, FLAGS)
    modes = root_first(coo.shape, check_mode(mode, len(coo.shape)))
    indices, values = sort_distinct(coo, modes)
    segments = prefix_starts(indices)[0]
    firsts = np.arange(0, values.size, partition)
    return FCoo(
        modes,
        np.ascontiguousarray(indices[1:]),
        values,
        _segment_flags(segments.tolist(), values.size),
        indices[0, segments],
        (np.searchsorted(segments, firsts, side="right") - 1).astype(np.uint32),
        coo.shape,
        partition,
    )


def f_coo_all(coo: Coo, *, partition: int = 64) -> PerMode:
    """Build the flagged COO of a tensor for each mode.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    partition : int
        As `f_coo`.

    Returns
    -------
    PerMode

    Raises
    ------
    FormatError, DtypeError, ShapeError
        As `f_coo`.

    Notes
    -----
    Source: MM-CSF (SC'19), section 6.8: F-COO needs one representation per mode.

    Examples
    --------
    >>> coo = Coo([[0, 0, 1], [1, 1, 0], [0, 3, 3]], [1.0, 2.0, 3.0], (2, 3, 4))
    >>> [flagged.modes for flagged in f_coo_all(coo).tensors]
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    return for_every_mode(coo, lambda modes: f_coo(coo, modes[0], partition=partition))


def _segment_flags(segments: list[int], nonzeros: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Words of 32 flags: bit ``z % 32`` of word ``z // 32`` is set if a segment begins at nonzero z."""
    words = [0] * -(-nonzeros // FLAGS)
    for z in segments:
        words[z // FLAGS] |= 1 << z % FLAGS
    return np.array(words, np.uint32)


def _coordinates(flagged: FCoo) -> tuple[Coordinates, Coordinates]:
    segment_of = np.cumsum(flag_bits(flagged.flags)[: flagged.values.size], dtype=np.int64) - 1
    return by_mode([flagged.rows[segment_of], *flagged.products], flagged.modes), flagged.values


def _paper_bytes(flagged: FCoo) -> int:
    """For each nonzero an index in each other mode and a bit flag, for each eight a start flag."""
    count = flagged.values.size
    bits = count * (8 * WORD * (len(flagged.shape) - 1) + 1) + -(-count // 8)
    return -(-bits // 8)


FORMAT = Format(FCoo, _coordinates, _paper_bytes, {"f-coo": f_coo_all})
