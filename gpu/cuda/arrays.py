"""`CudaArray`: an array in the memory of an NVIDIA GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu.cuda import contexts
from gpu.cuda.capture import refuse_in_capture
from gpu.cuda.copies import pinned
from reference.devices.launch import Extent, shape_of, uploadable
from reference.errors import ShapeError

if TYPE_CHECKING:
    from gpu.cuda.device import CudaDevice


class CudaArray:
    """An array in a GPU's memory, in C order, with the CUDA array interface.

    ``memory`` is an allocation of a pool or of torch, or the address of memory that ``keep`` owns. ``queue``
    is the number of the stream behind whose work the memory is used again. ``together`` lists objects that
    must live as long as the array: all arrays of a captured call.
    """

    queue = 0
    together: Any = None

    def __init__(
        self, device: CudaDevice, memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any], keep: Any = None
    ) -> None:
        self.device, self.shape, self.dtype = device, tuple(shape), dtype
        self.pointer = int(memory)
        self.memory, self._keep = memory, keep

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return int(math.prod(self.shape)) * self.dtype.itemsize

    def hold(self) -> None:
        """Keep the array's memory from being reused before the device's next synchronisation."""
        self.device.hold(self.memory if self._keep is None else self._keep)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
        }

    def upload(self, host: Any, stream: Any = None) -> None:
        """Copy a host array of the same shape and dtype into the array."""
        refuse_in_capture("an upload")
        if host.__class__ is not np.ndarray:
            host = uploadable(host, "the array")
        if host.shape != self.shape or host.dtype != self.dtype:
            raise ShapeError(
                f"upload: {host.dtype} {host.shape} into {self.dtype} {self.shape}\n"
                "convert or reshape the host array first"
            )
        data = np.ascontiguousarray(host)
        if stream is None:
            contexts.driver().memcpy_htod(self.pointer, data)
        else:
            self.hold()
            contexts.driver().memcpy_htod_async(self.pointer, data, stream)

    def download(self, stream: Any = None) -> npt.NDArray[Any]:
        """A copy on the host, made after all work that writes the array."""
        refuse_in_capture("a download")
        host = np.empty(self.shape, self.dtype)
        if stream is None:
            self.device.synchronize()
        else:
            stream.synchronize()
        contexts.driver().memcpy_dtoh(host, self.pointer)
        return host

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Copy the array to the host, for `numpy.asarray`, as a simulated device's array does."""
        if copy is False:
            raise ValueError("the array is on a device: np.asarray must copy it (copy=None or True)")
        return self.download() if dtype is None else self.download().astype(dtype)

    def copy_to(self, host: npt.NDArray[Any], stream: Any) -> None:
        """Queue a copy to page-locked host memory in a stream, without the deferred checks."""
        refuse_in_capture("a download")
        self.hold()
        contexts.driver().memcpy_dtoh_async(host, self.pointer, stream)

    def view(self, shape: Extent, dtype: npt.DTypeLike | None = None, offset: int = 0) -> CudaArray:
        """View the array's memory from byte ``offset`` on with another shape or dtype."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        shape = shape if isinstance(shape, tuple) else shape_of("view", shape)
        other = CudaArray(self.device, self.pointer + offset, shape, dtype, keep=self)
        if offset < 0 or offset + other.nbytes > self.nbytes:
            behind = f" from byte {offset} on" if offset else ""
            raise ShapeError(
                f"view: {shape} of {other.dtype} needs {other.nbytes} bytes{behind}, "
                f"the array has {self.nbytes}\ngive a smaller shape or dtype"
            )
        other.queue = self.queue
        return other

    def free(self) -> None:
        """Return the array's memory to the pool."""
        if self._keep is None:
            self.memory.free()


class HostNumber(CudaArray):
    """One int32 in page-locked host memory, which kernels read and write at the same address."""

    def __init__(self, device: CudaDevice) -> None:
        self._host = pinned((1,), np.int32)
        self._host[:] = 0
        super().__init__(device, self._host.ctypes.data, (1,), np.dtype(np.int32), keep=self._host)

    def upload(self, host: npt.NDArray[Any], stream: Any = None) -> None:
        """Write the number to the page-locked memory."""
        self._host[:] = host

    def download(self, stream: Any = None) -> npt.NDArray[Any]:
        """Read the number without waiting: the caller has synchronised the device."""
        return self._host.copy()
