"""The command ``simwarp record``: record what this machine's GPU computes for each subject.

>>> record_command(["silicon"], device=OneDevice.sim)
Traceback (most recent call last):
...
reference.errors.SchemeError: --device sim makes trials, which are not evidence
tests/golden holds evidence
give another folder with --out
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn

from reference.errors import SchemeError
from simwarp.cli.output import Json, OneDevice, cuda_device, print_json, total_bar

if TYPE_CHECKING:
    from simwarp.lab.recording import Subject

_SHOWN = 5
"""The most differences of a subject that are printed; all are written."""


def record_command(
    subjects: Annotated[
        list[str] | None, typer.Argument(help="Names from --list; * matches any text, as in 'ptx-*'.")
    ] = None,
    list_subjects: Annotated[bool, typer.Option("--list", help="Only list the subjects.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write; tests/golden by default.")] = None,
    device: Annotated[
        OneDevice, typer.Option(help="This machine's GPU, or the simulator for a trial.")
    ] = OneDevice.cuda,
    small: Annotated[
        bool, typer.Option("--small", help="Ask a few questions of each kind: a trial, not evidence.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only subjects without a recording of this chip: to resume.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: one on each core.")] = 0,
    as_json: Json = False,
) -> int:
    """Record the results of hardware, with their origin: GPU, driver, NVRTC, date, commit, PTX digests.

    A subject's file is replaced once all its questions are answered; Ctrl-C keeps the old file.
    """
    from gpu import cuda
    from simwarp.device.device import Device
    from simwarp.lab.recording import GOLDEN, Asking, architecture, named, record
    from simwarp.lab.subjects import SUBJECTS
    from simwarp.verify.processes import cores

    if list_subjects:
        return _list([*SUBJECTS.values()], as_json)
    if not subjects:
        raise SchemeError("name the subjects to record\nsimwarp record --list shows them; '*' is all")
    folder = out or GOLDEN
    chosen = named(subjects, SUBJECTS)
    if (small or device is OneDevice.sim) and folder.resolve() == GOLDEN:
        option = "--device sim" if device is OneDevice.sim else "--small"
        raise SchemeError(
            f"{option} makes trials, which are not evidence\ntests/golden holds evidence\n"
            "give another folder with --out"
        )
    advice = "goldens are recorded on hardware: use a machine with an NVIDIA GPU"
    target = Device() if device is OneDevice.sim else cuda_device(advice)
    if missing:
        home = folder / architecture(target)
        chosen = [one for one in chosen if not (home / f"{one.name}.json").exists()]
    console, outcomes = Console(stderr=True, quiet=as_json, soft_wrap=True), list[dict[str, Any]]()
    make = Device if device is OneDevice.sim else cuda.default_device
    for subject in chosen:
        with total_bar(subject.name, MofNCompleteColumn(), quiet=as_json) as progress:
            outcome = record(subject, Asking(make, small, jobs or cores(), progress), folder)
        outcomes.append(asdict(outcome))
        differ = len(outcome.differences)
        console.print(f"recorded {subject.name} on {target.name}: {differ} differ ({outcome.seconds:.1f} s)")
        for text in outcome.differences[:_SHOWN]:
            console.print(text, markup=False, highlight=False)
    if as_json:
        print_json({"device": target.name, "recorded": outcomes})
    return 1 if any(outcome["differences"] for outcome in outcomes) else 0


def _list(subjects: list[Subject], as_json: bool) -> int:
    if as_json:
        rows = [{"subject": one.name, "about": one.about, "needs": list(one.needs)} for one in subjects]
        print_json({"subjects": rows})
        return 0
    for one in subjects:
        needs = f" (needs {', '.join(one.needs)})" if one.needs else ""
        sys.stdout.write(f"{one.name:<20} {one.about}{needs}\n")
    return 0
