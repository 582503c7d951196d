"""Launches around those of a format: zeroing of result rows, and reduction of slots in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.kernels import THREADS, Launch, Setting, Work

SHORT = 64
"""The most slots of a row that one group adds up; a row with more gets a block."""


def reduction(slot_rows: npt.NDArray[np.int64], setting: Setting) -> tuple[Launch, ...]:
    """The launches that add up the slots of each row, in ascending order or as a fixed tree.

    ``slot_rows`` has the result row of each slot, -1 for slots to leave out.

    >>> import simwarp
    >>> from gpu.mttkrp.kernels import sink_of
    >>> device = simwarp.Device()
    >>> setting = Setting(device, np.dtype(np.float32), order=3, rank=1)
    >>> slots = device.upload(np.array([[1], [10], [100], [1000]], np.float32))
    >>> out = device.upload(np.zeros((3, 1), np.float32))
    >>> for launch in reduction(np.array([2, 1, -1, 2]), setting):
    ...     launch([sink_of(out, slots.pointer, 1)])
    >>> out.download()[:, 0]
    array([   0.,   10., 1001.], dtype=float32)
    """
    slots = np.argsort(slot_rows, kind="stable")
    slots = slots[np.count_nonzero(slot_rows < 0) :]
    rows, lengths = np.unique(slot_rows[slots], return_counts=True)
    launches: list[Launch] = []
    for name, chosen in (("reduce_short", lengths <= SHORT), ("reduce_long", lengths > SHORT)):
        count = int(np.count_nonzero(chosen))
        if count:
            bounds = np.concatenate([[0], np.cumsum(lengths[chosen])])
            lists = rows[chosen], bounds, slots[np.repeat(chosen, lengths)]
            placed = [setting.device.upload(x.astype(np.uint32)) for x in lists]
            if name == "reduce_short":
                launches.append(setting.launch("reduce.cu", name, setting.grid(count), *placed, count))
            else:
                launches.append(setting.launch("reduce.cu", name, (count, setting.passes, 1), *placed))
    return tuple(launches)


def clearing(works: Sequence[Work], dimension: int, setting: Setting) -> tuple[Launch, ...]:
    """The launch that zeroes the result rows that no launch of ``works`` stores; () if there are none.

    Rows are zeroed one by one if fewer than half need it, else all together.

    >>> import simwarp
    >>> from gpu.mttkrp.kernels import sink_of
    >>> device = simwarp.Device()
    >>> setting = Setting(device, np.dtype(np.float32), order=3, rank=2)
    >>> out = device.upload(np.ones((3, 2), np.float32))
    >>> for launch in clearing([Work((), stored=np.array([0, 2]))], 3, setting):
    ...     launch([sink_of(out, 0, 2)])
    >>> out.download()[:, 0]
    array([1., 0., 1.], dtype=float32)
    """
    stored = works[0].stored if len(works) == 1 else np.empty(0, np.int64)
    if 2 * stored.size <= dimension:
        vectors = dimension * setting.rank // setting.vec
        grid = (-(-vectors // THREADS), 1, 1)
        return (setting.launch("clear.cu", "clear", grid, vectors),)
    cleared = np.ones(dimension, np.bool_)
    cleared[stored] = False
    rows = np.flatnonzero(cleared).astype(np.uint32)
    if rows.size == 0:
        return ()
    placed = setting.device.upload(rows, "rows to clear")
    return (setting.launch("clear.cu", "clear_rows", setting.grid(rows.size), placed, rows.size),)
