"""The command ``simwarp cpd``: decompose a sparse tensor in a file.

>>> cpd_command(Path("tensor.csv"), rank=3)
Traceback (most recent call last):
...
reference.errors.InputFileError: tensor.csv has an unknown suffix
a sparse tensor is read from .tns, .tns.gz or .npz
rename the file
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import TaskProgressColumn

from reference.errors import InputFileError, SchemeError
from reference.files import write_output
from simwarp.cli.files import ADVICE, Values
from simwarp.cli.output import Json, cuda_device, print_json, progress_bar
from simwarp.cli.tensor import read_nonzeros

if TYPE_CHECKING:
    from reference.types import Coo, Cpd

FORMAT = "mm-csf"
"""The default of ``--format``."""


class Runs(StrEnum):
    """Values of ``--device``: the reference on the CPU, the simulator, or a GPU."""

    cpu = "cpu"
    sim = "sim"
    cuda = "cuda"


def cpd_command(
    file: Annotated[Path, typer.Argument(help="A sparse tensor: .tns, .tns.gz or .npz.")],
    rank: Annotated[int, typer.Option(min=1, help="Components of the model.")],
    device: Annotated[
        Runs, typer.Option(help="cpu: the reference; sim, cuda: the production kernels.")
    ] = Runs.cpu,
    format: Annotated[
        str | None,
        typer.Option(help=f"The kernels' sparse format, one that tensor info lists; {FORMAT} by default."),
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="The largest number of iterations.")] = 50,
    tolerance: Annotated[float, typer.Option(min=0.0, help="Stop when the fit changes by less.")] = 1e-5,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="The seed of the initial factors.")] = 0,
    dtype: Annotated[
        Values | None, typer.Option(help="Convert values to this type; .tns holds float64.")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Bit-identical results of every run, as cpu always has.")
    ] = False,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The .npz file to write: weights, factor_0, …, fits.")
    ] = Path("factors.npz"),
    as_json: Json = False,
) -> int:
    """Decompose a sparse tensor into a sum of outer products, by alternating least squares.

    Values with equal coordinates are added.
    """
    import reference
    from simwarp.device.device import Device

    build = _builder(format, device)
    if output.suffix != ".npz":
        raise InputFileError(
            f"{output} has an unknown suffix\n"
            "factors and weights are written as a .npz file\nchoose a name that ends in .npz with -o"
        )
    if not output.parent.is_dir():
        raise InputFileError(f"{output} cannot be written: there is no such folder\nchoose another with -o")
    target = Device() if device is Runs.sim else None
    if device is Runs.cuda:
        target = cuda_device("give --device cpu, or --device sim for the simulator")
    coo = read_nonzeros(file, dtype, "cpd needs finite values", quiet=as_json)
    options: dict[str, Any] = {"seed": seed, "iterations": iterations, "tolerance": tolerance}
    decompose = reference.cpd_als
    if target is not None:
        import gpu

        decompose = partial(gpu.cpd_als, device=target, deterministic=deterministic)
    console = Console(stderr=True, quiet=as_json, soft_wrap=True, markup=False, highlight=False)
    begin = time.perf_counter()
    with progress_bar("decomposing", TaskProgressColumn(), iterations, quiet=as_json) as update:

        def progress(iteration: int, fit: float) -> None:
            update(completed=iteration)
            console.print(f"iteration {iteration}: fit {fit:.6f}")

        model = decompose(build(coo), rank, **options, progress=progress)
    seconds = time.perf_counter() - begin
    _write(output, model)
    report: dict[str, Any] = {
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
    print_json(report) if as_json else _show(console, report)
    return 0


def _builder(name: str | None, device: Runs) -> Callable[[Coo], Any]:
    """The function that builds the format from nonzeros, which may have duplicates."""
    from gpu.mttkrp.formats import FORMATS, coalesce

    if name is not None and device is Runs.cpu:
        raise SchemeError(
            f"--format {name} with --device cpu\nonly kernels read a format, and cpu runs none\n"
            "leave --format out, or give --device sim or --device cuda"
        )
    if name is not None and name not in FORMATS:
        raise SchemeError(f"there is no format {name!r}\nchoose among {', '.join(FORMATS)}")
    if device is Runs.cpu:
        return lambda coo: coo
    return lambda coo: FORMATS[name or FORMAT](coalesce(coo))


def _write(path: Path, model: Cpd) -> None:
    import numpy as np

    factors = {f"factor_{n}": factor for n, factor in enumerate(model.factors)}
    arrays: dict[str, Any] = {"weights": model.weights, "fits": np.array(model.fits), **factors}
    write_output(path, lambda file: np.savez(file, **arrays), ADVICE)


def _show(console: Console, report: dict[str, Any]) -> None:
    """Print the tensor, the fit, and the file of the factors."""
    shape = " x ".join(map(str, report["shape"]))
    where = report["device"] + (f" from {report['format']}" if report["format"] else "")
    console.print(f"{shape}, {report['nonzeros']} nonzeros, rank {report['rank']}, on {where}")
    ended = "converged" if report["converged"] else "not converged"
    after = f"{report['iterations']} iterations ({report['seconds']:.1f} s)"
    console.print(f"fit {report['fit']:.6f} after {after}, {ended}")
    console.print(f"wrote {report['output']}: weights, {len(report['shape'])} factors, fits")
