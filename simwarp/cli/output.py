"""Shared by all commands: reports, tables, pictures, progress bars, devices, options in error messages."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from reference.errors import NoGpuError, SimwarpError
from reference.files import write_output
from simwarp.cli.files import write_svg
from simwarp.draw import to_svg, to_text
from simwarp.draw.picture import Picture

WIDE = 100_000
"""Columns of a console that writes to a file or a pipe, so that no line of a table is broken or cut."""
_BETWEEN_LINES = 10.0
"""The least seconds between two lines of progress."""

_LEAST = 20
"""Columns that a text keeps where a table does not fit."""
STOPPED = 130
"""The exit code after Ctrl-C."""

_ARGUMENT = re.compile(r"\b(\w+)=(True\b|'[^']*'|\"[^\"]*\"|\((?:[^()]|\([^()]*\))*\)|-?[\w.]+)")
"""An argument with its value in an error message: ``word=16``."""

Json = Annotated[bool, typer.Option("--json", help="Print a machine-readable report.")]
Topology = Annotated[
    str,
    typer.Option("--topology", help="H100, H100x2, H200, H200x2, H200x4, EIGHT, EVEREST, MAKALU or P100."),
]
Svg = Annotated[Path | None, typer.Option(help="Write an SVG file instead.", metavar="FILE")]


class OneDevice(StrEnum):
    """Values of ``--device`` of a command that uses one device."""

    sim = "sim"
    cuda = "cuda"


class SimOrBoth(StrEnum):
    """Values of ``--device`` of a command that runs the simulator, alone or beside a GPU."""

    sim = "sim"
    both = "both"


class Where(StrEnum):
    """Values of ``--device`` of a command that can compare two devices."""

    sim = "sim"
    cuda = "cuda"
    both = "both"


def cuda_device(advice: str = "give --device sim to run on the simulator") -> Any:
    """The first CUDA device; raises NoGpuError with ``advice`` if there is none."""
    from gpu.cuda import default_device

    try:
        return default_device()
    except NoGpuError as error:
        raise NoGpuError(f"{str(error).splitlines()[0]}\n{advice}") from None


def integers(text: str, digits: int = 18) -> tuple[int, ...]:
    """The integers of an extent such as 5x3, 5×3 or 1,-2; () if a part is not an integer.

    >>> integers("64x3"), integers("4, 1"), integers("4,,1")
    ((64, 3), (4, 1), ())
    """
    parts = [part.strip() for part in re.split("[x×,]", text)]
    one = re.compile(rf"[+-]?[0-9]{{1,{digits}}}")
    return tuple(map(int, parts)) if all(map(one.fullmatch, parts)) else ()


def print_json(value: Any, indent: int = 2) -> None:
    """Print a value as JSON on stdout."""
    sys.stdout.write(json.dumps(value, indent=indent, default=str) + "\n")


def write_text(path: Path | str, text: str, option: str) -> None:
    """Write a file that an option names, and report its path on stderr."""
    write_output(path, lambda file: file.write(text.encode()), f"choose another file with {option}")
    sys.stderr.write(f"wrote {path}\n")


def print_report(facts: Any, text: str, as_json: bool) -> None:
    """Print a report on stdout: its facts as JSON, or its text."""
    print_json(facts) if as_json else sys.stdout.write(f"{text}\n")


def print_picture(picture: Picture, svg: Path | None, as_json: bool = False, **facts: Any) -> None:
    """Write a picture to an SVG file, print its data and ``facts`` as JSON, or print it as text."""
    if svg is not None:
        write_svg(svg, to_svg(picture))
        sys.stderr.write(f"wrote {svg}\n")
    if as_json:
        print_json({**facts, "picture": asdict(picture)})
    elif svg is None:
        sys.stdout.write(to_text(picture) + "\n")


class _Uncut(Console):
    """A console that does not break lines; the terminal wraps long ones."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects with their lines uncut, however wide the console is."""
        options.setdefault("crop", False)
        super().print(*objects, **options)


def wide_console(**options: Any) -> Console:
    """A console as wide as the terminal, or `WIDE` columns for a file or pipe; long lines are not cut."""
    console = _Uncut(**options)
    return console if console.is_terminal else _Uncut(width=WIDE, **options)


class _Whole(Table):
    """A table that shrinks only its cuttable columns below the width of their text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Take the width that the uncut columns need, even if the terminal is narrower."""
        free = [column for column in self.columns if not column.no_wrap]
        whole = Measurement.get(console, options.update(max_width=WIDE), self).maximum
        spare = sum(max(0, _widest(console, column) - _LEAST) for column in free)
        yield from super().__rich_console__(
            console, options.update(max_width=max(options.max_width, whole - spare))
        )


def _widest(console: Console, column: Column) -> int:
    """The width, in terminal columns, that a column of a table needs."""
    options = console.options.update(max_width=WIDE)
    return max(Measurement.get(console, options, cell).maximum for cell in (*column.cells, column.header))


def table(*words: str, numbers: tuple[str, ...] = (), cut: tuple[str, ...] = (), **options: Any) -> Table:
    """A borderless table: left-aligned columns ``words``, then right-aligned columns ``numbers``.

    On a narrow terminal the columns ``cut`` lose their ends, and no other column does.
    """
    grid = _Whole(box=None, pad_edge=False, padding=(0, 2), **options)
    for name in words:
        grid.add_column(name, no_wrap=name not in cut, overflow="ellipsis")
    for name in numbers:
        grid.add_column(name, justify="right", no_wrap=True)
    return grid


def cuttable(text: str, style: str = "") -> Text:
    """A cell of a column that may be cut: its text is not wrapped."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


@contextmanager
def progress_bar(
    text: str, counts: ProgressColumn, total: int | None = None, *, quiet: bool = False
) -> Generator[Callable[..., None]]:
    """Show a progress bar on a terminal; yields `rich.progress.Progress.update` of its task."""
    console = Console(stderr=True, quiet=quiet)
    columns = TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn()
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        yield partial(bar.update, bar.add_task(text, total=total))


@contextmanager
def total_bar(
    text: str, counts: ProgressColumn, *, quiet: bool = False
) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar; yields a function that sets the units done and their total (0: unknown).

    Without a terminal a line is printed now and then.
    """
    start = last = time.monotonic()
    lines = not quiet and not sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        nonlocal last
        update(completed=done, total=total or None)
        if lines and (now := time.monotonic()) - last >= _BETWEEN_LINES:
            last = now
            sys.stderr.write(f"{text}: {done} of {total or '?'}, {now - start:.0f} s\n")

    with progress_bar(text, counts, quiet=quiet) as update:
        yield show


def _with_options(text: str, options: dict[str, str]) -> str:
    """A message with each argument of ``options`` replaced by its option."""

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        if value == "True":
            return options[name]
        return f"{options[name]} {re.sub('[()]', '', value).replace(', ', ',').strip(chr(39) + chr(34))}"

    return _ARGUMENT.sub(option, text)


@contextmanager
def as_options(**options: str) -> Generator[None]:
    """Replace arguments by options in the messages of errors raised in the block."""
    try:
        yield
    except SimwarpError as error:
        error.args = tuple(_with_options(x, options) if isinstance(x, str) else x for x in error.args)
        raise
