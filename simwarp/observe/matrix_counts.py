"""Counters of executed matrix instructions: by their lowering (`simwarp.chips.lowering`), by warpgroup."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from reference.errors import SchemeError
from simwarp.chips.chips import Capability, chip_name
from simwarp.chips.lowering import Lowering, lowering
from simwarp.fragments import fragments_of
from simwarp.lanes import WARP_SIZE
from simwarp.observe.line_counts import CountingObserver, Counts, LineCounts, LineTable, line_of, listed
from simwarp.ptx.kinds import WARPGROUP_PRODUCT

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Mask
    from simwarp.program.program import Step

_LISTED = 4
"""The most lines that a sentence lists."""
_WARPS = 4
"""Warps of a warpgroup; the number of the first in its block is a multiple of it."""


@dataclass
class _Tally:
    """The executed matrix instructions of one family on one chip."""

    lowering: Lowering
    cc: Capability
    known: bool
    count: int = 0
    instructions: Counter[str] = field(default_factory=Counter[str])
    lines: LineCounts = field(default_factory=lambda: LineCounts("matrix instructions"))

    def __str__(self) -> str:
        """A sentence with count, family, chip, lines and note."""
        lines = listed(list(self.lines), _LISTED)
        products = f"{self.lowering.family} product{'s' * (self.count != 1)}"
        return f"{self.count:,} {products} on {chip_name(self.cc)} ({lines}): {self.lowering.note}"


class MatrixInstructions:
    """Counts executed matrix instructions, warp by warp, by their lowering."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, Capability], _Tally] = {}

    def add(self, opcode: str, cc: Capability, warps: int, line: str) -> None:
        """Count the warps that executed an instruction on a line (`simwarp.observe.line_counts.line_of`)."""
        made, known = _known(opcode, cc)
        tally = self._tallies.setdefault((made.family, cc), _Tally(made, cc, known))
        tally.count += warps
        tally.lines.add(line, warps)
        tally.instructions.update({name: count * warps for name, count in made.instructions.items()})

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON object for each family on each chip; ``native`` is None for an unknown lowering."""
        return [
            {
                "family": tally.lowering.family,
                "chip": chip_name(tally.cc),
                "count": tally.count,
                "native": tally.lowering.native if tally.known else None,
                "note": tally.lowering.note,
                "instructions": dict(tally.instructions),
                "lines": tally.lines.to_json(),
            }
            for tally in self._tallies.values()
        ]

    def __str__(self) -> str:
        """A sentence for each family without a native instruction; "" if there is none."""
        return "; ".join(str(tally) for tally in self._tallies.values() if not tally.lowering.native)


@cache
def _known(opcode: str, cc: Capability) -> tuple[Lowering, bool]:
    """The lowering of a matrix instruction on a chip, and whether it was taken from a table."""
    try:
        return lowering(opcode, cc), True
    except SchemeError:
        return Lowering(opcode, {}), False


# ---- products of warpgroups ----------------------------------------------------------------------


@dataclass(frozen=True)
class ProductCounts(Counts):
    """The number and operations of the ``wgmma`` products on one source line."""

    products: int = 0  # ``wgmma.mma_async`` instructions, counted once for each warpgroup that executes one
    multiply_adds: int = 0  # m * n * k of each product; pairs of bits in a product of bits


class Products(CountingObserver):
    """Counts the products of warpgroups: ``products["gemm.cu:42"]`` is the number of a line.

    ``warpgroups`` has the counts of each line by number of the warpgroup in its block, over all blocks:
    ``warpgroups[1]["gemm.cu:42"].products``. ``total`` is the counts of all warpgroups.

    >>> found = Products()
    >>> found.add("gemm/gemm.cu:42", 0, ProductCounts(8, 8 * 64 * 128 * 16))
    >>> found.add("gemm/gemm.cu:42", 1, ProductCounts(4, 4 * 64 * 128 * 16))
    >>> found["gemm.cu:42"], found.warpgroups[1]["gemm.cu:42"]
    (12, ProductCounts(products=4, multiply_adds=524288))
    """

    def __init__(self) -> None:
        self._all = LineTable(ProductCounts, "products of warpgroups")
        self.warpgroups: dict[int, LineTable[ProductCounts]] = {}

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Count the products that a step issues; lanes of an incomplete warpgroup issue none."""
        if step.kind is not WARPGROUP_PRODUCT:
            return
        of_block = -(-chunk.warps_per_block // _WARPS)
        number = chunk.block_in_chunk * of_block + chunk.warp_in_block // _WARPS
        lanes = np.bincount(number[:, 0], mask.sum(axis=1))
        issued = np.bincount(np.flatnonzero(lanes == _WARPS * WARP_SIZE) % of_block)
        shape = fragments_of(step.instruction.opcode).shape
        for warpgroup in np.flatnonzero(issued).tolist():
            count = int(issued[warpgroup])
            counts = ProductCounts(count, count * shape.m * shape.n * shape.k)
            self.add(line_of(step.instruction), warpgroup, counts)

    def add(self, line: str, warpgroup: int, counts: ProductCounts) -> None:
        """Add counts of a warpgroup's products to a source line (`simwarp.observe.line_counts.line_of`)."""
        self._all.add(line, counts)
        table = self.warpgroups.setdefault(
            warpgroup, LineTable(ProductCounts, f"products of warpgroup {warpgroup}")
        )
        table.add(line, counts)

    def __getitem__(self, line: str) -> int:
        return self._all[line].products

    @property
    def total(self) -> ProductCounts:
        """The counts summed over all warpgroups."""
        return self._all.total

    def to_json(self) -> dict[str, Any]:
        """The counts by line, in total and of each warpgroup, as plain data."""
        each = {str(number): table.to_json() for number, table in sorted(self.warpgroups.items())}
        return {**self._all.to_json(), "warpgroups": each}
