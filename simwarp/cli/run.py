"""The command ``simwarp run``: run the user's own kernel under all checks, or a production kernel.

>>> run_command(Path("no-such-file.cu"), grid="1", block="1")
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-file.cu cannot be read: No such file or directory
give a .cu or .ptx file
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from reference.errors import InputFileError, SchemeError
from simwarp.checks import read_checks
from simwarp.cli.files import ADVICE, read_array, write_array
from simwarp.cli.findings import GitHub, Sarif, check_outputs, export
from simwarp.cli.output import Json, OneDevice, Where, as_options, cuda_device, print_json, wide_console
from simwarp.cli.run_both import Anyway, Bisect, Bits, Bound, Seconds, opened, settings
from simwarp.cli.run_compiler import (
    CompilerOptions,
    Debug,
    Defines,
    Fmad,
    Includes,
    MoreOptions,
    Std,
    write_ptx,
)
from simwarp.cli.run_launch import (
    BUDGET,
    Args,
    Block,
    Budget,
    Capability,
    CheckActions,
    Cluster,
    Cooperative,
    Grid,
    Incomplete,
    KernelName,
    LaunchOptions,
    Set,
    Shared,
    SourceFile,
)
from simwarp.cli.run_lines import BY_LINE, counted, share_table
from simwarp.cli.run_words import read_capability
from simwarp.faults import KernelFault

if TYPE_CHECKING:
    from simwarp.device.device import Device
    from simwarp.device.schedules import Differences
    from simwarp.run.source import Source
    from simwarp.run.work import Work

KERNEL = "FILE"
"""The name of the hidden subcommand that runs the user's own kernel; `RunGroup` inserts it."""
_WORDS: ContextVar[Sequence[str]] = ContextVar("words", default=())
"""The words of the command, as typed."""


