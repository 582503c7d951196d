"""Fibers along one mode, each with all its other indices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.sparse.arguments import check_at_least_one, check_coo, every_mode
from reference.sparse.order import Indices, prefix_starts, sort_places
from reference.types import Coo, Fibers


def fibers(coo: Coo, modes: tuple[int, ...], *, split: int = 128) -> Fibers:
    """The fibers along the last of ``modes``, long ones in pieces.

    Parameters
    ----------
    coo : Coo
        Each place once, in any order.
    modes : tuple of int
        Every mode once.
    split : int
        The most nonzeros of a fiber, at least 1.

    Returns
    -------
    Fibers

    Raises
    ------
    FormatError
        If a place occurs twice, or the arrays lie on a device.
    DtypeError
        If ``coo`` is no Coo.
    ShapeError
        If a dimension exceeds 2**32, ``modes`` is not every mode once, or ``split`` is less than 1.

    Notes
    -----
    Source: MM-CSF (SC'19), section 5.1.

    Examples
    --------
    >>> coo = Coo([[0, 0, 0, 1], [1, 1, 1, 0], [0, 2, 3, 3]], [1.0, 2.0, 3.0, 4.0], (2, 3, 4))
    >>> cut = fibers(coo, (0, 1, 2), split=2)
    >>> cut.uppers.tolist(), cut.pointers.tolist(), cut.leaves.tolist()
    ([[0, 0, 1], [1, 1, 0]], [0, 2, 3, 4], [0, 2, 3, 3])
    """
    check_coo(coo)
    check_at_least_one(split, "split")
    modes = every_mode(modes, coo.shape)
    indices, values = sort_places(coo, modes)
    starts = split_starts(indices, split)
    return Fibers(
        modes,
        np.ascontiguousarray(indices[:-1, starts]),
        np.append(starts, values.size).astype(np.uint32),
        indices[-1].copy(),
        values,
        coo.shape,
        int(split),
    )


def split_starts(indices: Indices, split: int) -> npt.NDArray[np.int64]:
    """The first nonzero of each fiber, where one of more than ``split`` counts as several.

    Parameters
    ----------
    indices : array of uint32, (order, M)
        In lexicographic order.
    split : int

    Returns
    -------
    array of int64, (F,)

    Examples
    --------
    >>> split_starts(np.array([[0, 0, 0, 0, 0, 1], [0, 1, 2, 3, 4, 0]], np.uint32), 2)
    array([0, 2, 4, 5])
    """
    whole = prefix_starts(indices)[-2].tolist()
    ends = [*whole[1:], indices.shape[1]]
    pieces = [piece for start, end in zip(whole, ends, strict=True) for piece in range(start, end, split)]
    return np.array(pieces, np.int64)
