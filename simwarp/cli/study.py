"""The command ``simwarp net study``: measure the costs of a binarized network's parts on a device."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from reference.errors import SchemeError
from reference.files import write_output
from simwarp.cli.files import write_svg
from simwarp.cli.output import (
    OneDevice,
    cuda_device,
    print_json,
    table,
    total_bar,
    wide_console,
)
from simwarp.draw.roofline import si
from simwarp.draw.study import to_svg
from simwarp.draw.text import printable


class Study(StrEnum):
    """A study of networks."""

    breakdown = "breakdown"
    sync = "sync"
    shortcut = "shortcut"
    batch = "batch"
    scheme = "scheme"
    blocks = "blocks"


MODELS = ("mlp", "lenet", "vgg-cifar", "resnet14", "alexnet", "vgg16", "resnet18")
"""The networks of the papers, with random weights."""
SHORTCUTS = ("A", "B", "bireal", None)
_RESIDUAL = ("resnet14", "resnet18")
_FIXED = {
    "mlp": {"size": "its images are 28×28"},
    "lenet": {"size": "its images are 28×28", "width": "it has 6 filters and 16"},
}
"""Options that a network by name does not take, and why."""
_IMAGES = {Study.sync: 64, Study.batch: 4096}
"""The images of a batch, or the most; of other studies 8, and on the simulator 1."""


def study_command(
    study: Annotated[
        Study,
        typer.Argument(
            help="breakdown: each launch; sync: launches against one launch with barriers; shortcut: what "
            "residuals cost; batch: latency and throughput; scheme: each scheme for each layer of bits; "
            "blocks: one launch on 1, 2, 4 … blocks."
        ),
    ],
    file: Annotated[
        str, typer.Argument(help=f"A file that reference.bnn.save wrote, or a name: {', '.join(MODELS)}.")
    ],
    device: Annotated[OneDevice, typer.Option(help="What runs the network.")] = OneDevice.cuda,
    images: Annotated[
        int | None, typer.Option(min=1, help="Images of a batch; of sync and batch the most.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Of a name: height and width of its images.")
    ] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Of a name: divides its channels.")] = None,
    as_json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write a machine-readable report; - prints it."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a plot as SVG.")] = None,
) -> int:
    """Study the cost of a binarized network's parts: seconds on a GPU, instructions on the simulator."""
    subject = _subject(study, file, size, width)
    from simwarp.lab import network_studies as studies

    meter = _meter(device)
    count = images or (_IMAGES.get(study, 8) if device is OneDevice.cuda else 1)
    with total_bar(study.value, MofNCompleteColumn(), quiet=as_json == "-") as progress:
        found: dict[str, Any] = getattr(studies, study.value)(subject, meter, count, progress)
    if as_json == "-":
        print_json(found)
    else:
        _show(found)
    if as_json not in (None, "-"):
        text = json.dumps(found, indent=2) + "\n"
        write_output(as_json, lambda file: file.write(text.encode()), "choose another file with --json")
        sys.stderr.write(f"wrote {as_json}\n")
    if svg is not None:
        write_svg(svg, to_svg(found))
        sys.stderr.write(f"wrote {svg}\n")
    return 0


def _meter(device: OneDevice) -> Any:
    """A meter of a device: seconds on hardware, instructions on the simulator."""
    import simwarp
    from simwarp.lab.network_studies import Counter, Timer

    if device is OneDevice.sim:
        return Counter(simwarp.Device())
    return Timer(cuda_device("give --device sim to count what the simulator executes"))


def _subject(study: Study, file: str, size: int | None, width: int | None) -> Any:
    """The network to study; for ``study shortcut`` one network for each kind of shortcut, by name."""
    from reference import bnn

    model: Any = getattr(bnn, file.replace("-", "_")) if file in MODELS else None
    options = {name: value for name, value in (("size", size), ("width", width)) if value is not None}
    if study is Study.shortcut:
        if file not in _RESIDUAL:
            raise SchemeError(
                f"study shortcut of {file}: only a network that is made by name can have another shortcut\n"
                f"choose among {', '.join(_RESIDUAL)}"
            )
        return {str(kind): model(shortcut=kind, **options) for kind in SHORTCUTS}
    if file not in MODELS:
        if options:
            raise SchemeError(
                f"--{next(iter(options))} with {file}: the file fixes the sizes\n"
                f"leave it out, or name one of {', '.join(MODELS)}"
            )
        return bnn.load(Path(file))
    for option in sorted(options.keys() & _FIXED.get(file, {})):
        raise SchemeError(f"--{option} with {file}: {_FIXED[file][option]}\nleave --{option} out")
    return model(**options)


# --------------------------------------------------------------------------------------------------
# Tables
# --------------------------------------------------------------------------------------------------

_COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "breakdown": (("path", "layers"), ("cost", "launches", "share")),
    "sync": ((), ("images", "layers", "whole", "without_barriers", "barrier")),
    "shortcut": (("shortcut",), ("cost", "launches", "residual_bytes")),
    "batch": ((), ("images", "waited", "seconds", "rate")),
    "scheme": (("path", "layers", "scheme", "refused"), ("cost", "launches")),
    "blocks": (("kernel",), ("threads", "blocks", "cost")),
}
"""Of each study the columns of words, and those of numbers."""
_UNITS = {"residual_bytes": "B", "rate": "images/s"}
_COUNTS = ("images", "launches", "threads", "blocks")


def _show(found: dict[str, Any]) -> None:
    """Print a study as a table."""
    words, numbers = _COLUMNS[found["study"]]
    unit = found["unit"]
    rows = [{**row, "cost": row.get(unit)} for row in found["rows"]]
    numbers = tuple(name for name in numbers if any(row.get(name) is not None for row in rows))
    shown = table(*words, numbers=tuple(unit if name == "cost" else name for name in numbers))
    for row in rows:
        texts = (_word(row.get(name, "")) for name in words)
        shown.add_row(*map(Text, texts), *(_number(name, row.get(name), unit) for name in numbers))
    console = wide_console(highlight=False)
    console.print(Text(printable(f"{found['network']} on {found['device']}: {found['study']}")))
    console.print(shown)
    others = {"sum": unit, "together": unit, "steps": "", "barriers": "", "ended": ""}
    for name, of in others.items():
        value = found.get(name)
        if value is not None:
            console.print(Text(f"{name}: {_number(name, value, unit) if of else value}"))


def _word(value: Any) -> str:
    """A word, or words joined by spaces, as the text of a table cell."""
    return value if isinstance(value, str) else " ".join(value)


def _number(name: str, value: Any, unit: str) -> str:
    """A number as the text of a table cell, with its unit."""
    if value is None:
        return ""
    if name == "share":
        return f"{value:.1%}"
    if name in _COUNTS:
        return str(value)
    return f"{value:,}" if unit == "instructions" and name not in _UNITS else si(value, _UNITS.get(name, "s"))
