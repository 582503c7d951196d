"""The table of ``simwarp run --observe``: what each source line costs, and its share of the total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from simwarp.cli.output import cuttable, table
from simwarp.draw.text import printable

BY_LINE = {"divergence": "thread_instructions", "sectors": "sectors", "banks": "wavefronts"}
"""The observers that count by line, and the number of each that the table shows."""


@dataclass(frozen=True)
class LineShare:
    """The thread-instructions and other counts of one source line.

    ``counts`` has "thread_instructions", "sectors" and "wavefronts", as far as they were observed.
    """

    line: str  # such as "my.cu:42"
    source: str  # text of the line; "" if it is not at hand
    counts: dict[str, int]
    shares: dict[str, float]  # of the totals


def counted(report: Mapping[str, Any]) -> dict[str, int]:
    """The totals of the numbers that the table shows, by name; none if nothing is counted by line."""
    return {key: report[name]["total"][key] for name, key in BY_LINE.items() if name in report}


def line_shares(
    report: Mapping[str, Any], files: Mapping[str, str], top: int | None = None
) -> list[LineShare]:
    """The cost of each line, by place; or of the ``top`` lines by their largest share, the dearest first.

    >>> lines = {"f.cu:1": {"sectors": 3}, "f.cu:2": {"sectors": 9}}
    >>> report = {"sectors": {"lines": lines, "total": {"sectors": 12}}}
    >>> [(found.line, found.shares) for found in line_shares(report, {}, top=1)]
    [('f.cu:2', {'sectors': 0.75})]
    """
    totals = counted(report)
    tables = {key: report[name]["lines"] for name, key in BY_LINE.items() if name in report}
    lines = list(dict.fromkeys(line for by_line in tables.values() for line in by_line))
    lines.sort(key=_place)
    rows: list[LineShare] = []
    for line in lines:
        counts = {key: by_line[line][key] for key, by_line in tables.items() if line in by_line}
        shares = {key: count / totals[key] if totals[key] else 0.0 for key, count in counts.items()}
        rows.append(LineShare(line, _text(files, line), counts, shares))
    if top is not None:
        rows = sorted(rows, key=lambda row: -max(row.shares.values()))[:top]
    return rows


def share_table(report: Mapping[str, Any], files: Mapping[str, str], top: int | None = None) -> Table:
    """The lines beside their source text, with counts, shares and totals."""
    totals, rows = counted(report), line_shares(report, files, top)
    names = tuple(x for key in totals for x in (key.replace("_", " "), "%"))
    shown = table("line", "source", numbers=names, cut=("source",))
    for row in rows:
        shown.add_row(Text(row.line, style="cyan"), cuttable(printable(row.source)), *_cells(row, totals))
    left = len(line_shares(report, files)) - len(rows)
    if left:
        shown.add_row("", f"and {left} more lines")
    shown.add_row("total", "", *(cell for total in totals.values() for cell in (f"{total:,}", "")))
    return shown


def _cells(row: LineShare, totals: Mapping[str, int]) -> Iterator[str]:
    for key in totals:
        yield f"{row.counts[key]:,}" if key in row.counts else ""
        yield f"{100 * row.shares[key]:.1f}" if key in row.counts else ""


def _text(files: Mapping[str, str], line: str) -> str:
    """The text of a source line without its indentation; "" if the file is not known."""
    file, number = _place(line)
    lines = files.get(file, "").splitlines()
    return lines[number - 1].strip() if number <= len(lines) else ""


def _place(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number)
