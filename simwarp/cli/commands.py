"""What each command does: read the request, call the library, show the outcome."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from reference.errors import NoGpuError, SchemeError, SimwarpError
from simwarp.cli import show
from simwarp.cli.cache import cache_app
from simwarp.cli.coverage import coverage_command
from simwarp.cli.cpd import cpd_command
from simwarp.cli.exclude import exclude_command
from simwarp.cli.files import read_array, write_array
from simwarp.cli.frag import frag_command
from simwarp.cli.fuzz import fuzz_command
from simwarp.cli.info import gather
from simwarp.cli.layout import layout_command
from simwarp.cli.probe import probe_command
from simwarp.cli.record import record_command
from simwarp.cli.run import run_app
from simwarp.cli.tensor import tensor_app
from simwarp.cli.trace import trace_app
from simwarp.device.device import Device
from simwarp.faults import KernelFault
from simwarp.verify import CASES, Case, verify
from simwarp.verify.compare import CUDA, SIMULATOR, small
from simwarp.verify.processes import cores


class Commands(TyperGroup):
    """What Ctrl-C stops is an `Abort`, whichever command it was; `run` says so."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


app = typer.Typer(
    name="simwarp",
    cls=Commands,
    help="A GPU in NumPy, and the production kernels that it proves right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(run_app, name="run")
app.add_typer(cache_app, name="cache")
app.add_typer(tensor_app, name="tensor")
app.add_typer(trace_app, name="trace")
app.command("layout")(layout_command)
app.command("fuzz")(fuzz_command)
app.command("coverage")(coverage_command)
app.command("cpd")(cpd_command)
app.command("exclude")(exclude_command)
app.command("frag")(frag_command)
app.command("probe")(probe_command)
app.command("record")(record_command)

STOPPED = 130
"""The exit code of what Ctrl-C stopped."""

Json = Annotated[bool, typer.Option("--json", help="Print a machine-readable report.")]


class Where(StrEnum):
    """What runs the production kernels."""

    sim = "sim"
    cuda = "cuda"
    both = "both"


def run(arguments: list[str]) -> int:
    """Run the command line; what is wrong with a request is said in a few lines, without a traceback.

    Examples
    --------
    >>> run(["info", "--no-such-option"])
    2
    """
    try:
        result: Any = app(arguments, standalone_mode=False)
    except typer.Exit as stop:
        if stop.exit_code == STOPPED:
            sys.stderr.write("stopped\n")
        return int(stop.exit_code)
    except KernelFault as fault:
        sys.stderr.write(f"{fault}\n")
        return 1
    except SimwarpError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("stopped\n")
        return STOPPED
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")):
            describe: Callable[[], str] = getattr(error, "format_message", error.__str__)
            message = describe()
            sys.stderr.write(f"{message}\nsee simwarp --help\n")
            return 2
        raise
    return result if isinstance(result, int) else 0


@app.command("verify")
def verify_command(
    case: Annotated[list[str] | None, typer.Option(help="Only this case; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Another stream of inputs.")] = 0,
    only_input: Annotated[
        int | None,
        typer.Option("--input", min=0, max=2**63 - 1, help="Only this input of the stream: a replay."),
    ] = None,
    budget: Annotated[float, typer.Option(min=0.1, help="Seconds, for all cases together.")] = 120.0,
    inputs: Annotated[int | None, typer.Option(min=1, help="At most so many inputs of each case.")] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="So many processes; 0 for one on each core.")
    ] = 0,
    device: Annotated[Where, typer.Option(help="What runs the production kernels.")] = Where.sim,
    as_json: Json = False,
) -> int:
    """Ask every tier the same questions and compare the answers, bit for bit."""
    chosen = _cases(case)
    devices = {tier: _small(make) for tier, make in _devices(device).items()}
    tiers = [CUDA] if device is Where.cuda else None
    if CUDA in devices and jobs > 1:
        raise SchemeError(
            f"--jobs {jobs} with --device {device.value}\none process has the CUDA device\nleave --jobs out"
        )
    arguments: dict[str, Any] = {
        "seed": seed,
        "budget": budget,
        "only_input": only_input,
        "inputs": inputs,
        "tiers": tiers,
        "processes": 1 if CUDA in devices else jobs or cores(),
    }
    if as_json:
        outcome = verify(chosen, devices, **arguments)
        _print_json({**outcome.to_json(), "device": device.value})
    else:
        with show.live_table(budget) as progress:
            outcome = verify(chosen, devices, progress=progress, **arguments)
        show.verdict(outcome)
    if outcome.interrupted:
        return STOPPED
    return 0 if outcome.agreed else 1


@run_app.command("bmm")
def run_bmm(
    a: Annotated[Path, typer.Argument(help="A .npy file: M x K, float64, float32, float16 or int8.")],
    b: Annotated[Path, typer.Argument(help="A .npy file: K x N.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .npy file to write: M x N, int32.")],
    device: Annotated[Where, typer.Option(help="sim or cuda.")] = Where.sim,
    transpose_a: Annotated[bool, typer.Option("--transpose-a", help="The file holds A transposed.")] = False,
    transpose_b: Annotated[bool, typer.Option("--transpose-b", help="The file holds B transposed.")] = False,
    as_json: Json = False,
) -> int:
    """The product of the signs of two matrices."""
    import gpu

    if device is Where.both:
        raise SchemeError("run does not take --device both\ngive --device sim or --device cuda")
    left, right = read_array(a), read_array(b)
    target = _devices(device)[SIMULATOR if device is Where.sim else CUDA]()
    console = Console(stderr=True, quiet=as_json)
    with console.status(f"{left.shape} by {right.shape} on {target.name}"):
        product = gpu.bmm(left, right, transpose_a=transpose_a, transpose_b=transpose_b, device=target)
    write_array(output, product)
    if as_json:
        _print_json({"output": str(output), "shape": list(product.shape), "device": target.name})
    else:
        console.print(f"wrote {output}: {product.shape[0]} x {product.shape[1]} int32, on {target.name}")
    return 0


@app.command("info")
def info_command(as_json: Json = False) -> int:
    """What is installed, and what can run here."""
    facts = gather()
    if as_json:
        _print_json(facts)
    else:
        show.facts(facts)
    return 0


def _cases(names: list[str] | None) -> list[Case]:
    """The named cases, or all."""
    for name in names or []:
        if name not in CASES:
            raise SchemeError(f"there is no case {name!r}\nchoose among {', '.join(CASES)}")
    return [CASES[name] for name in names or CASES]


def _small(make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: small(make())


def _devices(where: Where) -> dict[str, Callable[[], Any]]:
    """What makes the device of each device tier; one CUDA device serves all inputs."""
    devices: dict[str, Callable[[], Any]] = {}
    if where in (Where.sim, Where.both):
        devices[SIMULATOR] = Device
    if where in (Where.cuda, Where.both):
        from gpu.cuda import default_device

        try:
            cuda = default_device()
        except NoGpuError as error:
            reason = str(error).splitlines()[0]
            raise NoGpuError(f"{reason}\ngive --device sim to run on the simulator") from None
        devices[CUDA] = lambda: cuda
    return devices


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
