"""The command ``simwarp blas bench``: policies of level-3 BLAS on a simulated machine, or on GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.table import Table
from rich.text import Text

from reference.errors import SchemeError
from simwarp.cli.output import OneDevice, Topology, print_json, table, total_bar, wide_console, write_text
from simwarp.draw.roofline import si


def bench_command(
    topology: Topology = "EVEREST",
    routines: Annotated[
        str, typer.Option(metavar="NAME,…", help="BLAS names; all is those of the paper.")
    ] = "dgemm",
    sizes: Annotated[
        str, typer.Option(metavar="N,…", help="Rows and columns of all matrices.")
    ] = "4096,8192",
    devices: Annotated[
        str | None, typer.Option(metavar="D,…", help="So many of the devices; by default all of them.")
    ] = None,
    tiles: Annotated[str, typer.Option(metavar="T,…", help="Rows and columns of a tile.")] = "1024",
    variants: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            help="default, paper, and the paper's policy with one change: no-peer, no-cache, fifo, no-steal, "
            "streams-1, streams-2, streams-8, native, squares, ordered, late, cpu; default-cpu.",
        ),
    ] = "all",
    allocation: Annotated[
        float, typer.Option(metavar="SECONDS", help="Of each allocation and free of the simulated machine.")
    ] = 0.0,
    device: Annotated[
        OneDevice, typer.Option(help="What runs it: a simulated --topology, or GPUs.")
    ] = OneDevice.sim,
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write a machine-readable report; - prints it."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the rates as SVG.")] = None,
) -> int:
    """Time policies on GPUs, or by the clock of a simulated machine.

    On GPUs each row is the second of two calls, whose operations all have events, which trace shows. Variants
    paper,cpu and default,default-cpu give the CPU's part as well.
    """
    from simwarp.lab.blas.table import ROUTINES, Grid, measured
    from simwarp.lab.blas.variants import VARIANTS

    grid = Grid(
        topology,
        ROUTINES if routines == "all" else _words(routines),
        integers("--sizes", sizes),
        integers("--devices", devices) if devices else None,
        integers("--tiles", tiles),
        tuple(VARIANTS) if variants == "all" else _words(variants),
        device.value,
        allocation,
    )
    with total_bar("runs", MofNCompleteColumn(), quiet=as_json == "-") as progress:
        found = measured(grid, progress)
    print_json(found) if as_json == "-" else _show(found)
    if as_json not in (None, "-"):
        write_text(as_json, json.dumps(found, indent=1) + "\n", "--json")
    if plot is not None:
        from simwarp.draw.blas import to_svg

        write_text(plot, to_svg(found), "--plot")
    return 0


def _words(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    return tuple(part.strip() for part in text.split(","))


def integers(option: str, text: str) -> tuple[int, ...]:
    """The integers in a comma-separated list; SchemeError names the option."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        advice = f"give e.g. {option} 1,2"
        raise SchemeError(f"{option} {text}\nintegers between commas are needed\n{advice}") from None


def _show(found: dict[str, Any]) -> None:
    """Print a table with a row for each routine, variant and size that was measured."""
    numbers = (
        "N",
        "devices",
        "tile",
        "TFLOP/s",
        "time",
        "in",
        "out",
        "peer",
        "imbalance",
        "stolen",
        "efficiency",
    )
    shown = table("routine", "variant", numbers=numbers)
    for row in found["rows"]:
        moved = (si(row["bytes"][route], "B") for route in ("in", "out", "peer"))
        efficiency = "" if row["efficiency"] is None else f"{row['efficiency']:.1%}"
        shown.add_row(
            Text(row["routine"]),
            Text(row["variant"]),
            *(str(row[name]) for name in ("n", "devices", "tile")),
            f"{row['rate'] / 1e12:.2f}",
            si(row["seconds"], "s"),
            *moved,
            si(row["imbalance"], "s"),
            str(row["stolen"]),
            efficiency,
        )
    console = wide_console(highlight=False)
    console.print(Text(f"{'simulated ' * (found['device'] == 'sim')}{found['machine']}"))
    console.print(shown)
    if parts := found.get("cpu_parts"):
        console.print(_parts(parts))


def _parts(rows: list[dict[str, Any]]) -> Table:
    """A table of what the host's cores add: figure 9 of the BLASX paper."""
    titles = ("N", "devices", "TFLOP/s without CPU", "with", "its part", "tasks", "of operations")
    shown = table("routine", "variant", numbers=titles)
    for row in rows:
        rates = (f"{row[name] / 1e12:.2f}" for name in ("without", "with", "part"))
        shown.add_row(
            Text(row["routine"]),
            Text(row["variant"]),
            str(row["n"]),
            str(row["devices"]),
            *rates,
            str(row["tasks"]),
            f"{row['share']:.1%}",
        )
    return shown
