"""MTTKRP from fibers, as MM-CSF has them: what ``fibers.cu`` gets (MM-CSF, section 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.kernels import Launch, Setting, Work, pointers, rows_of
from reference.types import Fibers

SHARE = 64
"""Nonzeros that a group shall have, about."""

ENOUGH_GROUPS = 1 << 16
"""As many groups keep a large chip busy."""


def fibers_work(tensor: Fibers, mode: int, setting: Setting) -> Work:
    """The launch for fibers on the device: algorithm 6, 7 or 8, by the level of the mode.

    Parameters
    ----------
    tensor : Fibers
        A whole tensor, or a partition of MM-CSF.
    mode : int
    setting : Setting

    Examples
    --------
    Two fibers of one slice, and one of another:

    >>> import simwarp
    >>> from gpu.mttkrp.upload import upload
    >>> uppers = np.array([[0, 0, 1], [3, 5, 3]], np.uint32)
    >>> bounds, leaves = np.array([0, 2, 3, 4], np.uint32), np.array([1, 2, 0, 2], np.uint32)
    >>> tensor = Fibers((0, 1, 2), uppers, bounds, leaves, np.ones(4), (2, 6, 3), 128)
    >>> device = simwarp.Device()
    >>> setting = Setting(device, np.dtype(np.float64), order=3, rank=4, deterministic=True)
    >>> [fibers_work(upload(tensor, device), mode, setting).slot_rows.tolist() for mode in range(3)]
    [[0, 0, 1], [3, 5, 3], [1, 2, 0, 2]]
    """
    level, count = tensor.modes.index(mode), tensor.uppers.shape[1]
    to_leaf = level == setting.order - 1
    run = run_of_group(count, tensor.values.shape[0])
    uppers = rows_of(tensor.uppers)
    if not to_leaf:
        uppers.append(uppers.pop(level))
    launch = Launch(
        setting.kernel("fibers.cu", "to_leaf" if to_leaf else "to_upper", **aligned(tensor)),
        setting.grid(-(-count // run)),
        tuple(n for n in tensor.modes if n != mode),
        (
            pointers(*uppers, tensor.pointers, tensor.leaves, tensor.values),
            np.uint32(count),
            np.uint32(run),
        ),
    )
    if not setting.deterministic:
        return Work((launch,))
    if to_leaf:
        return Work((launch,), tensor.leaves.download().astype(np.int64))
    return Work((launch,), _emitted(tensor.uppers.download()[level], run))


def run_of_group(fibers: int, nonzeros: int) -> int:
    """How many fibers a group takes: fewer where they are long, or where there are few.

    It depends on the tensor alone, so that deterministic results are the same on every device.

    Examples
    --------
    >>> run_of_group(fibers=2_000_000, nonzeros=10_000_000), run_of_group(fibers=1000, nonzeros=5000)
    (12, 1)
    """
    return max(1, min(SHARE * fibers // nonzeros, fibers // ENOUGH_GROUPS))


def aligned(tensor: Any) -> dict[str, str | int]:
    """The macro that says that leaves and values start at multiples of 16 bytes, if they do.

    Examples
    --------
    >>> import simwarp
    >>> from types import SimpleNamespace
    >>> array = simwarp.Device().upload(np.zeros(4))
    >>> aligned(SimpleNamespace(leaves=array, values=array))
    {'ALIGNED': ''}
    """
    return {"ALIGNED": ""} if (tensor.leaves.pointer | tensor.values.pointer) % 16 == 0 else {}


def _emitted(rows: npt.NDArray[np.uint32], run: int) -> npt.NDArray[np.int64]:
    """The row that is emitted at each fiber where it changes or a run ends; -1 at the others."""
    ends = np.append(rows[1:] != rows[:-1], True)
    ends[run - 1 :: run] = True
    return np.where(ends, rows.astype(np.int64), -1)
