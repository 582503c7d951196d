"""`CudaDevice`: an NVIDIA GPU, through PyCUDA, in the primary context that torch and CuPy share."""

from __future__ import annotations

import atexit
import ctypes
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, MissingExtraError, NoGpuError, ShapeError


@cache
def _driver() -> Any:
    """PyCUDA's driver module, initialised."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise MissingExtraError(
            f"running on a GPU needs PyCUDA, which is not installed ({error})\npip install 'simwarp[gpu]'"
        ) from None
    try:
        driver.init()
    except driver.Error as error:
        raise NoGpuError(f"CUDA cannot start: {error}\ncheck nvidia-smi, or use simwarp.Device()") from None
    return driver


@cache
def _context(ordinal: int) -> Any:
    """The primary context of a device, current until the process ends."""
    driver = _driver()
    if ordinal >= driver.Device.count():
        raise NoGpuError(
            f"there is no CUDA device {ordinal}; {driver.Device.count()} found\n"
            "choose another, or use simwarp.Device()"
        )
    context = driver.Device(ordinal).retain_primary_context()
    context.push()
    atexit.register(context.pop)
    return context


class CudaDevice:
    """An NVIDIA GPU.

    Parameters
    ----------
    ordinal : int
        Which of the visible devices.

    Raises
    ------
    NoGpuError
        No such device, or no driver.
    MissingExtraError
        PyCUDA is not installed.
    """

    def __init__(self, ordinal: int = 0) -> None:
        driver = _driver()
        self._context = _context(ordinal)
        self._device = driver.Device(ordinal)
        self.compute_capability: tuple[int, int] = tuple(self._device.compute_capability())
        self.multiprocessors: int = self._device.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
        self.ordinal = ordinal
        self._checks: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """The chip's name, e.g. ``"NVIDIA H200"``."""
        return str(self._device.name())

    @property
    def uuid(self) -> str:
        """The device's UUID, for the provenance of goldens."""
        from cuda.bindings import driver as binding

        _, handle = binding.cuDeviceGet(self.ordinal)
        _, uuid = binding.cuDeviceGetUuid(handle)
        return bytes(uuid.bytes).hex()

    @property
    def driver_version(self) -> str:
        """The installed driver, e.g. ``"580.159.04"``, for the provenance of goldens."""
        module = Path("/proc/driver/nvidia/version")
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", module.read_text()) if module.exists() else None
        version = _driver().get_driver_version()
        return found[0] if found else f"CUDA {version // 1000}.{version % 1000 // 10}"

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str = "") -> CudaArray:
        """Reserve an array; its contents are undefined until written."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return CudaArray(self, _driver().mem_alloc(max(size, 1)), shape, dtype)

    def upload(self, host: npt.NDArray[Any], name: str = "") -> CudaArray:
        """Copy a host array to the device."""
        array = self.allocate(host.shape, host.dtype, name)
        array.upload(host)
        return array

    def adopt(self, foreign: Any) -> CudaArray:
        """Take another library's device array (CUDA array interface or DLPack) without a copy.

        Raises
        ------
        ShapeError
            If it is not contiguous in C order.
        """
        from cuda.core.utils import StridedMemoryView

        # -1: the caller's work on the array is ordered by the legacy default stream, as ours is.
        view = StridedMemoryView.from_any_interface(foreign, stream_ptr=-1)
        dtype = np.dtype(view.dtype)
        shape = tuple(int(n) for n in view.shape)
        if view.strides is not None:
            dense = np.cumprod([1, *shape[:0:-1]])[::-1]
            if any(n > 1 and s != d for n, s, d in zip(shape, view.strides, dense, strict=True)):
                raise ShapeError(
                    f"a device array of shape {shape} is not contiguous\ncopy it into C order first"
                )
        return CudaArray(self, int(view.ptr), shape, dtype, keep=foreign)

    def load(self, ptx: str) -> CudaModule:
        """Load PTX text; the driver compiles it for this chip."""
        return CudaModule(_load(self.ordinal, ptx), ptx)

    def stream(self) -> Any:
        """A new queue of work."""
        return _driver().Stream()

    def event(self) -> CudaEvent:
        """A mark in a stream."""
        return CudaEvent()

    def defer(self, check: Callable[[], None]) -> None:
        """Call ``check`` at the next synchronisation; it may raise."""
        self._checks.append(check)

    def synchronize(self) -> None:
        """Wait for all work, then run the deferred checks."""
        self._context.synchronize()
        while self._checks:  # one that raises leaves the others for the next time
            self._checks.pop(0)()


class CudaArray:
    """An array in a GPU's memory, C order. It also speaks ``__cuda_array_interface__``.

    Parameters
    ----------
    device : CudaDevice
    memory
        What PyCUDA allocated, or an address that somebody else owns.
    shape, dtype
    keep
        Who owns the memory, if we do not.
    """

    def __init__(
        self, device: CudaDevice, memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any], keep: Any = None
    ) -> None:
        self.device, self.shape, self.dtype = device, tuple(shape), np.dtype(dtype)
        self._memory, self._keep = memory, keep

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return int(self._memory)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
        }

    def upload(self, host: npt.NDArray[Any], stream: Any = None) -> None:
        """Copy from the host; shape and dtype must be the array's."""
        if host.shape != self.shape or host.dtype != self.dtype:
            raise ShapeError(
                f"upload: {host.dtype} {host.shape} into {self.dtype} {self.shape}\n"
                "convert or reshape the host array first"
            )
        data = np.ascontiguousarray(host)
        if stream is None:
            _driver().memcpy_htod(self.pointer, data)
        else:
            _driver().memcpy_htod_async(self.pointer, data, stream)

    def download(self, stream: Any = None) -> npt.NDArray[Any]:
        """Copy to the host, after all work that writes it."""
        host = np.empty(self.shape, self.dtype)
        if stream is None:
            self.device.synchronize()
        else:
            stream.synchronize()
        _driver().memcpy_dtoh(host, self.pointer)
        return host

    def view(self, shape: tuple[int, ...], dtype: npt.DTypeLike | None = None) -> CudaArray:
        """The same bytes with another shape or dtype."""
        other = CudaArray(
            self.device, self.pointer, shape, self.dtype if dtype is None else np.dtype(dtype), keep=self
        )
        if other.nbytes > self.nbytes:
            raise ShapeError(
                f"view: {shape} of {other.dtype} needs {other.nbytes} bytes, there are {self.nbytes}"
            )
        return other

    def free(self) -> None:
        """Give the memory back."""
        if self._keep is None:
            self._memory.free()


