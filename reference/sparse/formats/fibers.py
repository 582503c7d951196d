"""Builder of fibers along one mode, each with its indices in all other modes."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from reference.sparse.formats.entry import WORD, Coordinates, Format, by_mode, for_every_mode, nodes
from reference.sparse.sort import Indices, prefix_starts, sort_distinct
from reference.types import Coo, Fibers, PerMode
from reference.types.arguments import check_coo, check_modes, check_number


def fibers(coo: Coo, modes: tuple[int, ...], *, split: int = 128) -> Fibers:
    """Build the fibers of a tensor along the last of ``modes``, long ones cut into pieces.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    modes : tuple of int
        Every mode once.
    split : int
        The most nonzeros of a fiber, at least 1; longer ones are cut.

    Returns
    -------
    Fibers

    Raises
    ------
    FormatError
        If coordinates are repeated, or the arrays are on a device.
    DtypeError
        If ``coo`` is not a Coo.
    ShapeError
        If a dimension exceeds 2**32, ``modes`` does not name every mode once, or ``split`` is less than 1.

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
    split = check_number("split", split)
    modes = check_modes(modes, coo.shape)
    indices, values = sort_distinct(coo, modes)
    starts = split_starts(indices, split)
    return Fibers(
        modes,
        np.ascontiguousarray(indices[:-1, starts]),
        np.append(starts, values.size).astype(np.uint32),
        indices[-1].copy(),
        values,
        coo.shape,
        split,
    )


def fibers_all(coo: Coo, *, split: int = 128) -> PerMode:
    """Build B-CSF-ALL for the optimized slice algorithm: for each mode the fibers with that mode first.

    The trees of `b_csf_all`, with 3 F + M words each instead of 2 S + 2 F + M, so that kernels can start at
    any fiber.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    split : int
        As `fibers`.

    Returns
    -------
    PerMode

    Raises
    ------
    FormatError, DtypeError, ShapeError
        As `fibers`.

    Notes
    -----
    Source: MM-CSF (SC'19), sections 5 and 5.1, algorithm 6.

    Examples
    --------
    >>> coo = Coo([[0, 0, 1], [1, 1, 0], [0, 3, 3]], [1.0, 2.0, 3.0], (2, 3, 4))
    >>> [part.modes for part in fibers_all(coo).tensors]
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    return for_every_mode(coo, partial(fibers, coo, split=split))


def split_starts(indices: Indices, split: int) -> npt.NDArray[np.int64]:
    """The start of each fiber in the sorted nonzeros, with fibers cut into pieces of ``split`` nonzeros.

    >>> split_starts(np.array([[0, 0, 0, 0, 0, 1], [0, 1, 2, 3, 4, 0]], np.uint32), 2)
    array([0, 2, 4, 5])
    """
    whole = prefix_starts(indices)[-2].tolist()
    ends = [*whole[1:], indices.shape[1]]
    pieces = [piece for start, end in zip(whole, ends, strict=True) for piece in range(start, end, split)]
    return np.array(pieces, np.int64)


def coordinates(part: Fibers) -> tuple[Coordinates, Coordinates]:
    """Coordinates and values of fibers: the indices of each fiber, repeated for its nonzeros.

    >>> coordinates(fibers(Coo([[0, 0, 1], [1, 2, 0]], [5.0, 6.0, 7.0], (2, 3)), (0, 1)))[0].tolist()
    [[0, 0, 1], [1, 2, 0]]
    """
    uppers = np.repeat(part.uppers, np.diff(part.pointers), axis=1)
    return by_mode([*uppers, part.leaves], part.modes), part.values


def _paper_bytes(part: Fibers) -> int:
    # Each node from level 1 on has a pointer and an index; each node of level 1 also has its slice's index.
    count = nodes(part.uppers)
    return WORD * (2 * sum(count[1:] or count) + sum(count[1:2]) + part.values.size)


def _slices_and_fibers(part: Fibers) -> tuple[int, int]:
    return prefix_starts(part.uppers)[0].size, part.uppers.shape[1]


FORMAT = Format(Fibers, coordinates, _paper_bytes, {"fibers-all": fibers_all}, _slices_and_fibers)
