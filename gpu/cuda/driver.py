"""The way to the CUDA driver: no other module imports cuda-bindings' functions of it, or PyCUDA.

`bindings` has the driver's functions, `value_of` looks at the status that one returned, and `load` gives
PyCUDA's module, which has contexts, memory and copies of its own. PyCUDA is built on installation; where it
cannot be, this module has the same names, over the bindings, which come as a wheel.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy.typing as npt

from gpu.finalizers import when_gone
from reference import errors

device_attribute = SimpleNamespace(
    MULTIPROCESSOR_COUNT=16, COMPUTE_CAPABILITY_MAJOR=75, COMPUTE_CAPABILITY_MINOR=76
)
"""Numbers of the driver's ``CU_DEVICE_ATTRIBUTE_…``."""


class Bindings:
    """The names of `cuda.bindings.driver`, which is imported when the first of them is used."""

    def __getattr__(self, name: str) -> Any:
        if not name.lower().startswith("cu"):  # what doctest asks any object for must not import them
            raise AttributeError(f"the CUDA driver has no {name}")
        found = getattr(import_module("cuda.bindings.driver"), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    from cuda.bindings import driver as bindings
else:
    bindings = Bindings()


@cache
def load() -> Any:
    """PyCUDA's driver module, or this one, which has the same names."""
    try:
        import pycuda.driver
    except ImportError:
        return sys.modules[__name__]
    return pycuda.driver


def started(module: Any, instead: str) -> Any:
    """A module that `load` can return, with the driver initialised; ``instead`` needs no GPU.

    MissingExtraError without the bindings, NoGpuError without a driver or a GPU.
    """
    try:
        module.init()
    except ImportError as error:
        raise errors.MissingExtraError(
            f"running on a GPU needs cuda-bindings, which are not installed ({error})\n"
            "pip install 'simwarp[cuda]', or 'simwarp[gpu]' to have PyCUDA as well"
        ) from None
    except module.Error as error:
        raise errors.NoGpuError(f"CUDA cannot start: {error}\ncheck nvidia-smi, or use {instead}") from None
    return module


def is_raised_here(error: BaseException) -> bool:
    """True for an error of the driver, by PyCUDA or in its place."""
    return type(error).__module__.startswith(("pycuda", "_pycuda", __name__))


def value_of(answer: tuple[Any, ...], refusal: Callable[..., Exception], *about: Any) -> Any:
    """What a function of the driver returned beside its status: nothing, a value, or a tuple of several.

    Raises ``refusal(status, *about)`` if the status is an error.
    """
    if answer[0]:
        raise refusal(answer[0], *about)
    return answer[1] if len(answer) == 2 else answer[1:] or None


def checked(what: str, answer: tuple[Any, ...]) -> Any:
    """The value of a call for a launch, or for what launches need."""
    return value_of(answer, _refused, what)


def refuse(what: str, status: Any) -> NoReturn:
    """Raise the error for a launch that the driver refused."""
    raise _refused(status, what)


def _refused(status: Any, what: str) -> Exception:
    """The error for a launch that the driver refused."""
    if status.name == "CUDA_ERROR_INVALID_CLUSTER_SIZE":
        return errors.LaunchError(f"{what}: the GPU cannot run clusters of this size\ngive a smaller cluster")
    return load().LaunchError(f"{what}: launch failed: {status.name}")


class Error(Exception):
    """An error code that the CUDA driver returned."""


class LogicError(Error):
    """A call that the driver refused, or a kernel that failed before it."""


class LaunchError(Error):
    """A kernel launch that failed."""


class MemoryError(Error):
    """The device has too little free memory."""


def _call(name: str, *arguments: Any) -> Any:
    """The value that a function of the driver returns; raises its error."""
    return value_of(getattr(bindings, name)(*arguments), _error, name)


def _error(status: Any, name: str, log: str = "") -> Error:
    """The error of a status, with the driver's words for it."""
    _, text = bindings.cuGetErrorString(status)
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
    log, options = bytearray(1 << 13), bindings.CUjit_option
    names = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    answer = bindings.cuModuleLoadDataEx(image, len(names), names, [log, len(log)])
    words = log.split(b"\0")[0].decode(errors="replace").strip()
    value_of(answer, _error, "cuModuleLoadDataEx", words)


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
        return int(_call("cuDeviceGetAttribute", bindings.CUdevice_attribute(number), self._device))

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
        when_gone(self, bindings.cuStreamDestroy, stream)

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
