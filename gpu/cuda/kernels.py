"""Kernels on an NVIDIA GPU: their arguments packed into a buffer, and their launches through the driver."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from struct import Struct
from threading import Lock
from typing import Any, cast

import numpy as np

from gpu.cuda.capture import CAPTURES, queue_of_capture
from gpu.cuda.driver import bindings, load, refuse, value_of
from gpu.cuda.launch import Function, configuration
from reference.devices.launch import Dim, Extent, number, three
from reference.errors import DtypeError

_CODES = {
    **{"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "f2": "e"},
    **{"i4": "i", "u4": "I", "f4": "f", "i8": "q", "u8": "Q", "f8": "d"},
}
"""The format characters of ``struct`` by NumPy's kind and size of a scalar."""

_ADDRESS = attrgetter("pointer")

Place = tuple[int, int]
"""Offset and size of a kernel's parameter, in bytes."""


class CudaModule:
    """PTX text that the driver has loaded into the current context."""

    def __init__(self, ptx: str) -> None:
        image = ptx.encode() + b"\0"
        self._module = value_of(bindings.cuModuleLoadData(image), _unloadable, image)
        self._kernels: dict[str, CudaKernel] = {}
        self._ptx = ptx

    def kernel(self, name: str) -> CudaKernel:
        """The kernel of that name in the PTX; it is looked up once."""
        if name not in self._kernels:
            self._kernels[name] = CudaKernel(self._module, name, parameter_types(self._ptx, name))
        return self._kernels[name]

    def place_of(self, variable: str) -> tuple[int, int]:
        """Address and size of a variable, by its name in the PTX; raises the driver's error without one."""
        address, size = value_of(
            bindings.cuModuleGetGlobal(self._module, variable.encode()), _unknown_variable, variable
        )
        return int(address), int(size)


class CudaKernel:
    """A kernel on the GPU.

    Its parameters lie in one buffer, at the driver's offsets (``places``: offset and size in bytes); the
    driver copies them at each launch. ``types`` are their PTX types, "" for a structure; [] if unknown.
    PyCUDA's launches align no structures, and cannot be cooperative.
    """

    def __init__(self, module: Any, name: str, types: list[str]) -> None:
        self.function = value_of(bindings.cuModuleGetFunction(module, name.encode()), _unknown, name)
        self.name, self.types = name, types
        self.launcher = Function(name, self.function)
        self.places = _places(self.function)
        self._packings: dict[tuple[type, ...], Packing] = {}
        self._buffer = Buffer(self.places)
        self._launch, self._cooperative = bindings.cuLaunchKernel, bindings.cuLaunchCooperativeKernel
        self._extended = bindings.cuLaunchKernelEx

    def __call__(
        self,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cooperative: bool = False,
        cluster: Extent | None = None,
        dependent: bool = False,
    ) -> None:
        """Launch the kernel, and return at once.

        Arguments are device arrays, numbers of Python or NumPy, and bytes or NumPy scalars of structures.
        """
        grid, block = _dim("grid", grid), _dim("block", block)
        kinds = tuple(map(type, args))
        packing = self._packings.get(kinds)
        if packing is None:
            packing = self._packings[kinds] = Packing(self, args)
        queue, buffer = 0, self._buffer
        if CAPTURES.graph is not None:
            queue = queue_of_capture(stream)
            how = {"shared": shared, "cooperative": cooperative, "cluster": cluster, "dependent": dependent}
            CAPTURES.graph.keep(partial(self, grid, block, *args, **how), args)
        elif stream is not None:
            queue = stream.handle
            for value in args:
                if hasattr(value, "hold"):
                    value.hold()
        usual = cluster is None and self.launcher.cluster is None and shared <= self.launcher.most_shared
        clusters = None if usual else self.launcher.admit(grid, shared, cluster)
        launch = self.function, *grid, *block, shared, queue, buffer.pointers
        with buffer.lock:
            packing.write(buffer.bytes, args)
            if clusters is not None or dependent:
                config = configuration(grid, block, shared, queue, clusters, cooperative, dependent)
                (status,) = self._extended(config, self.function, buffer.pointers, 0)
            else:
                (status,) = self._cooperative(*launch) if cooperative else self._launch(*launch, 0)
        if status:
            refuse(f"kernel {self.name}", status)


def _unloadable(status: Any, image: bytes) -> Exception:
    """The error for PTX that the driver refuses, with the log of its compiler."""
    load().module_from_buffer(image)  # raises
    return load().LogicError(f"PTX cannot be loaded: {status.name}")


