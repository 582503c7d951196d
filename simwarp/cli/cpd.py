"""The command ``simwarp cpd``: the decomposition of a sparse tensor in a file.

>>> cpd_command(Path("tensor.csv"), rank=3)
Traceback (most recent call last):
...
reference.errors.InputFileError: tensor.csv does not say by its name what it holds
.tns, .tns.gz and .npz are known
rename it
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import TaskProgressColumn
from rich.text import Text

import reference.sparse
from gpu.mttkrp.formats import FORMATS, coalesce
from reference.errors import InputFileError, SchemeError
from reference.types import Coo, Cpd
from simwarp.cli.files import Values, typed, write_file
from simwarp.cli.output import Json, cuda_device, print_json, progress_bar
from simwarp.device.device import Device

FORMAT = "mm-csf"
"""The default format of the kernels."""


class Runs(StrEnum):
    """What decomposes the tensor."""

    cpu = "cpu"
    sim = "sim"
    cuda = "cuda"


def cpd_command(
    file: Annotated[Path, typer.Argument(help="A sparse tensor: .tns, .tns.gz or .npz.")],
    rank: Annotated[int, typer.Option(min=1, help="How many components.")],
    device: Annotated[
        Runs, typer.Option(help="cpu: the reference; sim, cuda: the production kernels.")
    ] = Runs.cpu,
    format: Annotated[
        str | None, typer.Option(help=f"What the kernels read: {', '.join(FORMATS)}; {FORMAT} by default.")
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="No more than so many.")] = 50,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="A change of the fit below it ends the work.")
    ] = 1e-5,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Another start.")] = 0,
    dtype: Annotated[
        Values | None, typer.Option(help="Read the values as such; a .tns file has float64.")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bits each time; the cpu's are, in any case.")
    ] = False,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The .npz file to write: weights, factor_0, …, fits.")
    ] = Path("factors.npz"),
    as_json: Json = False,
) -> int:
    """Decompose a sparse tensor into a sum of outer products, by alternating least squares.

    Values for the same place are added up.
    """
    build = _builder(format, device)
    if output.suffix != ".npz":
        raise InputFileError(
            f"{output} does not say by its name what it will hold\n"
            "factors and weights are written as a .npz file\nchoose a name that ends in .npz with -o"
        )
    if not output.parent.is_dir():
        raise InputFileError(f"{output} cannot be written: there is no such folder\nchoose another with -o")
    target = Device() if device is Runs.sim else None
    if device is Runs.cuda:
        target = cuda_device("give --device cpu, or --device sim for the simulator")
    show = _Show(as_json)
    coo = show.reading(file, dtype)
    options: dict[str, Any] = {"seed": seed, "iterations": iterations, "tolerance": tolerance}
    decompose = reference.cpd_als
    if target is not None:
        import gpu

        decompose = partial(gpu.cpd_als, device=target, deterministic=deterministic)
    begin = time.perf_counter()
    model = show.iterating(lambda told: decompose(build(coo), rank, **options, progress=told), iterations)
    seconds = time.perf_counter() - begin
    _write(output, model)
    report = {
        "file": str(file),
        "shape": coo.shape,
        "nonzeros": coo.values.size,
        "rank": rank,
        "device": "cpu" if target is None else target.name,
        "format": None if target is None else format or FORMAT,
        "dtype": str(coo.values.dtype),
        "seed": seed,
        "iterations": len(model.fits),
        "fit": model.fits[-1],
        "fits": model.fits,
        "converged": model.converged,
        "seconds": round(seconds, 3),
        "output": str(output),
    }
    show.end(report)
    return 0


def _builder(name: str | None, device: Runs) -> Callable[[Coo], Any]:
    """What makes the format, from nonzeros that may name a place several times."""
    if name is not None and device is Runs.cpu:
        raise SchemeError(
            f"--format {name} is for kernels, and --device cpu runs none\ngive --device sim or --device cuda"
        )
    if name is not None and name not in FORMATS:
        raise SchemeError(f"there is no format {name!r}\nchoose among {', '.join(FORMATS)}")
    if device is Runs.cpu:
        return lambda coo: coo
    return lambda coo: FORMATS[name or FORMAT](coalesce(coo))


def _read(file: Path, dtype: Values | None, progress: Callable[[int, int], None]) -> Coo:
    if file.name.endswith((".tns", ".tns.gz")):
        kind = np.dtype(dtype or Values.float64)
        try:
            return reference.sparse.read_tns(file, duplicates="keep", dtype=kind, progress=progress)
        except InputFileError as error:
            said = str(error).replace("pass nonfinite=True if it is meant", "only finite ones are possible")
            raise InputFileError(said) from None
    if not file.name.endswith((".npz", ".swt")):
        raise InputFileError(
            f"{file} does not say by its name what it holds\n.tns, .tns.gz and .npz are known\nrename it"
        )
    return typed(reference.sparse.read_tensor(file), dtype)


def _write(path: Path, model: Cpd) -> None:
    factors = {f"factor_{n}": factor for n, factor in enumerate(model.factors)}
    fits = np.array(model.fits)
    write_file(path, lambda file: np.savez(file, weights=model.weights, fits=fits, **factors))


class _Show:
    """Says how far the work is, and what came of it."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(stderr=True, quiet=as_json, soft_wrap=True)

    def bar(self, text: str, total: int | None = None) -> AbstractContextManager[Callable[..., None]]:
        return progress_bar(text, TaskProgressColumn(), total, quiet=self.as_json)

    def reading(self, file: Path, dtype: Values | None) -> Coo:
        """The file's tensor, with a bar of its bytes."""
        with self.bar("reading") as update:
            return _read(file, dtype, lambda done, total: update(completed=done, total=total))

    def iterating(self, work: Callable[[Callable[[int, float], None]], Cpd], most: int) -> Cpd:
        """The model, with a bar and a line for each iteration."""
        with self.bar("decomposing", most) as update:

            def told(iteration: int, fit: float) -> None:
                update(completed=iteration)
                self.print(f"iteration {iteration}: fit {fit:.6f}")

            return work(told)

    def print(self, text: str) -> None:
        """A line on stderr, unless the report is for programs."""
        self.console.print(Text(text))

    def end(self, report: dict[str, Any]) -> None:
        """The last lines, or the whole report."""
        if self.as_json:
            print_json(report)
            return
        shape = " x ".join(map(str, report["shape"]))
        where = report["device"] + (f" from {report['format']}" if report["format"] else "")
        self.print(f"{shape}, {report['nonzeros']} nonzeros, rank {report['rank']}, on {where}")
        ended = "converged" if report["converged"] else "not converged"
        after = f"{report['iterations']} iterations ({report['seconds']:.1f} s)"
        self.print(f"fit {report['fit']:.6f} after {after}, {ended}")
        self.print(f"wrote {report['output']}: weights, {len(report['shape'])} factors, fits")
