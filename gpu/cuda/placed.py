"""Memory of a GPU at addresses that the caller chooses, so that pointers in it keep their meaning."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu.cuda.arrays import CudaArray
from gpu.cuda.driver import bindings, value_of
from reference.errors import LaunchError

if TYPE_CHECKING:
    from gpu.cuda.device import CudaDevice


_REGION = 1 << 30
"""Bytes of addresses that are reserved at once: driver 580 chooses the place of smaller ones itself."""


def array_at(device: CudaDevice, address: int, size: int) -> CudaArray:
    """An array of bytes at an address; LaunchError if the driver does not give its pages.

    Neighbours share pages, which stay mapped until `keep_only` is called without them.
    """
    pages = _pages(device.ordinal)
    for page in pages.of(address, size):
        pages.map(page)
    return CudaArray(device, address, (size,), np.dtype(np.uint8), keep=pages)


def keep_only(device: CudaDevice, ranges: Iterable[tuple[int, int]]) -> None:
    """Give back all pages except those of some addresses and sizes; no work may use the others any more."""
    pages = _pages(device.ordinal)
    kept = {page for address, size in ranges for page in pages.of(address, size)}
    for page in pages.mapped - kept:
        pages.unmap(page)


class _Pages:
    """The pages of one GPU that are mapped at chosen addresses."""

    def __init__(self, ordinal: int) -> None:
        kinds, places = bindings.CUmemAllocationType, bindings.CUmemLocationType
        self._wanted = bindings.CUmemAllocationProp()
        self._wanted.type = kinds.CU_MEM_ALLOCATION_TYPE_PINNED
        self._access = bindings.CUmemAccessDesc()
        self._access.flags = bindings.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        for one in (self._wanted, self._access):
            one.location.type = places.CU_MEM_LOCATION_TYPE_DEVICE
            one.location.id = ordinal
        least = bindings.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.size = int(_given(bindings.cuMemGetAllocationGranularity(self._wanted, least), 0))
        self.mapped: set[int] = set()
        self._regions: set[int] = set()

    def of(self, address: int, size: int) -> range:
        """The pages, by address, that hold some bytes."""
        return range(address // self.size * self.size, address + size, self.size)

    def map(self, address: int) -> None:
        """Map the page that begins at an address, unless it is mapped."""
        if address in self.mapped:
            return
        self._reserve(address // _REGION * _REGION)
        memory = _given(bindings.cuMemCreate(self.size, self._wanted, 0), address)
        _given(bindings.cuMemMap(address, self.size, 0, memory, 0), address)
        _given(bindings.cuMemRelease(memory), address)  # the mapping keeps it
        _given(bindings.cuMemSetAccess(address, self.size, [self._access], 1), address)
        self.mapped.add(address)

    def _reserve(self, region: int) -> None:
        """Reserve the addresses of a region, which stay reserved: they take no memory."""
        if region in self._regions:
            return
        given = _given(bindings.cuMemAddressReserve(_REGION, 0, region, 0), region)
        if int(given) != region:
            _given(bindings.cuMemAddressFree(given, _REGION), region)
            raise _taken(region, f"the driver gave {int(given):#x} instead")
        self._regions.add(region)

    def unmap(self, address: int) -> None:
        """Give back the memory of a page."""
        self.mapped.remove(address)
        _given(bindings.cuMemUnmap(address, self.size), address)


@cache
def _pages(ordinal: int) -> _Pages:
    return _Pages(ordinal)


def _given(answer: tuple[Any, ...], address: int) -> Any:
    """The value of a call of the driver; LaunchError if it refused."""
    return value_of(answer, _refusal, address)


def _refusal(status: Any, address: int) -> LaunchError:
    return _taken(address, status.name)


def _taken(address: int, why: str) -> LaunchError:
    return LaunchError(
        f"the GPU has no memory at {address:#x}: {why}\n"
        "the launch is repeated with the program's own addresses\nfree memory, or compare it with simwarp run"
    )
