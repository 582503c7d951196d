"""Kernels on an NVIDIA GPU: arguments packed into one buffer, the driver called directly."""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from struct import Struct
from threading import Lock
from typing import Any, cast

import numpy as np

from gpu.device import Chain
from reference.errors import DtypeError
from reference.types.launch import Dim, Extent, number, three

_CODES = {
    **{"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "f2": "e"},
    **{"i4": "i", "u4": "I", "f4": "f", "i8": "q", "u8": "Q", "f8": "d"},
}
"""NumPy's kinds and sizes of scalars, and what the module ``struct`` calls them."""

_ADDRESS = attrgetter("pointer")

Place = tuple[int, int]
"""Offset and size of a parameter."""


class CudaModule:
    """PTX, loaded by the driver.

    Parameters
    ----------
    ptx : str
        Its device's context is current.
    """

    def __init__(self, ptx: str) -> None:
        from cuda.bindings import driver

        image = ptx.encode() + b"\0"
        status, self._module = driver.cuModuleLoadData(image)
        if status != driver.CUresult.CUDA_SUCCESS:
            import pycuda.driver

            pycuda.driver.module_from_buffer(image)  # raises, with the log of the driver's compiler
            raise pycuda.driver.LogicError(f"PTX cannot be loaded: {status.name}")
        self._kernels: dict[str, CudaKernel] = {}
        self._ptx = ptx

    def kernel(self, name: str) -> CudaKernel:
        """A kernel by its name in the PTX."""
        if name not in self._kernels:
            self._kernels[name] = CudaKernel(self._module, name, parameter_types(self._ptx, name))
        return self._kernels[name]


class CudaKernel:
    """A kernel on the GPU.

    Its parameters lie in one buffer, at the offsets that the driver names; the driver copies them at the
    launch. PyCUDA's own launch knows neither the alignment of structures nor cooperative launches.

    Attributes
    ----------
    name : str
    function : CUfunction
        The driver's handle.
    places : list of (int, int)
        Offset and size of each parameter.
    types : list of str
        Their PTX types; "" of a structure.
    """

    def __init__(self, module: Any, name: str, types: list[str]) -> None:
        from cuda.bindings import driver

        status, self.function = driver.cuModuleGetFunction(module, name.encode())
        if status != driver.CUresult.CUDA_SUCCESS:
            import pycuda.driver

            raise pycuda.driver.LogicError(f"kernel {name} cannot be found: {status.name}")
        self.name, self.types = name, types
        self.places = _places(self.function)
        self._packings: dict[tuple[type, ...], _Packing] = {}
        self._buffer = _Buffer(self)

    def __call__(
        self,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
    ) -> None:
        """Launch; returns at once.

        Arguments are device arrays, numbers of Python or NumPy, and bytes or NumPy scalars of structures.
        """
        grid, block = _dim("grid", grid), _dim("block", block)
        kinds = tuple(map(type, args))
        packing = self._packings.get(kinds)
        if packing is None:
            packing = self._packings[kinds] = _Packing(self, args)
        if stream is not None:
            _hold(args)
        buffer = self._buffer
        with buffer.lock:
            packing.write(buffer.bytes, args)
            buffer.launch(grid, block, shared, stream, cooperative)

    def fix(self, grid: Extent, block: Extent, leading: int, *args: Any, shared: int = 0) -> _Fixed:
        """A launch of which all is fixed, except the first parameters; arrays live as long as the caller's.

        Parameters
        ----------
        grid, block : int or up to three of them
        leading : int
            Bytes of the first parameters, as they lie one behind the other. The launch takes them, and a
            stream or None.
        *args
            What comes after.
        shared : int
        """
        return _Fixed(self, (_dim("grid", grid), _dim("block", block), shared), leading, args)

    def bind(self, grid: Extent, block: Extent, args: Sequence[Any]) -> Bound:
        """A launch of which all is fixed, except the arrays: they come where ``args`` has None."""
        return Bound(self, (_dim("grid", grid), _dim("block", block)), args)


def _dim(what: str, extent: Any) -> Dim:
    """(x, y, z): three numbers as they are, since warm launches pass here."""
    return extent if extent.__class__ is tuple and len(extent) == 3 else three(what, extent)


class _Buffer:
    """Room for a kernel's parameters; whoever writes and launches holds the lock."""

    def __init__(self, kernel: CudaKernel) -> None:
        from cuda.bindings import driver

        places = kernel.places
        size = max((offset + size for offset, size in places), default=1)
        self.bytes = ctypes.create_string_buffer(size)
        start = ctypes.addressof(self.bytes)
        self._pointers = (ctypes.c_void_p * max(len(places), 1))(*(start + offset for offset, _ in places))
        self._at = ctypes.addressof(self._pointers)
        self._name, self._function = kernel.name, kernel.function
        self._launch, self._cooperative = driver.cuLaunchKernel, driver.cuLaunchCooperativeKernel
        self.lock = Lock()

    def launch(
        self, grid: Dim, block: Dim, shared: int = 0, stream: Any = None, cooperative: bool = False
    ) -> None:
        """Call the driver, which copies the parameters before it returns."""
        queue = 0 if stream is None else stream.handle
        if cooperative:
            (status,) = self._cooperative(self._function, *grid, *block, shared, queue, self._at)
        else:
            (status,) = self._launch(self._function, *grid, *block, shared, queue, self._at, 0)
        if status:
            _refuse(f"kernel {self._name}", status)

    def node(self, grid: Dim, block: Dim, shared: int) -> Any:
        """The launch as a node of a graph; it reads the parameters whenever it is set."""
        from cuda.bindings import driver

        params = driver.CUDA_KERNEL_NODE_PARAMS()
        params.func, params.sharedMemBytes = self._function, shared
        params.gridDimX, params.gridDimY, params.gridDimZ = grid
        params.blockDimX, params.blockDimY, params.blockDimZ = block
        params.kernelParams, params.extra = self._at, 0
        return params


def _refuse(what: str, status: Any) -> None:
    import pycuda.driver

    raise pycuda.driver.LaunchError(f"{what}: launch failed: {status.name}")


def _checked(result: tuple[Any, ...]) -> Any:
    """What a call of the driver gave."""
    status, value = result
    if status:
        _refuse("a graph of kernels", status)
    return value


class _Graph:
    """Launches one behind the other, put together once: all of them cost the host less than one alone."""

    def __init__(self, launches: Sequence[tuple[_Buffer, Dim, Dim, int]]) -> None:
        from cuda.bindings import driver

        graph = _checked(driver.cuGraphCreate(0))
        self._nodes: list[tuple[Any, Any]] = []
        for buffer, grid, block, shared in launches:
            behind = [node for node, _ in self._nodes[-1:]]
            params = buffer.node(grid, block, shared)
            node = _checked(driver.cuGraphAddKernelNode(graph, behind or None, len(behind), params))
            self._nodes.append((node, params))
        self.buffers = [buffer for buffer, *_ in launches]  # the nodes know them by address alone
        self._graph = _checked(driver.cuGraphInstantiate(graph, 0))
        self._change, self._launch = driver.cuGraphExecKernelNodeSetParams, driver.cuGraphLaunch
        weakref.finalize(self, _forget, graph, self._graph).atexit = False

    def change(self) -> None:
        """Take what is in the buffers now; launches that are under way keep what they had."""
        graph = self._graph
        for node, params in self._nodes:
            (status,) = self._change(graph, node, params)
            if status:
                _refuse("a graph of kernels", status)

    def launch(self) -> None:
        """Launch with what was taken last."""
        (status,) = self._launch(self._graph, 0)
        if status:
            _refuse("a graph of kernels", status)


def _forget(graph: Any, executable: Any) -> None:
    from cuda.bindings import driver

    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)


