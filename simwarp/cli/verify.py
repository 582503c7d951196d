"""The command ``simwarp verify``: run every tier on the same inputs and compare the results bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reference.errors import SchemeError
from simwarp.cli.output import STOPPED, Json, Where, cuda_device, print_json, table

if TYPE_CHECKING:
    from simwarp.verify import Outcome

TIERS = {
    "reference": "reference",
    "listing": "simwarp.listings",
    "simulator": "gpu on simwarp.Device",
    "cuda": "gpu on gpu.CudaDevice",
}
"""The name of each tier in tables."""


def verify_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Python files with cases of your own, to run instead: see `simwarp new case`."),
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only this case; repeat for several.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of the stream of inputs.")] = 0,
    only_input: Annotated[
        int | None,
        typer.Option(
            "--input", min=0, max=2**63 - 1, help="Run only this input of the stream, to replay it."
        ),
    ] = None,
    budget: Annotated[float, typer.Option(min=0.1, help="Seconds for all cases together.")] = 120.0,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N|CASE=N|CASE=all",
            help="The most inputs of each case, or of one; all: every combination once. May be repeated.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one on each core.")] = 0,
    device: Annotated[Where, typer.Option(help="Where the production kernels run.")] = Where.sim,
    as_json: Json = False,
) -> int:
    """Run every tier on the same inputs and compare the results bit for bit."""
    from simwarp.verify import CASES, simulator, verify
    from simwarp.verify.compare import CUDA, SIMULATOR, small
    from simwarp.verify.own import cases_in
    from simwarp.verify.processes import cores

    known = cases_in(files) if files else CASES
    for name in case or []:
        if name not in known:
            raise SchemeError(f"there is no case {name!r}\nchoose among {', '.join(known)}")
    devices: dict[str, Callable[[], Any]] = {}
    if device is not Where.cuda:
        devices[SIMULATOR] = simulator
    if device is not Where.sim:
        cuda = small(cuda_device())  # one device for all inputs
        devices[CUDA] = lambda: cuda
    if CUDA in devices and jobs > 1:
        raise SchemeError(
            f"--jobs {jobs} with --device {device.value}\n"
            "a CUDA device is used by one process at a time\nleave --jobs out"
        )
    chosen = [known[name] for name in case or known]
    arguments: dict[str, Any] = {
        "seed": seed,
        "budget": budget,
        "only_input": only_input,
        "inputs": _by_case(inputs or [], {one.name: one.covering for one in chosen}),
        "tiers": [CUDA] if device is Where.cuda else None,
        "processes": 1 if CUDA in devices else jobs or cores(),
    }
    if as_json:
        outcome = verify(chosen, devices, **arguments)
        print_json({**outcome.to_json(), "device": device.value})
    else:
        with _live_table(budget) as progress:
            outcome = verify(chosen, devices, progress=progress, **arguments)
        _verdict(outcome)
    if outcome.interrupted:
        return STOPPED
    return 0 if outcome.agreed else 1


def _by_case(texts: list[str], cases: dict[str, int]) -> dict[str, int]:
    """The most inputs of each case, from options ``N`` and ``CASE=N``; the latter take precedence.

    ``all`` are those that cover the case's combinations, which are given for each case.
    """
    found: dict[str, int] = {}
    for text in sorted(texts, key=lambda text: "=" in text):
        case, _, number = text.rpartition("=")
        if case and case not in cases:
            raise SchemeError(f"--inputs {text}: there is no case {case!r}\nchoose among {', '.join(cases)}")
        if number == "all" and cases.get(case):
            number = str(cases[case])
        if not number.isdecimal() or int(number) < 1:
            raise SchemeError(
                f"--inputs {text}\ngive a number from 1 on, or one of a case: bmm=120;"
                " or all combinations of a case that has some: blas3=all"
            )
        found |= dict.fromkeys([case] if case else cases, int(number))
    return found


@contextmanager
def _live_table(budget: float) -> Generator[Callable[[Outcome], None]]:
    """Show a table of results while cases run; yields the function that updates it."""
    start = shown = time.perf_counter()
    with Live(auto_refresh=False, transient=True) as live:  # a refresh thread would not survive a fork

        def update(outcome: Outcome) -> None:
            nonlocal shown
            now = time.perf_counter()
            if now - shown >= 0.25:
                shown, done = now, min(now - start, budget)
                bar = ProgressBar(total=budget, completed=done, width=40)
                live.update(Group(_table(outcome), bar), refresh=True)

        yield update


def _table(outcome: Outcome) -> Table:
    shown = table("case", "tier", numbers=("inputs", "shapes", "mismatches", "time"))
    for row in outcome.rows:
        style = "bold red" if row.mismatches else ""
        cells = [str(row.inputs), str(row.shapes), str(row.mismatches), f"{row.seconds:.1f} s"]
        shown.add_row(row.case, TIERS.get(row.tier, row.tier), *cells, style=style)
    return shown


def _verdict(outcome: Outcome) -> None:
    """Print the table, the mismatches, and whether the tiers agreed."""
    from simwarp.verify.runner import LEAST_SHAPES

    few = f"{outcome.few} inputs" if len({*outcome.wanted.values()}) == 1 else "inputs"
    console = Console(soft_wrap=True)
    console.print(_table(outcome))
    for mismatch in outcome.mismatches:
        console.print(Text(f"\n{mismatch}"))
    if outcome.interrupted:
        console.print("stopped before the end")
    elif outcome.short:
        names = ", ".join(outcome.short)
        tried = f"{LEAST_SHAPES} shapes" if outcome.few is None else f"the {few} asked for"
        more = "--inputs" if outcome.used_up else "--budget"
        console.print(f"fewer than {tried} tried: {names}; give a larger {more}")
    elif outcome.agreed:
        on_few = outcome.few and f" on the {few} asked for; {LEAST_SHAPES} shapes verify a case"
        console.print(f"all tiers agree{on_few or ''}")
    else:
        wrong = sum(row.mismatches for row in outcome.rows)
        console.print(Text(f"\nthe tiers differ on {wrong} inputs", style="bold red"))
