"""What the bit tensor core multiplies: rows of bits along K, padded to 128, from matrices or packed bits.

Source: BTC (TPDS), section 5.1 (padding) and section 6.2 (8 rows, 128 bits).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reference.types import PackedBits, PackedTensor
from simwarp.lanes import brev

Words = npt.NDArray[np.uint32]
T = TypeVar("T")

STEP = 4
"""Words of a step along K: 128 bits."""


def most_significant_first(x: T) -> T:
    """Packed 32-bit words that begin at the least significant bit, reversed; all else as it is."""
    if not isinstance(x, PackedBits | PackedTensor) or x.first != "lsb":
        return x
    on_host = isinstance(x.words, np.ndarray)
    words: npt.NDArray[Any] = x.words
    if not on_host or words.dtype != np.uint32:
        return x
    return replace(x, words=brev(words), first="msb")


def padded(rows: Words, multiple: int) -> Words:
    """Rows of words, (…, rows, words), with zeros up to a multiple of rows, and of 128 bits."""
    height, words = rows.shape[-2:]
    around = [(0, 0)] * (rows.ndim - 2) + [(0, -height % multiple), (0, -words % STEP)]
    return np.pad(rows, around)