class _Fixed:
    """A launch of which all is fixed, except the bytes of its first parameters."""

    def __init__(
        self, kernel: CudaKernel, geometry: tuple[Dim, Dim, int], leading: int, args: Sequence[Any]
    ) -> None:
        first = sum(offset < leading for offset, _ in kernel.places)
        self.buffer, self.geometry = _Buffer(kernel), geometry
        _Packing(kernel, args, first).write(self.buffer.bytes, args)
        self.head = memoryview(self.buffer.bytes).cast("B")[:leading]

    def __call__(self, first: bytes, stream: Any) -> None:
        buffer = self.buffer
        with buffer.lock:
            self.head[:] = first
            buffer.launch(*self.geometry, stream)

    def chain(self, launches: Sequence[_Fixed]) -> Chain:
        """Such launches one behind the other."""
        return _Chain(launches)


class _Chain:
    """Fixed launches one behind the other, as one."""

    def __init__(self, launches: Sequence[_Fixed]) -> None:
        self._heads = [launch.head for launch in launches]
        self._graph = _Graph([(launch.buffer, *launch.geometry) for launch in launches])
        self._lock = Lock()
        self._key: Hashable = None

    def __call__(self, key: Hashable, firsts: Callable[[], Sequence[bytes]]) -> None:
        with self._lock:
            if key != self._key:
                self._key = None  # until the graph has them all
                for head, first in zip(self._heads, firsts(), strict=True):
                    head[:] = first
                self._graph.change()
                self._key = key
            self._graph.launch()


