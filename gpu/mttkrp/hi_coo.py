"""MTTKRP from hierarchical coordinates: what ``hi_coo.cu`` gets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.coo import CHUNK, others, runs_of
from gpu.mttkrp.kernels import Launch, Setting, Work, pointers, rows_of
from reference.types import HiCoo


def hi_coo_work(tensor: HiCoo, mode: int, setting: Setting) -> Work:
    """The launch for hierarchical coordinates on the device: atomic additions where the row changes.

    Parameters
    ----------
    tensor : HiCoo
    mode : int
    setting : Setting

    Examples
    --------
    Two blocks of 2 x 2, the second one with two nonzeros:

    >>> import simwarp
    >>> from gpu.mttkrp.upload import upload
    >>> blocks, offsets = np.array([[0, 1], [0, 1]], np.uint32), np.array([[0, 0, 1], [1, 0, 1]], np.uint8)
    >>> tensor = HiCoo(np.array([0, 1, 3], np.uint64), blocks, offsets, np.ones(3), (4, 4), 2)
    >>> device = simwarp.Device()
    >>> setting = Setting(device, np.dtype(np.float64), order=2, rank=4, deterministic=True)
    >>> hi_coo_work(upload(tensor, device), 0, setting).slot_rows
    array([0, 2, 3])
    """
    device, nonzeros = setting.device, int(tensor.values.shape[0])
    modes = others(mode, setting.order)
    bounds: npt.NDArray[np.int64] = tensor.block_pointers.download().astype(np.int64)
    first_blocks = np.searchsorted(bounds, np.arange(0, nonzeros, CHUNK), side="right") - 1
    slot_rows, first_slots = np.empty(0, np.int64), np.uint64(0)
    if setting.deterministic:
        corners = tensor.block_coords.download()[mode].astype(np.int64) * tensor.block
        rows = np.repeat(corners, np.diff(bounds)) + tensor.offsets.download()[mode]
        slot_rows, firsts = runs_of(rows)
        first_slots = device.upload(firsts, "first slots")
    blocks, offsets = rows_of(tensor.block_coords), rows_of(tensor.offsets)
    by_row = (mode, *modes)
    launch = Launch(
        setting.kernel("hi_coo.cu", "hi_coo", CHUNK=CHUNK),
        setting.grid(-(-nonzeros // CHUNK)),
        modes,
        (
            pointers(*(blocks[n] for n in by_row), *(offsets[n] for n in by_row)),
            tensor.block_pointers,
            device.upload(first_blocks.astype(np.uint32), "first blocks"),
            tensor.values,
            np.uint32(tensor.block),
            np.uint32(nonzeros),
            first_slots,
        ),
    )
    return Work((launch,), slot_rows)
