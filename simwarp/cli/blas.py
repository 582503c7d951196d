"""The commands ``simwarp blas explain`` and ``trace``: calls of level-3 BLAS on several devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from simwarp.cli.blas_bench import bench_command, integers
from simwarp.cli.output import (
    Json,
    OneDevice,
    Topology,
    as_options,
    print_json,
    table,
    total_bar,
    wide_console,
    write_text,
)
from simwarp.draw.roofline import si
from simwarp.draw.text import printable

blas_app = typer.Typer(
    help="Level-3 BLAS over several devices: plans, timelines, and policies beside one another.",
    no_args_is_help=True,
)
blas_app.command("bench")(bench_command)


Routine = Annotated[str, typer.Argument(help="A BLAS name, e.g. dgemm.")]
M = Annotated[int, typer.Argument(min=0, help="Rows of the result.")]
N = Annotated[int | None, typer.Argument(min=0, help="Its columns; by default M.")]
K = Annotated[int | None, typer.Argument(min=0, help="Length of the sums; by default M.")]
Tile = Annotated[int | None, typer.Option(min=1, help="Rows and columns of a tile; by default by the plan.")]
Alpha = Annotated[float, typer.Option(help="The factor of the product.")]
Beta = Annotated[float, typer.Option(help="The factor of C; with 0 it is not read.")]
Side = Annotated[str | None, typer.Option(help="L or R.")]
Uplo = Annotated[str | None, typer.Option(help="U or L.")]
TransA = Annotated[str | None, typer.Option(help="N, T or C.")]
TransB = Annotated[str | None, typer.Option(help="N, T or C.")]
Diag = Annotated[str | None, typer.Option(help="N or U.")]
Variant = Annotated[
    str, typer.Option(help="The policy: default, paper, or the paper's with a change, as of blas bench.")
]
_NAMES = {
    "routine": "ROUTINE",
    "side": "--side",
    "uplo": "--uplo",
    "trans_a": "--trans-a",
    "trans_b": "--trans-b",
    "diag": "--diag",
}


@blas_app.command("explain")
def explain_command(
    routine: Routine,
    m: M,
    n: N = None,
    k: K = None,
    topology: Topology = "H200",
    tile: Tile = None,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    side: Side = None,
    uplo: Uplo = None,
    trans_a: TransA = None,
    trans_b: TransB = None,
    diag: Diag = None,
    variant: Variant = "default",
    as_json: Json = False,
) -> int:
    """Show the plan of a call, and the time and the rate that a simulated machine predicts for it."""
    from simwarp.lab import machines
    from simwarp.lab.blas import report, variants

    flags = {"side": side, "uplo": uplo, "trans_a": trans_a, "trans_b": trans_b, "diag": diag}
    request = _request(routine, (m, n, k), alpha, beta, flags)
    on, options = machines.host(machines.topology_of(topology)), variants.variant(variant)
    facts = report.planned(request, tile, on, options)
    predicted = report.run(request, tile, on, options)
    if as_json:
        print_json({**facts, "variant": variant, "predicted": predicted})
        return 0
    budgets = [on.machine.budget(device) for device in range(on.machine.devices)]
    console = wide_console(highlight=False)
    console.print(Text(str(request.plan(tile, budgets, options))))
    console.print(Text(f"{on.name}, simulated: {_speed(predicted)}"))
    console.print(Text(_moved(predicted)))
    return 0


@blas_app.command("shares")
def shares_command(
    sizes: Annotated[
        str, typer.Option(metavar="N,…", help="Rows and columns of all matrices.")
    ] = "5000,10000,20000",
    tile: Annotated[int, typer.Option(min=1, help="Rows and columns of a tile.")] = 1024,
    as_json: Json = False,
) -> int:
    """Show how many of the operations of each routine are of GEMM: table I of the BLASX paper."""
    from simwarp.lab.blas.gemm_shares import gemm_shares

    rows = gemm_shares(sizes=integers("--sizes", sizes), tile=tile)
    if as_json:
        print_json(rows)
        return 0
    shown = table("routine", numbers=("N", "tasks", "of GEMM", "printed"))
    for row in rows:
        printed = "" if row["printed"] is None else f"{row['printed']:.1%}"
        shown.add_row(Text(row["routine"]), str(row["n"]), str(row["tasks"]), f"{row['share']:.1%}", printed)
    wide_console(highlight=False).print(shown)
    return 0


@blas_app.command("applications")
def applications_command(
    size: Annotated[int, typer.Option(min=16, help="Rows and columns.")] = 512,
    above: Annotated[int, typer.Option(min=0, help="Products are routed above its cube.")] = 100,
    times: Annotated[
        bool, typer.Option("--times", help="Predict the times at the sizes of the paper, too.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a network, nnmf and lsqlin through gpu.blas3.patched: table VI of the BLASX paper."""
    from simwarp.lab.blas import applications

    found = applications.routed(size, above)
    predicted = applications.predicted() if times else []
    if as_json:
        print_json({"routed": found, "predicted": predicted})
        return 0
    console = wide_console(highlight=False)
    shown = table("application", "dtype", numbers=("calls", "routed", "of operations", "of time"))
    for row in found:
        numbers = (str(row["calls"]), str(row["routed"]), f"{row['operations']:.1%}", f"{row['time']:.1%}")
        shown.add_row(Text(row["application"]), Text(row["dtype"]), *numbers)
    console.print(shown)
    if predicted:
        shown = table("application", "dtype", numbers=("N", "GPUs", "CPU", "speedup", "printed"))
        for row in predicted:
            times_of = (si(row["seconds"], "s"), si(row["cpu_seconds"], "s"), f"{row['speedup']:.2f}")
            shown.add_row(
                Text(row["application"]), Text(row["dtype"]), str(row["size"]), *times_of, row["printed"]
            )
        console.print(shown)
    return 0


