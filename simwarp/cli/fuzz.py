"""The command ``simwarp fuzz``: run random PTX programs on devices and compare every output word.

>>> fuzz_command(Where.both, recording=Path("fuzz.json"))
Traceback (most recent call last):
...
reference.errors.SchemeError: --replay compares one device with a recording
give --device sim or cuda
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.text import Text

from reference.errors import SchemeError
from simwarp.cli.output import STOPPED, Json, Where, cuda_device, print_json, progress_bar

if TYPE_CHECKING:
    from simwarp.lab import fuzz

BUDGET = 1_000_000
"""The most steps of a program on the simulator; generated programs take far fewer."""
PROGRAMS = 200
"""The default number of programs."""


def fuzz_command(
    device: Annotated[Where | None, typer.Option(help="Where programs run; sim by default.")] = None,
    programs: Annotated[
        int | None,
        typer.Option(min=1, help=f"Programs to run: {PROGRAMS} by default, or all of a recording."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The seed of the stream of programs.")] = 0,
    recording: Annotated[
        Path | None, typer.Option("--replay", help="Compare a device with a file of simwarp record.")
    ] = None,
    optimised: Annotated[
        bool, typer.Option("--optimised", help="Also run programs that ptxas can optimise freely.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder for counterexamples.")] = Path("counterexamples"),
    most: Annotated[int, typer.Option(min=1, help="Stop after this many counterexamples.")] = 3,
    as_json: Json = False,
) -> int:
    """Run random PTX programs: all devices must agree on every word, and so must equivalent mutants.

    On a GPU, --optimised also tests ptxas: usual programs hide their values from its optimiser; without
    the hiding, their outputs must be the same.
    """
    start = time.perf_counter()
    if recording is None:
        witnesses = _witnesses(device or Where.sim, optimised)
        report, line = _hunt(witnesses, seed, programs or PROGRAMS, out, most, quiet=as_json)
    elif device is Where.both:
        raise SchemeError("--replay compares one device with a recording\ngive --device sim or cuda")
    else:
        report, line = _replay(recording, programs, device or Where.sim, quiet=as_json)
    seconds, bad = time.perf_counter() - start, bool(report.get("differences") or report.get("different"))
    if as_json:
        print_json({**report, "seconds": round(seconds, 3)})
    else:
        _print(f"{line} ({seconds:.1f} s)", "bold red" if bad else "")
    return 1 if bad else STOPPED if report.get("interrupted") else 0


def _hunt(
    witnesses: list[fuzz.Witness], seed: int, count: int, out: Path, most: int, *, quiet: bool
) -> tuple[dict[str, Any], str]:
    """Run generated programs on all devices and write the counterexamples; returns report and summary."""
    from simwarp.lab import fuzz
    from simwarp.lab.counterexamples import keep

    differences: list[dict[str, Any]] = []
    done, interrupted = 0, False
    stream = (fuzz.generate(seed, k) for k in range(count))
    try:
        with progress_bar("programs", MofNCompleteColumn(), count, quiet=quiet) as update:

            def progress(number: int) -> None:
                nonlocal done
                done = number
                update(completed=done)

            for found in fuzz.hunt(witnesses, stream, progress=progress):
                facts = {"program": found.number, "witnesses": list(found.names), "lines": found.lines()}
                file = keep(found, out, witnesses[0].device)
                differences.append({**facts, "ptx": found.text, "file": str(file)})
                if len(differences) == most:
                    break
    except KeyboardInterrupt:
        interrupted = True
    finally:
        for witness in witnesses:
            if witness.workers:
                witness.workers.close()
    for each in () if quiet else differences:
        head = f"program {each['program']}, reduced: {' and '.join(each['witnesses'])} differ"
        _print("\n".join([head, "", each["ptx"], *each["lines"], f"written to {each['file']}", ""]))
    names = [witness.name for witness in witnesses]
    silent = {witness.name: witness.silent for witness in witnesses if witness.silent}
    line = f"{done} programs: {', '.join(names)} agree"
    if silent:
        line += f"; the compiler crashed or hung on {sum(map(len, silent.values()))} of them"
    if differences:
        plural = "s" * (len(differences) != 1)
        line = f"{len(differences)} counterexample{plural}: PTX and words are in {out}"
    report = {"programs": done, "seed": seed, "witnesses": names, "interrupted": interrupted}
    report |= {"silent": silent, "differences": differences}
    return report, "stopped before the end; " * interrupted + line


def _replay(file: Path, count: int | None, on: Where, *, quiet: bool) -> tuple[dict[str, Any], str]:
    """Compare a device with a recording; returns report and summary."""
    from simwarp.device.device import Device
    from simwarp.lab.subjects.programs import load, replay

    recording = load(file)
    device = cuda_device() if on is Where.cuda else Device(instruction_budget=BUDGET)
    total = min(count or len(recording.digests), len(recording.digests))
    with progress_bar("programs", MofNCompleteColumn(), total, quiet=quiet) as update:
        wrong = replay(recording, device, range(total), progress=lambda done: update(completed=done))
    gpu = recording.meta["gpu"]["name"]
    report = {"programs": total, "recording": str(file), "gpu": gpu, "device": device.name}
    line = f"{total} programs: {device.name} agrees with {gpu}"
    if wrong:
        line = f"{device.name} differs from {gpu} on programs {', '.join(map(str, wrong))}"
    return {**report, "different": wrong}, line


def _witnesses(device: Where, optimised: bool) -> list[fuzz.Witness]:
    """The devices to compare, and mutants on the first of them."""
    from gpu import cuda
    from simwarp.device.device import Device
    from simwarp.lab import fuzz

    simulator = fuzz.Witness("the simulator", Device(instruction_budget=BUDGET))
    if device is Where.sim:
        # 32 lanes at a time, so that the mutants run in another grouping of blocks.
        other = Device(chunk_lanes=32, instruction_budget=BUDGET)
        return [simulator, fuzz.Witness("mutants on the simulator", other, fuzz.mutate)]
    gpu, workers = cuda_device(), fuzz.Workers(cuda.default_device)
    witnesses = [fuzz.Witness(gpu.name, gpu, workers=workers)]
    if device is Where.both:
        witnesses.append(simulator)
    witnesses.append(fuzz.Witness(f"mutants on {gpu.name}", gpu, fuzz.mutate, workers))
    if optimised:
        witnesses.append(fuzz.Witness(f"the compiler for {gpu.name}", gpu, fuzz.unveil, workers))
    return witnesses


def _print(text: str, style: str = "") -> None:
    Console(soft_wrap=True).print(Text(text, style=style))
