"""PyCUDA's driver module, and in its place the part that is used here, over cuda-bindings.

PyCUDA is built on installation; where it cannot be, cuda-bindings come as a wheel.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy.typing as npt

from gpu.finalizers import when_gone

device_attribute = SimpleNamespace(
    MULTIPROCESSOR_COUNT=16, COMPUTE_CAPABILITY_MAJOR=75, COMPUTE_CAPABILITY_MINOR=76
)
"""Numbers of the driver's ``CU_DEVICE_ATTRIBUTE_…``."""


@cache
def load() -> Any:
    """PyCUDA's driver module, or this one, which has the same names. Raises ImportError without either."""
    try:
        import pycuda.driver
    except ImportError:
        _bindings()
        return sys.modules[__name__]
    return pycuda.driver


@cache
def _bindings() -> Any:
    """Import the CUDA driver's Python bindings."""
    return import_module("cuda.bindings.driver")


class Error(Exception):
    """An error code that the CUDA driver returned."""


class LogicError(Error):
    """A call that the driver refused, or a kernel that failed before it."""


class LaunchError(Error):
    """A kernel launch that failed."""


class MemoryError(Error):
    """The device has too little free memory."""


def _call(name: str, *arguments: Any) -> Any:
    """The value that a call of the driver returns; raises its error."""
    status, *values = getattr(_bindings(), name)(*arguments)
    if status:
        raise _error(name, status)
    return values[0] if values else None


def _error(name: str, status: Any, log: str = "") -> Error:
    """The error of a status, with the driver's words for it."""
    _, text = _bindings().cuGetErrorString(status)
    kinds = {"LAUNCH_": LaunchError, "OUT_OF_MEMORY": MemoryError}
    kind = next((kind for part, kind in kinds.items() if part in status.name), LogicError)
    return kind(f"{name} failed: {text.decode() if text else status.name}{log and f' - {log}'}")


def init() -> None:
    """Initialise the CUDA driver."""
    try:
        _call("cuInit", 0)
    except RuntimeError as error:  # libcuda is missing
        raise LogicError(str(error).partition("\n")[0]) from None


def get_driver_version() -> int:
    """The version of CUDA that the driver has, e.g. 13000."""
    return int(_call("cuDriverGetVersion"))


def module_from_buffer(image: bytes) -> None:
    """Raise why the driver's compiler refuses PTX, with its log."""
    log, options = bytearray(1 << 13), _bindings().CUjit_option
    names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    status, _ = _bindings().cuModuleLoadDataEx(image, len(names), names, [log, len(log)])
    if status:
        raise _error("cuModuleLoadDataEx", status, log.split(b"\0")[0].decode(errors="replace").strip())


class Device:
    """A GPU, by its number among the visible ones."""

    def __init__(self, number: int) -> None:
        self._device = _call("cuDeviceGet", number)

    @staticmethod
    def count() -> int:
        """The number of visible GPUs."""
        return int(_call("cuDeviceGetCount"))

    def name(self) -> str:
        """The device's name, e.g. ``"NVIDIA H200"``."""
        return str(_call("cuDeviceGetName", 256, self._device).partition(b"\0")[0].decode())

    def get_attribute(self, number: int) -> int:
        """The value of a device attribute, by the driver's number for it."""
        return int(_call("cuDeviceGetAttribute", _bindings().CUdevice_attribute(number), self._device))

    def compute_capability(self) -> tuple[int, int]:
        """The device's compute capability, (major, minor)."""
        attributes = device_attribute
        return (
            self.get_attribute(attributes.COMPUTE_CAPABILITY_MAJOR),
            self.get_attribute(attributes.COMPUTE_CAPABILITY_MINOR),
        )

    def retain_primary_context(self) -> Context:
        """The context that all libraries share; it is kept until the process ends."""
        return Context(_call("cuDevicePrimaryCtxRetain", self._device))


class Context:
    """A CUDA context."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def push(self) -> None:
        """Make this context the thread's current one."""
        _call("cuCtxPushCurrent", self._handle)

    @staticmethod
    def pop() -> None:
        """Pop the current context, so that the one before it is current again."""
        _call("cuCtxPopCurrent")

    @staticmethod
    def synchronize() -> None:
        """Wait for all work in the current context."""
        _call("cuCtxSynchronize")


class Stream:
    """A stream; flag 1: it does not wait for the default one."""

    def __init__(self, flags: int = 0) -> None:
        stream = _call("cuStreamCreate", flags)
        self.handle = int(stream)
        when_gone(self, _bindings().cuStreamDestroy, stream)

    def synchronize(self) -> None:
        """Wait for all work in the stream."""
        _call("cuStreamSynchronize", self.handle)


def memcpy_htod(pointer: int, host: npt.NDArray[Any]) -> None:
    """Copy a dense array to the device."""
    _call("cuMemcpyHtoD", pointer, host.ctypes.data, host.nbytes)


def memcpy_htod_async(pointer: int, host: npt.NDArray[Any], stream: Stream) -> None:
    """Copy a dense array to the device, in a stream."""
    _call("cuMemcpyHtoDAsync", pointer, host.ctypes.data, host.nbytes, stream.handle)


def memcpy_dtoh(host: npt.NDArray[Any], pointer: int) -> None:
    """Copy from the device into a dense array."""
    _call("cuMemcpyDtoH", host.ctypes.data, pointer, host.nbytes)


def memcpy_dtoh_async(host: npt.NDArray[Any], pointer: int, stream: Stream) -> None:
    """Copy from the device into a dense array, in a stream."""
    _call("cuMemcpyDtoHAsync", host.ctypes.data, pointer, host.nbytes, stream.handle)


class DeviceMemoryPool:
    """Memory of the current context; a freed allocation waits for the next array of about its size."""

    def __init__(self) -> None:
        self._context = Context(_call("cuCtxGetCurrent"))
        self._held: defaultdict[int, list[int]] = defaultdict(list)
        self._holds = True

    def allocate(self, size: int) -> Allocation:
        """Allocate at least ``size`` bytes of device memory from the pool."""
        step = 1 << max(size.bit_length() - 3, 9)  # at most a quarter is wasted
        size = -(-size // step) * step
        try:
            pointer = self._held[size].pop()
        except IndexError:
            with self._current():
                pointer = int(_call("cuMemAlloc", size))
        return Allocation(self, size, pointer)

    def take_back(self, size: int, pointer: int) -> None:
        """Keep freed memory; at the end of the process the driver takes it."""
        if self._holds:
            self._held[size].append(pointer)

    def free_held(self) -> None:
        """Free the pool's unused allocations in the driver."""
        with self._current():
            for pointers in list(self._held.values()):
                while pointers:
                    _call("cuMemFree", pointers.pop())

    def stop_holding(self) -> None:
        """Return waiting allocations to the driver at the end of the process, and keep no more."""
        self._holds = False
        self.free_held()

    @contextmanager
    def _current(self) -> Generator[None]:
        self._context.push()
        try:
            yield
        finally:
            Context.pop()


class Allocation:
    """Device memory from a pool; ``int`` gives its address."""

    def __init__(self, pool: DeviceMemoryPool, size: int, pointer: int) -> None:
        self._pool: DeviceMemoryPool | None = pool
        self._size, self._pointer = size, pointer

    def __int__(self) -> int:
        return self._pointer

    def free(self) -> None:
        """Return the allocation to its pool."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.take_back(self._size, self._pointer)

    __del__ = free
