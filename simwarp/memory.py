"""An address space of a simulated GPU, with checks of bounds, alignment and initialisation.

An access is a vector of addresses, one per executing lane, in the order of the lanes. A bad access raises the
fault of the first bad address; the caller (the PTX executor or `simwarp.warp`) adds kernel, lane and line.

One mark per bit records whether the bit was ever written. Memory starts as poison, 0xA5 bytes, so that an
unchecked read of uninitialised memory is recognisable.
"""

from __future__ import annotations

import copy
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reference.errors import ShapeError
from simwarp.allocation import FREE_LATER, POISON, Addresses, Allocation, count_of_bytes
from simwarp.faults import (
    DoubleFree,
    MemoryFault,
    Misaligned,
    OutOfBounds,
    ReadOnlyWrite,
    UninitialisedRead,
    UseAfterFree,
)

ALIGNMENT = 256
"""Allocations start at multiples of this, as cudaMalloc's do."""
_GAP = 1 << 16  # bytes between allocations, so that accesses past the end do not reach the next one
_REMEMBERED = 256  # freed allocations that faults can still name
_FEW = 64  # bases of freed allocations that always may stay in the table

_Fault = TypeVar("_Fault", bound=MemoryFault)
_Part = tuple[Allocation, npt.NDArray[np.intp]]  # an allocation, and which of the accesses are in it


