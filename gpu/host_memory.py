"""Checks of host arrays that several operations use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

_share = cast("Any", np.shares_memory)  # NumPy's stub allows only two values of max_work


def overlap(x: npt.NDArray[Any], others: Sequence[npt.NDArray[Any]]) -> bool:
    """True if arrays share an element with ``x``, or if that is too expensive to decide.

    >>> x = np.zeros(4)
    >>> overlap(x[:2], [x[2:]]), overlap(x[::2], [x[1:3]])
    (False, True)
    """
    try:
        return any(_share(x, other, max_work=1_000_000) for other in others)
    except np.exceptions.TooHardError:
        return True


def shown(nbytes: int) -> str:
    """A number of bytes for readers.

    >>> shown(999), shown(1_500_000)
    ('999 bytes', '1.5 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
