"""Matrix descriptors of wgmma: the position of a matrix in shared memory (PTX ISA 9.0, section 9.7.15.5.1.2).

A matrix is cut into chunks of 16 bytes. K-major, a chunk holds neighbours along k of one row of A, or column
of B; MN-major, neighbours along m or n at one k. Eight chunks that follow one another across the chunk's
direction are a core matrix: 128 bytes without a swizzle; with one, its rows lie a span apart, and the chunks
of a row of the span follow one another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.fragments.swizzles import swizzled

CHUNK = 16
"""Bytes of a chunk, the unit of the addresses and offsets in a descriptor."""
_CORE = 8
"""Chunks of a core matrix."""
_SPANS = np.array((0, 128, 64, 32), np.uint64)
"""The field of the swizzle → the span in bytes."""
_RESERVED = np.uint64(0x3FF1_C000_C000_C000)
_ROW = np.uint64(128)
"""The unit of the base offset, in bytes."""

Words = npt.NDArray[np.uint64]


class Descriptors(NamedTuple):
    """The fields of some descriptors, each an array of uint64; in bytes.

    K-major, ``leading`` is from a row's first chunk to its second (without a swizzle), ``stride`` from a
    group of 8 rows to the next. MN-major with a swizzle, ``leading`` is from a span along m or n to the next,
    ``stride`` from a group of 8 k to the next; without one the other way round.
    """

    start: Words  # address of the matrix in the block's window of shared memory
    leading: Words
    stride: Words
    base: Words  # start of the swizzle's pattern within its repeat, in rows of 128 bytes
    span: Words  # bytes of the swizzle's span: 128, 64, 32, or 0 for no swizzle
    reserved: Words  # bits that belong to no field

    @classmethod
    def of(cls, words: Words) -> Descriptors:
        """Decode matrix descriptors of ``wgmma``, one uint64 each, into their fields in bytes.

        >>> found = Descriptors.of(np.array([0x4000_0040_0001_0080], np.uint64))
        >>> [int(field[0]) for field in found]
        [2048, 16, 1024, 0, 128, 0]
        """
        start, leading, stride = (
            (words >> np.uint64(at) & np.uint64(0x3FFF)) << np.uint64(4) for at in (0, 16, 32)
        )
        base = words >> np.uint64(49) & np.uint64(7)
        span = _SPANS[(words >> np.uint64(62)).astype(np.intp)]
        return cls(start, leading, stride, base, span, words & _RESERVED)

    def chunks(self, extent: int, k: int, k_major: bool) -> Words:
        """The addresses of a matrix's chunks: (descriptors, extent, k); MN-major (descriptors, extent/8, k).

        ``extent`` is the rows of A, or the columns of B; ``k`` counts chunks if K-major, elements of 16 bits
        if MN-major. Below, without a swizzle: the second chunk of row 9 of a K-major matrix; the chunk of
        rows 8 to 15 at k = 1 of an MN-major one.

        >>> descriptors = Descriptors.of(np.array([128 >> 4 << 16 | 256 >> 4 << 32], np.uint64))
        >>> int(descriptors.chunks(64, 2, True)[0, 9, 1]), int(descriptors.chunks(64, 16, False)[0, 1, 1])
        (400, 272)
        """
        start, leading, stride, base, span, _ = (field[:, None, None] for field in self)
        pitch, core = np.maximum(span, np.uint64(CHUNK)), np.uint64(_CORE)
        chunk = np.uint64(CHUNK)
        along_k = np.arange(k, dtype=np.uint64)
        if k_major:
            row = np.arange(extent, dtype=np.uint64)[:, None]
            at = row % core * pitch + row // core * stride + along_k * np.where(span == 0, leading, chunk)
        else:
            across, wide = np.arange(extent // _CORE, dtype=np.uint64)[:, None], pitch // chunk
            outer, inner = np.where(span == 0, stride, leading), np.where(span == 0, leading, stride)
            at = (
                across % wide * chunk
                + across // wide * outer
                + along_k % core * pitch
                + along_k // core * inner
            )
        at, shift = start + at, base * _ROW
        for width in np.unique(self.span[self.span != 0]).tolist():
            at = np.where(span == width, swizzled(at - shift, int(width)) + shift, at)
        return at


def descriptor(start: int, leading: int, stride: int, span: int = 0, base: int = 0) -> int:
    """The descriptor with these fields, as `Descriptors` names them.

    >>> hex(descriptor(2048, 16, 1024, span=128))
    '0x4000004000010080'
    """
    swizzle = _SPANS.tolist().index(span)
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | swizzle << 62


def rows_of(chunks: npt.NDArray[Any], dtype: np.dtype[Any], k_major: bool) -> npt.NDArray[Any]:
    """The matrix (…, extent, k) of elements of ``dtype``, from the values of its chunks, bytes of "V16"."""
    parts = chunks.view(dtype).reshape(*chunks.shape, CHUNK // dtype.itemsize)
    if k_major:
        return parts.reshape(*chunks.shape[:-1], -1)
    return np.moveaxis(parts, -1, -2).reshape(*chunks.shape[:-2], -1, chunks.shape[-1])
