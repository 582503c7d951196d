"""The command ``simwarp check``: a gate for a kernel, and a check of the gate by planted faults.

>>> from pathlib import Path
>>> check_command(Path("no-such-file.cu"), grid="1", block="1")
Traceback (most recent call last):
...
reference.errors.InputFileError: no-such-file.cu cannot be read: No such file or directory
give a .cu or .ptx file
"""

from __future__ import annotations

import io
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn

from simwarp.checks import KINDS, read_checks
from simwarp.cli.output import Json, as_options, print_json, progress_bar, table, wide_console
from simwarp.cli.run import compare
from simwarp.cli.run_compiler import CompilerOptions, Debug, Defines, Fmad, Includes, MoreOptions, Std
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
from simwarp.cli.run_words import read_capability
from simwarp.faults import KernelFault
from simwarp.ptx.mangled_names import readable

if TYPE_CHECKING:
    from simwarp.device.device import Device
    from simwarp.run.self_check import Planted, SelfCheck
    from simwarp.run.work import Work

_STYLES = {
    "named": "green",
    "found": "green",
    "missed": "bold red",
    "harmless": "yellow",
    "impossible": "dim",
    "off": "dim",
}


@as_options(cc="--cc", shared="--shared", schedule="--schedules")
def check_command(
    file: SourceFile,
    grid: Grid,
    block: Block,
    kernel: KernelName = None,
    arg: Args = None,
    set_: Set = None,
    shared: Shared = 0,
    cooperative: Cooperative = False,
    cluster: Cluster = "",
    checks: CheckActions = None,
    schedules: Annotated[
        int, typer.Option(min=1, help="Run under this many schedules, and compare the results.")
    ] = 5,
    self_check: Annotated[
        bool, typer.Option("--self-check", help="Plant a fault of each kind, and see whether it is named.")
    ] = False,
    cc: Capability = "",
    budget: Budget = BUDGET,
    define: Defines = None,
    include: Includes = None,
    debug: Debug = False,
    std: Std = None,
    fmad: Fmad = None,
    option: MoreOptions = None,
    incomplete: Incomplete = False,
    as_json: Json = False,
) -> int:
    """Check a kernel under several schedules, for a gate; or plant faults that the checks must name."""
    from simwarp.chips.chips import multiprocessors_of
    from simwarp.device.device import Device

    launch = LaunchOptions(file, kernel, grid, block, arg or [], set_ or [], shared, cooperative, cluster)
    capability = read_capability(cc)
    compiler = CompilerOptions(define or [], include or [], debug, std, fmad, option or [])
    work = launch.work(launch.load(compiler, capability or (9, 0)))
    simulated = capability or max(work.source.target, (9, 0))
    simulator = partial(Device, cc=simulated, multiprocessors=multiprocessors_of(simulated))
    actions = read_checks(checks or ["report"])
    if self_check:
        return _check_checks(work, simulator, actions, budget, as_json)
    simulator = partial(simulator, checks=actions, instruction_budget=budget)
    return _check(work, simulator, schedules, incomplete, as_json)


def _check(work: Work, simulator: partial[Device], schedules: int, incomplete: bool, as_json: bool) -> int:
    """Run a kernel under several schedules; 1 if there is a finding."""
    from simwarp.cli.run_outcome import Outcome
    from simwarp.run.kernel import run_on

    printed = io.StringIO()
    device = simulator(observe="fidelity", stdout=printed)
    outcome = Outcome(work, device, printed, partial=incomplete)
    try:
        outcome.result = run_on(device, work)
        outcome.differences = compare(simulator, work, schedules) if schedules > 1 else None
    except KernelFault as fault:
        outcome.fault = fault
    removed = [one for one in outcome.not_seen if one.kind == "optimised"]
    console = Console(stderr=True, quiet=as_json, markup=False, highlight=False, soft_wrap=True)
    outcome.print_json() if as_json else outcome.show(console)
    return 0 if outcome.clean and not removed else 1


def _check_checks(work: Work, simulator: Any, checks: Any, budget: int, as_json: bool) -> int:
    """Plant faults in a kernel; 1 if the kernel has faults of its own, or a planted one is not reported."""
    from simwarp.findings import Finding
    from simwarp.run.self_check import self_check

    name = readable(work.kernel.name)
    with progress_bar(name, MofNCompleteColumn(), len(KINDS), quiet=as_json) as update:

        def show(kind: str, done: int) -> None:
            update(completed=done, description=f"{name}: {kind}")

        result = self_check(work, simulator, checks, budget, show)
    if as_json:
        print_json(
            {
                "kernel": name,
                "passed": result.passed,
                "faults": [Finding.of(fault).to_json() for fault in result.faults],
                "planted": [asdict(one) for one in result.planted],
            }
        )
    else:
        _show(name, work, result)
    return 0 if result.passed else 1


def _show(name: str, work: Work, result: SelfCheck) -> None:
    """Print the faults of the kernel itself, or a table of those that were planted."""
    from simwarp.findings import Finding
    from simwarp.run.outcome import styled

    console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    source = work.source
    for fault in result.faults:
        paths = {source.name: source.path or source.name}
        console.print(styled(Finding.of(fault).lines(paths)), end="\n\n")
    if result.faults:
        count = len(result.faults)
        which = "these" if count > 1 else "it"
        console.print(
            f"{name} has {count} finding{'s' * (count > 1)} of its own\n"
            f"faults are planted in a kernel without findings only\ncorrect {which} first"
        )
        return
    made = table("check", "", "planted", "where", "found")
    for one in result.planted:
        made.add_row(one.kind, f"[{_STYLES[one.state]}]{one.state}[/]", *map(_cell, _columns(one)))
    wide_console(highlight=False).print(made)
    counts = {state: sum(one.state == state for one in result.planted) for state in _STYLES}
    words = {
        "found": "found as another kind",
        "harmless": "need not be a fault",
        "missed": "missed: please report this",
    }
    rest = "".join(f", {counts[state]} {text}" for state, text in words.items() if counts[state])
    if not counts["named"] + counts["missed"] + counts["found"] + counts["harmless"]:
        console.print(f"{name}: no fault can be planted in this launch, so that no check was checked")
        return
    planted = sum(counts[state] for state in ("named", *words))
    console.print(f"{name}: faults of {planted} kinds planted, {counts['named']} named{rest}")


def _columns(one: Planted) -> tuple[str, str, str]:
    """The plant, its line and the fault that was reported; or the reason for planting nothing."""
    if not one.what:
        return one.reason, "", ""
    return one.what, f"{one.file}:{one.line}", one.found or "nothing"


def _cell(text: str) -> str:
    """A text for a table, in which brackets are not markup."""
    from rich.markup import escape

    return escape(text)
