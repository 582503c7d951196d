"""The command ``simwarp bench mttkrp``: a sparse tensor's MTTKRP in several formats."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from reference.files import write_output
from simwarp.cli.files import Values
from simwarp.cli.output import OneDevice, cuda_device, print_json, table, total_bar, wide_console
from simwarp.cli.tensor import read_nonzeros
from simwarp.draw.roofline import si
from simwarp.draw.text import printable


def mttkrp_command(
    file: Annotated[Path, typer.Argument(help="A sparse tensor: .tns, .tns.gz or .npz.")],
    formats: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            help="Formats of tensor info, or all of them; mm-csf-along-N has the fibers of mode N alone.",
        ),
    ] = "all",
    rank: Annotated[int, typer.Option(min=1, help="Columns of the factors.")] = 32,
    device: Annotated[
        OneDevice,
        typer.Option(help="What is measured; sim counts what the simulator executes, no times."),
    ] = OneDevice.cuda,
    dtype: Annotated[Values, typer.Option(help="Convert values to this type.")] = Values.float32,
    rounds: Annotated[int, typer.Option(min=1, help="Every format is measured once in each.")] = 5,
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write a machine-readable report; - prints it."),
    ] = None,
) -> int:
    """Time the MTTKRP of a sparse tensor in each format, all modes one after another.

    Every result is compared with the reference first. Values with equal coordinates are added.
    """
    from simwarp.lab.bench import mttkrp as bench

    simulated, quiet = device is OneDevice.sim, as_json == "-"
    on: Any = None if simulated else cuda_device("give --device sim to count instructions and sectors")
    tensor = read_nonzeros(file, dtype, "a benchmark needs finite values", quiet=quiet)
    builds = bench.builders(formats, len(tensor.shape))
    problem = bench.Problem.of(file.name, tensor, rank)
    with total_bar("formats" if simulated else "rounds", MofNCompleteColumn(), quiet=quiet) as progress:
        found = (
            bench.counted(problem, builds, progress)
            if simulated
            else bench.timed(problem, builds, on, rounds, progress)
        )
    if quiet:
        print_json(found)
        return 0
    _show(found)
    if as_json is not None:
        text = json.dumps(found, indent=2) + "\n"
        write_output(as_json, lambda given: given.write(text.encode()), "choose another file with --json")
        sys.stderr.write(f"wrote {as_json}\n")
    return 0


def _show(found: dict[str, Any]) -> None:
    """Print a line for each format."""
    timed = found["unit"] == "seconds"
    modes = [f"mode {mode}" for mode in range(len(found["shape"]))]
    numbers = ("all modes", "rate", *modes) if timed else ("instructions", "sectors", "bytes", *modes)
    shown = table("format", numbers=("indices", "made in", *numbers))
    for row in found["rows"]:
        made = si(row["index_bytes"]["held"], "B"), si(row["build_seconds"], "s")
        shown.add_row(row["format"], *made, *(_timed if timed else _counted)(row))
    console = wide_console(highlight=False)
    shape = " × ".join(map(str, found["shape"]))
    about = f"{found['tensor']}: {shape}, {found['nonzeros']} nonzeros, R = {found['rank']}, {found['dtype']}"
    console.print(Text(printable(f"{about}, on {found['device']}")))
    console.print(shown)
    if timed:
        measured = found["measured"]
        console.print(Text(f"{measured['rounds']} of {measured['of']} rounds; {measured['statistic']}"))


def _timed(row: dict[str, Any]) -> list[str]:
    return [si(row["seconds"], "s"), si(row["rate"], "op/s"), *(si(seconds, "s") for seconds in row["modes"])]


def _counted(row: dict[str, Any]) -> list[str]:
    sums = (f"{row[name]:,}" for name in ("instructions", "sectors", "bytes"))
    return [*sums, *(f"{mode['sectors']:,} sectors" for mode in row["modes"])]
