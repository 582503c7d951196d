"""Balanced CSF: long fibers cut into pieces, slices binned by nonzero count; multiplied by ``b_csf.cu``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats._format import Columns, Format, by_mode
from gpu.mttkrp.formats.fibers import aligned
from gpu.mttkrp.formats.nonzeros import Nonzeros, arranged, nonzeros_of
from gpu.mttkrp.formats.runs import depths_of, ranks_of, starts_of
from gpu.mttkrp.formats.sort import Indices, taken
from gpu.mttkrp.kernels import WARP, Launch, Setting, Work, pointers, rows_of
from reference.types import BCsf, Coo, PerMode
from reference.types.arguments import by_dimension, check_modes, check_number, root_first

SHORT = 32
"""With at most so many nonzeros on average, slices of bin 0 get a group each, not a warp."""

_BINS = np.dtype([("warps", np.uint64, 33), ("places", np.uint32, 34), ("groups", np.uint32)], align=True)


def b_csf(coo: Coo, modes: Sequence[int] | None = None, *, split: int = 128, share: int = 512) -> BCsf:
    """A tensor as one balanced tree of three levels: slices, fibers, nonzeros.

    Parameters
    ----------
    coo : Coo
    modes : sequence of int, optional
        First the mode of the slices, last that of the leaves; by dimension if not given.
    split : int
        The most nonzeros of a fiber; longer ones are cut.
    share : int
        The nonzeros of a slice that one warp takes; twice as many warps for each further bin.

    Returns
    -------
    BCsf

    Raises
    ------
    FormatError
        If coordinates occur twice.
    ShapeError
        If ``modes`` are not all modes, a dimension is above 2**32, or ``split`` or ``share`` is less than 1.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.1, figure 2(c) and algorithm 2.

    Examples
    --------
    >>> made = b_csf(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)), share=1)
    >>> made.slice_pointers.tolist(), made.order.tolist(), made.bins
    ([0, 1, 2], [1, 0], (0, 1, 2))
    """
    nonzeros = nonzeros_of(coo)
    modes = by_dimension(coo.shape) if modes is None else check_modes(modes, coo.shape)
    sizes = check_number("split", split), check_number("share", share)
    return _balanced(arranged(nonzeros, modes), *sizes)


def b_csf_all(coo: Coo, *, split: int = 128, share: int = 512) -> PerMode:
    """A tensor as one balanced tree per mode, with that mode's slices.

    Parameters
    ----------
    coo : Coo
    split, share : int
        As in `b_csf`.

    Returns
    -------
    PerMode of BCsf

    Raises
    ------
    FormatError, ShapeError
        As `b_csf`.

    Notes
    -----
    Source: MM-CSF (SC'19), section 3.2.

    Examples
    --------
    >>> trees = b_csf_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [tree.slices.tolist() for tree in trees.tensors]
    [[0, 1], [0, 1], [0, 2, 4]]
    """
    shortest_first = arranged(nonzeros_of(coo), by_dimension(coo.shape))
    sizes = check_number("split", split), check_number("share", share)
    orders = (root_first(coo.shape, n) for n in range(len(coo.shape)))
    return PerMode(tuple(_balanced(arranged(shortest_first, modes), *sizes) for modes in orders), coo.shape)


def _balanced(nonzeros: Nonzeros, split: int, share: int) -> BCsf:
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    depths = depths_of(coords, modes, order)
    slices, fibers = starts_of(depths, 0), starts_of(depths, len(modes) - 2, split)
    firsts = taken(order, fibers[:-1])
    uppers = np.empty((len(modes) - 2, firsts.size), np.uint32)
    for indices, n in zip(uppers, modes[1:-1], strict=True):
        indices[:] = taken(coords[n], firsts)
    in_bins, bounds = _binned(np.diff(slices), share)
    return BCsf(
        modes,
        taken(coords[modes[0]], taken(order, slices[:-1])),
        ranks_of(slices, fibers),
        uppers,
        fibers,
        taken(coords[modes[-1]], order),
        taken(nonzeros.values, order),
        in_bins,
        bounds,
        nonzeros.shape,
        split,
        share,
    )


def _binned(lengths: Indices, share: int) -> tuple[Indices, tuple[int, ...]]:
    """Slices by bin, and the start of each bin: bin b holds slices of up to ``share * 2**b`` nonzeros."""
    most = [share]
    while most[-1] < int(lengths.max()):
        most.append(2 * most[-1])
    bins = np.searchsorted(np.array(most, np.int64), lengths).astype(np.uint8)
    counts = np.bincount(bins, minlength=len(most))
    return np.argsort(bins, kind="stable").astype(np.uint32), (0, *counts.cumsum().tolist())


def _columns(tensor: BCsf) -> Columns:
    slices = np.repeat(tensor.slices, np.diff(tensor.fiber_pointers[tensor.slice_pointers]))
    lengths = np.diff(tensor.fiber_pointers)
    uppers = [np.repeat(indices, lengths) for indices in tensor.uppers]
    return by_mode([slices, *uppers, tensor.leaves], tensor.modes), tensor.values


def _work(tensor: BCsf, mode: int, setting: Setting) -> Work:
    """``2**b`` warps for each slice of bin b (algorithm 2)."""
    warps, total = _warps(tensor, setting)
    uppers = rows_of(tensor.uppers) if setting.order > 2 else []
    bins = np.zeros((), _BINS)
    bins["warps"][: len(warps)] = warps
    bins["places"][: len(tensor.bins)] = tensor.bins
    bins["groups"] = groups_of_short(tensor, setting.lanes)
    launch = Launch(
        setting.kernel("b_csf.cu", "b_csf", **aligned(tensor)),
        setting.grid(total * (WARP // setting.lanes)),
        tensor.modes[1:],
        (
            pointers(*uppers, 0, tensor.fiber_pointers, tensor.leaves, tensor.values),
            pointers(tensor.order, tensor.slices, tensor.slice_pointers),
            np.void(bins.tobytes()),
        ),
    )
    rows = _rows_of_bins(tensor)
    slot_rows = (
        [np.repeat(rows[b], 1 << b) for b in range(len(rows) - 1, 0, -1)] if setting.deterministic else []
    )
    return Work((launch,), np.concatenate([*slot_rows, np.empty(0)]).astype(np.int64), rows[0])


def groups_of_short(tensor: BCsf, lanes: int) -> int:
    """Groups per slice of bin 0: a full warp's groups, or one if these slices are very short.

    Their nonzeros are at most those that other bins' slices cannot have.

    >>> from types import SimpleNamespace
    >>> few = SimpleNamespace(values=np.ones(1000), bins=(0, 10, 11), share=512)  # at most 48 per slice
    >>> many = SimpleNamespace(values=np.ones(1000), bins=(0, 20, 21), share=512)
    >>> groups_of_short(few, lanes=8), groups_of_short(many, lanes=8)
    (4, 1)
    """
    counts = np.diff(tensor.bins)
    elsewhere = sum(int(count) * (tensor.share << b >> 1) for b, count in enumerate(counts) if b)
    return 1 if tensor.values.shape[0] - elsewhere <= SHORT * int(counts[0]) else WARP // lanes


def _warps(tensor: BCsf, setting: Setting) -> tuple[list[int], int]:
    """The first warp of each bin, with the last bin first, and the total number of warps."""
    counts = np.diff(tensor.bins)
    warps: list[int] = []
    total = 0
    for b in reversed(range(1, len(counts))):
        warps.insert(0, total)
        total += int(counts[b]) << b
    slices = int(counts[0]) * groups_of_short(tensor, setting.lanes)
    return [total, *warps], total + -(-slices // (WARP // setting.lanes))


def _rows_of_bins(tensor: BCsf) -> list[npt.NDArray[np.uint32]]:
    """The result rows of each bin's slices."""
    rows: npt.NDArray[np.uint32] = tensor.slices.download()[tensor.order.download()]
    return np.split(rows, tensor.bins[1:-1])


FORMAT = Format(
    BCsf,
    _columns,
    builders={"b-csf": b_csf_all},
    work=_work,
    source="b_csf.cu",
    summary="warps for each slice by its nonzeros",
    macros={"ALIGNED": ""},
    is_for_one_mode=True,
)