class Memory:
    """A simulated address space, such as global memory, and the allocations in it.

    ``space``, "global", "shared" …, is for faults. Allocations start at multiples of ``alignment``, itself a
    multiple of `ALIGNMENT`, and so does the space: ShapeError for another ``start``. Processes forked later
    share the bytes if ``shared``.
    """

    def __init__(
        self,
        space: str = "global",
        start: int = 0x7F00_0000_0000,
        shared: bool = False,
        alignment: int = ALIGNMENT,
    ) -> None:
        if start % alignment:
            raise ShapeError(f"memory starts at {start:#x}\ngive a multiple of {alignment}")
        self.space, self.shared, self._alignment = space, shared, alignment
        self._whole: Memory | None = None
        self._next = start
        self._count = 0
        self._bases: list[int] = []
        """Where allocations begin, in order; those of freed ones may be among them."""
        self._live: dict[int, Allocation] = {}
        """Base → live allocation. Each change is one operation: the table is right at any interrupt."""
        self._unsettled: set[int] = set()
        """The bases of allocations that may have become complete since the last `settle`."""
        self._freed: deque[Allocation] = deque(maxlen=_REMEMBERED)
        self._released: deque[int] = deque()

    @property
    def allocations(self) -> list[Allocation]:
        """The live allocations, in order of their addresses."""
        self._drop_released()
        return [self._live[base] for base in self._bases if base in self._live]

    def allocate(
        self,
        size: int,
        name: str = "",
        read_only: bool = False,
        *,
        at: int | None = None,
        storage: npt.NDArray[np.uint8] | None = None,
    ) -> Allocation:
        """Reserve ``size`` bytes, in ``storage`` if it is not None (see `Allocation`).

        No address is used twice, so that a use after free is reported. Memory that is not the device's own
        lies ``at`` an address that the caller knows to be free, a multiple of 16.
        """
        if size < 0:
            raise ShapeError(f"allocation of {count_of_bytes(size)}\nask for 0 bytes or more")
        self._drop_released()
        name = name or f"allocation {self._count}"
        base = self._next if at is None else at
        allocation = Allocation(base, size, name, read_only, self.shared, storage, self._unsettled)
        if at is None:
            self._next += -(-(size + _GAP) // self._alignment) * self._alignment
        self._count += 1
        if self.shared:
            self._unsettled.add(base)
        self._live[base] = allocation
        i = bisect_right(self._bases, base)
        if not i or self._bases[i - 1] != base:  # else an allocation began there, and was freed
            insort(self._bases, base)
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Free an allocation; every later access to it is a fault."""
        if not self._drop(allocation.base):
            raise DoubleFree(
                f"free of {allocation.name}, which is not allocated",
                f"address {allocation.base:#x}: {self.nearest(allocation.base, 0)[1]}",
                "free each array once",
                address=allocation.base,
                space=self.space,
                allocation=allocation.name,
            )

    def release(self, base: int) -> None:
        """Free the allocation at ``base``, if there is one, before the next allocation or launch.

        For finalizers, which may run at any moment, even during a look-up, when the table must not change.
        """
        self._released.append(base)

    def settle(self) -> None:
        """Between launches: free the released allocations, and `Allocation.settle` those written since.

        What other processes write to shared memory is not noted: there, all that are not complete count.
        """
        self._drop_released()
        for base in list(self._unsettled):
            allocation = self._live.get(base)
            if allocation is not None:
                allocation.settle()
            if allocation is None or allocation.complete or not self.shared:
                self._unsettled.discard(base)

    def _drop_released(self) -> None:
        while self._released:
            self._drop(self._released[0])
            self._released.popleft()

    def _drop(self, base: int) -> bool:
        """Free the allocation at ``base``; True if there was one."""
        allocation = self._live.pop(base, None)
        if allocation is None:
            return False
        self._freed.append(allocation)
        self._unsettled.discard(base)
        allocation.discard()
        if len(self._bases) > 2 * len(self._live) + _FEW:
            self._bases = [base for base in self._bases if base in self._live]
        return True

    def find(self, address: int) -> Allocation | None:
        """The live allocation that holds the byte at ``address``, or None."""
        i = bisect_right(self._bases, address) - 1
        allocation = self._live.get(self._bases[i]) if i >= 0 else None
        if allocation is not None and address < allocation.base + allocation.size:
            return allocation
        return None

    def _beside(self, address: int) -> tuple[Allocation | None, Allocation | None]:
        """The last live allocation that begins at or before an address, and the first one behind it."""
        bases, live, end = self._bases, self._live, bisect_right(self._bases, address)
        before = next((live[bases[i]] for i in range(end - 1, -1, -1) if bases[i] in live), None)
        behind = next((live[bases[i]] for i in range(end, len(bases)) if bases[i] in live), None)
        return before, behind

    def was_freed(self, address: int) -> bool:
        """True if an address lies in a freed allocation, and in no live one."""
        return self.find(address) is None and any(
            old.base <= address < old.base + old.size for old in self._freed
        )

    @property
    def whole(self) -> Memory:
        """The memory that this is a part of, or itself."""
        return self._whole or self

    def part(self, allocations: Sequence[Allocation]) -> Memory:
        """A memory with only these allocations (sorted by address): all others are out of bounds."""
        some = copy.copy(self)
        some._whole = self
        some._bases, some._live = [a.base for a in allocations], {a.base: a for a in allocations}
        some._freed, some._released = deque(), deque()
        return some

    def around(self, address: int) -> list[Allocation]:
        """The allocation that holds the byte at ``address``; else its neighbours, if one is near."""
        if (held := self.find(address)) is not None:
            return [held]
        beside = [allocation for allocation in self._beside(address) if allocation is not None]
        near = [a for a in beside if a.base - _GAP <= address <= a.base + a.size + _GAP]
        return beside if near else []

    def load(self, addresses: Addresses, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Read one value of ``dtype``, of 1, 2, 4, 8 or 16 bytes, from each address."""
        dtype = np.dtype(dtype)
        if not addresses.size:
            return np.empty(0, dtype)
        result = self.peek(addresses, dtype)
        if result is None:
            for fault in self.examine(addresses, dtype.itemsize, "read"):
                raise fault
            result = self.read(addresses, dtype)
        return result

    def peek(self, addresses: Addresses, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
        """The result of `load` if all accesses are valid and in one allocation; else None."""
        width = dtype.itemsize
        allocation = self._common_allocation(addresses, width)
        if allocation is None:
            return None
        index = allocation.index(addresses, width)
        unwritten = allocation.unwritten(index, width)
        if unwritten is not None and unwritten.any():
            return None
        return allocation.view(dtype).take(index)

    def read(self, addresses: Addresses, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The result of `load`, unchecked: poison for misaligned addresses and those out of bounds."""
        result = np.frombuffer(bytes([POISON]) * dtype.itemsize, dtype).repeat(addresses.size)
        for allocation, part in self.parts(addresses, dtype.itemsize):
            part = part[~_misaligned(addresses[part], dtype.itemsize)]
            result[part] = allocation.read(addresses[part], dtype)
        return result

    def store(self, addresses: Addresses, values: npt.NDArray[Any]) -> None:
        """Write one value, of 1 to 16 bytes, to each address; the last of equal addresses wins."""
        if addresses.size and not self.poke(addresses, values):
            for fault in self.examine(addresses, values.dtype.itemsize, "write"):
                raise fault
            self.write(addresses, values)

    def poke(self, addresses: Addresses, values: npt.NDArray[Any]) -> bool:
        """Store if all accesses are valid and in one allocation; return whether it stored."""
        allocation = self._common_allocation(addresses, values.dtype.itemsize)
        if allocation is None or allocation.read_only:
            return False
        allocation.write(addresses, values)
        return True

    def write(self, addresses: Addresses, values: npt.NDArray[Any]) -> None:
        """Store, unchecked, to the addresses that are writable, and skip the others."""
        for allocation, part in self._writable(addresses, values.dtype.itemsize):
            allocation.write(addresses[part], values[part])

    def forget(self, addresses: Addresses, unwritten: npt.NDArray[np.uint8]) -> None:
        """Mark bits of bytes just stored as unwritten: the bits set in ``unwritten``, uint8 (n, width)."""
        for allocation, part in self._writable(addresses, unwritten.shape[1]):
            allocation.forget(addresses[part], unwritten[part])

    def unwritten_bits(self, addresses: Addresses, width: int) -> npt.NDArray[np.uint8]:
        """The unwritten bits of each byte, as ones in uint8 (n, width); 0 for an invalid access."""
        found = np.zeros((addresses.size, width), np.uint8)
        for allocation, part in self.parts(addresses, width):
            part = part[~_misaligned(addresses[part], width)]
            found[part] = allocation.unwritten_bits(addresses[part], width)
        return found

    def _writable(self, addresses: Addresses, width: int) -> Iterator[_Part]:
        """Yield each writable allocation with the indices of its aligned accesses."""
        for allocation, part in self.parts(addresses, width):
            if not allocation.read_only:
                yield allocation, part[~_misaligned(addresses[part], width)]

    def updatable(self, addresses: Addresses, width: int) -> Allocation | None:
        """The allocation that holds all accesses, if all may both read and write; else None."""
        allocation = self._common_allocation(addresses, width)
        if allocation is None or allocation.read_only:
            return None
        if allocation.complete:
            return allocation
        unwritten = allocation.unwritten(allocation.index(addresses, width), width)
        return None if unwritten is not None and unwritten.any() else allocation

    def _common_allocation(self, addresses: Addresses, width: int) -> Allocation | None:
        """The allocation that holds all accesses, all aligned (the usual case); else None."""
        if addresses.size == 0:
            return None
        allocation = self.find(int(addresses.min()))
        if allocation is None or int(addresses.max()) + width > allocation.base + allocation.size:
            return None
        misaligned = int(np.bitwise_or.reduce(addresses)) & (width - 1)
        return None if misaligned else allocation

    def parts(self, addresses: Addresses, width: int) -> list[_Part]:
        """The accesses of each allocation, by address, without those that exceed its bounds."""
        if not addresses.size:
            return []
        first = self.find(int(addresses.min()))
        if first is not None and int(addresses.max()) + width <= first.base + first.size:
            return [(first, np.arange(addresses.size))]
        order = np.argsort(addresses, kind="stable")
        ordered, found, at = addresses[order], list[_Part](), 0
        while at < ordered.size:
            address = int(ordered[at])
            allocation = self.find(address)
            if allocation is None:
                behind = self._beside(address)[1]
                at = ordered.size if behind is None else int(ordered.searchsorted(np.uint64(behind.base)))
                continue
            end = allocation.base + allocation.size
            fit = stop = int(ordered.searchsorted(np.uint64(end)))
            if int(ordered[stop - 1]) + width > end:  # the last ones exceed it
                fit = at + int(np.count_nonzero(np.uint64(end) - ordered[at:stop] >= np.uint64(width)))
            if fit > at:
                part = order[at:fit]
                part.sort()
                found.append((allocation, part))
            at = stop
        return found

    def examine(self, addresses: Addresses, width: int, *verbs: str) -> list[MemoryFault]:
        """The first fault of each class, with its count, by position; verbs are "read", "write" or both."""
        outside = np.ones(addresses.size, np.bool_)
        unwritten, read_only = np.zeros_like(outside), np.zeros_like(outside)
        misaligned = _misaligned(addresses, width)
        for allocation, part in self.parts(addresses, width):
            outside[part] = False
            read_only[part] = allocation.read_only and "write" in verbs
            if "read" in verbs:
                found = allocation.unwritten(allocation.index(addresses[part], width), width)
                unwritten[part] = False if found is None else found
        misaligned &= ~outside
        freed = outside & self._lies_in_freed(addresses, outside)
        verb = "update" if len(verbs) == 2 else verbs[0]
        kinds: list[tuple[type[MemoryFault], str, npt.NDArray[np.bool_]]] = [
            (UseAfterFree, f"{verb} of {count_of_bytes(width)} that were freed", freed),
            (OutOfBounds, f"{verb} of {count_of_bytes(width)}", outside & ~freed),
            (Misaligned, f"misaligned {verb} of {count_of_bytes(width)}", misaligned),
            (ReadOnlyWrite, "write to read-only memory", read_only & ~misaligned),
            (UninitialisedRead, _NEVER_WRITTEN, unwritten & ~misaligned),
        ]
        faults: list[MemoryFault] = []
        for kind, what, bad in kinds:
            if bad.any():
                fault = self._fault(kind, what, int(addresses[bad.argmax()]), width, int(bad.argmax()))
                if kind is OutOfBounds:
                    fault.what += self._outside(fault)
                fault.count = int(np.count_nonzero(bad))
                faults.append(fault)
        return sorted(faults, key=lambda fault: fault.position)

    def _outside(self, fault: MemoryFault) -> str:
        """The end of a message: the allocation that an access is outside of."""
        there = self.whole.find(fault.address)
        known, beyond = bool(fault.element), there is not None and there.base != fault.address - fault.offset
        if known and not beyond:
            return f", {'before its start' if fault.offset < 0 else 'past its end'}"
        where = (
            f"outside {fault.allocation}, in {there.name}" if there and beyond else "outside every allocation"
        )
        return f"{',' * known} {where}"

    def _lies_in_freed(self, addresses: Addresses, outside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """A mask of the out-of-bounds addresses that lie in a freed allocation."""
        mask = np.zeros_like(outside)
        if outside.any():
            for old in self._freed:
                mask |= (addresses >= np.uint64(old.base)) & (addresses < np.uint64(old.base + old.size))
        return mask

    def unwritten(self, address: int, width: int) -> UninitialisedRead:
        """The fault for a read of bytes that were never written."""
        return self._fault(UninitialisedRead, _NEVER_WRITTEN, address, width)

    def _fault(self, kind: type[_Fault], what: str, address: int, width: int, position: int = 0) -> _Fault:
        near, relation = self.nearest(address, width)
        advice = FREE_LATER if near is not None and near.freed else _ADVICE[kind]
        if kind is OutOfBounds and self.space == "global" and address < _GAP:
            near, relation, advice = None, "a null pointer", _NULL
        fault = kind(what, f"address {address:#x}: {relation}", advice, space=self.space)
        fault.address, fault.width, fault.position = address, width, position
        if near is not None:
            fault.allocation = f"{near.name} (freed)" if near.freed else near.name
            fault.offset = address - near.base
            if -_GAP <= fault.offset <= near.size + _GAP:
                fault.name_element(near.element(fault.offset, width))
        return fault

    def nearest(self, address: int, width: int) -> tuple[Allocation | None, str]:
        """The live or freed allocation nearest to an address, and the address relative to it, in words."""
        candidates = [*filter(None, self._beside(address)), *self._freed]
        if not candidates:
            return None, f"there is no {self.space} allocation"
        near = min(candidates, key=lambda a: max(a.base - address, address - (a.base + a.size - 1), 0))
        where = f"{near.name} ({count_of_bytes(near.size)} at {near.base:#x})"
        end, offset = address + width - near.base, address - near.base
        if offset < 0:
            relation = f"{count_of_bytes(-offset)} before {where}"
        elif offset >= near.size:
            relation = f"{count_of_bytes(offset - near.size)} past the end of {where}"
        elif end > near.size and not near.freed:
            relation = (
                f"bytes {offset} to {end - 1} of {where}: {count_of_bytes(end - near.size)} past its end"
            )
        else:
            relation = f"byte {offset} of {where}"
        return near, f"{relation}, which was freed" if near.freed else relation


def _misaligned(addresses: Any, width: int) -> npt.NDArray[np.bool_]:
    return addresses & np.uint64(width - 1) != 0


_NULL = "pass an array, or test the pointer before the access"
_NEVER_WRITTEN = "read of memory that nothing wrote"
_ADVICE: dict[type[MemoryFault], str] = {
    OutOfBounds: "check the index against the array's size before the access",
    Misaligned: "an access of w bytes needs an address that is a multiple of w",
    UninitialisedRead: "write the memory first, or upload it from the host",
    ReadOnlyWrite: "write to global or shared memory instead",
}
