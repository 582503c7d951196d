"""Kernels on an NVIDIA GPU: arguments packed into one buffer, the driver called directly."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import attrgetter
from struct import Struct
from threading import Lock
from typing import Any, cast

import numpy as np

from gpu.device import Dim
from reference.errors import DtypeError

_CODES = {
    **{"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "f2": "e"},
    **{"i4": "i", "u4": "I", "f4": "f", "i8": "q", "u8": "Q", "f8": "d"},
}
"""NumPy's kinds and sizes of scalars, and what the module ``struct`` calls them."""

_ADDRESS = attrgetter("pointer")


class CudaModule:
    """PTX, loaded by the driver.

    Parameters
    ----------
    ptx : str
        Its device's context is current.
    """

    def __init__(self, ptx: str) -> None:
        from cuda.bindings import driver as binding

        image = ptx.encode() + b"\0"
        status, self._module = binding.cuModuleLoadData(image)
        if status != binding.CUresult.CUDA_SUCCESS:
            import pycuda.driver

            pycuda.driver.module_from_buffer(image)  # raises, with the log of the driver's compiler
            raise pycuda.driver.LogicError(f"PTX cannot be loaded: {status.name}")
        self._kernels: dict[str, CudaKernel] = {}

    def kernel(self, name: str) -> CudaKernel:
        """A kernel by its name in the PTX."""
        if name not in self._kernels:
            self._kernels[name] = CudaKernel(self._module, name)
        return self._kernels[name]


class CudaKernel:
    """A kernel on the GPU.

    Its parameters lie in one buffer, at the offsets that the driver names; the driver copies them at the
    launch. PyCUDA's own launch knows neither the alignment of structures nor cooperative launches.

    Attributes
    ----------
    name : str
    function : int
        The driver's handle.
    places : list of (int, int)
        Offset and size of each parameter.
    """

    def __init__(self, module: Any, name: str) -> None:
        from cuda.bindings import driver as binding

        status, function = binding.cuModuleGetFunction(module, name.encode())
        if status != binding.CUresult.CUDA_SUCCESS:
            import pycuda.driver

            raise pycuda.driver.LogicError(f"kernel {name} cannot be found: {status.name}")
        self.name = name
        self._module, self.function = module, int(function)
        self.places = _places(function)
        self._packings: dict[tuple[type, ...], _Packing] = {}
        self._buffer, self._pointers = _buffer(self.places)
        self._at = ctypes.addressof(self._pointers)
        self._lock = Lock()

    def __call__(
        self,
        grid: Dim,
        block: Dim,
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
    ) -> None:
        """Launch; returns at once. Arguments are device arrays and NumPy scalars."""
        kinds = tuple(map(type, args))
        packing = self._packings.get(kinds)
        if packing is None:
            packing = self._packings[kinds] = _Packing(self.name, self.places, args)
        if stream is not None:
            _hold(args)
        with self._lock:  # between the writing of the buffer and the driver's copy of it
            packing.write(self._buffer, args)
            _enqueue(self, grid, block, shared, stream, self._at, cooperative)

    def fix(
        self, grid: Dim, block: Dim, leading: int, *args: Any, shared: int = 0
    ) -> Callable[[bytes, Any], None]:
        """A launch of which all is fixed, except the first parameters.

        Parameters
        ----------
        grid, block : (int, int, int)
        leading : int
            Bytes of the first parameters, as they lie one behind the other. The launch takes them, and a
            stream or None.
        *args
            What comes after.
        shared : int
        """
        return _Fixed(self, grid, block, leading, args, shared)


class _Fixed:
    """A launch of which all is fixed, except the bytes of its first parameters."""

    def __init__(
        self, kernel: CudaKernel, grid: Dim, block: Dim, leading: int, args: Sequence[Any], shared: int
    ) -> None:
        behind = [place for place in kernel.places if place[0] >= leading]
        self._buffer, self._pointers = _buffer(kernel.places)
        packing = _Packing(kernel.name, behind, args, len(kernel.places) - len(behind))
        packing.write(self._buffer, args)
        self._head = memoryview(self._buffer).cast("B")[:leading]
        self._launch = (kernel, grid, block, shared)
        self._at, self._lock, self._keep = ctypes.addressof(self._pointers), Lock(), args

    def __call__(self, first: bytes, stream: Any) -> None:
        with self._lock:
            self._head[:] = first
            _enqueue(*self._launch, stream, self._at, False)


