"""Tables of microbenchmarks on the pages: counts of the simulator beside the cycles of committed results."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "h200"
LATENCY_MARKER = re.compile(r"<!-- latency (\d+) -->")
"""A figure of BTC."""
LATENCIES = RESULTS / "latency.json"
"""What ``simwarp probe latency --device cuda --json`` printed."""
SHOWN = ("sectors", "lines", "wavefronts", "depth", "cycles", "cycles_again", "fence_cycles")


def filled(markdown: str) -> str:
    """Put the tables where a page asks for them."""
    return LATENCY_MARKER.sub(lambda found: latency_table(int(found[1])), markdown)


def latency_table(figure: int) -> str:
    """What the simulator counts of each access or chain of a figure, and cycles of an H200 if recorded."""
    counted = import_module("simwarp.lab.probe.latency").latencies(import_module("simwarp").Device(), figure)
    recorded = json.loads(LATENCIES.read_text())["rows"] if LATENCIES.exists() else []
    timed = {_key(row): row for row in recorded}
    rows = [row | timed.get(_key(row), {}) for row in counted]
    size = "products" if "products" in rows[0] else "ldm"
    columns = [name for name in SHOWN if name in rows[0]]
    head = ["instruction", size, *(name.replace("_", " ") for name in columns)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [f"`{row['instruction'].split('.sync')[0]}`", row[size], *(_cell(row[n]) for n in columns)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["instruction"], row.get("ldm"), row.get("products"), row.get("accumulators")


def _cell(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
