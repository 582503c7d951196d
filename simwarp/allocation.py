"""An allocation: contiguous bytes of a memory, with a mark for each bit that was ever written."""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from simwarp.elements import Shape, name_element
from simwarp.faults import UseAfterFree

POISON = 0xA5
FREE_LATER = "free memory after its last use"
"""The advice of faults for a use after free."""
_WHOLE = 0xFF
"""The mark of a byte whose bits were all written."""
_BLOCK, _BLOCKS = 1 << 12, 1 << 20
"""Marks that a search looks at together: at first, and at most."""
_ROUND = 16  # storage is rounded up to the widest access, so that it has a view of each width

Addresses = npt.NDArray[np.uint64]


def _no_shape() -> Shape | None:
    return None


class Allocation:
    """Contiguous bytes of a memory, from address ``base`` on.

    They lie in ``storage`` if the caller passes it, which another process may share: a multiple of 16 bytes
    long, it keeps its contents, none of which counts as written. A kernel's write to a ``read_only`` one is a
    fault; in a ``complete`` one every byte is known to be written. ``find_shape`` returns the shape by which
    faults name elements, or None. Whatever may change marks puts the base into the set ``unsettled``.
    """

    def __init__(
        self,
        base: int,
        size: int,
        name: str,
        read_only: bool = False,
        shared: bool = False,
        storage: npt.NDArray[np.uint8] | None = None,
        unsettled: set[int] | None = None,
    ) -> None:
        self.base, self.size, self.name, self.read_only = base, size, name, read_only
        self._shared, self._unsettled = shared, set[int]() if unsettled is None else unsettled
        self.freed = False
        self.find_shape: Callable[[], Shape | None] = _no_shape
        self._make(size, storage)

    def _make(self, size: int, storage: npt.NDArray[np.uint8] | None = None) -> None:
        room = -(-size // _ROUND) * _ROUND
        self._marks: npt.NDArray[np.uint8] | None = _zeros(room, self._shared)
        if storage is None:
            storage = _zeros(room, self._shared)
            storage.fill(POISON)
        self._bytes = storage[:room]
        self.complete = False
        self._missing = 0
        """A byte that was not wholly written when `settle` last looked."""
        self._views: dict[np.dtype[Any], npt.NDArray[Any]] = {}
        self._written_views: dict[int, npt.NDArray[Any]] = {}

    def element(self, offset: int, width: int) -> str:
        """The element at an offset, under one index as in the kernel; "" if the shape is not known."""
        name, shape = self.name.removeprefix("variable "), self.find_shape()
        return "" if shape is None or " " in name else name_element(name, shape, offset, width, flat=True)

    def move_to(self, storage: npt.NDArray[np.uint8]) -> None:
        """Move the bytes to another storage, a multiple of 16 bytes long; the marks of written bytes stay."""
        storage[: self.size] = self.bytes
        self._bytes, self._views = storage[: self._bytes.size], {}

    def discard(self) -> None:
        """Free the bytes; base, size and name stay, for faults."""
        self.freed = True
        self._make(0)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """A view of the bytes; UseAfterFree once they are freed."""
        self._check_live()
        return self._bytes[: self.size]

    @property
    def written(self) -> npt.NDArray[np.bool_]:
        """A mask of the bytes that are written in all their bits."""
        self._check_live()
        return self._written[: self.size] == _WHOLE

    @property
    def written_bits(self) -> npt.NDArray[np.uint8]:
        """A view of the marks: which bits of each byte were ever written. Its holder may change them."""
        self._check_live()
        self._unsettled.add(self.base)
        return self._written[: self.size]

    @property
    def _written(self) -> npt.NDArray[np.uint8]:
        """The marks of written bits; rebuilt if they were dropped because every byte was written."""
        if self._marks is None:
            self._marks = np.full(self._bytes.size, _WHOLE, np.uint8)
        return self._marks

    def fill(self, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        """Write bytes of the host, from a byte offset on."""
        self._check_live()
        if not 0 <= offset <= self.size - data.size:
            raise ShapeError(
                f"fill of {self.name}: {count_of_bytes(data.size)} from byte {offset} on\n"
                f"the allocation has {count_of_bytes(self.size)}\nfill only bytes of the allocation"
            )
        self._bytes[offset : offset + data.size] = data
        if data.size == self.size:
            self._complete()
        elif not self.complete:
            self._written[offset : offset + data.size] = _WHOLE
            self.settle()

    def settle(self) -> None:
        """Check whether every byte has been written; if so, reads skip the check for uninitialised bytes.

        Looks at the byte that was missing the last time, and for another one only once that is written.
        """
        if self.complete:
            return
        marks, missing = self._written[: self.size], self._missing
        if missing < self.size and marks[missing] != _WHOLE:
            return
        found = _find_missing(marks[missing:])
        if found is not None:
            self._missing = missing + found
        elif (found := _find_missing(marks[:missing])) is not None:  # a mark was cleared behind the search
            self._missing = found
        else:
            self._complete()

    def _complete(self) -> None:
        """Note that every byte is written, and drop the marks unless another process may still clear one."""
        self.complete = True
        if self._shared:
            self._written[: self.size] = _WHOLE
        else:
            self._marks, self._written_views = None, {}

    def view(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The storage as an array of ``dtype``, which includes the padding at its end."""
        if dtype not in self._views:
            self._views[dtype] = self._bytes.view(dtype)
        return self._views[dtype]

    def index(self, addresses: Addresses, width: int) -> npt.NDArray[np.int64]:
        """Convert addresses in the allocation to indices of elements of ``width`` bytes."""
        offsets = np.subtract(addresses, np.uint64(self.base))
        offsets >>= np.uint64(width.bit_length() - 1)
        return offsets.view(np.int64)

    def unwritten(self, index: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.bool_] | None:
        """A mask of the elements of ``width`` bytes with an unwritten byte; None if there are surely none."""
        if self.complete:
            return None
        if width > 8:
            return (self._written_view(8).take([2 * index, 2 * index + 1]) != _ones(8)).any(axis=0)
        return self._written_view(width).take(index) != _ones(width)

    def never_written(self, begin: int, end: int) -> npt.NDArray[np.bool_]:
        """A mask of the bytes from ``begin`` to ``end`` without a written bit."""
        self._check_live()
        return np.zeros(end - begin, np.bool_) if self.complete else self._written[begin:end] == 0

    def read(self, addresses: Addresses, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Read the values at addresses, without a check of bounds, alignment or initialisation."""
        return self.view(dtype).take(self.index(addresses, dtype.itemsize))

    def write(self, addresses: Addresses, values: npt.NDArray[Any]) -> None:
        """Write values to addresses, without a check of bounds or alignment."""
        index = self.index(addresses, values.dtype.itemsize)
        self.view(values.dtype)[index] = values
        if not self.complete:
            self._unsettled.add(self.base)
            width = values.dtype.itemsize
            if width > 8:
                index, width = np.concatenate([2 * index, 2 * index + 1]), 8
            self._written_view(width)[index] = _ones(width)

    def forget(self, addresses: Addresses, unwritten: npt.NDArray[np.uint8]) -> None:
        """Mark bits of the accessed bytes as unwritten: the bits set in ``unwritten``, uint8 (n, width)."""
        self.complete = False
        self._unsettled.add(self.base)
        self._written[self._each(addresses, unwritten.shape[1])] = ~unwritten

    def unwritten_bits(self, addresses: Addresses, width: int) -> npt.NDArray[np.uint8]:
        """The unwritten bits of each accessed byte, as ones in uint8 (n, width)."""
        return ~self._written[self._each(addresses, width)]

    def _each(self, addresses: Addresses, width: int) -> npt.NDArray[np.int64]:
        """(n, width): the index in the allocation of each accessed byte."""
        return self.index(addresses, 1)[:, None] + np.arange(width)

    def _check_live(self) -> None:
        if self.freed:
            where = f"{self.name} ({count_of_bytes(self.size)} at {self.base:#x})"
            raise UseAfterFree(f"use of {self.name} by the host", f"{where}, which was freed", FREE_LATER)

    def _written_view(self, width: int) -> npt.NDArray[Any]:
        if width not in self._written_views:
            self._written_views[width] = self._written.view(f"u{width}")
        return self._written_views[width]


def _find_missing(marks: npt.NDArray[np.uint8]) -> int | None:
    """The first byte that is not wholly written, by its marks; None if all are."""
    start, size = 0, _BLOCK
    while start < marks.size:
        block = marks[start : start + size]
        if block.min() != _WHOLE:
            return start + int((block != _WHOLE).argmax())
        start, size = start + size, min(2 * size, _BLOCKS)
    return None


def _zeros(size: int, shared: bool) -> npt.NDArray[np.uint8]:
    return np.frombuffer(mmap(-1, size), np.uint8) if shared and size else np.zeros(size, np.uint8)


def count_of_bytes(count: int) -> str:
    """A number of bytes with its unit, "1 byte" or "8 bytes", for messages."""
    return "1 byte" if count == 1 else f"{count} bytes"


def _ones(width: int) -> Any:
    return np.dtype(f"u{width}").type((1 << 8 * width) - 1)