@blas_app.command("library")
def library_command(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write it.")] = Path(
        "libsimwarpblas.so"
    ),
) -> int:
    """Build the library that hands the BLAS calls of any program to gpu.blas3, for LD_PRELOAD."""
    from simwarp.exec.blas import build_library

    build_library(output)
    console = wide_console(highlight=False)
    console.print(Text(f"LD_PRELOAD={output.absolute()} program    # computes large products on all GPUs"))
    console.print(Text("SIMWARP_BLAS_MACHINE=H200x2 simulates two; SIMWARP_BLAS_COUNTS=1 counts the calls"))
    return 0


@blas_app.command("trace")
def trace_command(
    routine: Routine,
    m: M,
    n: N = None,
    k: K = None,
    topology: Topology = "H200",
    tile: Tile = None,
    alpha: Alpha = 1.0,
    beta: Beta = 1.0,
    side: Side = None,
    uplo: Uplo = None,
    trans_a: TransA = None,
    trans_b: TransB = None,
    diag: Diag = None,
    variant: Variant = "default",
    device: Annotated[
        OneDevice, typer.Option(help="What runs it: a simulated --topology, or all GPUs.")
    ] = OneDevice.sim,
    values: Annotated[
        bool,
        typer.Option("--values", help="Check the result; without, a simulated machine does not compute one."),
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the timeline as SVG.")] = None,
    marks: Annotated[
        bool, typer.Option("--marks", help="Number the steps of the call in the picture.")
    ] = False,
    with_file: Annotated[
        Path | None,
        typer.Option(
            "--with", metavar="FILE", help="Draw the run of this JSON report above, on the same axis."
        ),
    ] = None,
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the report and its timeline; - prints it."),
    ] = None,
) -> int:
    """Run a call, show what each device did, and draw its streams' operations."""
    from simwarp.lab import machines
    from simwarp.lab.blas import report, variants

    other = None if with_file is None else report.read(with_file)
    flags = {"side": side, "uplo": uplo, "trans_a": trans_a, "trans_b": trans_b, "diag": diag}
    request = _request(routine, (m, n, k), alpha, beta, flags)
    options = variants.variant(variant)
    bar = total_bar("tiles of the result", MofNCompleteColumn(), quiet=as_json == "-")
    with machines.opened(device.value, topology, values=values) as on, bar as progress:
        facts = report.traced(request, tile, on, options, values=values, progress=progress)
    facts |= {"variant": variant}
    print_json(facts) if as_json == "-" else _show(facts)
    if as_json not in (None, "-"):
        write_text(as_json, json.dumps(facts) + "\n", "--json")
    if out is not None:
        write_text(out, _picture(facts, other, marks), "--out")
    return 0