class RunGroup(TyperGroup):
    """The subcommands of ``simwarp run``: ``bmm``, and a file name for `run_command`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `KERNEL` before arguments that do not start with a subcommand."""
        _WORDS.set(tuple(args))
        if not args or args[0] not in self.commands:
            args = [KERNEL, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand; `KERNEL` is left out of the usage line."""
        name, command, rest = super().resolve_command(ctx, args)
        return None if name == KERNEL else name, command, rest


run_app = typer.Typer(cls=RunGroup, help="Run your own kernel, or a production kernel, on files.")


@run_app.command(KERNEL, hidden=True, no_args_is_help=True)
@as_options(observe="--observe", cc="--cc", shared="--shared", schedule="--schedules")
def run_command(
    file: SourceFile,
    grid: Grid,
    block: Block,
    kernel: KernelName = None,
    arg: Args = None,
    set_: Set = None,
    shared: Shared = 0,
    cooperative: Cooperative = False,
    cluster: Cluster = "",
    observe: Annotated[
        str, typer.Option(help="What to count: banks,sectors,divergence,traffic,products,coverage; or all.")
    ] = "",
    top: Annotated[
        int | None, typer.Option(min=1, help="With --observe: only the lines with the largest shares.")
    ] = None,
    checks: CheckActions = None,
    schedules: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Compare the results of this many schedules; with --device both: an answer of the GPU that "
            "one of them gives is legal.",
        ),
    ] = None,
    device: Annotated[
        Where, typer.Option(help="The simulator, a GPU, or both held against each other.")
    ] = Where.sim,
    cc: Capability = "",
    budget: Budget = BUDGET,
    define: Defines = None,
    include: Includes = None,
    debug: Debug = False,
    std: Std = None,
    fmad: Fmad = None,
    option: MoreOptions = None,
    ptx: Annotated[
        Path | None, typer.Option("--ptx", metavar="FILE", help="Write the PTX that runs to this file.")
    ] = None,
    incomplete: Incomplete = False,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Compare an output array with a .npy file: c=ref.npy."),
    ] = None,
    rtol: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Floats may differ by atol + rtol * |expected|, integers may not; by default by what "
            "the run's roundings explain.",
        ),
    ] = None,
    atol: Annotated[float | None, typer.Option(min=0, help="See --rtol.")] = None,
    bits: Bits = False,
    bound: Bound = False,
    bisect: Bisect = False,
    compare_anyway: Anyway = False,
    chip_seconds: Seconds = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write arrays to.")] = Path(),
    sarif: Sarif = None,
    github: GitHub = False,
    as_json: Json = False,
) -> int:
    """Run your own kernel under all checks; `simwarp run bmm` multiplies two bit matrices."""
    from simwarp.chips.chips import multiprocessors_of
    from simwarp.cli.run_expect import ComparedOutcome, read_expected
    from simwarp.cli.run_progress import block_bar
    from simwarp.device.device import Device
    from simwarp.run.both.devices import check_target
    from simwarp.run.kernel import run_on
    from simwarp.run.tolerance import FloatOperations

    launch = LaunchOptions(file, kernel, grid, block, arg or [], set_ or [], shared, cooperative, cluster)
    words = launch.words
    flags: dict[str, Any] = {"bits": bits, "bound": bound, "bisect": bisect, "anyway": compare_anyway}
    numbers: dict[str, Any] = {"rtol": rtol, "atol": atol, "schedules": schedules}
    both = settings(device, of_one=numbers, seconds=chip_seconds, **flags, **numbers)
    compared_here = 0 if both is not None else schedules
    if device is Where.cuda and any([observe, checks, cc, schedules]):
        raise SchemeError(
            "--device cuda with --observe, --checks, --schedules or --cc\n"
            "these options are for the simulator\ngive --device sim, or leave them out"
        )
    if top is not None and not set(observe.split(",")) & {"all", *BY_LINE}:
        raise SchemeError(
            f"--top {top} without counts of lines\n{', '.join(BY_LINE)} count by line\n"
            "give for example --observe sectors"
        )
    console = Console(stderr=True, quiet=as_json, markup=False, highlight=False, soft_wrap=True)
    hardware = cuda_device() if device is Where.cuda else None
    with opened(both, console) as chip:
        of_chip = hardware or chip
        capability = read_capability(cc) or (of_chip.compute_capability if of_chip else None)
        compiler = CompilerOptions(define or [], include or [], debug, std, fmad, option or [])
        source = launch.load(compiler, capability or (9, 0))
        if chip is not None:
            check_target(source.module, chip)
        if ptx is not None:
            write_ptx(ptx, source.ptx, "--ptx")
        work = launch.work(source)
        simulated = capability or max(source.target, (9, 0))
        simulator = partial(
            Device,
            cc=simulated,
            multiprocessors=multiprocessors_of(simulated),
            checks=read_checks(checks or _default_checks(compared_here, compare_anyway)),
            instruction_budget=budget,
        )
        printed = io.StringIO()
        compared = read_expected(expect or [], words, rtol, atol)
        _make_folder(output)
        check_outputs(sarif, github, as_json)
        tolerant = bool(compared) or (both is not None and both.bound)
        counted = FloatOperations() if tolerant and hardware is None else None
        with block_bar(file.name, console) as bar:
            observers = [*bar, *([counted] if counted else [])]
            target = hardware or simulator(observe=_observed(observe), stdout=printed, observers=observers)
            outcome = ComparedOutcome(
                work, target, printed, partial=incomplete, expected=compared, counted=counted
            )
            try:
                outcome.result = run_on(target, work)
                outcome.differences = compare(simulator, work, compared_here) if compared_here else None
            except KernelFault as fault:
                outcome.fault = fault
            except MemoryError:
                outcome.write(output, words)  # of the first launch, if a later one has no memory left
                raise
        if both is not None and chip is not None:
            outcome.hold(both, chip, simulator, console, _WORDS.get())
    outcome.write(output, words)
    if not as_json:
        _show_lines(target, source, printed, top)
    outcome.print_json() if as_json else outcome.show(console)
    export(outcome.all_findings, sarif, github, outcome.paths, outcome.ptx)
    return 0 if outcome.clean else 1


def compare(simulator: partial[Device], work: Work, count: int) -> Differences:
    """Compare the results of ``count`` schedules: lowest PC, stack, then random ones."""
    from simwarp.device.schedules import Schedule, compare_schedules

    random = (Schedule("random", seed) for seed in range(count))
    schedules = [Schedule("lowest pc"), Schedule("stack"), *random][:count]
    device: Any = partial(simulator, stdout=io.StringIO())

    def run(device: Device) -> Mapping[str, Any]:
        return {a.name: a.value for a in work.launch(device) if a.is_array}

    return compare_schedules(run, schedules, simulator.keywords["checks"], device)


def _default_checks(schedules: int | None, anyway: bool) -> list[str]:
    """What checks do without ``--checks``: races between schedules are compared, not raised."""
    return ["report"] if anyway else ["races=report"] if schedules else ["raise"]


def _observed(text: str) -> str | list[str]:
    """The observers of ``--observe``, and fidelity for the last line of the report."""
    names = [name for name in text.split(",") if name]
    return "all" if "all" in names else ["fidelity", *names]


def _show_lines(device: Any, source: Source, printed: io.StringIO, top: int | None) -> None:
    """Print what each source line costs, below the kernel's output, if anything was counted by line."""
    report = getattr(device, "report", None)
    data: dict[str, Any] = {} if report is None else report.to_json()
    if counted(data):
        sys.stdout.write(printed.getvalue())
        printed.seek(0)
        printed.truncate()
        console = wide_console(highlight=False)
        console.print(share_table(data, source.files, top))
        console.print()


def _make_folder(folder: Path) -> None:
    """Create the output folder; raises InputFileError with advice if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputFileError(f"{folder} cannot be created: {error.strerror or error}\n{ADVICE}") from None


@run_app.command("bmm")
def run_bmm(
    a: Annotated[Path, typer.Argument(help="A .npy file: M x K, float64, float32, float16 or int8.")],
    b: Annotated[Path, typer.Argument(help="A .npy file: K x N.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .npy file to write: M x N, int32.")],
    device: Annotated[OneDevice, typer.Option(help="The simulator, or a GPU.")] = OneDevice.sim,
    transpose_a: Annotated[bool, typer.Option("--transpose-a", help="The file holds A transposed.")] = False,
    transpose_b: Annotated[bool, typer.Option("--transpose-b", help="The file holds B transposed.")] = False,
    as_json: Json = False,
) -> int:
    """Multiply the signs of two matrices."""
    import gpu
    from simwarp.device.device import Device

    left, right = read_array(a), read_array(b)
    target = Device() if device is OneDevice.sim else cuda_device()
    console = Console(stderr=True, quiet=as_json)
    with console.status(f"{left.shape} by {right.shape} on {target.name}"):
        product = gpu.bmm(left, right, transpose_a=transpose_a, transpose_b=transpose_b, device=target)
    write_array(output, product)
    if as_json:
        print_json({"output": str(output), "shape": list(product.shape), "device": target.name})
    else:
        console.print(f"wrote {output}: {product.shape[0]} x {product.shape[1]} int32, on {target.name}")
    return 0
