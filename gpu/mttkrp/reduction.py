"""Deterministic reduction of partial sums by ``reduce.cu``, in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.device import Array
from gpu.mttkrp.kernels import Launch, Setting

SHORT = 64
"""So many slots of a row are added up by one group, more by a block."""


def reduction(slot_rows: npt.NDArray[np.int64], setting: Setting) -> tuple[Launch, ...]:
    """The launches that reduce each row's slots, in ascending order or as a fixed tree.

    Parameters
    ----------
    slot_rows : (slots,) int64
        The row of each slot, -1 for those that are left out.
    setting : Setting

    Examples
    --------
    >>> import simwarp
    >>> from gpu.mttkrp.kernels import sink_of
    >>> device = simwarp.Device()
    >>> setting = Setting(device, np.dtype(np.float32), order=3, rank=1)
    >>> slots = device.upload(np.array([[1], [10], [100], [1000]], np.float32))
    >>> out = device.upload(np.zeros((3, 1), np.float32))
    >>> for launch in reduction(np.array([2, 1, -1, 2]), setting):
    ...     launch((), sink_of(out, slots.pointer, 1))
    >>> out.download()[:, 0]
    array([   0.,   10., 1001.], dtype=float32)
    """
    slots = np.argsort(slot_rows, kind="stable")
    slots = slots[np.count_nonzero(slot_rows < 0) :]
    rows, lengths = np.unique(slot_rows[slots], return_counts=True)
    short = lengths <= SHORT
    of_short = np.repeat(short, lengths)
    launches: list[Launch] = []
    if short.any():
        kernel, count = setting.kernel("reduce.cu", "reduce_short"), int(np.count_nonzero(short))
        lists = _lists(rows[short], lengths[short], slots[of_short], setting)
        launches.append(Launch(kernel, setting.grid(count), (), (*lists, np.uint32(count))))
    if not short.all():
        kernel, count = setting.kernel("reduce.cu", "reduce_long"), int(np.count_nonzero(~short))
        lists = _lists(rows[~short], lengths[~short], slots[~of_short], setting)
        launches.append(Launch(kernel, (count, setting.passes, 1), (), lists))
    return tuple(launches)


def _lists(
    rows: npt.NDArray[Any], lengths: npt.NDArray[Any], slots: npt.NDArray[Any], setting: Setting
) -> tuple[Array, ...]:
    """Rows, the bounds of each row's slots, and the slots, on the device."""
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    return tuple(setting.device.upload(x.astype(np.uint32)) for x in (rows, bounds, slots))
