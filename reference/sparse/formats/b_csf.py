"""Balanced CSF: fibers of bounded length, and slices binned by nonzero count."""

from __future__ import annotations

from functools import partial

import numpy as np

from reference.sparse.formats.entry import WORD, Coordinates, Format, by_mode, for_every_mode, nodes
from reference.sparse.formats.fibers import split_starts
from reference.sparse.sort import Indices, prefix_starts, sort_distinct
from reference.types import BCsf, Coo, PerMode
from reference.types.arguments import by_dimension, check_coo, check_modes, check_number


def b_csf(coo: Coo, modes: tuple[int, ...] | None = None, *, split: int = 128, share: int = 512) -> BCsf:
    """Build the balanced CSF tree of a tensor; ``modes=None`` is B-CSF-ONE, the shortest mode at the root.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    modes : tuple of int, optional
        From the root to the leaves. By default in ascending order of dimension.
    split : int
        The most nonzeros of a fiber, at least 1; longer ones are cut.
    share : int
        The most nonzeros of a slice for one warp, at least 1.

    Returns
    -------
    BCsf

    Raises
    ------
    FormatError
        If coordinates are repeated, or the arrays are on a device.
    DtypeError
        If ``coo`` is not a Coo.
    ShapeError
        If a dimension exceeds 2**32, ``modes`` does not name every mode once, or ``split`` or ``share`` is
        less than 1.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.1 and figure 2(c); B-CSF (IPDPS'19).

    Examples
    --------
    >>> coo = Coo([[0, 1, 1, 1], [2, 0, 0, 0], [0, 0, 1, 2]], [1.0, 2.0, 3.0, 4.0], (2, 3, 4))
    >>> tree = b_csf(coo, split=2, share=1)
    >>> tree.slice_pointers.tolist(), tree.fiber_pointers.tolist(), tree.uppers.tolist()
    ([0, 1, 3], [0, 1, 3, 4], [[2, 0, 0]])

    Slice 1 has three nonzeros, too many for 2**1 warps: it is in bin 2, and bin 1 is empty.

    >>> tree.order.tolist(), tree.bins
    ([0, 1], (0, 1, 1, 2))
    """
    check_coo(coo)
    split, share = check_number("split", split), check_number("share", share)
    modes = by_dimension(coo.shape) if modes is None else check_modes(modes, coo.shape)
    indices, values = sort_distinct(coo, modes)
    slices, cut = prefix_starts(indices)[0], split_starts(indices, split)
    order, bins = _slice_bins(np.diff(np.append(slices, values.size)).tolist(), share)
    return BCsf(
        modes,
        indices[0, slices],
        np.searchsorted(cut, np.append(slices, values.size)).astype(np.uint32),
        np.ascontiguousarray(indices[1:-1, cut]),
        np.append(cut, values.size).astype(np.uint32),
        indices[-1].copy(),
        values,
        np.array(order, np.uint32),
        bins,
        coo.shape,
        split,
        share,
    )


def b_csf_all(coo: Coo, *, split: int = 128, share: int = 512) -> PerMode:
    """Build B-CSF-ALL: for each mode the balanced tree with that mode at the root.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    split, share : int
        As `b_csf`.

    Returns
    -------
    PerMode

    Raises
    ------
    FormatError, DtypeError, ShapeError
        As `b_csf`.

    Notes
    -----
    Source: MM-CSF (SC'19), sections 3.1 and 3.2.

    Examples
    --------
    >>> coo = Coo([[0, 0, 1], [1, 1, 0], [0, 3, 3]], [1.0, 2.0, 3.0], (2, 3, 4))
    >>> [tree.modes for tree in b_csf_all(coo).tensors]
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    return for_every_mode(coo, partial(b_csf, coo, split=split, share=share))


def _slice_bins(lengths: list[int], share: int) -> tuple[list[int], tuple[int, ...]]:
    """Sort slices into bins by their numbers of nonzeros; return their order and the bounds of the bins."""
    # The least b with 2**b >= ceil(length / share).
    bin_of = [(-(-length // share) - 1).bit_length() for length in lengths]
    order = sorted(range(len(lengths)), key=lambda at: bin_of[at])
    return order, tuple(sum(b < bound for b in bin_of) for bound in range(max(bin_of) + 2))


def _uppers(tree: BCsf) -> Indices:
    """The indices of each fiber in all modes except the leaf's."""
    return np.vstack([np.repeat(tree.slices, np.diff(tree.slice_pointers)), tree.uppers])


def _coordinates(tree: BCsf) -> tuple[Coordinates, Coordinates]:
    levels = np.repeat(_uppers(tree), np.diff(tree.fiber_pointers), axis=1)
    return by_mode([*levels, tree.leaves], tree.modes), tree.values


def _paper_bytes(tree: BCsf) -> int:
    return WORD * (2 * sum(nodes(_uppers(tree))) + tree.values.size)


def _slices_and_fibers(tree: BCsf) -> tuple[int, int]:
    return tree.slices.size, tree.fiber_pointers.size - 1


FORMAT = Format(
    BCsf, _coordinates, _paper_bytes, {"b-csf-one": b_csf, "b-csf": b_csf_all}, _slices_and_fibers
)
