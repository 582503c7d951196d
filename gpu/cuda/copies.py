"""Copies that overlap launches on an NVIDIA GPU: page-locked memory, and events that order streams."""

from __future__ import annotations

import ctypes
import math
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpu.cuda.driver import bindings, checked
from gpu.cuda.streams import pointer_of
from gpu.finalizers import when_gone
from reference.devices.launch import Extent, shape_of
from reference.types.arguments import dtype_of

_EVENT = "an event"
_PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: page-locked for all devices."""


def pinned(shape: Extent, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A host array in page-locked memory of all devices, which is freed with its last view."""
    shape, dtype = shape_of("pinned", shape), dtype_of("pinned", dtype)
    size = int(math.prod(shape)) * dtype.itemsize or 1
    address = checked(f"{size} bytes of page-locked memory", bindings.cuMemHostAlloc(size, _PORTABLE))
    memory = (ctypes.c_char * size).from_address(int(address))
    when_gone(memory, bindings.cuMemFreeHost, address)
    return np.ndarray(shape, dtype, cast("Any", memory))


def is_pinned(host: npt.NDArray[Any]) -> bool:
    """True if the first and the last byte of a dense host array are page-locked."""
    which, first = bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host.ctypes.data
    for address in (first, first + max(host.nbytes, 1) - 1):
        status, kind = bindings.cuPointerGetAttribute(which, address)
        if status or int(kind) != bindings.CUmemorytype.CU_MEMORYTYPE_HOST:  # unknown: not page-locked
            return False
    return True


class CudaEvent:
    """An event in a stream; the GPU records the time at which it is reached."""

    def __init__(self) -> None:
        self._event = checked(_EVENT, bindings.cuEventCreate(0))
        when_gone(self, bindings.cuEventDestroy, self._event)

    def record(self, stream: Any = None) -> None:
        """Queue the event behind the work that is in the stream now."""
        checked(_EVENT, bindings.cuEventRecord(self._event, _queue(stream)))

    def wait(self, stream: Any = None) -> None:
        """Let later work of the stream wait for the event's last record."""
        checked(_EVENT, bindings.cuStreamWaitEvent(_queue(stream), self._event, 0))

    def synchronize(self) -> None:
        """Wait until the GPU reaches the event."""
        checked(_EVENT, bindings.cuEventSynchronize(self._event))

    def seconds_since(self, earlier: CudaEvent) -> float:
        """The seconds between an earlier event and this one."""
        milliseconds = checked(_EVENT, bindings.cuEventElapsedTime(earlier._event, self._event))
        return float(milliseconds) / 1000


def _queue(stream: Any) -> int:
    """The driver's handle of a stream; 0 for the default one."""
    return 0 if stream is None else pointer_of(stream)
