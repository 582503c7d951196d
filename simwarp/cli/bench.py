"""The commands ``simwarp bench``: our calls beside those of installed libraries, and sparse formats."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from reference.errors import SchemeError
from reference.files import write_output
from simwarp.cli.bench_mttkrp import mttkrp_command
from simwarp.cli.files import write_svg
from simwarp.cli.output import OneDevice, cuda_device, print_json, table, total_bar, wide_console
from simwarp.draw.bench import check_roof, to_svg
from simwarp.draw.roofline import si
from simwarp.draw.text import printable

bench_app = typer.Typer(
    help="Time products and convolutions of ±1 beside torch's and CuPy's, and sparse formats.",
    no_args_is_help=True,
)
bench_app.command("mttkrp")(mttkrp_command)

Sizes = Annotated[
    str | None, typer.Option(metavar="N,N,…", help="Rows and columns of products, channels of convolutions.")
]
Device = Annotated[
    OneDevice, typer.Option(help="What is measured; sim counts what the simulator executes, without times.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Every call is measured once in each.")]
ChipName = Annotated[
    str | None, typer.Option("--chip", help="Whose limits are the roof, e.g. H200; by default the device's.")
]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write a machine-readable report; - prints it.")
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a roofline as SVG.")]


@bench_app.command("bmm")
def bmm_command(
    sizes: Sizes = None,
    device: Device = OneDevice.cuda,
    rounds: Rounds = 5,
    chip: ChipName = None,
    as_json: JsonFile = None,
    plot: Plot = None,
) -> int:
    """Time products of two square matrices of ±1."""
    return _bench("bmm", sizes, device, rounds, chip, as_json, plot)


@bench_app.command("bconv")
def bconv_command(
    sizes: Sizes = None,
    device: Device = OneDevice.cuda,
    rounds: Rounds = 5,
    chip: ChipName = None,
    as_json: JsonFile = None,
    plot: Plot = None,
) -> int:
    """Time convolutions of 16 images of 64 x 64 pixels by as many filters of 3 x 3 as channels."""
    return _bench("bconv", sizes, device, rounds, chip, as_json, plot)


def _bench(
    kind: str,
    sizes: str | None,
    device: OneDevice,
    rounds: int,
    chip: str | None,
    as_json: str | None,
    plot: Path | None,
) -> int:
    """Measure, and show or write the results."""
    import simwarp
    from simwarp.lab.bench import table as bench

    simulated = device is OneDevice.sim
    chosen = _numbers(sizes) or (bench.SMALL if simulated else bench.SIZES)[kind]
    on: Any = (
        simwarp.Device() if simulated else cuda_device("give --device sim to count operations and bytes")
    )
    roof = bench.roof_of(on.name, chip or ("H200" if simulated else None))
    if plot is not None:
        check_roof(roof, on.name)
    with total_bar(
        "sizes" if simulated else "rounds", MofNCompleteColumn(), quiet=as_json == "-"
    ) as progress:
        found = (
            bench.counted(kind, chosen, on, progress)
            if simulated
            else bench.timed(kind, chosen, on, rounds, progress)
        )
    found["roof"] = roof
    if as_json == "-":
        print_json(found)
    else:
        _show(found)
    if as_json not in (None, "-"):
        text = json.dumps(found, indent=2) + "\n"
        write_output(as_json, lambda file: file.write(text.encode()), "choose another file with --json")
        sys.stderr.write(f"wrote {as_json}\n")
    if plot is not None:
        write_svg(plot, to_svg(found))
        sys.stderr.write(f"wrote {plot}\n")
    return 0


def _numbers(text: str | None) -> tuple[int, ...]:
    """Integers from a comma-separated list, the value of ``--sizes``; () if there is none."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise SchemeError(f"--sizes {text}\nsizes are integers\ngive e.g. --sizes 1024,4096") from None


_WORDS = ("case", "who", "operands", "output")
_UNITS = {
    "seconds": "s",
    "kernels": "s",
    "rate": "op/s",
    "kernels_rate": "op/s",
    "bytes": "B",
    "operations": "op",
}
_TITLES = {"seconds": "a call", "kernels": "its kernels", "rate": "", "kernels_rate": "", "intensity": "op/B"}
_TIMED = ("seconds", "kernels", "rate", "kernels_rate", "bytes", "intensity")
_COUNTED = ("instructions", "launches", "operations", "bytes", "intensity")


def _show(found: dict[str, Any]) -> None:
    """Print a table, and the peers that were left out."""
    numbers = _TIMED if found["unit"] == "seconds" else _COUNTED
    shown = table(*_WORDS, numbers=tuple(_TITLES.get(name, name) for name in numbers))
    for row in found["rows"]:
        cells = [_number(name, row[name]) for name in numbers]
        shown.add_row(*(Text(printable(row[name])) for name in _WORDS), *cells)
    console = wide_console(highlight=False)
    console.print(Text(printable(f"{found['bench']} on {found['device']}")))
    console.print(shown)
    measured = found["measured"]
    if "rounds" in measured:
        console.print(Text(f"{measured['rounds']} of {measured['of']} rounds; {measured['statistic']}"))
    for name, why in found.get("left_out", {}).items():
        console.print(Text(printable(f"{name} is left out: {why}")))


def _number(name: str, value: Any) -> str:
    """A number as the text of a table cell, with an SI prefix where its column has a unit."""
    if value is None:
        return ""
    return si(value, _UNITS[name]) if name in _UNITS else f"{value:,.0f}"
