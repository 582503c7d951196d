"""The command ``simwarp record``: ask subjects on this machine's GPU and keep the answers.

>>> record_command(["silicon"], device=Asked.sim)
Traceback (most recent call last):
...
reference.errors.SchemeError: --device sim makes trials, which are not evidence
give --out another folder than tests/golden
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gpu import cuda
from reference.errors import NoGpuError, SchemeError
from simwarp.device.device import Device
from simwarp.verify.processes import cores

if TYPE_CHECKING:
    from simwarp.lab.recording import Subject

_SHOWN = 5
"""Differences of a subject that are printed; all are written."""


class Asked(StrEnum):
    """The device that answers."""

    cuda = "cuda"
    sim = "sim"


def record_command(
    subjects: Annotated[
        list[str] | None, typer.Argument(help="From --list; a name may have *, such as 'ptx-*'.")
    ] = None,
    list_subjects: Annotated[bool, typer.Option("--list", help="Only list the subjects.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write; tests/golden by default.")] = None,
    device: Annotated[Asked, typer.Option(help="This machine's GPU, or the simulator.")] = Asked.cuda,
    small: Annotated[
        bool, typer.Option("--small", help="A few questions of each kind: a trial, not evidence.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only subjects that this chip has no recording of: to resume.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one on each core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a machine-readable report.")] = False,
) -> int:
    """Ask hardware, and keep its answers with their origin: GPU, driver, NVRTC, date, commit, PTX digests.

    Each subject is written when all its questions are answered; Ctrl-C leaves what was there.
    """
    from simwarp.lab.recording import GOLDEN, Asking, architecture, named, record
    from simwarp.lab.subjects import SUBJECTS

    if list_subjects:
        return _list([*SUBJECTS.values()], as_json)
    if not subjects:
        raise SchemeError("name the subjects to record\nsimwarp record --list shows them; '*' is all")
    folder = out or GOLDEN
    chosen = named(subjects, SUBJECTS)
    if (small or device is Asked.sim) and folder.resolve() == GOLDEN:
        option = "--device sim" if device is Asked.sim else "--small"
        raise SchemeError(
            f"{option} makes trials, which are not evidence\ngive --out another folder than tests/golden"
        )
    target = _device(device)
    if missing:
        home = folder / architecture(target)
        chosen = [one for one in chosen if not (home / f"{one.name}.json").exists()]
    console, outcomes = Console(stderr=True, quiet=as_json, soft_wrap=True), list[dict[str, Any]]()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    for subject in chosen:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(subject.name, total=None)

            def progress(done: int, total: int, bar: Progress = bar, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            make = Device if device is Asked.sim else cuda.default_device
            outcome = record(subject, Asking(make, small, jobs or cores(), progress), folder)
        outcomes.append(asdict(outcome))
        differ = len(outcome.differences)
        console.print(f"recorded {subject.name} on {target.name}: {differ} differ ({outcome.seconds:.1f} s)")
        for text in outcome.differences[:_SHOWN]:
            console.print(text, markup=False, highlight=False)
    if as_json:
        _print_json({"device": target.name, "recorded": outcomes})
    return 1 if any(outcome["differences"] for outcome in outcomes) else 0


def _list(subjects: list[Subject], as_json: bool) -> int:
    if as_json:
        rows = [{"subject": one.name, "about": one.about, "needs": list(one.needs)} for one in subjects]
        _print_json({"subjects": rows})
        return 0
    for one in subjects:
        needs = f" (needs {', '.join(one.needs)})" if one.needs else ""
        sys.stdout.write(f"{one.name:<20} {one.about}{needs}\n")
    return 0


def _device(device: Asked) -> Any:
    if device is Asked.sim:
        return Device()
    try:
        return cuda.default_device()
    except NoGpuError as error:
        reason = str(error).splitlines()[0]
        advice = "goldens are what hardware answers: record them on a machine with an NVIDIA GPU"
        raise NoGpuError(f"{reason}\n{advice}") from None


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
