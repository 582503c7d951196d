"""MTTKRP from balanced CSF: what ``b_csf.cu`` gets (MM-CSF, algorithm 2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.fibers import aligned
from gpu.mttkrp.kernels import WARP, Launch, Setting, Work, pointers, rows_of
from reference.types import BCsf

SHORT = 32
"""With at most so many nonzeros on average, slices of bin 0 get a group each, not a warp."""

_BINS = np.dtype([("warps", np.uint64, 33), ("places", np.uint32, 34), ("groups", np.uint32)], align=True)


def b_csf_work(tensor: BCsf, mode: int, setting: Setting) -> Work:
    """The launch for balanced CSF on the device: ``2**b`` warps for each slice of bin b.

    Parameters
    ----------
    tensor : BCsf
        Made for this mode.
    mode : int
    setting : Setting

    Examples
    --------
    A matrix with one nonzero in row 2, three in row 5 and two in row 6, of which a warp shall have one: bins
    0, 2 and 1. The four warps of row 5 come first, then the two of row 6. Row 2 is stored.

    >>> import simwarp
    >>> from gpu.mttkrp.upload import upload
    >>> device = simwarp.Device()
    >>> slices, bounds, columns, order = (
    ...     np.array(x, np.uint32) for x in ([2, 5, 6], [0, 1, 4, 6], [0, 0, 1, 2, 0, 1], [0, 2, 1])
    ... )
    >>> fibers, no_uppers = np.arange(7, dtype=np.uint32), np.empty((0, 6), np.uint32)
    >>> tree = (slices, bounds, no_uppers, fibers, columns, np.ones(6), order, (0, 1, 2, 3))
    >>> tensor = upload(BCsf((0, 1), *tree, shape=(7, 3), split=1, share=1), device)
    >>> setting = Setting(device, np.dtype(np.float64), order=2, rank=4, deterministic=True)
    >>> work = b_csf_work(tensor, 0, setting)
    >>> work.slot_rows.tolist(), work.stored.tolist()
    ([5, 5, 5, 5, 6, 6], [2])
    """
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
    """How many groups a slice of bin 0 gets: those of a warp, or one if these slices are very short.

    Their nonzeros are those that cannot be in other bins' slices, at most.

    Examples
    --------
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
    """The first warp of each bin, the last bin being the first, and the number of warps in all."""
    counts = np.diff(tensor.bins)
    warps: list[int] = []
    total = 0
    for b in reversed(range(1, len(counts))):
        warps.insert(0, total)
        total += int(counts[b]) << b
    slices = int(counts[0]) * groups_of_short(tensor, setting.lanes)
    return [total, *warps], total + -(-slices // (WARP // setting.lanes))


def _rows_of_bins(tensor: BCsf) -> list[npt.NDArray[np.uint32]]:
    """The rows of each bin's slices."""
    rows: npt.NDArray[np.uint32] = tensor.slices.download()[tensor.order.download()]
    return np.split(rows, tensor.bins[1:-1])
