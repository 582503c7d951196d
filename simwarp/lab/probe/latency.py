"""Latencies of the bit tensor core's loads, stores and products: figures 2 to 13 of BTC (TPDS 2020).

A GPU gives cycles: a load whose address depends on the load before, a store with a fence behind it, products
that share an accumulator or do not. The simulator runs the same kernels and counts what explains the cycles:
sectors, lines and wavefronts of an access, the products that wait for one another. All are of one warp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reference.errors import SchemeError
from simwarp.device.device import Device
from simwarp.engine.events import AccessEvent, Observer
from simwarp.fragments import fragments_of
from simwarp.lab.probe import latency_ptx as ptx
from simwarp.lab.probe.latency_ptx import LINKS, TURNS
from simwarp.lab.probe.ptx import load, module
from simwarp.lanes import WARP_SIZE
from simwarp.observe.banks import count_banks
from simwarp.observe.sectors import count_sectors
from simwarp.program.steps import Step
from simwarp.ptx.syntax import Register, Vector

LOAD_STRIDES = (*range(128, 1025, 128), 1152, 1280, 1536, 2048)
"""``ldm`` of a load, in bits."""
STORE_STRIDES = (8, 12, 16, 32, 64, *range(128, 1025, 128))
"""``ldm`` of a store, in integers."""
PRODUCTS = range(1, 17)
_LAUNCHES = 21

FIGURES = {
    **dict.fromkeys((2, 4), ("load", "global")),
    **dict.fromkeys((3, 5), ("load", "shared")),
    **dict.fromkeys((6, 8), ("store", "global")),
    **dict.fromkeys((7, 9), ("store", "shared")),
    **dict.fromkeys((10, 12), ("product", "same")),
    **dict.fromkeys((11, 13), ("product", "different")),
}
"""The experiment of each figure: what is timed, and in which memory, or with which accumulators.

