"""What the pages take from elsewhere: the PTX instructions, the modules, the results of benchmarks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

ROWS_MARKER = "<!-- ptx rows -->"
MODULES_MARKER = re.compile(r"<!-- modules of (\w+) -->")
HEADER = "| instruction | PTX ISA | types | fidelity | from | what it does |\n|---|---|---|---|---|---|"
RESULTS_MARKER = "<!-- benchmark results -->"
RESULTS_HEADER = "| case | unit | ours | peers | target | machine | date |\n|---|---|---|---|---|---|---|"
ROOT = Path(__file__).resolve().parents[1]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the generated parts where a page asks for them (called by mkdocs for every page)."""
    if ROWS_MARKER in markdown:
        markdown = markdown.replace(ROWS_MARKER, table(import_module("simwarp.ptx.instructions").ROWS))
    if RESULTS_MARKER in markdown:
        paths = sorted((ROOT / "benchmarks" / "results").rglob("*.json"))
        markdown = markdown.replace(RESULTS_MARKER, results_table(json.loads(p.read_text()) for p in paths))
    return MODULES_MARKER.sub(lambda found: reference_of(found[1]), markdown)


def table(rows: Mapping[str, Any]) -> str:
    """One line for each row, in the rows' own order."""
    return "\n".join([HEADER, *(_line(name, row) for name, row in rows.items())])


def _line(name: str, row: Any) -> str:
    types = " ".join(f"`.{t}`" for t in row.types)
    cells = (f"`{name}`", row.section, types, row.fidelity, f"sm_{row.minimum_sm}", row.summary)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def reference_of(package: str) -> str:
    """A mkdocstrings block for each public module; the PTX rows have their own table."""
    return "\n\n".join(f"::: {module}" for module in modules(package))


def modules(package: str) -> list[str]:
    """The public modules of a package, without the ``__init__`` files, which only re-export."""
    paths = sorted((ROOT / package).rglob("[!_]*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name for name in names if "._" not in name and ".instructions." not in name]


def results_table(results: Iterable[Mapping[str, Any]]) -> str:
    """One line for each row of each benchmark result."""
    lines = [_result(row, result["meta"]) for result in results for row in result["rows"]]
    return "\n".join([RESULTS_HEADER, *lines])


def _result(row: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    peers = ", ".join(f"{name}: {_number(value)}" for name, value in row["peers"].items())
    target = "" if row["target"] is None else _number(row["target"])
    unit = f"{row['unit']}, {row['better']} is better"
    machine = meta.get("gpu") or meta["cpu"]
    cells = (f"`{row['case']}`", unit, _number(row["ours"]), peers, target, machine, meta["date"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _number(value: float) -> str:
    """Three digits that count; all of them before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
