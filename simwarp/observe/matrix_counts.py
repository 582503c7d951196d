"""Executed matrix instructions, counted by what the chip makes of them: see `simwarp.chips.lowering`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from reference.errors import SchemeError
from simwarp.chips.lowering import Chip, Lowering, chip_name, lowering
from simwarp.observe.line_counts import LineCounts

_NAMED = 4
"""How many lines a sentence names."""


@dataclass
class _Tally:
    """The products of one family on one chip."""

    lowering: Lowering | None
    cc: Chip
    count: int = 0
    instructions: Counter[str] = field(default_factory=Counter[str])
    lines: LineCounts = field(default_factory=lambda: LineCounts("matrix instructions"))


class MatrixInstructions:
    """Counts executed matrix instructions, warp by warp, by what the chip makes of them.

    Examples
    --------
    >>> seen = MatrixInstructions()
    >>> seen.add("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", (9, 0), 1024, "bmm.cu:42")
    >>> print(str(seen).partition(";")[0])
    1,024 b1 xor products on sm_90 (bmm.cu:42): two AND each
    >>> seen.to_json()[0]["instructions"]["BMMA.88128.AND.POPC"]
    2048
    """

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, Chip], _Tally] = {}
        self._known: dict[tuple[str, Chip], Lowering | None] = {}

    def add(self, opcode: str, cc: Chip, warps: int, line: str) -> None:
        """So many warps have executed an instruction.

        Parameters
        ----------
        opcode : str
        cc : (int, int)
        warps : int
        line : str
            As `simwarp.observe.line_counts.line_of` names it.
        """
        if (opcode, cc) not in self._known:
            self._known[opcode, cc] = _known(opcode, cc)
        found = self._known[opcode, cc]
        family = found.family if found else opcode
        tally = self._tallies.setdefault((family, cc), _Tally(found, cc))
        tally.count += warps
        tally.lines.add(line, warps)
        if found:
            tally.instructions.update({name: count * warps for name, count in found.instructions.items()})

    def clear(self) -> None:
        """Forget all numbers."""
        self._tallies.clear()

    def to_json(self) -> list[dict[str, Any]]:
        """One entry for each family on each chip; ``native`` is null where the chip is not known."""
        return [
            {
                "family": family,
                "chip": chip_name(cc),
                "count": tally.count,
                "native": tally.lowering.native if tally.lowering else None,
                "note": tally.lowering.note if tally.lowering else "",
                "instructions": dict(tally.instructions),
                "lines": tally.lines.to_json(),
            }
            for (family, cc), tally in self._tallies.items()
        ]

    def __str__(self) -> str:
        """A sentence for each family that the chip does not multiply itself; "" if there is none."""
        emulated = (one for one in self._tallies.items() if one[1].lowering and not one[1].lowering.native)
        return "; ".join(_sentence(family, tally) for (family, _), tally in emulated)


def _known(opcode: str, cc: Chip) -> Lowering | None:
    try:
        return lowering(opcode, cc)
    except SchemeError:
        return None


def _sentence(family: str, tally: _Tally) -> str:
    lines = list(tally.lines)
    named = ", ".join(lines[:_NAMED] + ([f"and {len(lines) - _NAMED} more"] if len(lines) > _NAMED else []))
    plural = "s" * (tally.count != 1)
    note = tally.lowering.note if tally.lowering else ""
    return f"{tally.count:,} {family} product{plural} on {chip_name(tally.cc)} ({named}): {note}"
