"""Memory as a kernel sees it: bytes at addresses, with bounds, alignment and poison.

A `Memory` is one address space. Accesses are vectors: one address per lane that takes part, in the
order of the lanes. A bad access raises the fault that names the first bad one of them; who called
(the PTX executor, or `simwarp.warp`) completes the fault with the kernel, the lane and the line.

Poison: every byte knows whether it was ever written. Memory starts out as 0xA5 bytes, so that a
value read unchecked is recognisable.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import MemoryFault, Misaligned, OutOfBounds, ReadOnlyWrite, UninitialisedRead

POISON = 0xA5
ALIGNMENT = 256
"""Allocations start at multiples of this, as cudaMalloc's do."""
_ROUND = 16  # storage is rounded up to whole 16-byte vectors, so that every width has a view

Addresses = npt.NDArray[np.uint64]


class Allocation:
    """Consecutive bytes at an address.

    Attributes
    ----------
    base, size : int
        In bytes.
    name : str
        How faults speak of it.
    read_only : bool
    """

    def __init__(self, base: int, size: int, name: str, read_only: bool = False) -> None:
        self.base, self.size, self.name, self.read_only = base, size, name, read_only
        room = -(-size // _ROUND) * _ROUND
        self._bytes = np.full(room, POISON, np.uint8)
        self._written = np.zeros(room, np.uint8)
        self._complete = False
        self._views: dict[np.dtype[Any], npt.NDArray[Any]] = {}
        self._written_views: dict[int, npt.NDArray[Any]] = {}

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The live bytes (a view)."""
        return self._bytes[: self.size]

    @property
    def written(self) -> npt.NDArray[np.bool_]:
        """Which bytes were ever written (a view)."""
        return self._written[: self.size].view(np.bool_)

    def fill(self, data: npt.NDArray[np.uint8], offset: int = 0) -> None:
        """Write bytes from the host."""
        self._bytes[offset : offset + data.size] = data
        self._written[offset : offset + data.size] = 1
        self.settle()

    def settle(self) -> None:
        """Note whether every byte is written by now, so that reads need not ask."""
        self._complete = self._complete or bool(self._written[: self.size].all())

    def view(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The storage as an array of ``dtype``."""
        if dtype not in self._views:
            self._views[dtype] = self._bytes.view(dtype)
        return self._views[dtype]

    def first_unwritten(self, index: npt.NDArray[Any], width: int) -> int | None:
        """The first position in ``index`` (in units of ``width``) that reads a byte nothing wrote."""
        if self._complete:
            return None
        bad = self._written_view(width).take(index) != _ones(width)
        return int(bad.argmax()) if bad.any() else None

    def note_written(self, index: npt.NDArray[Any], width: int) -> None:
        """Mark units of ``width`` bytes as written."""
        if not self._complete:
            self._written_view(width)[index] = _ones(width)

    def _written_view(self, width: int) -> npt.NDArray[Any]:
        if width not in self._written_views:
            self._written_views[width] = self._written.view(f"u{width}")
        return self._written_views[width]


def _ones(width: int) -> Any:
    return np.dtype(f"u{width}").type(int.from_bytes(b"\x01" * width, "little"))


class Memory:
    """An address space that holds allocations.

    Parameters
    ----------
    space : str
        "global", "shared" …: how faults speak of it.
    start : int
        The first address.

    Examples
    --------
    >>> memory = Memory()
    >>> words = memory.allocate(8, "words")
    >>> at = np.array([words.base, words.base + 4], np.uint64)
    >>> memory.store(at, np.array([7, 8], np.uint32))
    >>> memory.load(at, np.uint32).tolist()
    [7, 8]
    >>> memory.load(at + np.uint64(8), np.uint32)
    Traceback (most recent call last):
    ...
    simwarp.faults.OutOfBounds: read of 4 bytes outside every allocation
    address 0x7f0000000008: 0 bytes past the end of words (8 bytes at 0x7f0000000000)
    check the index against the array's size before the access
    """

    def __init__(self, space: str = "global", start: int = 0x7F00_0000_0000) -> None:
        self.space = space
        self._next = start
        self._bases: list[int] = []
        self._allocations: list[Allocation] = []
        self._freed: list[Allocation] = []

    def allocate(self, size: int, name: str = "", read_only: bool = False) -> Allocation:
        """Reserve ``size`` bytes. Addresses are never used twice, so that a use after free is seen."""
        allocation = Allocation(self._next, size, name or f"allocation {len(self._bases)}", read_only)
        # A gap behind each allocation: running past the end must not reach the next one.
        self._next += -(-(size + ALIGNMENT) // ALIGNMENT) * ALIGNMENT
        self._bases.append(allocation.base)
        self._allocations.append(allocation)
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Give the bytes back; every later access to them is a fault."""
        i = self._bases.index(allocation.base)
        del self._bases[i], self._allocations[i]
        self._freed.append(Allocation(allocation.base, 0, f"{allocation.name} (freed)"))

    def settle(self) -> None:
        """See `Allocation.settle`; called between launches."""
        for allocation in self._allocations:
            allocation.settle()

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds the byte at ``address``."""
        i = bisect_right(self._bases, address) - 1
        if i >= 0 and address < self._bases[i] + self._allocations[i].size:
            return self._allocations[i]
        return None

    def load(self, addresses: Addresses, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Read one value of ``dtype`` from each address."""
        dtype = np.dtype(dtype)
        allocation = self._common_allocation(addresses, dtype.itemsize)
        if allocation is None:
            return self._each(addresses, dtype, None)
        self._check_alignment(addresses, dtype.itemsize, "read")
        index = self._index(allocation, addresses, dtype.itemsize)
        bad = allocation.first_unwritten(index, dtype.itemsize)
        if bad is not None:
            raise self._fault(UninitialisedRead, "read of memory that nothing wrote", addresses, bad, dtype)
        return allocation.view(dtype).take(index)

    def store(self, addresses: Addresses, values: npt.NDArray[Any]) -> None:
        """Write one value to each address; where two agree, the last one stays."""
        dtype = values.dtype
        allocation = self._common_allocation(addresses, dtype.itemsize)
        if allocation is None:
            self._each(addresses, dtype, values)
            return
        self._check_alignment(addresses, dtype.itemsize, "write")
        if allocation.read_only:
            raise self._fault(ReadOnlyWrite, "write to read-only memory", addresses, 0, dtype)
        index = self._index(allocation, addresses, dtype.itemsize)
        allocation.view(dtype)[index] = values
        allocation.note_written(index, dtype.itemsize)

    def _index(self, allocation: Allocation, addresses: Addresses, width: int) -> npt.NDArray[np.int64]:
        shift = np.uint64(width.bit_length() - 1)
        return ((addresses - np.uint64(allocation.base)) >> shift).view(np.int64)

    def _common_allocation(self, addresses: Addresses, width: int) -> Allocation | None:
        """The allocation that holds all accesses whole, which is the usual case; else None."""
        if addresses.size == 0:
            return None
        low, high = int(addresses.min()), int(addresses.max())
        allocation = self.find(low)
        if allocation is not None and high + width <= allocation.base + allocation.size:
            return allocation
        return None

    def _each(
        self, addresses: Addresses, dtype: np.dtype[Any], values: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]:
        """Loads (``values`` None) or stores that touch several allocations, or none."""
        result = np.empty(addresses.shape, dtype)
        todo = np.arange(addresses.size)
        while todo.size:
            first = int(addresses[todo[0]])
            allocation = self.find(first)
            if allocation is None or first + dtype.itemsize > allocation.base + allocation.size:
                verb = "read" if values is None else "write"
                what = f"{verb} of {dtype.itemsize} bytes outside every allocation"
                raise self._fault(OutOfBounds, what, addresses, int(todo[0]), dtype)
            last = np.uint64(allocation.base + allocation.size - dtype.itemsize)
            here = (addresses[todo] >= np.uint64(allocation.base)) & (addresses[todo] <= last)
            part = todo[here]
            try:
                if values is None:
                    result[part] = self.load(addresses[part], dtype)
                else:
                    self.store(addresses[part], values[part])
            except MemoryFault as fault:
                fault.position = int(part[fault.position])
                raise
            todo = todo[~here]
        return result

    def _check_alignment(self, addresses: Addresses, width: int, verb: str) -> None:
        if int(np.bitwise_or.reduce(addresses)) & (width - 1):
            raise self.misaligned(addresses, width, verb)

    def misaligned(self, addresses: Addresses, width: int, verb: str = "access") -> MemoryFault:
        """The fault of the first address that is not a multiple of ``width``."""
        bad = int(((addresses & np.uint64(width - 1)) != 0).argmax())
        return self._fault(Misaligned, f"misaligned {verb} of {width} bytes", addresses, bad, np.dtype(f"V{width}"))

    def _fault(
        self, kind: type[MemoryFault], what: str, addresses: Addresses, bad: int, dtype: np.dtype[Any]
    ) -> MemoryFault:
        address = int(addresses[bad])
        near, relation = self._nearest(address, dtype.itemsize)
        fault = kind(what, f"address {address:#x}: {relation}", _ADVICE[kind])
        fault.address, fault.width, fault.space, fault.position = address, dtype.itemsize, self.space, bad
        if near is not None:
            fault.allocation, fault.offset = near.name, address - near.base
        return fault

    def _nearest(self, address: int, width: int) -> tuple[Allocation | None, str]:
        """The allocation an address most likely was meant for, and how the address lies to it."""
        candidates = [*self._allocations, *self._freed]
        if not candidates:
            return None, f"there is no {self.space} allocation"

        def distance(a: Allocation) -> int:
            return max(a.base - address, address + width - (a.base + a.size), 0)

        near = min(candidates, key=distance)
        where = f"{near.name} ({near.size} bytes at {near.base:#x})"
        if near in self._freed:
            return near, f"{where}, which was freed"
        if address < near.base:
            return near, f"{near.base - address} bytes before {where}"
        if address + width > near.base + near.size:
            return near, f"{address - near.base - near.size} bytes past the end of {where}"
        return near, f"byte {address - near.base} of {where}"


_ADVICE: dict[type[MemoryFault], str] = {
    OutOfBounds: "check the index against the array's size before the access",
    Misaligned: "an access of w bytes needs an address that is a multiple of w",
    UninitialisedRead: "write the memory first, or upload it from the host",
    ReadOnlyWrite: "write to global or shared memory instead",
}
