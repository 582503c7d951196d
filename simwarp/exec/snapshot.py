"""A launch of the program as another device can repeat it, or why it cannot: memory, variables, pointers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.devices.launch import Dim
from simwarp.allocation import Allocation
from simwarp.device.module import Kernel, Module
from simwarp.exec.protocol import WINDOW, WINDOW_SIZE
from simwarp.ptx.kinds import CALL, TENSOR_COPY, TENSOR_MAP, TENSOR_REDUCTION
from simwarp.ptx.mangled_names import readable
from simwarp.ptx.spaces import FUNCTIONS, to_generic
from simwarp.ptx.syntax import Symbol
from simwarp.run.both.program_launch import Bytes, Contents, ProgramLaunch
from simwarp.run.both.settings import NotComparedError
from simwarp.run.source import Loadable
from simwarp.run.variables import used

_HEAP = ("malloc", "free")


class Asked(NamedTuple):
    """What the program asks of a launch."""

    grid: Dim
    block: Dim
    parameters: tuple[bytes, ...]
    shared: int
    cooperative: bool
    cluster: Dim | None


@dataclass(frozen=True)
class Snapshot:
    """The memory that a launch of a kernel can reach; ``loaded`` is the text of the kernel's module."""

    kernel: Kernel
    modules: Sequence[Module]
    loaded: Loadable

    def before(self, asked: Asked) -> ProgramLaunch:
        """The launch, before it runs; NotComparedError if another device cannot repeat it."""
        self._check_steps()
        contents = self.contents()
        self._check_pointers([np.frombuffer(x, np.uint8) for x in asked.parameters], "its parameters")
        for key, data in contents.items():
            self._check_pointers([data], self.name_of(key))
        return ProgramLaunch(self.loaded, self.kernel.name, *asked, contents)

    def contents(self) -> Contents:
        """The bytes of all allocations, and of the variables that the kernel uses."""
        contents: Contents = {one.base: one.bytes.copy() for one in self._allocations()}
        return contents | {name: self._variable(name).bytes.copy() for name in self._variables()}

    def name_of(self, key: int | str) -> str:
        """The name of an allocation or a variable, for messages."""
        if isinstance(key, str):
            return self._variable(key).name
        found = self.kernel.device.memory.find(key)
        return f"{key:#x}" if found is None else found.name

    def _allocations(self) -> list[Allocation]:
        """The allocations of the program, without what each device has by itself."""
        device = self.kernel.device
        apart = {pointer for module in self.modules for pointer in module.symbols.values()}
        if "workspace" in vars(device):  # the grid barrier's
            apart.add(device.workspace.pointer)
        return [
            one
            for one in device.memory.allocations
            if one.size and one.base not in apart and _is_in_window(one.base)
        ]

    def _variables(self) -> list[str]:
        """The variables that the kernel and its callees use, by their names in the PTX."""
        module = self.kernel.module
        names = used(module.syntax, module.syntax.entries[self.kernel.name])
        return [name for name in module.symbols if name in names]

    def _variable(self, name: str) -> Allocation:
        device, address = self.kernel.device, self.kernel.module.symbols[name]
        found = device.memory.find(address) or device.constants.find(address)
        assert found is not None
        return found

    def _check_steps(self) -> None:
        """Raise NotComparedError for a kernel with objects that each device makes in its own way."""
        for step in self.kernel.program.steps:
            if step.kind.cache or step.kind.name.startswith(("texture", "surface")):
                raise self._refused("it reads a texture or a surface", "a handle is valid on one device")
            if step.kind in (TENSOR_COPY, TENSOR_REDUCTION, TENSOR_MAP):
                raise self._refused("it copies by a tensor map", "the driver alone encodes one for a chip")
            called = [x.name for x in step.instruction.operands if isinstance(x, Symbol)]
            if step.kind is CALL and set(called) & {*_HEAP}:
                raise self._refused("it allocates memory", "each device has a heap of its own")

    def _check_pointers(self, parts: Sequence[Bytes], where: str) -> None:
        """Raise NotComparedError for an address that means something else on another device."""
        places = sorted(self._foreign())
        starts, ends = (np.array([place[i] for place in places], np.uint64) for i in (0, 1))
        for data in parts:
            words: npt.NDArray[Any] = data[: data.size // 8 * 8].view(np.uint64)
            at = np.searchsorted(starts, words, "right") - 1
            hit = (at >= 0) & (words < ends[at])
            if hit.any():
                what = places[int(at[hit.argmax()])][2]
                raise self._refused(
                    f"{where} may hold the address of {what}", "that lies elsewhere on another device"
                )

    def _foreign(self) -> Iterator[tuple[int, int, str]]:
        """Begin, end and name of what has another address on another device."""
        device = self.kernel.device
        for module in self.modules:
            for name, address in module.symbols.items():
                found = device.memory.find(address)
                size = module.variable(name).nbytes
                start = int(to_generic(np.uint64(address), "const")) if found is None else address
                yield start, start + size, f"variable {readable(name)}"
        count = max((len(module.syntax.functions) for module in self.modules), default=0)
        yield FUNCTIONS, FUNCTIONS + 16 * count, "a function"
        for one in device.memory.allocations:
            if not _is_in_window(one.base):
                yield one.base, one.base + one.size, "memory that the host registered"

    def _refused(self, why: str, rule: str) -> NotComparedError:
        return NotComparedError(
            f"{self.kernel.shown} is not compared: {why}\n{rule}\ncompare the kernel by itself: simwarp run"
        )


def _is_in_window(address: int) -> bool:
    """Whether an address is one that the simulator chose, and not one of the program's host memory."""
    return WINDOW <= address < WINDOW + WINDOW_SIZE
