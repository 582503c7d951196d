"""The swizzles of matrices in shared memory: the row number permutes the 16-byte chunks of each row.

Tensor maps (PTX ISA 9.0, section 5.5.7) and the matrix descriptors of wgmma (section 9.7.15.5.1) share them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SWIZZLES = (0, 32, 64, 128)
"""The spans of the swizzles in bytes: a row's length within a pattern; 0 stands for none."""
_CHUNK_BITS, _ROW_BITS = 4, 7
"""log2 of the bytes of a chunk, and of 128 bytes: a swizzle xors the bits above the former by those above
the latter."""


def swizzled(addresses: npt.NDArray[Any], span: int) -> npt.NDArray[Any]:
    """The byte addresses in shared memory of elements, from their addresses without a swizzle.

    Bits 4 and up are xored with bits 7 and up: one bit for a span of 32 bytes, two for 64, three for 128. The
    swizzle is its own inverse.

    >>> swizzled(np.array([0, 128, 256, 1024 - 16], np.uint64), 128).tolist()
    [0, 144, 288, 896]
    >>> swizzled(np.array([128, 256], np.uint64), 32).tolist()
    [144, 256]
    """
    word = addresses.dtype.type
    chunks = word(span // 16 - 1 if span else 0)
    rows = np.bitwise_and(np.right_shift(addresses, word(_ROW_BITS)), chunks)
    return np.bitwise_xor(addresses, np.left_shift(rows, word(_CHUNK_BITS)))
