"""What the host's cores add to a routine's rate: figure 9 of the BLASX paper, from the rows of a bench."""

from __future__ import annotations

from collections.abc import Iterable

from simwarp.lab.network_studies import Facts

PAIRS = {"cpu": "paper", "default-cpu": "default"}
"""Variants with the host's cores, each with the same policy without them."""
_KEY = ("routine", "n", "devices", "tile")


def cpu_parts(rows: Iterable[Facts]) -> list[Facts]:
    """The parts of the CPU, as the paper takes them: the rate with it less the rate without it.

    From rows of `simwarp.lab.blas.table.measured`; each row here is of two of them: routine, sizes,
    ``variant`` (that without the CPU), ``without`` and ``with`` and their difference ``part`` in operations
    per second, the CPU's ``tasks`` and ``stolen`` ones, its ``share`` of the operations, and its own ``rate``
    while it computes.
    """
    found = [*rows]
    without = {(*_at(row), row["variant"]): row["rate"] for row in found}
    return [
        _part(row, without[key])
        for row in found
        if (key := (*_at(row), PAIRS.get(row["variant"], ""))) in without
    ]


def _at(row: Facts) -> tuple[object, ...]:
    """What two rows of a pair have in common."""
    return tuple(row[name] for name in _KEY)


def _part(row: Facts, rate: float) -> Facts:
    """The CPU's part of a row, beside the rate without it."""
    cpu = row.get("cpu") or {"tasks": 0, "stolen": 0, "operations": 0.0, "compute": 0.0}
    return {
        **{name: row[name] for name in _KEY},
        "variant": PAIRS[row["variant"]],
        "without": rate,
        "with": row["rate"],
        "part": row["rate"] - rate,
        "tasks": cpu["tasks"],
        "stolen": cpu["stolen"],
        "share": cpu["operations"] / (row["rate"] * row["seconds"]),
        "rate": cpu["operations"] / cpu["compute"] if cpu["compute"] else 0.0,
    }
