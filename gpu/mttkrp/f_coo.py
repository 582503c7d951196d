"""MTTKRP from flagged coordinates: what ``f_coo.cu`` gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.compile import compile_file
from gpu.device import Device
from gpu.mttkrp.kernels import THREADS, Launch, Setting, Work, pointers, rows_of
from reference.types import FCoo


def f_coo_work(tensor: FCoo, mode: int, setting: Setting) -> Work:
    """The launch for flagged coordinates on the device: rows stored, and added to at edges of partitions.

    Parameters
    ----------
    tensor : FCoo
        Made for this mode.
    mode : int
    setting : Setting

    Examples
    --------
    Forty nonzeros in two rows, in partitions of 32: only the second row lies in both.

    >>> import simwarp
    >>> from gpu.mttkrp.upload import upload
    >>> columns = np.concatenate([np.arange(10), np.arange(30)]).astype(np.uint32)
    >>> flags, rows, first = (np.array(x, np.uint32) for x in ([1 | 1 << 10, 0], [3, 4], [0, 1]))
    >>> tensor = FCoo((0, 1), columns[None], np.ones(40), flags, rows, first, (5, 30), 32)
    >>> device = simwarp.Device()
    >>> setting = Setting(device, np.dtype(np.float64), order=2, rank=4, deterministic=True)
    >>> f_coo_work(upload(tensor, device), 0, setting).slot_rows
    array([-1,  4,  4, -1])
    """
    device, nonzeros = setting.device, tensor.values.shape[0]
    products = [_aligned(row, nonzeros, device) for row in rows_of(tensor.products)]
    values = _aligned(tensor.values.pointer, tensor.values.nbytes // 4, device)
    launch = Launch(
        setting.kernel("f_coo.cu", "f_coo", PARTITION=tensor.partition),
        setting.grid(-(-nonzeros // tensor.partition)),
        tensor.modes[1:],
        (pointers(*products, values), tensor.flags, tensor.rows, tensor.first, np.uint32(nonzeros)),
        keep=(*products, values),
    )
    slot_rows, rows = _slot_rows(tensor), tensor.rows.download()
    stored = np.delete(rows, np.searchsorted(rows, np.unique(slot_rows[slot_rows >= 0])))
    return Work((launch,), slot_rows if setting.deterministic else np.empty(0, np.int64), stored)


def _aligned(address: int, words: int, device: Device) -> Any:
    """The address itself if it is a multiple of 16, else a copy of the words there that has such a one."""
    if address % 16 == 0:
        return address
    copied = device.allocate((words,), np.uint32, "aligned copy")
    copy = device.load(compile_file("mttkrp/copy.cu", arch=device.compute_capability).text).kernel("copy")
    copy((-(-words // THREADS), 1, 1), (THREADS, 1, 1), np.uint64(address), copied, np.uint64(words))
    return copied


def _slot_rows(tensor: FCoo) -> npt.NDArray[np.int64]:
    """Slot 2p: the segment that begins before partition p; 2p + 1: the one that begins in it and goes on."""
    rows, first, flags = (x.download() for x in (tensor.rows, tensor.first, tensor.flags))
    goes_on = flags[:: tensor.partition // 32] & 1 == 0  # each partition's first segment, from before
    slots: npt.NDArray[Any] = np.full((first.size, 2), -1, np.int64)
    slots[goes_on, 0] = rows[first[goes_on]]
    ends_later = np.append(goes_on[1:], False)
    begins_here = np.append(first[1:] > first[:-1], False) | ~goes_on
    last = np.flatnonzero(ends_later & begins_here)
    slots[last, 1] = rows[first[last + 1]]
    return slots.ravel()
