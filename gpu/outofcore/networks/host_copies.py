"""Copies within host memory by several threads: one thread is slower than a device's link."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

_THREADS = 8
_SMALL = 1 << 26
"""Bytes that one thread copies."""


def write_array(target: npt.NDArray[Any], source: npt.ArrayLike) -> None:
    """Copy a host array into another: ``target[...] = source``."""
    threads = min(_THREADS, os.cpu_count() or 1, len(target))
    if target.nbytes <= _SMALL or threads < 2:
        target[...] = source
        return
    from_there = np.broadcast_to(source, target.shape)
    ends = [len(target) * part // threads for part in range(threads + 1)]

    def write_part(begin: int, end: int) -> None:
        np.copyto(target[begin:end], from_there[begin:end], casting="unsafe")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write_part, ends[:-1], ends[1:]))  # list() raises the exceptions of the threads
