"""The commands ``simwarp ooc explain``, ``trace`` and ``filters``: convolutions larger than their device."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from reference.errors import SchemeError
from simwarp.cli.ooc_bench import bench_command
from simwarp.cli.ooc_train import train_command
from simwarp.cli.output import (
    Json,
    OneDevice,
    Topology,
    as_options,
    integers,
    print_json,
    table,
    wide_console,
    write_text,
)
from simwarp.draw.roofline import si

ooc_app = typer.Typer(
    help="Convolutions and networks larger than the device: plans, timelines, the paper's figures, training.",
    no_args_is_help=True,
)
ooc_app.command("bench")(bench_command)
ooc_app.command("train")(train_command)

Routine = Annotated[str, typer.Argument(help="conv2d, conv2d_backward_data or conv2d_backward_filter.")]
Images = Annotated[str, typer.Argument(metavar="N,C,H,W", help="Images, channels, rows and columns.")]
Filters = Annotated[str, typer.Option(metavar="O,R,S", help="Filters, their rows and columns.")]
Stride = Annotated[str, typer.Option(metavar="S[,S]", help="Down and across.")]
Padding = Annotated[str, typer.Option(help="SAME, VALID, or top,bottom,left,right.")]
Dilation = Annotated[str, typer.Option(metavar="D[,D]", help="Down and across.")]
Groups = Annotated[int, typer.Option(help="Groups of channels and filters.")]
Layout = Annotated[str, typer.Option(help="NCHW or NHWC, in the host's memory.")]
Bias = Annotated[bool, typer.Option("--bias", help="Whether conv2d adds one.")]
Activation = Annotated[str | None, typer.Option(help="relu, tanh or sigmoid.")]
Budget = Annotated[
    str | None,
    typer.Option(metavar="BYTES", help="Of the device, e.g. 500MB or 1GiB; by default all that it has."),
]
Planner = Annotated[str, typer.Option(help="greedy, steepest or exhaustive.")]
Pieces = Annotated[
    str | None,
    typer.Option(metavar="N,H,C,O", help="Images, rows, channels, filters of a piece; by default planned."),
]
Depth = Annotated[int, typer.Option(help="The most buffers for pieces of each tensor.")]
_NAMES = {
    "routine": "ROUTINE",
    "memory_budget": "--budget",
    "has_bias": "--bias",
    **{name: f"--{name}" for name in ("stride", "padding", "dilation", "groups", "layout", "activation")},
    **{name: f"--{name}" for name in ("planner", "pieces", "depth")},
}


@ooc_app.command("explain")
def explain_command(
    routine: Routine,
    images: Images,
    filters: Filters,
    stride: Stride = "1",
    padding: Padding = "SAME",
    dilation: Dilation = "1",
    groups: Groups = 1,
    layout: Layout = "NCHW",
    bias: Bias = False,
    activation: Activation = None,
    topology: Topology = "H200",
    budget: Budget = None,
    planner: Planner = "greedy",
    pieces: Pieces = None,
    depth: Depth = 3,
    as_json: Json = False,
) -> int:
    """Show the plan of a call, and the time that the model predicts."""
    from simwarp.lab import machines
    from simwarp.lab.outofcore import report

    on = machines.host(machines.topology_of(topology))
    geometry = {"stride": stride, "padding": padding, "dilation": dilation}
    others = {"groups": groups, "layout": layout, "bias": bias, "activation": activation}
    with as_options(**_NAMES):
        request = _request(routine, images, filters, geometry, others)
        plan = replace(request, limits=_limits(budget, planner, pieces, depth)).plan(on.machine)
    facts = report.planned(plan, on)
    if as_json:
        print_json(facts)
        return 0
    console = wide_console(highlight=False)
    console.print(Text(str(plan)))
    found = facts["predicted"]
    console.print(Text(f"{si(found['rate'], 'FLOP/s')} on {on.name}; by the formula {si(plan.seconds, 's')}"))
    return 0


@ooc_app.command("trace")
def trace_command(
    routine: Routine,
    images: Images,
    filters: Filters,
    stride: Stride = "1",
    padding: Padding = "SAME",
    dilation: Dilation = "1",
    groups: Groups = 1,
    layout: Layout = "NCHW",
    bias: Bias = False,
    activation: Activation = None,
    topology: Topology = "H200",
    budget: Budget = None,
    planner: Planner = "greedy",
    pieces: Pieces = None,
    depth: Depth = 3,
    transforms: Annotated[
        bool, typer.Option("--transforms", help="Whether GPUs may take Winograd's and Fourier transforms.")
    ] = False,
    device: Annotated[
        OneDevice, typer.Option(help="What runs it: a simulated --topology, or the first GPU.")
    ] = OneDevice.sim,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the predicted timeline and the machine's as SVG."),
    ] = None,
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the report and both timelines; - prints it."),
    ] = None,
) -> int:
    """Run a call on a simulated machine without values or a GPU, and compare its time with the prediction."""
    from simwarp.draw.machine import to_svg
    from simwarp.lab import machines
    from simwarp.lab.outofcore import report

    geometry = {"stride": stride, "padding": padding, "dilation": dilation}
    others = {"groups": groups, "layout": layout, "bias": bias, "activation": activation}
    devices = None if device is OneDevice.sim else 1
    with machines.opened(device.value, topology, devices=devices) as on, as_options(**_NAMES):
        request = _request(routine, images, filters, geometry, others)
        limits = _limits(budget, planner, pieces, depth, transforms)
        facts = report.traced(replace(request, limits=limits), on)
    print_json(facts) if as_json == "-" else _show(facts)
    if as_json not in (None, "-"):
        write_text(as_json, json.dumps(facts) + "\n", "--json")
    if out is not None:
        write_text(out, to_svg(report.runs_of(facts)), "--out")
    return 0


@ooc_app.command("filters")
def filters_command(
    images: Annotated[str, typer.Argument(metavar="N,C,H,W", help="Images, channels, rows and columns.")] = (
        "8,64,224,224"
    ),
    counts: Annotated[
        str | None,
        typer.Option(metavar="O,…", help="Numbers of filters; by default 8 to 256, in 8s and odd."),
    ] = None,
    topology: Topology = "P100",
    device: Annotated[
        OneDevice, typer.Option(help="What computes: a simulated --topology by its rates, or the first GPU.")
    ] = OneDevice.sim,
    as_json: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the report; - prints it.")
    ] = None,
) -> int:
    """Time a convolution over its number of filters, and find the step in which they are computed.

    On a GPU the step is kept beside its measured rates, and used by later plans.
    """
    from simwarp.lab import machines
    from simwarp.lab.outofcore.filters import COUNTS, curve

    devices = None if device is OneDevice.sim else 1
    sizes = _numbers("N,C,H,W", images, (4,))
    numbers = COUNTS if counts is None else integers(counts)
    if not numbers or min(numbers) < 1:
        raise SchemeError(f"--counts {counts}\nintegers from 1 on are needed\ngive e.g. --counts 8,16,33")
    with machines.opened(device.value, topology, devices=devices) as on:
        facts = curve(on, sizes, numbers)
    if as_json == "-":
        print_json(facts)
        return 0
    shown = table("filters", numbers=("time", "rate"))
    for row in facts["rows"]:
        shown.add_row(str(row["filters"]), si(row["seconds"], "s"), si(row["rate"], "FLOP/s"))
    console = wide_console(highlight=False)
    console.print(Text(f"{' × '.join(map(str, sizes))} on {facts['machine']}, filters of 3 × 3"))
    console.print(shown)
    console.print(Text(f"computed in steps of {facts['step']} filters"))
    if as_json is not None:
        write_text(as_json, json.dumps(facts, indent=1) + "\n", "--json")
    return 0


def _request(
    routine: str, images: str, filters: str, geometry: dict[str, str], others: dict[str, Any]
) -> Any:
    """The request of an out-of-core convolution from the options, without its memory limits."""
    from simwarp.lab.outofcore.report import Request

    batch, channels, height, width = _numbers("N,C,H,W", images, (4,))
    count, rows, columns = _numbers("--filters", filters, (3,))
    inner = channels // max(1, others["groups"])
    sizes = (batch, channels, height, width), (count, inner, rows, columns)
    if others["layout"] == "NHWC":
        sizes = (batch, height, width, channels), (count, rows, columns, inner)
    for name in ("stride", "dilation"):
        down, *across = _numbers(f"--{name}", geometry[name], (1, 2))
        others[name] = (down, *across) if across else down
    return Request(routine, *sizes, others | {"padding": _padding(geometry["padding"])})


def _padding(text: str) -> Any:
    """A name, or rows and columns on all sides."""
    if text.isalpha():
        return text
    top, bottom, left, right = _numbers("--padding", text, (4,))
    return (top, bottom), (left, right)


def _limits(
    budget: str | None, planner: str, pieces: str | None, depth: int, transforms: bool = False
) -> dict[str, Any]:
    """The budget, the pieces and the options of a call."""
    from gpu import outofcore

    chosen: Any = planner
    return {
        "memory_budget": None if budget is None else _bytes(budget),
        "pieces": None if pieces is None else outofcore.Pieces(*_numbers("--pieces", pieces, (4,))),
        "options": outofcore.Options(planner=chosen, depth=depth, transforms=transforms),
    }


def _bytes(text: str) -> int:
    """A number of bytes, in decimal or binary units.

    >>> _bytes("1.5GB"), _bytes("1 MiB"), _bytes("4096")
    (1500000000, 1048576, 4096)
    """
    found = re.fullmatch(r"(\d+\.?\d*)\s*([kKMGT]?)(i?)B?", text.strip())
    if found is None:
        raise SchemeError(
            f"--budget {text}\na number of bytes is needed, with or without a unit\ngive e.g. --budget 500MB"
        )
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** " KMGT".index(unit.upper() or " "))


def _numbers(option: str, text: str, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Integers between commas or ``x``, as many as one of ``counts``; SchemeError names the option."""
    found = integers(text)
    if len(found) not in counts:
        needed = " or ".join(map(str, counts))
        example = ",".join("1" * counts[-1])
        raise SchemeError(
            f"{option} {text}\n{needed} integers between commas are needed\ngive e.g. {option} {example}"
        )
    return found


def _show(facts: dict[str, Any]) -> None:
    """Print the predicted and the measured times of a call."""
    console = wide_console(highlight=False)
    call = " × ".join(map(str, facts["x"]))
    moved = f"{si(facts['bytes']['in'], 'B')} in, {si(facts['bytes']['out'], 'B')} out"
    on = f"simulated {facts['machine']}" if facts["device"] == "sim" else facts["machine"]
    console.print(Text(f"{facts['routine']} of {call} on {on}: {moved}"))
    shown = table("", numbers=("time", "rate", "copies in", "routines", "copies out"))
    for name in ("predicted", "measured"):
        run = facts[name]
        busy = (si(run["busy"][kind], "s") for kind in ("in", "routine", "out"))
        shown.add_row(name, si(run["seconds"], "s"), si(run["rate"], "FLOP/s"), *busy)
    console.print(shown)
    console.print(Text(f"model error {facts['model_error']:.2%}"))
