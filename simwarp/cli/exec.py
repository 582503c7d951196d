"""The command ``simwarp exec``: run a whole CUDA program on a simulated device."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from simwarp.checks import read_checks
from simwarp.cli.findings import GitHub, Sarif, check_outputs, export
from simwarp.cli.output import STOPPED, Json, SimOrBoth, print_json, write_text
from simwarp.cli.run_both import Anyway, Bits, Bound, Seconds, beside_a_gpu, settings

PROGRAM = "PROGRAM"
"""The name of the hidden subcommand that runs a program; `ExecGroup` inserts it."""


class ExecGroup(TyperGroup):
    """A group with one command; all words behind the program's name are the program's arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the subcommand `PROGRAM` before the arguments."""
        return super().parse_args(ctx, [PROGRAM, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand; `PROGRAM` is left out of the usage line."""
        _, command, rest = super().resolve_command(ctx, args)
        return None, command, rest


class ScheduleName(StrEnum):
    """Values of ``--schedule``."""

    lowest_pc = "lowest pc"
    stack = "stack"
    random = "random"


_STDERR = 2
"""The output of a program if standard output is for the report."""

exec_app = typer.Typer(cls=ExecGroup, help="Run a whole CUDA program, without a GPU, under all checks.")


@exec_app.command(
    PROGRAM, hidden=True, no_args_is_help=True, context_settings={"allow_interspersed_args": False}
)
def exec_command(
    program: Annotated[
        Path, typer.Argument(help="The program, or its source (.cu), which nvcc then builds.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own arguments.")] = None,
    checks: Annotated[
        list[str] | None,
        typer.Option(
            help="raise, report or off: for all, or by kind, races=off,bounds=report. By default what stops a"
            " chip ends the launch, and the rest is collected."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the report to a file, as JSON.", metavar="FILE")
    ] = None,
    error_exitcode: Annotated[
        int | None, typer.Option(min=0, max=255, help="The exit code if something was found.")
    ] = None,
    device: Annotated[
        SimOrBoth,
        typer.Option(help="The simulator; or both: each launch is held against a GPU."),
    ] = SimOrBoth.sim,
    bits: Bits = False,
    bound: Bound = False,
    rtol: Annotated[
        float | None,
        typer.Option(min=0, help="With --device both: floats may differ by atol + rtol * |simulator's|."),
    ] = None,
    atol: Annotated[float | None, typer.Option(min=0, help="See --rtol.")] = None,
    schedules: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --device both: an answer of the GPU that one of so many schedules gives is legal.",
        ),
    ] = None,
    compare_anyway: Anyway = False,
    chip_seconds: Seconds = None,
    cc: Annotated[
        str, typer.Option(help="The compute capability to simulate, by default 9.0, or that of the GPU.")
    ] = "",
    budget: Annotated[
        int, typer.Option(min=1, help="The most steps of a launch; a step is an instruction of some lanes.")
    ] = 10**8,
    schedule: Annotated[
        ScheduleName, typer.Option(help="Who goes when, where the program does not say so.")
    ] = ScheduleName.lowest_pc,
    seed: Annotated[int, typer.Option(min=0, help="The seed of --schedule random.")] = 0,
    nvcc: Annotated[
        str, typer.Option(help="More options for nvcc: --nvcc '-I ../common -DN=100 other.cu'.")
    ] = "",
    sarif: Sarif = None,
    github: GitHub = False,
    as_json: Json = False,
) -> int:
    """Run a whole CUDA program on the simulator; the exit code is the program's own."""
    from simwarp.cli.run_words import read_capability
    from simwarp.exec.build import read_options
    from simwarp.exec.program import execute

    chosen = read_checks(checks) if checks else None
    flags: dict[str, Any] = {"bits": bits, "bound": bound, "anyway": compare_anyway}
    numbers: dict[str, Any] = {"rtol": rtol, "atol": atol, "schedules": schedules, "seconds": chip_seconds}
    both = settings(device, **flags, **numbers)
    check_outputs(sarif, github, as_json)
    with beside_a_gpu():
        done = execute(
            program,
            arguments or (),
            cc=read_capability(cc),
            device=both,
            checks=chosen,
            budget=budget,
            schedule=schedule.value,
            seed=seed,
            nvcc=read_options(nvcc),
            quiet=as_json,
            stdout=_STDERR if as_json else None,
        )
    if report is not None:
        write_text(report, json.dumps(done.to_json(), indent=2, default=str) + "\n", "--report")
    if as_json:
        print_json(done.to_json())
    else:
        Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print(done.summary)
    export(done.all_findings, sarif, github, {program.name: str(program)})
    if done.returncode is None:
        return STOPPED
    return error_exitcode if error_exitcode is not None and not done.clean else done.exit_code