def _request(
    routine: str, sizes: tuple[int, int | None, int | None], alpha: float, beta: float, flags: dict[str, Any]
) -> Any:
    """The validated BLAS request of the command line; error messages name its options."""
    from simwarp.lab.blas.request import Request

    with as_options(**_NAMES):
        return Request.of(routine, *sizes, alpha=alpha, beta=beta, **flags)


def _picture(facts: dict[str, Any], other: dict[str, Any] | None, has_marks: bool) -> str:
    """The timeline of a run as SVG, below that of another run."""
    from simwarp.draw.machine import to_svg
    from simwarp.lab.blas.life import marks_of_report

    marks = marks_of_report(facts) if has_marks else []
    return to_svg([facts] if other is None else [other, facts], marks)


# --------------------------------------------------------------------------------------------------
# What is shown
# --------------------------------------------------------------------------------------------------

_COUNTS = ("tasks", "stolen", "hits", "peer_hits", "misses")
_BYTES = ("bytes_in", "bytes_out", "bytes_peer")


def _show(facts: dict[str, Any]) -> None:
    """Print a table of each device's times and transfers, and the totals of the run."""
    console = wide_console(highlight=False)
    what = f"{facts['routine']} {facts['m']} × {facts['n']} × {facts['k']}, {facts['tasks']} tasks"
    console.print(
        Text(printable(f"{what} of tiles of {facts['tile']} on {facts['machine']}, {facts['variant']}"))
    )
    titles = ("tasks", "stolen", "hits L1", "hits L2", "misses", "in", "out", "peer")
    shown = table("device", numbers=("COMPT", "COMM", "OTHER", *titles, "finished"))
    for part, gpu in zip(facts["devices"], facts["gpus"], strict=True):
        times = (si(part[name], "s") for name in ("compute", "communication", "other"))
        counts = (str(part.get(name, 0)) for name in _COUNTS)
        moved = (si(part.get(name, 0), "B") for name in _BYTES)
        label = Text(printable(f"{part['device']}, {gpu}"))
        shown.add_row(label, *times, *counts, *moved, si(part["end"], "s"))
    console.print(shown)
    if cpu := facts["cpu"]:
        console.print(Text(_cpu(cpu, facts["operations"])))
    console.print(Text(_speed(facts)))
    console.print(Text(_moved(facts)))


def _speed(found: dict[str, Any]) -> str:
    """The time, the rate and the imbalance of a run."""
    return (
        f"{si(found['seconds'], 's')}, {si(found['rate'], 'FLOP/s')}, imbalance {si(found['imbalance'], 's')}"
    )


def _cpu(found: dict[str, Any], operations: float) -> str:
    """What the host's cores did, as text."""
    share = found["operations"] / operations if operations else 0.0
    return (
        f"CPU: {found['tasks']} tasks ({found['stolen']} stolen), {share:.1%} of the operations,"
        f" {si(found['compute'], 's')} computing, finished after {si(found['end'], 's')}"
    )


def _moved(found: dict[str, Any]) -> str:
    """The bytes that a run copied from the host, to the host and between devices, as text."""
    moved = found["bytes"]
    into, out, peer = (si(moved[route], "B") for route in ("in", "out", "peer"))
    return f"{into} from the host, {out} to it, {peer} from peers"
