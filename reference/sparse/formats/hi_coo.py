"""Builder of hierarchical COO: blocks in Z order, one byte per index within a block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.sparse.formats.entry import WORD, Coordinates, Format
from reference.sparse.sort import Indices, prefix_starts, sort_distinct
from reference.types import Coo, HiCoo
from reference.types.arguments import check_block, check_coo


def hi_coo(coo: Coo, *, block: int = 128) -> HiCoo:
    """Build the hierarchical COO of a tensor, with blocks whose sides have ``block`` indices.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    block : int
        A power of two, 2 to 256.

    Returns
    -------
    HiCoo

    Raises
    ------
    FormatError
        If coordinates are repeated, or the arrays are on a device.
    DtypeError
        If ``coo`` is not a Coo.
    ShapeError
        If a dimension exceeds 2**32, or ``block`` is not a power of two from 2 to 256.

    Notes
    -----
    Source: HiCOO (SC'18); MM-CSF (SC'19), section 3.

    Examples
    --------
    >>> coo = Coo([[0, 3, 4, 0], [5, 0, 1, 1]], [1.0, 2.0, 3.0, 4.0], (6, 6))
    >>> blocked = hi_coo(coo, block=4)
    >>> blocked.block_coords.tolist(), blocked.block_pointers.tolist()
    ([[0, 0, 1], [0, 1, 0]], [0, 2, 3, 4])
    >>> blocked.offsets.tolist(), blocked.values.tolist()
    ([[0, 3, 0, 0], [1, 0, 1, 1]], [4.0, 2.0, 1.0, 3.0])
    """
    check_coo(coo)
    block = check_block(block)
    indices, values = sort_distinct(coo, tuple(range(len(coo.shape))))
    order = _z_order(indices // block)
    indices, values = indices[:, order], values[order]
    blocks, offsets = np.divmod(indices, np.uint32(block))
    starts = prefix_starts(blocks)[-1]
    return HiCoo(
        np.append(starts, values.size).astype(np.uint64),
        np.ascontiguousarray(blocks[:, starts]),
        np.ascontiguousarray(offsets, np.uint8),
        values,
        coo.shape,
        block,
    )


def _z_order(blocks: Indices) -> npt.NDArray[np.int64]:
    """Sort blocks stably in Morton order: by the highest bit of mode 0, 1, …, then by the next lower bits."""
    weights = reversed(range(int(blocks.max()).bit_length()))
    bits = [(mode >> np.uint32(weight)) & np.uint32(1) for weight in weights for mode in blocks]
    return np.lexsort([np.zeros(blocks.shape[1], np.uint32), *reversed(bits)])


def _coordinates(blocked: HiCoo) -> tuple[Coordinates, Coordinates]:
    lengths = np.diff(blocked.block_pointers).astype(np.int64)
    corners = np.repeat(blocked.block_coords.astype(np.int64), lengths, axis=1)
    return int(blocked.block) * corners + blocked.offsets, blocked.values


def _paper_bytes(blocked: HiCoo) -> int:
    return blocked.block_pointers[1:].nbytes + WORD * blocked.block_coords.size + blocked.offsets.size


FORMAT = Format(HiCoo, _coordinates, _paper_bytes, {"hicoo": hi_coo})
