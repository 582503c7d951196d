"""The command ``simwarp tensor``: facts about a file of a sparse tensor, and its conversion.

>>> info_command(Path("no-such-file.tns"))
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-file.tns cannot be read: No such file or directory
give a .tns file: a line of indices and a value for each nonzero
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import reference.sparse
from gpu.mttkrp import formats
from reference.errors import InputFileError, SchemeError, ShapeError
from reference.sparse import index_bytes
from reference.sparse.coordinates import count_distinct, first_repeated
from reference.sparse.files import ZIP, read_tensor, write_tensor
from reference.sparse.tns import read_tns, write_tns
from reference.types import Coo
from simwarp.cli.files import Values, typed
from simwarp.cli.words import spoken

tensor_app = typer.Typer(help="Look at files of sparse tensors, and convert them.", no_args_is_help=True)

_WIDE = 240
_SUFFIXES = (".tns", ".tns.gz", ".npz")
# The compiled builders pay from here on; the reference's give the same arrays.
_MANY_NONZEROS = 1 << 16


class Base(StrEnum):
    """The number from which a text counts indices."""

    auto = "auto"
    zero = "0"
    one = "1"


class Header(StrEnum):
    """Whether a text begins with its order and dimensions."""

    auto = "auto"
    yes = "yes"
    no = "no"


class Duplicates(StrEnum):
    """The treatment of coordinates that occur again."""

    refuse = "refuse"
    sum = "sum"
    keep = "keep"


FromBase = Annotated[Base, typer.Option("--base", help="The number from which a text counts indices.")]
FromHeader = Annotated[
    Header, typer.Option("--header", help="Whether a text begins with the order and the dimensions.")
]
Nonfinite = Annotated[bool, typer.Option("--nonfinite", help="NaN and infinite values of a text are meant.")]
Json = Annotated[bool, typer.Option("--json", help="Print a machine-readable report.")]


@tensor_app.command("info")
def info_command(
    file: Annotated[Path, typer.Argument(help="A .tns or .npz file; .tns also packed with gzip.")],
    base: FromBase = Base.auto,
    header: FromHeader = Header.auto,
    nonfinite: Nonfinite = False,
    as_json: Json = False,
) -> int:
    """Show the size of a sparse tensor, its slices and fibers, and its storage in every format."""
    tensor = _read(file, base, header, Duplicates.keep, None, nonfinite, quiet=as_json)
    with Console(stderr=True, quiet=as_json).status("counting slices and fibers") as status:
        report: dict[str, Any] = {"file": str(file), **_size(tensor), "modes": _modes(tensor)}
        report["storage"] = _storage(tensor, report["duplicates"] > 0, status.update)
    if as_json:
        _print_json(report)
    else:
        _show(report)
    return 0


@tensor_app.command("convert")
def convert_command(
    source: Annotated[Path, typer.Argument(help="A .tns or .npz file; .tns also packed with gzip.")],
    target: Annotated[Path, typer.Argument(help="A .tns, .tns.gz or .npz file; replaced when all is done.")],
    base: FromBase = Base.auto,
    header: FromHeader = Header.auto,
    duplicates: Annotated[
        Duplicates, typer.Option(help="The treatment of coordinates that occur again.")
    ] = Duplicates.refuse,
    dtype: Annotated[
        Values | None, typer.Option(help="The type of values; else that of a .npz, float64 for a text.")
    ] = None,
    nonfinite: Nonfinite = False,
    to_base: Annotated[
        int, typer.Option(min=0, max=1, help="The number from which a new text counts indices.")
    ] = 1,
    to_header: Annotated[bool, typer.Option("--to-header", help="Begin a new text with a header.")] = False,
    as_json: Json = False,
) -> int:
    """Write a sparse tensor as text, as packed text, or as NumPy arrays (.npz)."""
    if not target.name.endswith(_SUFFIXES):
        raise SchemeError(
            f"{target} has an unknown suffix\na sparse tensor is written as {', '.join(_SUFFIXES)}\n"
            "choose a name that ends with one of these"
        )
    tensor = _read(source, base, header, duplicates, dtype, nonfinite, quiet=as_json)
    if target.name.endswith(".npz"):
        write_tensor(target, tensor)
    else:
        with _progress("writing", quiet=as_json) as progress:
            write_tns(target, tensor, base=1 if to_base else 0, header=to_header, progress=progress)
    if as_json:
        _print_json({"output": str(target), "bytes": target.stat().st_size, **_size(tensor)})
        return 0
    console = Console(stderr=True, soft_wrap=True)
    console.print(Text(f"wrote {target}: {_product(tensor.shape)}, {tensor.values.size} nonzeros"))
    if not target.name.endswith(".npz") and not to_header and _is_larger_than_used(tensor):
        console.print("the file lacks its shape, which is larger than its indices: add it with --to-header")
    return 0


# ---- reading -------------------------------------------------------------------------------------


def _read(
    path: Path,
    base: Base,
    header: Header,
    duplicates: Duplicates,
    dtype: Values | None,
    nonfinite: bool,
    *,
    quiet: bool,
) -> Coo:
    """The tensor in a .npz file or in a text."""
    if path.name.endswith((".npz", ".swt")) or _is_zip(path):
        if base is not Base.auto or header is not Header.auto:
            raise SchemeError(f"{path} is not a text\n--base and --header are for texts\nleave them out")
        return _resolved(path, typed(read_tensor(path), dtype), duplicates)
    words = spoken(nonfinite="--nonfinite", duplicates="--duplicates", base="--base")
    with words, _progress("reading", quiet=quiet) as progress:
        return read_tns(
            path,
            base="auto" if base is Base.auto else 1 if base is Base.one else 0,
            header="auto" if header is Header.auto else header is Header.yes,
            duplicates=duplicates.value,
            dtype=(dtype or Values.float64).value,
            nonfinite=nonfinite,
            progress=progress,
        )


def _is_zip(path: Path) -> bool:
    if not path.is_file():  # a pipe is a text, and gives its first bytes only once
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(ZIP)) == ZIP
    return False


def _resolved(path: Path, tensor: Coo, duplicates: Duplicates) -> Coo:
    if duplicates is Duplicates.sum:
        return reference.sparse.coalesce(tensor)
    found = first_repeated(tensor.coords, tensor.shape) if duplicates is Duplicates.refuse else None
    if found is not None:
        coordinates = tuple(int(index) for index in tensor.coords[:, found[1]])
        raise InputFileError(
            f"{path}: nonzeros {found[0]} and {found[1]} have the same coordinates, {coordinates}\n"
            "--duplicates sum adds the values, keep keeps them all\nchoose one of them"
        )
    return tensor


@contextmanager
def _progress(what: str, *, quiet: bool) -> Generator[Callable[[int, int], None]]:
    """A bar on the terminal; yields the function that moves it."""
    console = Console(stderr=True)
    columns = TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


# ---- facts ---------------------------------------------------------------------------------------


def _size(tensor: Coo) -> dict[str, Any]:
    nonzeros = tensor.values.size
    distinct = count_distinct(tensor.coords, tensor.shape)
    return {
        "shape": list(tensor.shape),
        "order": len(tensor.shape),
        "nonzeros": nonzeros,
        "duplicates": nonzeros - distinct,
        "density": distinct / math.prod(tensor.shape),  # Python's integers, of any size
        "indices": str(tensor.coords.dtype),
        "values": str(tensor.values.dtype),
    }


def _modes(tensor: Coo) -> list[dict[str, int]]:
    """Of each mode, how many slices and how many fibers along it have a nonzero."""
    rows: list[dict[str, int]] = []
    for mode, dimension in enumerate(tensor.shape):
        others = [other for other in range(len(tensor.shape)) if other != mode]
        slices = count_distinct(tensor.coords[mode : mode + 1], (dimension,))
        fibers = count_distinct(tensor.coords[others], tuple(tensor.shape[other] for other in others))
        rows.append({"mode": mode, "dimension": dimension, "slices": slices, "fibers": fibers})
    return rows


def _storage(tensor: Coo, repeated: bool, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """The bytes of the indices in every format, values of equal coordinates summed."""
    made_by = formats if tensor.values.size >= _MANY_NONZEROS else reference.sparse
    rows: list[dict[str, Any]] = []
    for name, make in made_by.FORMATS.items():
        tell(f"building {name}")
        try:
            if repeated:
                tensor, repeated = made_by.coalesce(tensor), False
            made = make(tensor)
        except ShapeError as error:
            rows.append({"format": name, "paper": None, "held": None, "why": str(error).splitlines()[0]})
        else:
            rows.append({"format": name, "paper": index_bytes(made), "held": index_bytes(made, by="held")})
    return rows


def _is_larger_than_used(tensor: Coo) -> bool:
    return tuple(int(most) + 1 for most in tensor.coords.max(axis=1)) != tensor.shape


# ---- printing ------------------------------------------------------------------------------------


def _show(report: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(width=_WIDE, highlight=False)
    again = report["duplicates"]
    console.print(
        f"{report['file']}: {_product(report['shape'])}, {report['nonzeros']} nonzeros", markup=False
    )
    console.print(f"density {report['density']:.3g}, {report['indices']} indices, {report['values']} values")
    if again:
        console.print(f"{again} times coordinates occur again; the storage is that of the sums")
    console.print(_mode_table(report))
    console.print(_storage_table(report))


def _mode_table(report: dict[str, Any]) -> Table:
    table = _table("mode", "dimension", "slices", "fibers", "nonzeros of a fiber")
    for row in report["modes"]:
        mean = f"{(report['nonzeros'] - report['duplicates']) / row['fibers']:.4g}"
        table.add_row(*(str(row[name]) for name in ("mode", "dimension", "slices", "fibers")), mean)
    return table


def _storage_table(report: dict[str, Any]) -> Table:
    table = _table("bytes of indices", "by the paper", "as held", "bytes per nonzero")
    distinct = report["nonzeros"] - report["duplicates"]
    for row in report["storage"]:
        if row["paper"] is None:
            table.add_row(row["format"], "-", "-", row["why"])
        else:
            table.add_row(
                row["format"], str(row["paper"]), str(row["held"]), f"{row['paper'] / distinct:.4g}"
            )
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for at, name in enumerate(names):
        table.add_column(name, justify="right" if at else "left", no_wrap=True)
    return table


def _product(shape: tuple[int, ...] | list[int]) -> str:
    return " × ".join(map(str, shape))


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
