"""Hierarchical COO: blocks in Z order, one byte per index within a block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from reference.sparse.arguments import check_coo, is_integer
from reference.sparse.order import Indices, prefix_starts, sort_places
from reference.types import Coo, HiCoo

BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)


def hi_coo(coo: Coo, *, block: int = 128) -> HiCoo:
    """The tensor in blocks of ``block`` indices a side.

    Parameters
    ----------
    coo : Coo
        Each place once, in any order.
    block : int
        A power of two, 2 to 256.

    Returns
    -------
    HiCoo

    Raises
    ------
    FormatError
        If a place occurs twice, or the arrays lie on a device.
    DtypeError
        If ``coo`` is no Coo.
    ShapeError
        If a dimension exceeds 2**32, or ``block`` is another number.

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
    check_block(block)
    indices, values = sort_places(coo, tuple(range(len(coo.shape))))
    order = z_order(indices // block)
    indices, values = indices[:, order], values[order]
    blocks, offsets = np.divmod(indices, np.uint32(block))
    starts = prefix_starts(blocks)[-1]
    return HiCoo(
        np.append(starts, values.size).astype(np.uint64),
        np.ascontiguousarray(blocks[:, starts]),
        np.ascontiguousarray(offsets, np.uint8),
        values,
        coo.shape,
        int(block),
    )


def z_order(places: Indices) -> npt.NDArray[np.int64]:
    """The order of places along the Z curve: by their highest bits in mode 0, 1, …, then the next lower.

    Parameters
    ----------
    places : array of uint32, (order, n)

    Returns
    -------
    array of int64, (n,)
        A sorting permutation; equal places stay in their order.

    Notes
    -----
    Source: HiCOO (SC'18): Morton order of the blocks.

    Examples
    --------
    >>> z_order(np.array([[1, 1, 0, 0, 2], [1, 0, 1, 0, 0]], np.uint32)).tolist()
    [3, 2, 1, 0, 4]
    """
    weights = reversed(range(int(places.max()).bit_length()))
    bits = [(mode >> np.uint32(weight)) & np.uint32(1) for weight in weights for mode in places]
    return np.lexsort([np.zeros(places.shape[1], np.uint32), *reversed(bits)])


def check_block(block: object) -> None:
    """Raise ShapeError unless ``block`` is a power of two whose offsets fit into a byte.

    Examples
    --------
    >>> check_block(128)
    """
    if not is_integer(block) or block not in BLOCKS:
        raise ShapeError(
            f"block is {block!r}\noffsets in a block are bytes, and its side is a power of two\n"
            f"give one of {', '.join(map(str, BLOCKS))}"
        )
