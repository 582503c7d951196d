"""Products of bits and of integers: the b1, s8, u8, s4 and u4 forms of mma, wmma and wgmma.

Source: PTX ISA 9.0, sections 9.7.14.4.5 (wmma.mma) and 9.7.14.5.14 (mma), ``.xor.popc``, ``.and.popc`` and
``.satfinite``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np

from reference.errors import SchemeError
from simwarp.products.warps import Tiles, check, each_tile, few_tiles, warps_last

BLOCK = 128
"""Warps per block."""


def bits(a: Tiles, b: Tiles, c: Tiles, operation: Literal["and", "xor"]) -> Tiles:
    """Add to c the population count of each row of a **and** (or **xor**) each column of b.

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
        For operands of shapes that do not multiply, other element types, or another operation.

    Examples
    --------
    >>> a, b = np.array([[0b1100, 0]], np.uint32), np.array([[0b1010], [1]], np.uint32)
    >>> c = np.array([[10]], np.int32)
    >>> bits(a, b, c, "and").item(), bits(a, b, c, "xor").item()
    (11, 13)
    """
    if operation not in _OPERATIONS:
        raise SchemeError(f"operation is {operation!r}\nchoose one of {', '.join(_OPERATIONS)}")
    check(a, b, c, "uint32", "uint32", "int32")
    if few_tiles(a, b, c):
        count, usual = partial(_count_in_tile, _OPERATIONS[operation]), np.setbufsize(_ROW)
        try:
            return each_tile(count, _long_words(a), _long_words(b.swapaxes(-1, -2)), c, np.int32)
        finally:
            np.setbufsize(usual)
    function = partial(_count, _OPERATIONS[operation])
    columns = _long_words(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    return warps_last(function, _long_words(a), columns, c, np.int32, BLOCK)


def _long_words(rows: Tiles) -> Tiles:
    """Join pairs of 32-bit words to 64-bit words; an odd last word is paired with 0."""
    if rows.shape[-1] % 2:
        rows = np.concatenate([rows, np.zeros_like(rows[..., :1])], axis=-1)
    return np.ascontiguousarray(rows).view(np.uint64)


def _count(operation: np.ufunc, a: Tiles, b: Tiles, c: Tiles) -> Tiles:
    total, both = c.copy(), np.empty(c.shape, np.uint64)
    a, b, octets = a.view(np.uint8), b.view(np.uint8), both.view(np.uint8)  # NumPy's fastest loop
    for start in range(0, len(b), _WORDS):
        count = np.zeros(c.shape, np.uint8)
        for word in range(start, min(start + _WORDS, len(b))):
            operation(a[:, None, word], b[word], out=octets)
            count += np.bitwise_count(both)
        total += count
    return total


def _count_in_tile(operation: np.ufunc, a: Tiles, b: Tiles, c: Tiles, total: Tiles) -> None:
    """Compute `bits` in 64-bit words: a (m, words), columns b (n, words), and c (m, n)."""
    columns, both = np.ascontiguousarray(b.T), np.empty(c.shape, np.uint64)
    count, more = np.empty(c.shape, np.uint8), np.empty(c.shape, np.uint8)
    total[...] = c
    for start in range(0, len(columns), _WORDS):
        np.bitwise_count(operation(a[:, start, None], columns[start], out=both), out=count)
        for word in range(start + 1, min(start + _WORDS, len(columns))):
            operation(a[:, word, None], columns[word], out=both)
            count += np.bitwise_count(both, out=more)
        total += count.astype(np.int32)


_WORDS = 3
"""The 64-bit words whose bits a byte can count."""
_ROW = 256
"""Elements of NumPy's buffer: with more, it copies a broadcast operand, and takes twice the time."""
_OPERATIONS: dict[str, Any] = {"and": np.bitwise_and, "xor": np.bitwise_xor}


def integers(a: Tiles, b: Tiles, c: Tiles, saturate: bool = False) -> Tiles:
    """Compute a · b + c exactly, then wrap or clamp it to int32.

    ``d[i, j] = c[i, j] + sum over k of a[i, k] · b[k, j]``.

    Parameters
    ----------
    a : int8 or uint8 (…, m, k)
        The values, also of 4-bit types, one per byte.
    b : int8 or uint8 (…, k, n)
    c : int32 (…, m, n)
    saturate : bool
        Clamp sums outside int32 (``.satfinite``) instead of wrapping them around.

    Returns
    -------
    int32 (…, m, n)

    Raises
    ------
    ShapeError, DtypeError
        For operands of shapes that do not multiply, or of other element types.

    Examples
    --------
    >>> a, b = np.array([[100, -2]], np.int8), np.array([[100], [3]], np.uint8)
    >>> c = np.array([[2**31 - 1]], np.int32)
    >>> integers(a, b, c).item(), integers(a, b, c, saturate=True).item()
    (-2147473655, 2147483647)
    """
    check(a, b, c, "int8 or uint8", "int8 or uint8", "int32")
    # Matrix products of floats are fast, and exact while a float holds every partial sum.
    exact = np.float32 if a.shape[-1] * 255 * 255 < 2**24 else np.float64
    products = np.matmul(a.astype(exact), b.astype(exact))
    if saturate:
        limits = np.iinfo(np.int32)
        return np.clip(products + c.astype(np.float64), limits.min, limits.max).astype(np.int32)
    return products.astype(np.int32) + c
