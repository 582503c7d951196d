"""Balanced CSF: long fibers cut into pieces, slices binned by nonzero count; its kernel is ``b_csf.cu``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.mttkrp.formats.entry import Columns, Format, by_mode
from gpu.mttkrp.formats.fibers import aligned, work_of
from gpu.mttkrp.formats.nonzeros import Nonzeros, per_mode, sorted_nonzeros
from gpu.mttkrp.formats.runs import depths_of, ranks_of, starts_of
from gpu.mttkrp.formats.sort import Indices, gathered, taken
from gpu.mttkrp.kernels import WARP, Setting, Work, pointers, rows_of
from reference.types import BCsf, Coo, Fibers, PerMode
from reference.types.arguments import check_number

SHORT = 32
"""The most nonzeros, on average, at which slices of bin 0 get a group each rather than a warp."""

_BINS = np.dtype([("warps", np.uint64, 33), ("places", np.uint32, 34), ("groups", np.uint32)], align=True)


def b_csf(coo: Coo, modes: Sequence[int] | None = None, *, split: int = 128, share: int = 512) -> BCsf:
    """Build a B-CSF tensor as one balanced tree of three levels: slices, fibers, nonzeros.

    ``modes`` are all modes, from the slices to the leaves; by dimension, the shortest first, if not given.
    Fibers longer than ``split`` nonzeros are cut. One warp takes ``share`` nonzeros of a slice, and each
    further bin takes twice as many warps. FormatError if coordinates occur twice; ShapeError for other modes,
    numbers below 1 or dimensions above 2**32. Source: MM-CSF (SC'19), section 3.1, figure 2(c) and algorithm
    2.

    >>> made = b_csf(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)), share=1)
    >>> made.slice_pointers.tolist(), made.order.tolist(), made.bins
    ([0, 1, 2], [1, 0], (0, 1, 2))
    """
    return _balanced(sorted_nonzeros(coo, modes), split, share)


def b_csf_all(coo: Coo, *, split: int = 128, share: int = 512) -> PerMode:
    """Build one B-CSF tree for each mode, with that mode's slices; see `b_csf`.

    Source: MM-CSF (SC'19), section 3.2.

    >>> trees = b_csf_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [tree.slices.tolist() for tree in trees.tensors]
    [[0, 1], [0, 1], [0, 2, 4]]
    """
    return per_mode(coo, lambda nonzeros: _balanced(nonzeros, split, share))


def _balanced(nonzeros: Nonzeros, split: int, share: int) -> BCsf:
    """Build the B-CSF tree of sorted nonzeros, with fibers cut into balanced parts."""
    split, share = check_number("split", split), check_number("share", share)
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    depths = depths_of(coords, modes, order)
    slices, fibers = starts_of(depths, 0), starts_of(depths, len(modes) - 2, split)
    firsts = taken(order, fibers[:-1])
    in_bins, bounds = _binned(np.diff(slices), share)
    return BCsf(
        modes,
        taken(coords[modes[0]], taken(order, slices[:-1])),
        ranks_of(slices, fibers),
        gathered(coords, firsts, modes[1:-1]),
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
    """The launch for the mode of the slices, or for another one, whose fibers are as those of any tree."""
    return _of_slices(tensor, setting) if mode == tensor.modes[0] else _of_fibers(tensor, mode, setting)


def _of_fibers(tensor: BCsf, mode: int, setting: Setting) -> Work:
    """The launch of algorithm 7 or 8, for which each fiber gets the index of its slice."""
    slices = np.repeat(tensor.slices.download(), np.diff(tensor.slice_pointers.download()))
    arrays = tensor.uppers, tensor.fiber_pointers, tensor.leaves, tensor.values
    fibers = Fibers(tensor.modes, *arrays, tensor.shape, tensor.split)
    return work_of(fibers, mode, setting, setting.device.upload(slices, "slice of each fiber"))


def _of_slices(tensor: BCsf, setting: Setting) -> Work:
    """The launch of algorithm 2, with ``2**b`` warps for each slice of bin b."""
    warps, total = _warps(tensor, setting)
    uppers = rows_of(tensor.uppers) if setting.order > 2 else []
    bins = np.zeros((), _BINS)
    bins["warps"][: len(warps)] = warps
    bins["places"][: len(tensor.bins)] = tensor.bins
    bins["groups"] = groups_of_short(tensor, setting.lanes)
    fibers = pointers(*uppers, 0, tensor.fiber_pointers, tensor.leaves, tensor.values)
    slices = pointers(tensor.order, tensor.slices, tensor.slice_pointers)
    grid, arguments = setting.grid(total * (WARP // setting.lanes)), (fibers, slices, bins.tobytes())
    launch = setting.launch(
        "b_csf.cu", "b_csf", grid, *arguments, modes=tensor.modes[1:], defines=aligned(tensor)
    )
    rows = np.split(tensor.slices.download()[tensor.order.download()], tensor.bins[1:-1])
    split_bins = range(len(rows) - 1, 0, -1) if setting.deterministic else ()
    slot_rows = np.concatenate([*(np.repeat(rows[b], 1 << b) for b in split_bins), np.empty(0)])
    return Work((launch,), slot_rows.astype(np.int64), rows[0])


def groups_of_short(tensor: BCsf, lanes: int) -> int:
    """Groups of lanes per slice of bin 0: all of a warp, or one if these slices are very short.

    An upper bound of their nonzeros follows from the fewest that slices of the other bins have.

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
    """The first warp of each bin, and the number of all warps; the last bin has the first warps."""
    warps = [int(count) << b for b, count in enumerate(np.diff(tensor.bins))]
    firsts = [sum(warps[b + 1 :]) for b in range(len(warps))]
    groups = warps[0] * groups_of_short(tensor, setting.lanes)
    return firsts, firsts[0] + -(-groups // (WARP // setting.lanes))


FORMAT = Format(
    BCsf,
    _columns,
    builders={"b-csf-one": b_csf, "b-csf": b_csf_all},
    work=_work,
    source="b_csf.cu",
    summary="one or more warps for each slice, by its number of nonzeros; other modes by fibers.cu",
    macros={"ALIGNED": ""},
)
