"""Kernels of a `FakeDriver`: launches run the same PTX on the simulator, on the memory of their pointers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import simwarp
from simwarp.program.link import size_of

if TYPE_CHECKING:
    from support.fake_driver import Allocation, FakeDriver


@dataclass(frozen=True)
class Parameter:
    """A parameter of a launch: its bytes, and the memory that they point to."""

    value: bytes
    points_to: Allocation | None

    @property
    def address(self) -> int:
        return int.from_bytes(self.value, "little")


@cache
def kernel_of(ptx: str, name: str) -> Any:
    """A kernel on the simulator; one for all drivers, because parsing takes longest."""
    return simwarp.Device().load(ptx).kernel(name)


def parameters_of(driver: FakeDriver, kernel: Any, addresses: int) -> list[Parameter]:
    """The parameters, which the driver reads at the launch."""
    formal = kernel.program.parameters
    pointers = (ctypes.c_void_p * len(formal)).from_address(addresses)
    found: list[Parameter] = []
    for one, pointer in zip(formal, pointers, strict=True):
        value = ctypes.string_at(pointer, size_of(one))
        address = int.from_bytes(value, "little")
        inside = (a for a in driver.allocations if one.count == 1 and a.start <= address < a.end)
        found.append(Parameter(value, next(inside, None)))
    return found


def run(kernel: Any, grid: Any, block: Any, parameters: list[Parameter]) -> None:
    """Run a launch on copies of the memory, and copy it back."""
    used = {one.points_to.start: one.points_to for one in parameters if one.points_to}
    arrays = {start: kernel.device.upload(one.data) for start, one in used.items()}
    args: list[Any] = []
    for one in parameters:
        if one.points_to is None:
            args.append(one.value)
        else:
            start = one.points_to.start
            args.append(np.uint64(arrays[start].pointer + one.address - start))
    try:
        kernel(grid, block, *args)
        for start, array in arrays.items():
            used[start].data[...] = array.download()
    finally:
        for array in arrays.values():
            array.free()
