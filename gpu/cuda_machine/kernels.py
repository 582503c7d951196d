"""Kernels of this package in the streams of a machine: compiled and loaded once for each device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any, TypeAlias

import numpy as np

from gpu.compile import compile_file
from gpu.cuda_machine.contexts import Contexts
from gpu.cuda_machine.driver import Driver, DriverStream
from reference.devices.launch import Dim

Argument: TypeAlias = bytes | float | int | np.generic
"""A structure, a double, an int32, or a number of NumPy; addresses are ``uint64``."""

Source: TypeAlias = tuple[str, str]
"""A ``.cu`` file, whose path is relative to ``gpu/``, and a macro, or ""."""

THREADS = 256
_FEWEST, _MOST = 8, 32
"""Pixels of a thread: more as long as there are enough blocks, because each thread begins with what its
plane needs."""
_ENOUGH, _MOST_PARTS = 16384, 65535
"""Blocks that keep the multiprocessors of any GPU busy to the end, and the most parts of a plane."""


class Kernels:
    """The compiled kernels that a machine has loaded on its devices."""

    def __init__(self, driver: Driver, contexts: Contexts) -> None:
        self._driver, self._contexts = driver, contexts
        self._modules: dict[tuple[int, Source], Any] = {}
        self._functions: dict[tuple[int, Source, str], Any] = {}

    def launch(
        self, queue: DriverStream, source: Source, name: str, grid: Dim, block: Dim, args: Sequence[Argument]
    ) -> None:
        """Queue a launch of the kernel ``name`` of a source."""
        function = self._function(queue.device, source, name)
        values = [ctypes.create_string_buffer(one, len(one)) for one in map(packed, args)]
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        where = *grid, *block, 0, queue.stream
        self._driver.call(
            "cuLaunchKernel", function, *where, ctypes.addressof(addresses), 0, device=queue.device
        )

    def close(self, release: Callable[..., None]) -> None:
        """Unload all; ``release`` makes a call of a device and keeps its error."""
        self._functions.clear()
        while self._modules:
            (device, _), module = self._modules.popitem()
            release(device, self._driver.call, "cuModuleUnload", module)

    def _function(self, device: int, source: Source, name: str) -> Any:
        """A kernel on a device, whose context is current."""
        key = device, source, name
        if key not in self._functions:
            if key[:2] not in self._modules:
                path, define = source
                defines = {define: ""} if define else {}
                text = compile_file(path, defines, self._capability(device)).text
                self._modules[key[:2]] = self._driver.call(
                    "cuModuleLoadData", text.encode() + b"\0", device=device
                )
            module = self._modules[key[:2]]
            self._functions[key] = self._driver.call(
                "cuModuleGetFunction", module, name.encode(), device=device
            )
        return self._functions[key]

    def _capability(self, device: int) -> tuple[int, int]:
        """The compute capability of a device."""
        prefix = "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY"
        which, handle = self._driver.api.CUdevice_attribute, self._contexts.devices[device]
        major, minor = (
            int(self._driver.call("cuDeviceGetAttribute", getattr(which, f"{prefix}_{part}"), handle))
            for part in ("MAJOR", "MINOR")
        )
        return major, minor


def over_pixels(planes: int, pixels: int) -> tuple[Dim, Dim]:
    """The grid and the block of a kernel by ``pixels.cuh``: planes in x, parts of a large plane in y.

    >>> over_pixels(64, 224 * 224), over_pixels(1 << 20, 14 * 14)
    (((64, 25, 1), (256, 1, 1)), ((1048576, 1, 1), (224, 1, 1)))
    """
    threads = min(THREADS, -(-pixels // 32) * 32)
    least, most = (-(-pixels // (threads * each)) for each in (_MOST, _FEWEST))
    parts = min(max(least, -(-_ENOUGH // planes)), most, _MOST_PARTS)
    return (planes, parts, 1), (threads, 1, 1)


def packed(argument: Argument) -> bytes:
    r"""The bytes of an argument.

    >>> packed(1), len(packed(1.0)), len(packed(np.uint64(1)))
    (b'\x01\x00\x00\x00', 8, 8)
    """
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, np.generic):
        return argument.tobytes()
    return pack("<d" if isinstance(argument, float) else "<i", argument)
