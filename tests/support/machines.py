"""Small machines with round numbers, and a routine, for the tests of `simwarp.Machine`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.machine import Tile
from simwarp.machine import Gpu, Link, Topology

GPU = Gpu("small", 1 << 12, {"float64": 10.0, "float32": 20.0}, 1.0)
"""A routine takes 1 s, and 1 s for each 10 operations in float64."""
LINK = Link(1.0, 16.0)
"""A copy takes 1 s, and 1 s for each two doubles."""


def small(devices: int = 1, **fields: Any) -> Topology:
    """Devices with links of their own, unless ``fields`` has others."""
    links = (LINK,) * devices
    return Topology(f"{devices} small", (GPU,) * devices, **{"inward": links, "outward": links, **fields})


PEERS = {(1, 0): Link(0.0, 64.0)}
"""Device 1 copies from device 0, 1 s for each eight doubles."""


@dataclass(frozen=True)
class Function:
    """A routine that is a Python function."""

    function: Callable[[Sequence[Any], Sequence[Any]], None]
    reads: tuple[Any, ...]
    writes: tuple[Any, ...]
    operations: float = 20.0
    name: str = "function"

    def compute(self, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        self.function(reads, writes)


def add_one(source: Any, target: Any, operations: float = 20.0) -> Function:
    """``target = source + 1``."""

    def compute(reads: Sequence[Any], writes: Sequence[Any]) -> None:
        writes[0][...] = reads[0] + 1

    return Function(compute, (source,), (target,), operations, "add_one")


def column(rows: int = 8, value: float | None = None) -> Any:
    """A host matrix of one column: 0, 1, 2 …, or one value."""
    start = np.arange(rows, dtype=float) if value is None else np.full(rows, value)
    return start.reshape(rows, 1).copy(order="F")


def tile(machine: Any, device: int = 0, rows: int = 8, columns: int = 1, dtype: Any = np.float64) -> Tile:
    """A tile in memory of its own."""
    of = np.dtype(dtype)
    memory = machine.allocate(device, rows * columns * of.itemsize)
    return Tile(memory, 0, rows, columns, rows, of)


def pinned(machine: Any, *arrays: Any) -> Any:
    """Pin arrays; the arrays."""
    for array in arrays:
        machine.pin(array)
    return arrays[0] if len(arrays) == 1 else arrays


def spans(machine: Any) -> list[tuple[str, float, float]]:
    """Kind, start and end of all that has run."""
    return [(one.kind, one.start, one.end) for one in machine.timeline]
