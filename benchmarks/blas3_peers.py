"""The peers of `blas3.py`: cublasXt from the same host matrices, and cuBLAS on matrices of one device."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from blas3_cases import ALPHA, BETA, Case

from gpu.blas3.on_cuda import library_arguments
from gpu.blas3.table import LETTERS, ROWS
from gpu.cuda_machine.cublas import FLAGS, scalar, type_of
from gpu.machine import Tile

TILES = (2048, 4096, 8192)


class Xt:
    """cublasXt on some devices."""

    def __init__(self, library: Any, ordinals: Sequence[int]) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        self._call("cublasXtCreate", ctypes.byref(self._handle))
        devices = (ctypes.c_int * len(ordinals))(*ordinals)
        self._call("cublasXtDeviceSelect", self._handle, len(ordinals), devices)

    def tile(self, size: int) -> None:
        """Set the side of the tiles."""
        self._call("cublasXtSetBlockDim", self._handle, ctypes.c_int(size))

    def run(self, case: Case) -> None:
        """Compute a case, in place except TRMM; returns when the host has the result."""
        function = getattr(self._library, f"cublasXt{case.name[0].upper()}{case.kind}")
        given = arguments(case)
        function.argtypes = [ctypes.c_void_p, *map(type_of, given)]
        status = function(self._handle, *given.values())
        if status:
            raise SystemExit(f"cublasXt{case.name}: status {status}")

    def close(self) -> None:
        """Destroy the handle."""
        self._call("cublasXtDestroy", self._handle)

    def _call(self, name: str, *args: Any) -> None:
        if status := getattr(self._library, name)(*args):
            raise SystemExit(f"{name}: status {status}")


def arguments(case: Case) -> dict[str, Any]:
    """The arguments of cublasXt for a case, behind the handle; TRMM writes C."""
    n, prefix = case.n, case.name[0]
    letters = dict.fromkeys(LETTERS, "N") | {"side": "L", "uplo": "L"}
    values: dict[str, Any] = {flag: FLAGS[flag][letter] for flag, letter in letters.items()}
    values |= {"m": n, "n": n, "k": n, "alpha": scalar(prefix, ALPHA), "beta": scalar(prefix, BETA)}
    for name, x in zip("abc", case.of.arrays, strict=True):
        values |= {name: x.__array_interface__["data"][0], f"ld{name}": n}
    return {name: values[name] for name in library_arguments(ROWS[case.kind])}


def xt_seconds(xt: Xt, case: Case, tile: int, calls: int) -> list[float]:
    """The times of some calls with tiles of a size, after one; the last answer is checked."""
    xt.tile(tile)
    xt.run(case)
    times: list[float] = []
    for _ in range(calls):
        samples = case.sample(case.of.c if case.kind == "trmm" else None)
        start = time.perf_counter()
        xt.run(case)
        times.append(time.perf_counter() - start)
    samples.check(f"cublasXt, {case.name}, tiles of {tile}")
    return times


@contextmanager
def on_device(machine: Any, case: Case) -> Iterator[dict[str, Tile]]:
    """The three matrices of a case on device 0."""
    n, dtype = case.n, case.result.dtype
    memory = machine.allocate(0, 3 * n * n * dtype.itemsize)
    try:
        stream, tiles = machine.stream(0), {}
        for number, (name, x) in enumerate(zip("abc", case.of.arrays, strict=True)):
            tiles[name] = memory.tile(n, n, dtype, number * n * n * dtype.itemsize)
            machine.copy_in(stream, x, tiles[name])
        machine.run([])
        yield tiles
    finally:
        machine.free(memory)


def in_core_seconds(machine: Any, case: Case, calls: int) -> list[float]:
    """The times of cuBLAS on a device's own matrices, after one call."""
    times: list[float] = []
    with on_device(machine, case) as tiles:
        routine = case.in_core(tiles)
        stream = machine.stream(0)
        for _ in range(calls + 1):
            start = time.perf_counter()
            machine.launch(stream, routine)
            machine.run([])
            times.append(time.perf_counter() - start)
    return times[1:]
