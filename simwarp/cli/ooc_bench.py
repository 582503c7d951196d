"""The command ``simwarp ooc bench``: the figures of the paper on ooc_cuDNN, on a simulated P100."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from simwarp.cli.output import print_json, total_bar, wide_console, write_text
from simwarp.draw.roofline import si


def bench_command(
    figures: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            help="table2, table4, figure6, figure9, figure10, figure12, figure13, figure14, or all.",
        ),
    ] = "all",
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write a machine-readable report; - prints it."),
    ] = None,
) -> int:
    """Reproduce results of the paper on a simulated P100, by the simulated clock."""
    from simwarp.lab.outofcore.paper import FIGURES, measured

    names = tuple(FIGURES) if figures == "all" else tuple(part.strip() for part in figures.split(","))
    with total_bar("runs", MofNCompleteColumn(), quiet=as_json == "-") as progress:
        found = measured(names, progress)
    print_json(found) if as_json == "-" else _show(found)
    if as_json not in (None, "-"):
        write_text(as_json, json.dumps(found, indent=1) + "\n", "--json")
    return 0


_RATES = ("rate", "printed", "in_core", "out_of_core")


def _show(found: dict[str, Any]) -> None:
    """Print one line for each measured row: its figure, case, rates and busy times."""
    console = wide_console(highlight=False)
    for row in found["rows"]:
        rates = (f"{name} {si(row[name], 'FLOP/s')}" for name in _RATES if row.get(name) is not None)
        each = (f"{name} {si(rate, 'FLOP/s')}" for name, rate in row.get("rates", {}).items())
        sizes = (f"{name} {si(nbytes, 'B')}" for name, nbytes in row.get("sizes", {}).items())
        busy = (f"{kind} {si(seconds, 's')}" for kind, seconds in row.get("busy", {}).items())
        of = (
            str(row[name])
            for name in ("case", "planner", "channels", "filters", "batch", "layer")
            if name in row
        )
        console.print(Text(", ".join((row["figure"], *of, *sizes, *rates, *each, *busy))))