def _unknown(status: Any, name: str) -> Exception:
    """The error for a name of a kernel that PTX does not have."""
    return load().LogicError(f"kernel {name} cannot be found: {status.name}")


def _unknown_variable(status: Any, name: str) -> Exception:
    """The error for a name of a variable that loaded PTX does not have."""
    return load().LogicError(f"variable {name} cannot be found: {status.name}")


def _dim(what: str, extent: Any) -> Dim:
    """A grid or block as (x, y, z); the test for a tuple of three keeps warm launches fast."""
    return extent if extent.__class__ is tuple and len(extent) == 3 else three(what, extent)


class Buffer:
    """Host memory for a kernel's parameters, and pointers to them; hold the lock to write and launch."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.bytes = ctypes.create_string_buffer(max((offset + size for offset, size in places), default=1))
        start = ctypes.addressof(self.bytes)
        self._list = (ctypes.c_void_p * max(len(places), 1))(*(start + offset for offset, _ in places))
        self.pointers = ctypes.addressof(self._list)
        self.lock = Lock()


class Packing:
    """The layout of a kernel's parameters for arguments of certain types, as a format of ``struct``."""

    def __init__(self, kernel: CudaKernel, args: Sequence[Any]) -> None:
        if len(args) != len(kernel.places):
            raise DtypeError(
                f"kernel {kernel.name} takes {len(kernel.places)} arguments\n{len(args)} are given\n"
                "give one for each parameter"
            )
        self._conversions: list[tuple[int, Callable[[Any], Any]]] = []
        codes, end = ["<"], 0
        for i, ((offset, size), value) in enumerate(zip(kernel.places, args, strict=True)):
            code, convert = _code(kernel, i, size, value)
            codes.append(f"{offset - end}x{code}")
            end = offset + size
            if convert is not None:
                self._conversions.append((i, convert))
        self.struct = Struct("".join(codes))

    def values(self, args: Sequence[Any]) -> list[Any]:
        """The arguments as ``struct`` takes them: addresses, numbers and bytes."""
        values = list(args)
        for i, convert in self._conversions:
            values[i] = convert(values[i])
        return values

    def write(self, buffer: Any, args: Sequence[Any]) -> None:
        """Write the kernel's arguments into a parameter buffer."""
        self.struct.pack_into(buffer, 0, *self.values(args))


def _code(
    kernel: CudaKernel, position: int, size: int, value: Any
) -> tuple[str, Callable[[Any], Any] | None]:
    """The format character of ``struct`` for an argument, and the argument's conversion or None."""
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
    """Convert a number of Python or NumPy to its parameter's type."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = cast("Any", value).reshape(-1)[0]
    try:
        return number(value, size, is_float=kind[0] == "f").item()
    except (OverflowError, TypeError):
        raise DtypeError(
            f"{what} is {value!r:.60}\nthe parameter is a {kind} of {size} bytes\n"
            "pass a number that fits, or for a pointer a device array"
        ) from None


def _structure(what: str, size: int, value: Any) -> bytes:
    """The bytes of a structure; refuses another size than its parameter's."""
    data = value if isinstance(value, bytes) else value.tobytes() if hasattr(value, "tobytes") else None
    if data is None or len(data) != size:
        given = f"is {value!r:.60}" if data is None else f"has {len(data)} bytes"
        raise DtypeError(f"{what} {given}\nthe parameter has {size} bytes\npass a structure of that size")
    return data


_ENTRY = r"\.entry\s+{}\s*\(([^)]*)\)"
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,\[]*(\[)?")


def parameter_types(ptx: str, name: str) -> list[str]:
    """The PTX types of a kernel's parameters, "" for a structure; [] if the text does not define the kernel.

    >>> parameter_types(".entry f(.param .u64 .ptr .align 1 x, .param .align 4 .b8 s[12]) { ret; }", "f")
    ['u64', '']
    """
    entry = re.search(_ENTRY.format(re.escape(name)), ptx)
    return ["" if array else kind for kind, array in _PARAMETER.findall(entry[1])] if entry else []


def _places(function: Any) -> list[Place]:
    """Offset and size of each of a kernel's parameters."""
    places: list[Place] = []
    while True:
        status, offset, size = bindings.cuFuncGetParamInfo(function, len(places))
        if status:  # the last parameter was the one before
            return places
        places.append((int(offset), int(size)))
