"""Entries that ``simwarp paper`` made, on the pages of the papers: tables, curves as tables, single cells."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from page_papers_machines import table
from page_results import ROOT

from simwarp.lab.papers import compare, paper

MADE = {
    None: ROOT / "benchmarks" / "results" / "sim" / "papers",
    "cuda": ROOT / "benchmarks" / "results" / "h200" / "papers",
}
"""What ``simwarp paper … --all --out`` wrote, by device; the simulator's if a page names none."""
MADE_MARKER = re.compile(r"<!-- made (\S+) (\S+?)(?: (cuda))?(?:: (.+?) over (.+?))? -->")
"""A paper, the name of an entry's file, a device; of curves, the column that is shown and the one across."""
CELL_MARKER = re.compile(r"<!-- cell (\S+) (\S+)(?: (cuda))?: (.+?) of (.+?)(?: over (.+?))? -->")
"""The same; a column, and the keys of a row with semicolons between them; the row that is divided by."""


def filled(markdown: str) -> str:
    """Put entries and their cells where a page asks for them."""
    markdown = MADE_MARKER.sub(lambda found: made(*found.groups()), markdown)
    return CELL_MARKER.sub(lambda found: cell(*found.groups()), markdown)


def made(name: str, slug: str, device: str | None, value: str | None, across: str | None) -> str:
    """An entry as the command prints it, or its curves as a table with their sizes across."""
    facts = _facts(name, slug, device)
    of = compare.columns(facts["rows"])
    if value and across:
        shown = _curves(facts["rows"], value, across)
    else:
        rows = [[compare.cell(row, *column) for column in of] for row in facts["rows"]]
        shown = table(compare.heads(of), rows)
    meta = facts["meta"]
    chip = f"{meta['gpu']}, {meta['date']}, commit {meta['commit'][:7]}" if device else ""
    about = "; ".join(part for part in (facts["sizes"], facts["data"], chip) if part)
    return f"{shown}\n\n{about}."


def cell(name: str, slug: str, device: str | None, column: str, row: str, over: str | None) -> str:
    """A number of an entry, or how many times another row's it is; a row that is not there is an error."""
    top = _number(name, slug, device, column, row)
    return compare.text_of(top) if over is None else f"{top / _number(name, slug, device, column, over):.3g}"


def _facts(name: str, slug: str, device: str | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MADE[device] / name / f"{slug}.json").read_text())
    return found


def _number(name: str, slug: str, device: str | None, column: str, wanted: str) -> float:
    (item,) = (item for item in paper(name).items if item.slug == slug)
    rows = _facts(name, slug, device)["rows"]
    found: list[float] = [
        row[column] for row in rows if "; ".join(str(row[key]) for key in item.keys) == wanted
    ]
    if len(found) != 1:
        raise LookupError(
            f"{name}, {item.name} has {len(found)} rows {wanted}, and a page shows one; "
            f"give {'; '.join(item.keys)}"
        )
    return found[0]


def _curves(rows: Sequence[dict[str, Any]], value: str, across: str) -> str:
    """A line for each curve; words that all rows share are left out."""
    words = [
        name
        for name in rows[0]
        if isinstance(rows[0][name], str) and len({row.get(name) for row in rows}) > 1
    ]
    curves: dict[tuple[str, ...], dict[Any, float]] = {}
    for row in rows:
        if row.get(value) is not None:
            curves.setdefault(tuple(row[name] for name in words), {})[row[across]] = row[value]
    if not curves:
        raise LookupError(f"no row has {value}, and a page shows it; give a column of the entry's file")
    sizes = sorted({size for curve in curves.values() for size in curve})
    lines = [
        [*names, *(compare.text_of(curve.get(size)) for size in sizes)] for names, curve in curves.items()
    ]
    return table((*words, *(f"{across} = {compare.text_of(size)}" for size in sizes)), lines)
