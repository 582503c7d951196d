"""The program's memory on the simulated device: allocations, pages shared with it, copies and fills."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simwarp.allocation import Allocation
from simwarp.device.device import Device
from simwarp.exec.protocol import PAGE, WINDOW, Data, Kind
from simwarp.faults import MemoryFault, OutOfBounds
from simwarp.memory import Memory
from simwarp.ptx.spaces import WINDOW as SPACE
from simwarp.ptx.spaces import WINDOWS

Bytes = npt.NDArray[np.uint8]
_UNIT = 16
"""Allocations start at multiples of this; so do registered ones, whose first bytes may then be too many."""


class HostAccess(OutOfBounds):
    """An access of the program's host code to memory of the device."""


class CallFault(OutOfBounds):
    """A copy, fill or free by the host whose bytes are not in one allocation."""


@dataclass
class Shared:
    """Pages of managed or pinned memory that the program and the simulator share."""

    allocation: Allocation
    kind: Kind
    file: int  # a memory file, where a page that was never touched is a hole
    pages: mmap.mmap
    skipped: int  # bytes of the pages before the allocation

    def mark_written(self) -> None:
        """Mark the touched pages as written, since the runtime does not report host writes."""
        at, allocation = 0, self.allocation
        while not allocation.complete and at < len(self.pages):
            try:
                start = os.lseek(self.file, at, os.SEEK_DATA)
            except OSError:  # the rest of the file is holes
                return
            at = os.lseek(self.file, start, os.SEEK_HOLE)
            allocation.written_bits[max(start - self.skipped, 0) : max(at - self.skipped, 0)] = 0xFF
        allocation.settle()


