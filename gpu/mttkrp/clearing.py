"""Zero fill of result rows to which sums are added, by ``clear.cu``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.mttkrp.kernels import THREADS, Launch, Setting, Work


def clearing(works: Sequence[Work], dimension: int, setting: Setting) -> tuple[Launch, ...]:
    """The launch, if any, that zeroes the result rows which later launches do not store.

    Rows are zeroed one by one if fewer than half need it, else all together.

    Parameters
    ----------
    works : sequence of Work
        The later launches.
    dimension : int
        The number of result rows.
    setting : Setting

    Examples
    --------
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
