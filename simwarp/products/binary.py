"""Products of bits: what the b1 forms of mma, wmma and wgmma compute.

Source: PTX ISA 9.0, sections 9.7.14.4.5 (wmma.mma) and 9.7.14.5.14 (mma), ``.xor.popc`` and ``.and.popc``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np

from reference.errors import SchemeError
from simwarp.products.warps import Tiles, check_dtypes, check_tiles, warps_last

BLOCK = 128
"""Warps at a time."""


def bits(a: Tiles, b: Tiles, c: Tiles, operation: Literal["and", "xor"]) -> Tiles:
    """Add to c how many bits of a row of a **and** (or **xor**) a column of b are set.

    ``d[i, j] = c[i, j] + sum over word of popc(a[i, word] operation b[word, j])``, modulo 2^32.

    Parameters
    ----------
    a : uint32 (…, m, words)
        32 bits of k in each word, k ascending from the least significant bit.
    b : uint32 (…, words, n)
    c : int32 (…, m, n)
    operation : "and" or "xor"

    Returns
    -------
    int32 (…, m, n)

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        For operands that do not fit together, other element types, or another operation.

    Examples
    --------
    >>> a, b = np.array([[0b1100, 0]], np.uint32), np.array([[0b1010], [1]], np.uint32)
    >>> c = np.array([[10]], np.int32)
    >>> bits(a, b, c, "and").item(), bits(a, b, c, "xor").item()
    (11, 13)
    """
    if operation not in _OPERATIONS:
        raise SchemeError(f"a product of bits by {operation!r}\nchoose one of {', '.join(_OPERATIONS)}")
    check_tiles(a, b, c)
    check_dtypes((a, b, c), ("uint32", "uint32", "int32"))
    function = partial(_count, _OPERATIONS[operation])
    columns = _long_words(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    return warps_last(function, _long_words(a), columns, c, np.int32, BLOCK)


def _long_words(rows: Tiles) -> Tiles:
    """Rows of 32-bit words as rows of 64-bit words; a 0 completes the last one."""
    if rows.shape[-1] % 2:
        rows = np.concatenate([rows, np.zeros_like(rows[..., :1])], axis=-1)
    return np.ascontiguousarray(rows).view(np.uint64)


def _count(operation: np.ufunc, a: Tiles, b: Tiles, c: Tiles) -> Tiles:
    total, both = c.copy(), np.empty(c.shape, np.uint64)
    a, b, octets = a.view(np.uint8), b.view(np.uint8), both.view(np.uint8)  # whose loop is NumPy's fastest
    for start in range(0, len(b), _WORDS):
        count = np.zeros(c.shape, np.uint8)
        for word in range(start, min(start + _WORDS, len(b))):
            operation(a[:, None, word], b[word], out=octets)
            count += np.bitwise_count(both)
        total += count
    return total


_WORDS = 3
"""As many 64-bit words as a byte can count the bits of."""
_OPERATIONS: dict[str, Any] = {"and": np.bitwise_and, "xor": np.bitwise_xor}
