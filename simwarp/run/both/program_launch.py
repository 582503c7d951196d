"""A launch of a whole program, and its repetition on another device: all memory lies at the same addresses.

So every pointer keeps its meaning, wherever it stands. Variables of the module are the exception: each device
has them at addresses of its own, and they are set and read by name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.devices.launch import Dim
from simwarp.allocation import Allocation
from simwarp.device.device import Device
from simwarp.ptx.mangled_names import plain_variable
from simwarp.run.source import Loadable
from simwarp.run.work import hardware_faults

Bytes: TypeAlias = npt.NDArray[np.uint8]
Contents: TypeAlias = dict[int | str, Bytes]
"""The bytes of allocations, by address, and of the module's variables, by their names in the PTX."""


@dataclass(frozen=True)
class ProgramLaunch:
    """A kernel with everything that its launch needs: the bytes of its parameters and of the memory."""

    ptx: Loadable
    kernel: str
    grid: Dim
    block: Dim
    parameters: tuple[bytes, ...]
    shared: int
    cooperative: bool
    cluster: Dim | None
    contents: Mapping[int | str, Bytes]


class _Held(Protocol):
    """Bytes of a device."""

    def upload(self, host: Bytes) -> None:
        """Write all bytes."""
        ...

    def download(self) -> Bytes:
        """A copy of all bytes."""
        ...


def repeated(device: Any, launch: ProgramLaunch, begins: Callable[[], object] = lambda: None) -> Contents:
    """Repeat a launch on a device of this process; ``begins`` is called just before it."""
    module = device.load(launch.ptx)
    kernel = module.kernel(launch.kernel)
    if not isinstance(device, Device):
        from gpu.cuda.placed import keep_only

        # the simulator gives no address twice: what the program freed must not stay on the chip
        keep_only(device, [(key, data.size) for key, data in launch.contents.items() if isinstance(key, int)])
    with ExitStack() as stack:
        held = {
            key: stack.enter_context(_place(device, module, key, x.size))
            for key, x in launch.contents.items()
        }
        for key, one in held.items():
            one.upload(launch.contents[key])
        begins()
        with hardware_faults(device):
            kernel(
                launch.grid,
                launch.block,
                *launch.parameters,
                shared=launch.shared,
                cooperative=launch.cooperative,
                cluster=launch.cluster,
            )
            device.synchronize()
        return {key: one.download() for key, one in held.items()}


def name_of(key: int | str) -> str:
    """The name of an allocation while a simulated device repeats a launch."""
    return f"variable {plain_variable(key)}" if isinstance(key, str) else f"{key:#x}"


@contextmanager
def _place(device: Any, module: Any, key: int | str, size: int) -> Generator[_Held]:
    """The place of an allocation or a variable on a device, as long as the block lasts."""
    if isinstance(device, Device):
        if isinstance(key, str):
            yield module.variable(key)
            return
        allocation = device.memory.allocate(size, name_of(key), at=key)
        try:
            yield _OfSimulator(allocation)
        finally:
            device.memory.free(allocation)
        return
    from gpu.cuda.arrays import CudaArray
    from gpu.cuda.placed import array_at

    if isinstance(key, int):
        yield array_at(device, key, size)
    else:
        yield CudaArray(device, module.place_of(key)[0], (size,), np.dtype(np.uint8), keep=module)


@dataclass(frozen=True)
class _OfSimulator:
    """An allocation of a simulated device."""

    allocation: Allocation

    def upload(self, host: Bytes) -> None:
        """Write all bytes, which then count as written."""
        self.allocation.fill(host)

    def download(self) -> Bytes:
        """A copy of all bytes."""
        return self.allocation.bytes.copy()
