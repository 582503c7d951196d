"""MTTKRP from coordinates: what ``coo.cu`` gets, and what it shares with ``hi_coo.cu`` (runs.cuh)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.kernels import Launch, Setting, Work, pointers, rows_of
from reference.types import Coo

CHUNK = 32
"""Nonzeros of a group."""

_C_TYPES = {
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
}


def coo_work(tensor: Coo, mode: int, setting: Setting) -> Work:
    """The launch for coordinates on the device: atomic additions where the row changes.

    Parameters
    ----------
    tensor : Coo
        In any order; what occurs several times is added up.
    mode : int
    setting : Setting

    Examples
    --------
    >>> import simwarp
    >>> device = simwarp.Device()
    >>> tensor = Coo(device.upload(np.array([[0, 1], [2, 0]])), device.upload(np.ones(2)), (2, 3))
    >>> setting = Setting(device, np.dtype(np.float64), order=2, rank=4, deterministic=True)
    >>> coo_work(tensor, 1, setting).slot_rows
    array([2, 0])
    """
    nonzeros = tensor.values.shape[0]
    modes = others(mode, setting.order)
    slot_rows, first_slots = np.empty(0, np.int64), np.uint64(0)
    if setting.deterministic:
        slot_rows, firsts = runs_of(tensor.coords.download()[mode].astype(np.int64))
        first_slots = setting.device.upload(firsts, "first slots")
    coordinates = rows_of(tensor.coords)
    kernel = setting.kernel("coo.cu", "coo", INDEX=_C_TYPES[tensor.coords.dtype.name], CHUNK=CHUNK)
    launch = Launch(
        kernel,
        setting.grid(-(-nonzeros // CHUNK)),
        modes,
        (
            pointers(*(coordinates[n] for n in (mode, *modes))),
            tensor.values,
            np.uint32(nonzeros),
            first_slots,
        ),
    )
    return Work((launch,), slot_rows)


def others(mode: int, order: int) -> tuple[int, ...]:
    """All modes but one, ascending.

    Examples
    --------
    >>> others(1, 4)
    (0, 2, 3)
    """
    return tuple(n for n in range(order) if n != mode)


def runs_of(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Runs of nonzeros that have the same row and lie in one chunk: each is one slot.

    Parameters
    ----------
    rows : (M,) integers
        Of the result, by nonzero.

    Returns
    -------
    slot_rows : (slots,) int64
    first_slots : (chunks,) uint32
        The slot of each chunk's first run.

    Examples
    --------
    >>> slot_rows, first_slots = runs_of(np.repeat([7, 5, 7], [30, 1, 40]))
    >>> slot_rows.tolist(), first_slots.tolist()
    ([7, 5, 7, 7, 7], [0, 3, 4])
    """
    begins = np.ones(rows.size, np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=begins[1:])
    begins[::CHUNK] = True
    first_slots = np.cumsum(begins, dtype=np.int64)[::CHUNK] - 1
    return rows[begins].astype(np.int64), first_slots.astype(np.uint32)
