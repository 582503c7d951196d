"""Tables of microbenchmarks on the pages: counts of the simulator beside the cycles of committed results."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "h200"
LATENCY_MARKER = re.compile(r"<!-- latency (\d+) -->")
"""A figure of BTC."""
LATENCIES = RESULTS / "latency.json"
"""What ``simwarp probe latency --device cuda --json`` printed."""
OPTIONS_MARKER = re.compile("<!-- bstc options (bypass|counters|warps|approach) -->")
OPTIONS = RESULTS / "bstc-options.json"
"""What ``benchmarks/bstc_options.py`` wrote."""
SAME = 0.03
"""Times that differ by less are the same."""
UNITS = {"us": "µs"}
POOLING_MARKER = "<!-- pooling costs -->"
SHARES = (0.5, 0.9, 0.99)
"""Of bits that are 1."""
POOLED = (1, 8, 8, 64), (3, 3, 64, 64)
"""Image and filters."""
SHOWN = ("sectors", "lines", "wavefronts", "depth", "cycles", "cycles_again", "fence_cycles")


def filled(markdown: str) -> str:
    """Put the tables where a page asks for them."""
    markdown = markdown.replace(POOLING_MARKER, pooling_table()) if POOLING_MARKER in markdown else markdown
    markdown = OPTIONS_MARKER.sub(lambda found: options_table(found[1]), markdown)
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


def pooling_table() -> str:
    """What warps execute in three ways of pooling, by the part of the bits that are 1."""
    listings, rng = import_module("simwarp.listings"), np.random.default_rng(62)
    x, w = (rng.choice([-1.0, 1.0], shape) for shape in POOLED)
    sums = listings.bconv32(x, w)
    lines = [
        "| bits that are 1 | way | warps | steps | of each warp | lanes busy | atomics |",
        "|---" * 7 + "|",
    ]
    for share in SHARES:
        thresholds = np.quantile(sums, 1 - share, axis=(0, 1, 2)).astype(np.int64)
        for way in ("window", "pruned", "atomic"):
            warps = POOLED[0][1] * POOLED[0][2] // (1 if way == "atomic" else 4)
            costs = listings.pooling_costs(x, w, thresholds, way=way)
            cells = (f"{costs.steps:,}", f"{costs.steps / warps:.0f}", f"{costs.busy:.1%}")
            atomics = costs.operations["atomics"]
            lines.append(f"| {share:.0%} | `{way}` | {warps} | {' | '.join(cells)} | {atomics} |")
    return "\n".join(lines)


def options_table(group: str) -> str:
    """Options of BSTC beside the listings without them, each with a verdict; a sentence until then."""
    if not OPTIONS.exists():
        return "*Not recorded yet: the command below makes this table.*"
    recorded = json.loads(OPTIONS.read_text())["rows"]
    rows = [row for row in recorded if row["case"].startswith(f"{group}/")]
    if group == "approach":
        fastest = min(row["ours"] for row in rows)
        head = ["approach", "cycles here", "× the fewest", "printed, P100", "× the fewest", "1024³ here"]
        fewest = min(min(row["peers"].values()) for row in rows)
        cells = [_approach(row, fastest, fewest) for row in rows]
    else:
        head = ["option", "time", "without", "verdict"]
        cells = [_option(row) for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _approach(row: dict[str, Any], fastest: float, fewest: float) -> list[str]:
    (printed,) = row["peers"].values()
    name, ours = row["case"].partition("/")[2], row["ours"]
    times = f"{ours:,.0f}", f"{ours / fastest:.2f}", f"{printed:,.0f}", f"{printed / fewest:.2f}"
    return [name, *times, f"{row['params']['us']:.0f} µs"]


def _option(row: dict[str, Any]) -> list[str]:
    (without,) = row["peers"].values()
    saved, unit = 1 - row["ours"] / without, UNITS[row["unit"]]
    verdict = (
        "no difference" if abs(saved) < SAME else f"{abs(saved):.0%} {'faster' if saved > 0 else 'slower'}"
    )
    return [
        f"`{row['case'].partition('/')[2]}`",
        f"{row['ours']:.1f} {unit}",
        f"{without:.1f} {unit}",
        verdict,
    ]


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["instruction"], row.get("ldm"), row.get("products"), row.get("accumulators")


def _cell(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