class CudaEvent:
    """A mark in a stream, stamped by the GPU."""

    def __init__(self) -> None:
        self._event = _driver().Event()

    def record(self, stream: Any = None) -> None:
        """Put the mark behind the work queued so far."""
        self._event.record(stream)

    def synchronize(self) -> None:
        """Wait until the mark is reached."""
        self._event.synchronize()

    def seconds_since(self, earlier: CudaEvent) -> float:
        """The time between two marks."""
        return float(self._event.time_since(earlier._event)) / 1000


@cache
def _load(ordinal: int, ptx: str) -> Any:
    _context(ordinal)
    return _driver().module_from_buffer(ptx.encode() + b"\0")


class CudaModule:
    """PTX, loaded by the driver."""

    def __init__(self, module: Any, ptx: str) -> None:
        self._module, self._ptx = module, ptx

    def kernel(self, name: str) -> CudaKernel:
        """A kernel by its name in the PTX."""
        return CudaKernel(self._module.get_function(name), name, self._ptx)


class CudaKernel:
    """A kernel on the GPU."""

    def __init__(self, function: Any, name: str, ptx: str) -> None:
        self._function, self.name, self._ptx = function, name, ptx

    def __call__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
    ) -> None:
        """Launch; returns at once. Arguments are device arrays and NumPy scalars."""
        passed = [np.uint64(a.pointer) if hasattr(a, "pointer") else a for a in args]
        for i, value in enumerate(passed):
            if not isinstance(value, np.generic):
                raise DtypeError(
                    f"kernel {self.name}: argument {i} is a {type(value).__name__}\n"
                    "pass a device array, or a NumPy scalar of the parameter's size"
                )
        if cooperative or any(isinstance(value, np.void) for value in passed):
            _launch_one_by_one(self._ptx, self.name, grid, block, passed, shared, stream, cooperative)
        else:
            self._function(*passed, grid=grid, block=block, shared=shared, stream=stream)


def _launch_one_by_one(
    ptx: str,
    name: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    args: list[Any],
    shared: int,
    stream: Any,
    cooperative: bool,
) -> None:
    """Launch with each argument by itself, in the same context.

    PyCUDA cannot ask for a cooperative launch, and packs structures without the alignment that their
    parameters have; the driver knows it.
    """
    from cuda.bindings import driver as binding

    values = [ctypes.create_string_buffer(value.tobytes(), value.nbytes) for value in args]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    queue, parameters = stream.handle if stream is not None else 0, ctypes.addressof(pointers)
    function = _function_handle(ptx, name)
    if cooperative:
        (status,) = binding.cuLaunchCooperativeKernel(function, *grid, *block, shared, queue, parameters)
    else:
        (status,) = binding.cuLaunchKernel(function, *grid, *block, shared, queue, parameters, 0)
    if status != binding.CUresult.CUDA_SUCCESS:
        raise _driver().LaunchError(f"kernel {name}: launch failed: {status.name}")


@cache
def _function_handle(ptx: str, name: str) -> Any:
    """A kernel as cuda-bindings knows it."""
    from cuda.bindings import driver as binding

    status, module = binding.cuModuleLoadData(ptx.encode() + b"\0")
    if status == binding.CUresult.CUDA_SUCCESS:
        status, function = binding.cuModuleGetFunction(module, name.encode())
        if status == binding.CUresult.CUDA_SUCCESS:
            return function
    raise _driver().LogicError(f"kernel {name} cannot be loaded: {status.name}")
