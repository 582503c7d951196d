"""Tables of microbenchmarks on the pages: counts of the simulator beside the cycles of committed results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "h200"
LATENCY_MARKER = re.compile("<!-- latency of (loads|stores|products) -->")
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
PRODUCTS = (1, 2, 4, 8, 16)


def filled(markdown: str) -> str:
    """Put the tables where a page asks for them."""
    markdown = markdown.replace(POOLING_MARKER, pooling_table()) if POOLING_MARKER in markdown else markdown
    markdown = OPTIONS_MARKER.sub(lambda found: options_table(found[1]), markdown)
    return LATENCY_MARKER.sub(lambda found: LATENCY_TABLES[found[1]](), markdown)


def _latencies(figure: int, at: Sequence[int] = ()) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a figure of BTC, by instruction and size; with an H200's cycles if they are recorded."""
    latencies, device = (
        import_module("simwarp.lab.probe.latency").latencies,
        import_module("simwarp").Device(),
    )
    recorded = json.loads(LATENCIES.read_text())["rows"] if LATENCIES.exists() else []
    timed = {_key(row): row for row in recorded if figure in row["figures"]}
    return {_key(row): row | timed.get(_key(row), {}) for row in latencies(device, figure, at=at)}


def _key(row: dict[str, Any]) -> tuple[str, int]:
    return row["instruction"], row.get("ldm", row.get("products"))


def loads() -> str:
    """Loads of a bit tile by stride: figures 2 to 5."""
    counted = list(_latencies(2).values())
    columns = {
        "ldm": [row["ldm"] for row in counted],
        **{name: [row[name] for row in counted] for name in ("sectors", "lines", "wavefronts")},
        "cycles from L2": _cycles(counted),
        "from L1": _cycles(counted, "cycles_again"),
    }
    if LATENCIES.exists():
        shared = _latencies(3)
        for name in dict.fromkeys(instruction for instruction, _ in shared):
            rows = [row for (instruction, _), row in shared.items() if instruction == name]
            columns[f"shared, `{name.partition('.sync')[0]}`"] = _cycles(rows)
    return _table(columns)


def stores() -> str:
    """Stores of a tile of int32 by stride: figures 6 to 9."""
    counted, shared = (list(_latencies(figure).values()) for figure in (6, 7))
    return _table(
        {
            "ldm": [row["ldm"] for row in counted],
            **{name: [row[name] for row in counted] for name in ("sectors", "lines", "wavefronts")},
            "cycles with a fence": _cycles(counted),
            "the fence alone": _cycles(counted, "fence_cycles"),
            "shared": _cycles(shared),
            "its fence": _cycles(shared, "fence_cycles"),
        }
    )


def products() -> str:
    """Products of one accumulator, and of one each: figures 10 to 13."""
    same, different = _latencies(10, PRODUCTS), _latencies(11, PRODUCTS)
    return _table(
        {
            "instruction": [f"`{name.partition('.row')[0]}`" for name, _ in same],
            "products": [count for _, count in same],
            "chain, one accumulator": [row["depth"] for row in same.values()],
            "cycles": _cycles(list(same.values())),
            "chain, one each": [row["depth"] for row in different.values()],
            "their cycles": _cycles(list(different.values())),
        }
    )


LATENCY_TABLES = {"loads": loads, "stores": stores, "products": products}


def _cycles(rows: Sequence[dict[str, Any]], name: str = "cycles") -> list[str]:
    return [f"{row[name]:.1f}" for row in rows if name in row]


def _table(columns: Mapping[str, Sequence[Any]]) -> str:
    """A table of the columns that have numbers."""
    shown = {name: cells for name, cells in columns.items() if cells}
    lines = [shown, ["---"] * len(shown), *zip(*shown.values(), strict=True)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


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
