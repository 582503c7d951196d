"""Flagged COO: a bit where the index of the result's mode changes."""

from __future__ import annotations

import numpy as np

from reference.errors import ShapeError
from reference.sparse.arguments import check_at_least_one, check_coo
from reference.sparse.order import prefix_starts, root_first, sort_places
from reference.types import Coo, FCoo, PerMode

WORD_BITS = 32


def f_coo(coo: Coo, mode: int, *, partition: int = 64) -> FCoo:
    """The tensor sorted for one mode, the other modes by ascending dimension.

    Parameters
    ----------
    coo : Coo
        Each place once, in any order.
    mode : int
        The mode of the result that this form is made for.
    partition : int
        The nonzeros of a partition, a multiple of 32.

    Returns
    -------
    FCoo

    Raises
    ------
    FormatError
        If a place occurs twice, or the arrays lie on a device.
    DtypeError
        If ``coo`` is no Coo.
    ShapeError
        If a dimension exceeds 2**32, there is no such mode, or ``partition`` is no multiple of 32.

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
    check_partition(partition)
    modes = root_first(coo.shape, mode)
    indices, values = sort_places(coo, modes)
    segments = prefix_starts(indices)[0]
    firsts = np.arange(0, values.size, partition)
    return FCoo(
        modes,
        np.ascontiguousarray(indices[1:]),
        values,
        segment_flags(segments.tolist(), values.size),
        indices[0, segments],
        (np.searchsorted(segments, firsts, side="right") - 1).astype(np.uint32),
        coo.shape,
        int(partition),
    )


def f_coo_all(coo: Coo, *, partition: int = 64) -> PerMode:
    """One flagged form for each mode.

    Parameters
    ----------
    coo : Coo
        Each place once, in any order.
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
    check_coo(coo)
    every = range(len(coo.shape))
    return PerMode(tuple(f_coo(coo, mode, partition=partition) for mode in every), coo.shape)


def segment_flags(segments: list[int], nonzeros: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Words of 32 bits, bit ``z % 32`` of word ``z // 32`` set where a segment begins at nonzero z.

    Examples
    --------
    >>> [hex(word) for word in segment_flags([0, 1, 31, 32], nonzeros=40)]
    ['0x80000003', '0x1']
    """
    words = [0] * -(-nonzeros // WORD_BITS)
    for z in segments:
        words[z // WORD_BITS] |= 1 << z % WORD_BITS
    return np.array(words, np.uint32)


def check_partition(partition: int) -> None:
    """Raise ShapeError unless ``partition`` is a multiple of 32.

    Examples
    --------
    >>> check_partition(96)
    """
    check_at_least_one(partition, "partition")
    if partition % WORD_BITS:
        raise ShapeError(
            f"partition is {partition}\na partition is whole words of {WORD_BITS} flags\n"
            f"give {WORD_BITS}, {2 * WORD_BITS} or another multiple of {WORD_BITS}"
        )
