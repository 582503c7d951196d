"""Names for a program's allocations, taken from the kernel parameters that they were passed to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from simwarp.device.module import Kernel
from simwarp.elements import Shape
from simwarp.memory import Memory
from simwarp.run.parameters import parameter_names, parameter_types
from simwarp.run.pointees import pointee

_POINTER = 8


class ArgumentNames:
    """The names of a kernel's parameters in the source, and the element sizes of its pointers."""

    def __init__(self, kernel: Kernel) -> None:
        syntax = kernel.module.syntax.entries[kernel.name]
        types = parameter_types(syntax, kernel.module.sources)
        self._names = parameter_names(syntax, kernel.module.sources)
        elements = [pointee(types[i]) if i < len(types) else None for i in range(len(self._names))]
        self._sizes = [0 if one is None else one.itemsize for one in elements]
        self._types = [None if one is None else one.dtype for one in elements]

    def give(self, arguments: Sequence[bytes], memory: Memory) -> None:
        """Name the allocations whose start an argument points to; an allocation keeps its first name."""
        named: set[int] = set()
        for name, size, argument in zip(self._names, self._sizes, arguments, strict=False):
            if not name or len(argument) != _POINTER:
                continue
            allocation = memory.find(address := int.from_bytes(argument, "little"))
            if allocation is None or allocation.base != address or address in named:
                continue
            named.add(address)
            allocation.name = name
            if size and allocation.size % size == 0:
                allocation.find_shape = partial(Shape, size, (allocation.size // size,))

    def pointees(
        self, arguments: Sequence[bytes], memory: Memory
    ) -> dict[int, tuple[str, np.dtype[Any] | None]]:
        """The allocations into which arguments point, by address: their names here, and types of numbers."""
        found: dict[int, tuple[str, np.dtype[Any] | None]] = {}
        for name, dtype, argument in zip(self._names, self._types, arguments, strict=False):
            if name and len(argument) == _POINTER:
                allocation = memory.find(int.from_bytes(argument, "little"))
                if allocation is not None:
                    found.setdefault(allocation.base, (name, dtype))
        return found
