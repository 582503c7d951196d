"""The command ``simwarp tensor``: facts about a file of a sparse tensor, and its conversion.

>>> info_command(Path("no-such-file.tns"))
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-file.tns cannot be read: No such file or directory
give a .tns file: a line of indices and a value for each nonzero
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import DownloadColumn
from rich.table import Table
from rich.text import Text

from reference.errors import FormatError, InputFileError, SchemeError, ShapeError
from simwarp.cli.files import Values, typed
from simwarp.cli.output import Json, as_options, print_json, table, total_bar, wide_console

if TYPE_CHECKING:
    from reference.types import Coo, SparseTensor

tensor_app = typer.Typer(help="Look at files of sparse tensors, and convert them.", no_args_is_help=True)

_SUFFIXES = (".tns", ".tns.gz", ".npz")
_MANY_NONZEROS = 1 << 16
"""Tensors with at least as many nonzeros use the compiled builders, which give the same arrays faster."""


class Base(StrEnum):
    """The lowest index in a .tns file, or ``auto`` to find it."""

    auto = "auto"
    zero = "0"
    one = "1"


class Header(StrEnum):
    """The first lines of a .tns file: a header of order and dimensions, or nonzeros."""

    auto = "auto"
    yes = "yes"
    no = "no"


class Duplicates(StrEnum):
    """The treatment of nonzeros with equal coordinates."""

    refuse = "refuse"
    sum = "sum"
    keep = "keep"


FromBase = Annotated[Base, typer.Option("--base", help="The lowest index in a .tns file.")]
FromHeader = Annotated[
    Header, typer.Option("--header", help="Whether a .tns file begins with its order and dimensions.")
]
Nonfinite = Annotated[bool, typer.Option("--nonfinite", help="Accept NaN and infinities in a .tns file.")]


@tensor_app.command("info")
def info_command(
    file: Annotated[Path, typer.Argument(help="A .tns or .npz file; .tns also packed with gzip.")],
    base: FromBase = Base.auto,
    header: FromHeader = Header.auto,
    nonfinite: Nonfinite = False,
    rank: Annotated[int, typer.Option(min=1, help="Columns of the factors whose MTTKRP is counted.")] = 32,
    bounds: Annotated[
        str, typer.Option(metavar="N,N,…", help="Bounds of the histograms, ascending.")
    ] = "100,5000,10000",
    as_json: Json = False,
) -> int:
    """Show a sparse tensor's size, slices and fibers, and its storage and work in every format."""
    limits = _bounds(bounds)
    tensor = _read(file, base, header, Duplicates.keep, None, nonfinite, quiet=as_json)
    with Console(stderr=True, quiet=as_json).status("counting slices and fibers") as status:
        report: dict[str, Any] = {"file": str(file), **_size(tensor)}
        repeated = report["duplicates"] > 0
        report |= {"bounds": list(limits), "modes": _modes(tensor, limits, repeated), "rank": rank}
        report |= _formats(tensor, repeated, rank, status.update)
    if as_json:
        print_json(report)
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
        Duplicates, typer.Option(help="How to treat nonzeros with equal coordinates.")
    ] = Duplicates.refuse,
    dtype: Annotated[
        Values | None, typer.Option(help="Value type; default: a .npz file's own, float64 for .tns.")
    ] = None,
    nonfinite: Nonfinite = False,
    to_base: Annotated[int, typer.Option(min=0, max=1, help="The lowest index in the new .tns file.")] = 1,
    to_header: Annotated[
        bool, typer.Option("--to-header", help="Begin the new .tns file with a header.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Write a sparse tensor as text (.tns), as text in gzip (.tns.gz), or as NumPy arrays (.npz)."""
    from reference.sparse.files import write_tensor
    from reference.sparse.tns import write_tns

    if not target.name.endswith(_SUFFIXES):
        raise SchemeError(
            f"{target} has an unknown suffix\na sparse tensor is written as {', '.join(_SUFFIXES)}\n"
            "choose a name that ends with one of these"
        )
    tensor = _read(source, base, header, duplicates, dtype, nonfinite, quiet=as_json)
    if target.name.endswith(".npz"):
        write_tensor(target, tensor)
    else:
        with total_bar("writing", DownloadColumn(), quiet=as_json) as progress:
            write_tns(target, tensor, base=1 if to_base else 0, header=to_header, progress=progress)
    if as_json:
        print_json({"output": str(target), "bytes": target.stat().st_size, **_size(tensor)})
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
    """The sparse tensor in a .npz or .tns file."""
    from reference.sparse.files import read_tensor
    from reference.sparse.tns import read_tns

    if path.name.endswith((".npz", ".swt")) or _is_zip(path):
        if base is not Base.auto or header is not Header.auto:
            raise SchemeError(
                f"{path} is not a .tns file\n--base and --header are for .tns files\nleave them out"
            )
        return _resolved(path, typed(read_tensor(path), dtype), duplicates)
    words = as_options(nonfinite="--nonfinite", duplicates="--duplicates", base="--base")
    with words, total_bar("reading", DownloadColumn(), quiet=quiet) as progress:
        return read_tns(
            path,
            base="auto" if base is Base.auto else 1 if base is Base.one else 0,
            header="auto" if header is Header.auto else header is Header.yes,
            duplicates=duplicates.value,
            dtype=(dtype or Values.float64).value,
            nonfinite=nonfinite,
            progress=progress,
        )


def read_nonzeros(file: Path, dtype: Values | None, advice: str, *, quiet: bool) -> Coo:
    """The sparse tensor in a file; nonzeros with equal coordinates stay separate, values are finite."""
    import numpy as np

    import reference.sparse

    if file.name.endswith((".tns", ".tns.gz")):
        kind = np.dtype(dtype or Values.float64)
        try:
            with total_bar("reading", DownloadColumn(), quiet=quiet) as progress:
                return reference.sparse.read_tns(file, duplicates="keep", dtype=kind, progress=progress)
        except InputFileError as error:
            message = str(error).replace("pass nonfinite=True if it is meant", advice)
            raise InputFileError(message) from None
    if not file.name.endswith((".npz", ".swt")):
        raise InputFileError(
            f"{file} has an unknown suffix\n"
            "a sparse tensor is read from .tns, .tns.gz or .npz\nrename the file"
        )
    return typed(reference.sparse.read_tensor(file), dtype)


def _is_zip(path: Path) -> bool:
    from reference.sparse.files import ZIP

    if not path.is_file():  # a pipe holds text, and its first bytes can be read only once
        return False
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(ZIP)) == ZIP
    return False


def _resolved(path: Path, tensor: Coo, duplicates: Duplicates) -> Coo:
    """The tensor with its duplicates summed or kept; raises InputFileError if they are refused."""
    import reference.sparse
    from reference.sparse.coordinates import first_repeated

    if duplicates is Duplicates.sum:
        return reference.sparse.coalesce(tensor)
    found = first_repeated(tensor.coords, tensor.shape) if duplicates is Duplicates.refuse else None
    if found is not None:
        coordinates = tuple(int(index) for index in tensor.coords[:, found[1]])
        raise InputFileError(
            f"{path}: nonzeros {found[0]} and {found[1]} have the same coordinates, {coordinates}\n"
            "by default, coordinates must be distinct\n"
            "give --duplicates sum to add their values, or --duplicates keep to keep each"
        )
    return tensor


# ---- facts ---------------------------------------------------------------------------------------


def _size(tensor: Coo) -> dict[str, Any]:
    """Shape, nonzeros, duplicates, density and dtypes of a tensor."""
    from reference.sparse.coordinates import count_distinct

    nonzeros = tensor.values.size
    distinct = count_distinct(tensor.coords, tensor.shape)
    return {
        "shape": list(tensor.shape),
        "order": len(tensor.shape),
        "nonzeros": nonzeros,
        "duplicates": nonzeros - distinct,
        "density": distinct / math.prod(tensor.shape),  # product of Python integers, which cannot overflow
        "indices": str(tensor.coords.dtype),
        "values": str(tensor.values.dtype),
    }


def _bounds(text: str) -> tuple[int, ...]:
    """The bounds of the histograms, from a comma-separated list."""
    from reference.sparse import length_histogram

    try:
        limits = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SchemeError(f"--bounds {text}\nbounds are integers\ngive e.g. --bounds 1,10,100") from None
    length_histogram((), limits)
    return limits


def _modes(tensor: Coo, bounds: tuple[int, ...], repeated: bool) -> list[dict[str, Any]]:
    """For each mode its dimension, its slices, the fibers along it, and how many nonzeros these have."""
    from reference.sparse import fiber_lengths, length_histogram, slice_lengths
    from reference.sparse.coordinates import distinct

    tensor = distinct(tensor) if repeated else tensor
    rows: list[dict[str, Any]] = []
    for mode, dimension in enumerate(tensor.shape):
        row: dict[str, Any] = {"mode": mode, "dimension": dimension}
        for name, lengths in (
            ("slices", slice_lengths(tensor, mode)),
            ("fibers", fiber_lengths(tensor, mode)),
        ):
            row[name] = lengths.size
            row[f"{name}_longest"] = int(lengths.max())
            row[f"{name}_deviation"] = float(lengths.std())
            row[f"{name}_histogram"] = list(length_histogram(lengths, bounds))
        rows.append(row)
    return rows


def _formats(tensor: Coo, repeated: bool, rank: int, report: Callable[[str], None]) -> dict[str, Any]:
    """The bytes of the indices and the work of an MTTKRP in every format, with duplicates summed first."""
    import reference.sparse
    from gpu.mttkrp import formats
    from reference.sparse import index_bytes

    made_by = formats if tensor.values.size >= _MANY_NONZEROS else reference.sparse
    storage: list[dict[str, Any]] = []
    work: list[dict[str, Any]] = []
    for name, make in made_by.FORMATS.items():
        report(f"building {name}")
        try:
            if repeated:
                tensor, repeated = made_by.coalesce(tensor), False
            made = make(tensor)
        except ShapeError as error:
            storage.append({"format": name, "paper": None, "held": None, "why": str(error).splitlines()[0]})
        else:
            storage.append({"format": name, "paper": index_bytes(made), "held": index_bytes(made, by="held")})
            work.append({"format": name, **_work(made, rank)})
    return {"storage": storage, "work": work}


def _work(made: SparseTensor, rank: int) -> dict[str, Any]:
    """The work of an MTTKRP of all modes, and the same by the paper's table 3 if that has it."""
    from reference.sparse import mttkrp_work

    work: dict[str, Any] = asdict(mttkrp_work(made, rank))
    try:
        return work | {"table": asdict(mttkrp_work(made, rank, by="paper"))}
    except (FormatError, ShapeError):  # another format, or another order
        return work | {"table": None}


def _is_larger_than_used(tensor: Coo) -> bool:
    """True if a dimension is larger than the largest index of its mode requires."""
    return tuple(int(most) + 1 for most in tensor.coords.max(axis=1)) != tensor.shape


# ---- printing ------------------------------------------------------------------------------------


def _show(report: dict[str, Any]) -> None:
    """Print the facts, the table of modes and the table of formats."""
    console = wide_console(highlight=False)
    again = report["duplicates"]
    distinct = report["nonzeros"] - again
    console.print(
        f"{report['file']}: {_product(report['shape'])}, {report['nonzeros']} nonzeros", markup=False
    )
    console.print(f"density {report['density']:.3g}, {report['indices']} indices, {report['values']} values")
    if again:
        console.print(f"{again} duplicates; storage is that of their sums")
    modes = table("mode", numbers=("dimension", "slices", "fibers", "nonzeros of a fiber"))
    for row in report["modes"]:
        counts = (str(row[name]) for name in ("mode", "dimension", "slices", "fibers"))
        modes.add_row(*counts, f"{distinct / row['fibers']:.4g}")
    storage = table("bytes of indices", numbers=("by the paper", "as held", "bytes per nonzero"))
    for row in report["storage"]:
        if row["paper"] is None:
            storage.add_row(row["format"], "-", "-", row["why"])
        else:
            each = f"{row['paper'] / distinct:.4g}"
            storage.add_row(row["format"], str(row["paper"]), str(row["held"]), each)
    console.print(modes)
    console.print(_histograms(report))
    console.print(storage)
    if report["work"]:
        console.print(_work_table(report))


def _histograms(report: dict[str, Any]) -> Table:
    """How many slices and fibers have how many nonzeros."""
    sizes = [*(f"up to {bound}" for bound in report["bounds"]), "more"]
    shown = table("nonzeros of", numbers=(*sizes, "most", "deviation"))
    for name, title in (("slices", "slices of mode"), ("fibers", "fibers along mode")):
        for row in report["modes"]:
            counts = map(str, (*row[f"{name}_histogram"], row[f"{name}_longest"]))
            shown.add_row(f"{title} {row['mode']}", *counts, f"{row[f'{name}_deviation']:.3g}")
    return shown


def _work_table(report: dict[str, Any]) -> Table:
    """The work of an MTTKRP of all modes in every format, in elements, and by table 3 of the paper."""
    names = ("flops", "reads", "writes")
    shown = table(
        f"MTTKRP, R = {report['rank']}", numbers=(*names, *(f"{name} by table 3" for name in names))
    )
    for row in report["work"]:
        by_table = row["table"] or dict.fromkeys(names, "-")
        shown.add_row(
            row["format"], *(str(row[name]) for name in names), *(str(by_table[name]) for name in names)
        )
    return shown


def _product(shape: tuple[int, ...] | list[int]) -> str:
    return " × ".join(map(str, shape))
