"""Counters of executed matrix instructions, by their lowering (`simwarp.chips.lowering`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from reference.errors import SchemeError
from simwarp.chips.chips import Capability, chip_name
from simwarp.chips.lowering import Lowering, lowering
from simwarp.observe.line_counts import LineCounts, listed

_LISTED = 4
"""The most lines that a sentence lists."""


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
        """One entry for each family on each chip; ``native`` is None for an unknown lowering."""
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
    """The lowering of an opcode, and whether it is known; if not, the opcode is its own family."""
    try:
        return lowering(opcode, cc), True
    except SchemeError:
        return Lowering(opcode, {}), False