The paper has two figures of each, for an RTX 2080 and an RTX 2080 Ti.
"""


def latencies(
    device: Any, figure: int | None = None, *, at: Sequence[int] = (), launches: int = _LAUNCHES
) -> list[dict[str, Any]]:
    """Rows of one figure, or of all, on a `simwarp.Device` or a `gpu.CudaDevice`; SchemeError for another.

    ``at`` has the strides, or the numbers of products, by default those of the figures; ``launches`` are how
    many a median is of.

    A row has ``figures``, ``study``, ``instruction``, and ``memory`` and ``ldm`` or ``accumulators`` and
    ``products``. On a GPU it has ``cycles`` of one access, or of all the products: for a load from global
    memory those from the L2 cache, with ``cycles_again`` from L1; for a store with its fence, whose own are
    in ``fence_cycles``. On the simulator it has ``sectors``, ``lines`` and ``wavefronts`` of one access;
    for global memory the wavefronts are those that 32 banks of 4 bytes would need. Of products it has the
    instructions that the chip executes, and ``depth``, the longest chain that wait for one another.

    >>> rows = latencies(Device(), 2, at=(128, 256, 384))
    >>> [(row["ldm"], row["sectors"], row["lines"], row["wavefronts"]) for row in rows]
    [(128, 4, 1, 1), (256, 8, 2, 2), (384, 8, 3, 1)]
    """
    if figure is not None and figure not in FIGURES:
        raise SchemeError(
            f"figure is {figure}\nthe latencies are in figures 2 to 13 of BTC\ngive one of these"
        )
    experiments = dict.fromkeys(FIGURES.values() if figure is None else [FIGURES[figure]])
    rows: list[dict[str, Any]] = []
    for what, how in experiments:
        study = _products if what == "product" else _accesses
        rows += study(device, what, how, at, launches)
    return rows


def _accesses(device: Any, what: str, memory: str, at: Sequence[int], launches: int) -> list[dict[str, Any]]:
    """Rows of the loads or stores of a tile."""
    rows: list[dict[str, Any]] = []
    capability = device.compute_capability
    fence = ptx.FENCES[memory] if what == "store" else ""
    alone = _cycles(device, ptx.fences(fence), fence, 1, launches)[1] if fence else 0
    for opcode in ptx.ACCESSES[what, memory]:
        for stride in at or (LOAD_STRIDES if what == "load" else STORE_STRIDES):
            text = ptx.access(opcode, memory, stride)
            row: dict[str, Any] = {"figures": _figures(what, memory), "study": what, "memory": memory}
            row |= {"instruction": opcode, "ldm": stride}
            size = 2 * LINKS * ptx.tile_bytes(opcode, stride)
            if isinstance(device, Device):
                counter = _Accesses(opcode)
                _launch(Device(capability, observers=[counter]), opcode, text, size)
                rows.append(row | counter.each(LINKS * TURNS))
                continue
            _, first, again = _cycles(device, text, opcode, size, launches)
            if what == "store":
                row |= {"cycles": first / LINKS, "fence_cycles": alone / LINKS}
            elif memory == "global":
                row |= {"cycles": first / LINKS, "cycles_again": again / LINKS}
            else:
                row |= {"cycles": again / LINKS}
            rows.append(row)
    return rows


def _products(
    device: Any, what: str, accumulators: str, at: Sequence[int], launches: int
) -> list[dict[str, Any]]:
    """Rows of some products that share an accumulator, or have one each."""
    rows: list[dict[str, Any]] = []
    capability = device.compute_capability
    for opcode in ptx.products(capability):
        for count in at or PRODUCTS:
            text = ptx.product(fragments_of(opcode), count, shared=accumulators == "same")
            row: dict[str, Any] = {"figures": _figures(what, accumulators), "study": what}
            row |= {"instruction": opcode, "accumulators": accumulators, "products": count}
            if isinstance(device, Device):
                counter = _Chains(opcode)
                simulated = Device(capability, observe="fidelity", observers=[counter])
                _launch(simulated, opcode, text, WARP_SIZE)
                (tally,) = simulated.report.fidelity.to_json()["matrix"]
                row["executed"] = {name: n // TURNS for name, n in tally["instructions"].items()}
                rows.append(row | {"depth": max(counter.depths.values()) // TURNS})
            else:
                rows.append(row | {"cycles": _cycles(device, text, opcode, WARP_SIZE, launches)[2]})
    return rows


def _figures(what: str, how: str) -> list[int]:
    return [number for number, experiment in FIGURES.items() if experiment == (what, how)]


def _launch(device: Any, opcode: str, text: str, size: int, launches: int = 1) -> Any:
    """Launch an experiment on zeroed memory; return the clocks of each turn, (launches, turns)."""
    kernel = load(device, module(opcode, device.compute_capability, "tiles clocks", text))
    tiles = device.upload(np.zeros(size, np.uint8))
    clocks = device.upload(np.zeros(TURNS + WARP_SIZE, np.uint64))
    took: list[Any] = []
    for _ in range(launches):
        kernel((1, 1, 1), (WARP_SIZE, 1, 1), tiles, clocks)
        took.append(clocks.download()[:TURNS])
    for array in (tiles, clocks):
        array.free()
    return np.array(took)


def _cycles(device: Any, text: str, opcode: str, size: int, launches: int) -> list[float]:
    """The median cycles of each turn: with a cold instruction cache, from L2, and once more."""
    if isinstance(device, Device):
        return [0.0] * TURNS
    took = _launch(device, opcode, text, size, launches)
    return [float(cycles) for cycles in np.median(took, axis=0)]


@dataclass
class _Accesses(Observer):
    """Adds up what the accesses of one opcode cost; neighbouring registers of a lane are one access.

    ``wmma.store`` of a tile in rows is one store of 8 bytes (section 4.2), the simulator makes it of two.
    """

    opcode: str
    events: list[AccessEvent] = field(default_factory=list[AccessEvent])

    def on_access(self, event: AccessEvent) -> None:
        """Keep an access of the opcode, or widen the one before by it."""
        if event.step.instruction.opcode != self.opcode:
            return
        last = self.events[-1] if self.events else None
        if last and last.step is event.step and np.array_equal(last.addresses + last.width, event.addresses):
            self.events[-1] = replace(last, width=last.width + event.width)
        else:
            self.events.append(event)

    def each(self, executed: int) -> dict[str, int]:
        """Sectors and lines of global memory, and wavefronts, of one execution."""
        total: Counter[str] = Counter()
        for event in self.events:
            access = event.lanes, event.addresses, event.width, event.kind
            total["wavefronts"] += count_banks(*access).wavefronts
            if event.space == "global":
                moved = count_sectors(*access)
                total.update(sectors=moved.sectors, lines=moved.lines)
        return {name: count // executed for name, count in total.items()}


@dataclass
class _Chains(Observer):
    """The longest chain of executed products that ends in each register."""

    opcode: str
    depths: dict[str, int] = field(default_factory=dict[str, int])

    def on_step(self, chunk: Any, step: Step, mask: Any) -> None:
        """Lengthen the chains that a product's operands end."""
        if step.instruction.opcode != self.opcode:
            return
        d, *read = ([part.name for part in _registers(operand)] for operand in step.instruction.operands)
        longest = max(self.depths.get(name, 0) for names in read for name in names)
        self.depths.update(dict.fromkeys(d, longest + 1))


def _registers(operand: Any) -> list[Register]:
    elements = operand.elements if isinstance(operand, Vector) else [operand]
    return [element for element in elements if isinstance(element, Register)]