class Bound:
    """A launch of which all is fixed, except the arrays."""

    def __init__(self, kernel: CudaKernel, geometry: tuple[Dim, Dim], args: Sequence[Any]) -> None:
        values = [np.uint64(0) if value is None else value for value in args]
        packing = _Packing(kernel, values)
        self._write = packing.struct.pack_into
        self._values = list(map(_plain, packing.values(values)))
        self._slots = [i for i, value in enumerate(args) if value is None]
        self.arrays = len(self._slots)
        self.buffer, self.geometry = _Buffer(kernel), geometry

    def write(self, addresses: Sequence[int]) -> None:
        """Write the parameters where the launch reads them."""
        values = self._values.copy()
        for slot, address in zip(self._slots, addresses, strict=True):
            values[slot] = address
        self._write(self.buffer.bytes, 0, *values)


class BoundChain:
    """Such launches one behind the other; a graph whose addresses are as before is launched as it is."""

    def __init__(self, launches: Sequence[Bound]) -> None:
        self._launches = launches
        self._graph = _Graph([(launch.buffer, *launch.geometry, 0) for launch in launches])
        self._lock = Lock()
        self._last: list[int] | None = None

    def __call__(self, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch, each with its arrays."""
        addresses = [array.pointer for given in arrays for array in given]
        with self._lock:
            if addresses != self._last:
                self._last = None  # until the graph has them all
                rest = iter(addresses)
                for launch in self._launches:
                    launch.write(list(islice(rest, launch.arrays)))
                self._graph.change()
                self._last = addresses
            self._graph.launch()


class _Packing:
    """How arguments of certain types are written where a kernel's parameters lie."""

    def __init__(self, kernel: CudaKernel, args: Sequence[Any], first: int = 0) -> None:
        places = kernel.places[first:]
        if len(args) != len(places):
            raise DtypeError(
                f"kernel {kernel.name} takes {len(kernel.places)} arguments\n{first + len(args)} are given\n"
                "give one for each parameter"
            )
        self._takes: list[tuple[int, Callable[[Any], Any]]] = []
        self._at = at = places[0][0] if places else 0
        codes = ["<"]
        for i, ((offset, size), value) in enumerate(zip(places, args, strict=True)):
            code, take = _code(kernel, first + i, size, value)
            codes.append(f"{offset - at}x{code}")
            at = offset + size
            if take is not None:
                self._takes.append((i, take))
        self.struct = Struct("".join(codes))

    def values(self, args: Sequence[Any]) -> list[Any]:
        """What the struct takes for them."""
        values = list(args)
        for i, take in self._takes:
            values[i] = take(values[i])
        return values

    def write(self, buffer: Any, args: Sequence[Any]) -> None:
        """Write them into the buffer, each at its place."""
        self.struct.pack_into(buffer, self._at, *self.values(args))


def _code(
    kernel: CudaKernel, position: int, size: int, value: Any
) -> tuple[str, Callable[[Any], Any] | None]:
    """The letter of ``struct`` for an argument, and its conversion, if it needs one."""
    what = f"kernel {kernel.name}: argument {position}"
    kind = kernel.types[position] if position < len(kernel.types) else "b"
    if hasattr(value, "pointer"):
        if size == 8 and not kind.startswith("f"):
            return "Q", _ADDRESS
        raise DtypeError(
            f"{what} is an array\nthe parameter has {size} bytes and is not a pointer\npass a number"
        )
    if not kind or isinstance(value, np.void | bytes):
        _structure(what, size, value)
        return f"{size}s", partial(_structure, what, size)
    if isinstance(value, np.generic):
        dtype = np.dtype(cast("Any", value).dtype)
        code = _CODES.get(f"{dtype.kind}{dtype.itemsize}", "")
        if code and dtype.itemsize == size and (kind[0] == "b" or (dtype.kind == "f") == (kind[0] == "f")):
            return code, None
    is_float = kind[0] == "f"
    take = partial(_number, what, kind, size)
    take(value)
    return _CODES[f"{'f' if is_float else 'u'}{size}"], take


def _number(what: str, kind: str, size: int, value: Any) -> Any:
    """A number of Python or NumPy as its parameter's type."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = cast("Any", value).reshape(-1)[0]
    try:
        return number(value, size, is_float=kind[0] == "f").item()
    except (OverflowError, TypeError):
        raise DtypeError(
            f"{what} is {value!r:.60}\nthe parameter is a {kind} of {size} bytes\n"
            "pass a number that fits, or for a pointer a device array"
        ) from None


def _plain(value: Any) -> Any:
    """A number of Python's own, which ``struct`` takes faster."""
    return cast("Any", value).item() if isinstance(value, np.number) else value


def _structure(what: str, size: int, value: Any) -> bytes:
    """The bytes of a structure; values of one type may differ in size."""
    data = value if isinstance(value, bytes) else value.tobytes() if hasattr(value, "tobytes") else None
    if data is None or len(data) != size:
        given = f"is {value!r:.60}" if data is None else f"has {len(data)} bytes"
        raise DtypeError(f"{what} {given}\nthe parameter has {size}\ngive as many")
    return data


_ENTRY = r"\.entry\s+{}\s*\(([^)]*)\)"
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,\[]*(\[)?")


def parameter_types(ptx: str, name: str) -> list[str]:
    """The PTX types of a kernel's parameters, "" of a structure; [] if the text does not define the kernel.

    >>> parameter_types(".entry f(.param .u64 .ptr .align 1 x, .param .align 4 .b8 s[12]) { ret; }", "f")
    ['u64', '']
    """
    found = re.search(_ENTRY.format(re.escape(name)), ptx)
    return ["" if array else kind for kind, array in _PARAMETER.findall(found[1])] if found else []


def _places(function: Any) -> list[Place]:
    """Offset and size of each of a kernel's parameters."""
    from cuda.bindings import driver

    places: list[Place] = []
    while True:
        status, offset, size = driver.cuFuncGetParamInfo(function, len(places))
        if status != driver.CUresult.CUDA_SUCCESS:  # there is no such parameter
            return places
        places.append((int(offset), int(size)))


def _hold(args: Sequence[Any]) -> None:
    """Arrays that work in a stream of the caller's uses are not given to others before that is done."""
    for value in args:
        if hasattr(value, "hold"):
            value.hold()
