"""Output of commands: JSON reports, tables, pictures and progress bars; and the device of ``--device``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from reference.errors import NoGpuError
from simwarp.cli.files import write_svg
from simwarp.draw import to_svg, to_text
from simwarp.draw.picture import Picture

WIDE = 240
"""Columns of a table that is not printed on a terminal: its lines are not broken."""

STOPPED = 130
"""The exit code after Ctrl-C."""

Json = Annotated[bool, typer.Option("--json", help="Print a machine-readable report.")]
Svg = Annotated[Path | None, typer.Option(help="Write an SVG file instead.", metavar="FILE")]


class Where(StrEnum):
    """Devices."""

    sim = "sim"
    cuda = "cuda"
    both = "both"


def cuda_device(advice: str = "give --device sim to run on the simulator") -> Any:
    """The first CUDA device; where there is none, an error with this advice."""
    from gpu.cuda import default_device

    try:
        return default_device()
    except NoGpuError as error:
        raise NoGpuError(f"{str(error).splitlines()[0]}\n{advice}") from None


def print_json(value: Any, indent: int = 2) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(value, indent=indent) + "\n")


def print_picture(picture: Picture, svg: Path | None, as_json: bool = False, **facts: Any) -> None:
    """A picture as SVG in a file, as data with the facts about it, or as text."""
    if svg is not None:
        write_svg(svg, to_svg(picture))
        sys.stderr.write(f"wrote {svg}\n")
    if as_json:
        print_json({**facts, "picture": asdict(picture)})
    elif svg is None:
        sys.stdout.write(to_text(picture) + "\n")


def wide_console(**options: Any) -> Console:
    """The terminal; files and pipes get whole lines."""
    console = Console(**options)
    return console if console.is_terminal else Console(width=WIDE, **options)


def table(*words: str, numbers: tuple[str, ...] = (), **options: Any) -> Table:
    """A table without lines: columns of words, then columns of numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2), **options)
    for name in words:
        made.add_column(name, no_wrap=True)
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    return made


@contextmanager
def progress_bar(
    text: str, counts: ProgressColumn, total: int | None = None, *, quiet: bool = False
) -> Generator[Callable[..., None]]:
    """A bar on the terminal; yields `rich.progress.Progress.update` of its task."""
    console = Console(stderr=True, quiet=quiet)
    columns = TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn()
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        yield partial(bar.update, bar.add_task(text, total=total))
