"""Tables of the page of BLASX: printed numbers beside those of simulated machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import page_results

MACHINES = page_results.SIMULATED


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a page."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rows(name: str, **of: Any) -> list[Mapping[str, Any]]:
    """The rows of a result of simulated machines whose fields are as given."""
    rows = json.loads((MACHINES / f"{name}.json").read_text())["rows"]
    return [row for row in rows if all(row[field] == value for field, value in of.items())]


def blasx_table_3() -> str:
    """Mean parallel efficiencies, in percent."""
    return page_results.efficiency_table(_rows("blas-everest"))


def blasx_figure_7() -> str:
    """TFLOP/s of the paper's policy by routine and N, on one to three GPUs."""
    rows = [
        [
            routine.upper(),
            *(
                ", ".join(f"{row['rate'] / 1e12:.2f}" for row in sorted(of, key=lambda row: row["devices"]))
                for of in (
                    _rows("blas-everest", routine=routine, n=n, variant="paper") for n in (4096, 20480, 36864)
                )
            ),
        ]
        for routine in page_results.EFFICIENCIES
    ]
    return table(("routine", *(f"N = {n}: 1, 2, 3 GPUs" for n in ("4,096", "20,480", "36,864"))), rows)


PRINTED: dict[tuple[str, str], Callable[[], str]] = {
    ("blasx", "table III"): blasx_table_3,
    ("blasx", "figure 7"): blasx_figure_7,
}
"""The function of each table, by paper and by its name there."""