@dataclass
class DeviceMemory:
    """The allocations of a program, limited to ``limit`` bytes in total."""

    device: Device
    limit: int
    used: int = 0
    shared: dict[int, Shared] = field(default_factory=dict[int, Shared])

    @staticmethod
    def new_space() -> Memory:
        """An empty global memory whose addresses lie in the window reserved in the program."""
        return Memory("global", WINDOW, alignment=PAGE)

    def allocate(self, size: int, address: int = 0) -> int:
        """Allocate device memory, at an address that was freed if that is not 0. Raises MemoryError."""
        if size > self.limit - self.used:
            raise MemoryError
        self.used += size
        return self.device.memory.allocate(size, at=address or None).base

    def share(self, size: int, kind: Kind, address: int, file: int) -> int:
        """Allocate memory in the pages of a file, at an address if that is not 0."""
        start = address // _UNIT * _UNIT
        skipped, size = start % PAGE, size + address % _UNIT
        storage, pages = _mapped(file)
        allocation = self.device.memory.allocate(size, at=start or None, storage=storage[skipped:])
        self.shared[allocation.base] = Shared(allocation, kind, file, pages, skipped)
        return allocation.base

    def share_variable(self, variable: int, file: int) -> int:
        """Move a managed variable to the pages of a file."""
        allocation = self.device.memory.find(variable)
        assert allocation is not None
        storage, pages = _mapped(file)
        allocation.move_to(storage)
        self.shared[allocation.base] = Shared(allocation, Kind.MANAGED, file, pages, 0)
        return allocation.base

    def free(self, address: int) -> None:
        """Free an allocation by its address; CallFault if none begins there."""
        memory = self.device.memory
        found = memory.find(address)
        shared = self.shared.get(found.base) if found else None
        start = address // _UNIT * _UNIT if shared else address
        if found is None or found.base != start:
            what, advice = f"the host frees {address:#x}", "free what an allocation returned, once"
            raise self._fault(CallFault, what, address, 1, advice)
        memory.free(found)
        if shared is None:
            self.used -= found.size
        else:
            del self.shared[start]
            os.close(shared.file)

    def kind(self, address: int) -> tuple[int, int, int]:
        """Start, size and kind of the allocation at an address; zeros if there is none."""
        found = self.device.memory.find(address)
        if found is None:
            return 0, 0, 0
        shared = self.shared.get(found.base)
        return found.base, found.size, Kind.DEVICE if shared is None else shared.kind

    def mark_written(self) -> None:
        """Before a launch, mark the shared pages that the host may have written."""
        for one in self.shared.values():
            one.mark_written()

    def write(self, address: int, pitch: int, width: int, height: int, data: Data) -> None:
        """Copy ``height`` rows of ``width`` bytes, ``pitch`` apart, from the host to device memory."""
        to, marks, _ = self._rows("write", address, pitch, width, height)
        to[...] = np.frombuffer(data, np.uint8).reshape(height, width)
        marks[...] = 0xFF

    def read(self, address: int, pitch: int, width: int, height: int) -> bytes:
        """The bytes of ``height`` rows of ``width`` bytes, ``pitch`` apart, in device memory."""
        return self._rows("read", address, pitch, width, height)[0].tobytes()

    def copy(self, to: int, to_pitch: int, source: int, pitch: int, width: int, height: int) -> None:
        """Copy rows of the device, with their marks: a copy of unwritten bytes is unwritten."""
        rows, known, from_allocation = self._rows("read", source, pitch, width, height)
        if from_allocation.base in self.shared:
            self.shared[from_allocation.base].mark_written()
        there, marks, allocation = self._rows("write", to, to_pitch, width, height)
        there[...], marks[...] = rows.copy(), known.copy()
        allocation.complete = False  # the next launch completes the allocation

    def fill(self, address: int, pitch: int, width: int, height: int, value: int, size: int) -> None:
        """Fill rows with a value of 1, 2 or 4 bytes."""
        to, marks, _ = self._rows("write", address, pitch, width, height)
        for i in range(size):
            to[:, i::size] = value >> 8 * i & 0xFF
        marks[...] = 0xFF

    def host_access(self, address: int, writes: bool) -> MemoryFault:
        """The finding for an access of host code to device memory."""
        what = f"the host {'writes to' if writes else 'reads'} device memory"
        advice = "copy it with cudaMemcpy, or allocate it with cudaMallocManaged"
        return self._fault(HostAccess, what, address, 1, advice)

    def _memory(self, address: int) -> tuple[Memory, int]:
        """The memory of a generic address, and the address in it."""
        if address // SPACE == WINDOWS["const"] // SPACE:
            return self.device.constants, address - WINDOWS["const"]
        return self.device.memory, address

    def _rows(
        self, verb: str, address: int, pitch: int, width: int, height: int
    ) -> tuple[Bytes, Bytes, Allocation]:
        """The bytes of rows, their marks, and their allocation; raises `CallFault` if there is none."""
        self.device.end_overlaps()
        size = pitch * (height - 1) + width
        memory, at = self._memory(address)
        found = memory.find(at)
        if found is None or at + size > found.base + found.size:
            what, advice = f"a call of the host {verb}s {size} bytes", "give memory that is large enough"
            raise self._fault(CallFault, what, address, size, advice)
        offset = at - found.base
        bytes_, marks = (
            np.lib.stride_tricks.as_strided(whole[offset:], (height, width), (pitch, 1))
            for whole in (found.bytes, found.written_bits)
        )
        return bytes_, marks, found

    def _fault(self, kind: type[MemoryFault], what: str, address: int, size: int, advice: str) -> MemoryFault:
        """A finding about an address, with the allocation that is nearest."""
        memory, at = self._memory(address)
        near, relation = memory.nearest(at, size)
        return kind(
            what,
            f"address {address:#x}: {relation}",
            advice,
            address=address,
            width=size,
            space=memory.space,
            allocation=near.name if near else "",
            offset=at - near.base if near else 0,
        )


def _mapped(file: int) -> tuple[Bytes, mmap.mmap]:
    """A file's pages mapped into memory, as an array of bytes and as an ``mmap``."""
    pages = mmap.mmap(file, os.fstat(file).st_size)
    return np.frombuffer(pages, np.uint8), pages