class _Packing:
    """How arguments of certain types are written where a kernel's parameters lie."""

    def __init__(
        self, name: str, places: Sequence[tuple[int, int]], args: Sequence[Any], first: int = 0
    ) -> None:
        if len(args) != len(places):
            raise DtypeError(
                f"kernel {name} takes {first + len(places)} arguments\n{first + len(args)} are given\n"
                "give one for each parameter"
            )
        self._takes: list[tuple[int, Callable[[Any], Any]]] = []
        self._at = at = places[0][0] if places else 0
        codes = ["<"]
        for i, ((offset, size), value) in enumerate(zip(places, args, strict=True)):
            code, take = _code(f"kernel {name}: argument {first + i}", size, value)
            codes.append(f"{offset - at}x{code}")
            at = offset + size
            if take is not None:
                self._takes.append((i, take))
        self._struct = Struct("".join(codes))

    def write(self, buffer: Any, args: Sequence[Any]) -> None:
        values = list(args)
        for i, take in self._takes:
            values[i] = take(values[i])
        self._struct.pack_into(buffer, self._at, *values)


def _code(what: str, size: int, value: Any) -> tuple[str, Callable[[Any], Any] | None]:
    """The letter of ``struct`` for an argument, and what makes it of the argument, if it is not the same."""
    found, nbytes = "", 0
    take: Callable[[Any], Any] | None = None
    kind = type(value).__name__
    if hasattr(value, "pointer"):
        found, nbytes, take = "Q", 8, _ADDRESS
    elif isinstance(value, np.void):
        found, nbytes, take = f"{size}s", int(value.nbytes), partial(_structure, what, size)
    elif isinstance(value, np.generic):
        dtype = np.dtype(cast("Any", value).dtype)
        found, nbytes = _CODES.get(f"{dtype.kind}{dtype.itemsize}", ""), int(dtype.itemsize)
    if not found or nbytes != size:
        raise DtypeError(
            f"{what} is a {kind} of {nbytes} bytes\nthe parameter has {size}\n"
            "pass a device array, or a NumPy scalar of the parameter's size"
        )
    return found, take


def _structure(what: str, size: int, value: np.void) -> bytes:
    """The bytes of a structure; values of one type may differ in size."""
    data = value.tobytes()
    if len(data) != size:
        raise DtypeError(f"{what} has {len(data)} bytes\nthe parameter has {size}\ngive as many")
    return data


def _places(function: Any) -> list[tuple[int, int]]:
    """Offset and size of each of a kernel's parameters."""
    from cuda.bindings import driver as binding

    places: list[tuple[int, int]] = []
    while True:
        status, offset, size = binding.cuFuncGetParamInfo(function, len(places))
        if status != binding.CUresult.CUDA_SUCCESS:  # there is no such parameter
            return places
        places.append((int(offset), int(size)))


def _buffer(places: Sequence[tuple[int, int]]) -> tuple[Any, Any]:
    """Room for a kernel's parameters, and a pointer to each."""
    buffer = ctypes.create_string_buffer(max((offset + size for offset, size in places), default=1))
    start = ctypes.addressof(buffer)
    return buffer, (ctypes.c_void_p * max(len(places), 1))(*(start + offset for offset, _ in places))


def _hold(args: Sequence[Any]) -> None:
    """Arrays that work in a stream of the caller's uses are not given to others before that is done."""
    for value in args:
        if hasattr(value, "hold"):
            value.hold()


def _enqueue(
    kernel: CudaKernel, grid: Dim, block: Dim, shared: int, stream: Any, pointers: int, cooperative: bool
) -> None:
    """Call the driver; what the pointers at that address lead to is copied before it returns."""
    queue = 0 if stream is None else stream.handle
    function: int = kernel.function
    if cooperative:
        launch = _library().cuLaunchCooperativeKernel
        status = launch(function, *grid, *block, shared, queue, pointers)
    else:
        status = _library().cuLaunchKernel(function, *grid, *block, shared, queue, pointers, None)
    if status:
        import pycuda.driver
        from cuda.bindings import driver as binding

        reason = binding.CUresult(status).name
        raise pycuda.driver.LaunchError(f"kernel {kernel.name}: launch failed: {reason}")


@cache
def _library() -> Any:
    """The driver's own library: through ctypes a launch costs least."""
    library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    sizes = [ctypes.c_uint] * 7
    library.cuLaunchKernel.argtypes = [ctypes.c_void_p, *sizes, *[ctypes.c_void_p] * 3]
    library.cuLaunchCooperativeKernel.argtypes = [ctypes.c_void_p, *sizes, *[ctypes.c_void_p] * 2]
    return library
