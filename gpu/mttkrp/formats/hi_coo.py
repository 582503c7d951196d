"""Hierarchical COO: blocks in Z order, one byte for each index within a block."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.mttkrp.formats.nonzeros import nonzeros_of
from gpu.mttkrp.formats.runs import depths_of, starts_of
from gpu.mttkrp.formats.sort import Indices, sorted_by, taken
from reference.errors import ShapeError
from reference.types import Coo, HiCoo

BLOCKS = tuple(2**bits for bits in range(1, 9))
"""The sides that a block may have: what is within fits a byte."""


def hi_coo(coo: Coo, *, block: int = 128) -> HiCoo:
    """A tensor in blocks.

    Parameters
    ----------
    coo : Coo
    block : int
        How many indices a block has in each mode: a power of two, 2 to 256.

    Returns
    -------
    HiCoo

    Raises
    ------
    FormatError
        If a place occurs twice.
    ShapeError
        For another block, and for a dimension above 2**32.

    Notes
    -----
    Source: HiCOO (SC'18); MM-CSF (SC'19), section 3.

    Examples
    --------
    >>> made = hi_coo(Coo([[0, 5, 1], [4, 1, 0]], [5.0, 6.0, 7.0], (6, 6)), block=4)
    >>> made.block_coords.tolist(), made.offsets.tolist(), made.values.tolist()
    ([[0, 0, 1], [0, 1, 0]], [[1, 0, 1], [0, 0, 1]], [7.0, 5.0, 6.0])
    """
    nonzeros = nonzeros_of(coo)
    within = _bits_within(block)
    order = sorted_by(nonzeros.coords, _z_order(nonzeros.coords, within), nonzeros.order)
    blocks = nonzeros.coords >> np.uint32(within)
    starts = starts_of(depths_of(blocks, nonzeros.modes, order), len(blocks) - 1)
    firsts = taken(order, starts[:-1])
    offsets = (nonzeros.coords & np.uint32(block - 1)).astype(np.uint8)
    return HiCoo(
        starts.astype(np.uint64),
        np.stack([taken(indices, firsts) for indices in blocks]),
        np.stack([taken(indices, order) for indices in offsets]),
        taken(nonzeros.values, order),
        coo.shape,
        int(block),
    )


def _bits_within(block: Any) -> int:
    if block not in BLOCKS:
        raise ShapeError(
            f"block={block!r}\nthe side of a block is a power of two, 2 to 256\ngive one of {BLOCKS}"
        )
    return int(block).bit_length() - 1


def _z_order(coords: Indices, within: int) -> list[tuple[int, int]]:
    """The bits of the blocks' coordinates, interleaved."""
    lengths = [int(indices.max()).bit_length() for indices in coords]
    return [
        (n, bit)
        for bit in reversed(range(within, max(lengths)))
        for n, length in enumerate(lengths)
        if bit < length
    ]
