"""Arrays in a simulated device's global memory, and how long their memory lives."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reference.devices.launch import Extent, shape_of, uploadable
from reference.errors import ShapeError
from reference.types.arguments import dtype_of
from simwarp.device.graph import refuse
from simwarp.elements import Shape
from simwarp.memory import Allocation, Memory

if TYPE_CHECKING:
    from simwarp.device.state import Device
    from simwarp.device.streams import Stream

_SMALL = 1 << 28
"""Bytes of an array that fits into the memory of every machine."""
_BLOCK = 1 << 18
"""Elements whose written bits are looked at together."""
_KEPT = 2
"""Bytes of host memory per byte of an array: its value and its written bits."""


class Owner:
    """Releases an allocation when the last array or view that refers to this object is deleted."""

    def __init__(self, memory: Memory, allocation: Allocation) -> None:
        self.memory, self.allocation = memory, allocation
        weakref.finalize(self, memory.release, allocation.base).atexit = False


class DeviceArray:
    """An array in a simulated device's global memory, C order; faults call it by its ``name``.

    The memory is released when the array and all its views are gone, at the latest by the next allocation or
    launch; `free` releases it at once.
    """

    def __init__(
        self, device: Device, owner: Owner, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0
    ) -> None:
        self.device, self.shape, self.dtype = device, tuple(shape), dtype
        self._owner, self._allocation, self._offset = owner, owner.allocation, offset

    @property
    def pointer(self) -> int:
        """The device address of the first element."""
        return self._allocation.base + self._offset

    @property
    def name(self) -> str:
        """The array's name in faults."""
        return self._allocation.name

    def describe(self, find_shape: Callable[[], Shape | None], read_only: bool) -> None:
        """Set the function that returns the array's shape for faults, and whether kernels must not write."""
        self._allocation.find_shape, self._allocation.read_only = find_shape, read_only

    @property
    def nbytes(self) -> int:
        """The array's size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def upload(self, host: Any, stream: Stream | None = None) -> None:
        """Copy a host array of the same shape and dtype to the device."""
        refuse(self.device, f"an upload to {self.name}")
        self.put(host)

    def put(self, host: Any) -> None:
        """Copy a host array into the array, even during a capture: the initial value of a variable."""
        host = uploadable(host, "the array")
        if host.shape != self.shape or host.dtype != self.dtype:
            alike = self.dtype == np.uint8 and host.nbytes == self.nbytes
            raise ShapeError(
                f"upload to {self.name}: {host.dtype} {host.shape} into {self.dtype} {self.shape}\n"
                + (
                    f"take it as such elements: .view({host.shape}, {str(host.dtype)!r}).upload(…)"
                    if alike
                    else "convert or reshape the host array first"
                )
            )
        self.device.end_overlaps()
        self._allocation.fill(np.ascontiguousarray(host).reshape(-1).view(np.uint8), self._offset)

    @property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return self._allocation.bytes[self._offset : self._offset + self.nbytes]

    def download(self, stream: Stream | None = None) -> npt.NDArray[Any]:
        """Copy the array to the host, after all work that writes it."""
        refuse(self.device, f"a download of {self.name}")
        self.device.synchronize()
        return self._bytes.copy().view(self.dtype).reshape(self.shape)

    def detach(self) -> npt.NDArray[Any]:
        """The array's memory as a host array, after all work that writes it; no launch may use it again."""
        refuse(self.device, f"a download of {self.name}")
        self.device.synchronize()
        return self._bytes.view(self.dtype).reshape(self.shape)

    def copy_to(self, host: npt.NDArray[Any], stream: Stream | None = None) -> None:
        """Copy the array to a host array immediately, without the deferred checks."""
        refuse(self.device, f"a download of {self.name}")
        self.device.end_overlaps()
        host[...] = self._bytes.view(self.dtype).reshape(self.shape)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Copy the array to the host, for `numpy.asarray`."""
        if copy is False:
            raise ValueError(f"{self.name} is on a device: np.asarray must copy it (copy=None or True)")
        return self.download() if dtype is None else self.download().astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """Export a copy on the host by DLPack, for `numpy.from_dlpack`, torch and others."""
        return self.download().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of `__dlpack__`: the host."""
        return 1, 0

    def __eq__(self, other: object) -> Any:
        """Compare the elements, on the host."""
        return np.equal(np.asarray(self), np.asarray(other))

    def __ne__(self, other: object) -> Any:
        return np.not_equal(np.asarray(self), np.asarray(other))

    __hash__ = object.__hash__  # arrays hash by identity: each is one range of memory

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self.name} has no dimension, hence no length\ntake its download()")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.name}: {self.dtype} {self.shape} at {self.pointer:#x}>"

    def unwritten(self) -> npt.NDArray[np.bool_]:
        """A mask of elements with a byte that neither a kernel nor the host ever wrote, padding aside.

        >>> from simwarp import Device
        >>> Device().allocate((2,), np.uint32).unwritten().tolist()
        [True, True]
        """
        blocks = [missing for _, missing in self.unwritten_blocks()]
        return np.concatenate([np.empty(0, np.bool_), *blocks]).reshape(self.shape)

    def unwritten_blocks(self) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
        """Yield `unwritten` block by block to save memory, each block with its first element's number."""
        self.device.synchronize()
        size, meaningful = max(self.dtype.itemsize, 1), _meaningful(self.dtype)
        for first in range(0, self.nbytes // size, _BLOCK):
            begin = self._offset + first * size
            end = min(begin + _BLOCK * size, self._offset + self.nbytes)
            missing = self._allocation.never_written(begin, end).reshape(-1, size)
            yield first, np.asarray(missing[:, meaningful].any(axis=1))

    def view(self, shape: Extent, dtype: npt.DTypeLike | None = None, offset: int = 0) -> DeviceArray:
        """An array of another shape or dtype in the same memory, from byte ``offset`` on."""
        shape, dtype = shape_of("view", shape), self.dtype if dtype is None else dtype_of("view", dtype)
        other = DeviceArray(self.device, self._owner, shape, dtype, self._offset + offset)
        if offset < 0 or other._offset + other.nbytes > self._allocation.size:
            behind = f" from byte {offset} on" if offset else ""
            raise ShapeError(
                f"view of {self.name}: {shape} of {dtype} needs {other.nbytes} bytes{behind}, "
                f"the array has {self._allocation.size - self._offset}\ngive a shape that fits"
            )
        return other

    def free(self) -> None:
        """Release the memory; later accesses by kernels or the host are faults."""
        self._owner.memory.free(self._allocation)


def check_room(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise `ShapeError` if an array and its written bits do not fit into this machine's memory."""
    size = math.prod(shape) * dtype.itemsize
    if size > _SMALL and size * _KEPT > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise ShapeError(f"{name} would take {size} bytes, more than this machine has\nmake it smaller")


def _meaningful(dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """A mask of the bytes of an element that hold data; False in the padding of a structure."""
    if dtype.subdtype is not None:
        of_one = _meaningful(dtype.subdtype[0])
        return np.tile(of_one, dtype.itemsize // of_one.size)
    mask = np.full(dtype.itemsize, dtype.fields is None)
    for inner, offset, *_ in (dtype.fields or {}).values():
        mask[offset : offset + inner.itemsize] |= _meaningful(inner)
    return mask
