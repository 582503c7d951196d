"""Arrays for simulated machines that move no values: addresses without memory."""

from __future__ import annotations

import math
import mmap
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

_NO_RESERVE = 0x4000  # MAP_NORESERVE, which mmap does not name before Python 3.13
_LARGEST = 1 << 46
"""Bytes: half of what a process of 47 bits can address."""


def unbacked(
    shape: tuple[int, ...], dtype: npt.DTypeLike, order: Literal["C", "F"] = "F"
) -> npt.NDArray[Any]:
    """An array of reserved addresses without memory behind them, which must not be read or written.

    >>> unbacked((3_000_000, 1_000_000), "f8").nbytes
    24000000000000
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes > _LARGEST:
        raise MemoryError(f"an array of {nbytes} bytes")
    if not nbytes:
        return np.empty(shape, kind, order=order)
    try:
        addresses = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    except OSError as error:  # a limit of the process or of the system on address space
        raise MemoryError(f"an array of {nbytes} bytes: {error}") from None
    return np.frombuffer(addresses, kind).reshape(shape, order=order)
