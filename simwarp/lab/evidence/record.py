"""Asks hardware about every form, writes its answers, and holds the simulator against them at once."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpu.cuda import default_device
from reference.errors import InputFileError, SimwarpError
from simwarp.device.device import Device
from simwarp.faults import KernelFault, Trap
from simwarp.lab.evidence import golden
from simwarp.lab.evidence.catalogue import operands_of, probe_of, probes
from simwarp.lab.evidence.judge import Verdict, judge
from simwarp.lab.evidence.launch import ask, batches
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import Probe
from simwarp.ptx.instructions import ROWS
from simwarp.ptx.rows import Row

COMMAND = "python -m simwarp.lab.evidence record"
_SAID = 100
"""Lines of a report that are told; ``report.txt`` has all of them."""
Say = Callable[[str], None]


@dataclass
class Report:
    """What a recording found.

    Attributes
    ----------
    verdicts : list of Verdict
        The simulator against the hardware, of the forms that both answered.
    failures : dict
        Form to reason: what one of them could not run.
    files : list of Path
    """

    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    files: list[Path] = field(default_factory=list[Path])

    @property
    def wrong(self) -> list[Verdict]:
        """The forms on which the two disagree."""
        return [verdict for verdict in self.verdicts if verdict.wrong]

    def __str__(self) -> str:
        lines = [str(verdict) for verdict in self.wrong]
        lines += [f"{form}: {reason}" for form, reason in self.failures.items()]
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """How many forms agree, in one line."""
        agreed = len(self.verdicts) - len(self.wrong)
        return (
            f"{agreed} forms agree, {len(self.wrong)} differ, {len(self.failures)} were not answered by both"
        )


def record(device: Any, folder: Path, rows: Iterable[Row] = ROWS.values(), say: Say = print) -> Report:
    """Run every form of these rows on hardware and write goldens, provenance and ``evidence.json``.

    The simulator runs each form first: what it faults on could hang hardware, and is left out.

    Parameters
    ----------
    device : gpu.CudaDevice
    folder : Path
        Gets a file for each family, and three that speak of them.
    rows : iterable of Row
    say : callable
        Told what is going on.

    Raises
    ------
    InputFileError
        If the device is a simulator, which is no witness of itself, or the folder cannot be written.

    Examples
    --------
    >>> record(Device(), Path("."))
    Traceback (most recent call last):
    ...
    reference.errors.InputFileError: goldens are recorded on hardware, not on simwarp simulator (sm_90)
    pass a gpu.CudaDevice()
    """
    if not hasattr(device, "uuid"):
        raise InputFileError(
            f"goldens are recorded on hardware, not on {device.name}\npass a gpu.CudaDevice()"
        )
    report, groups = Report(), _families(rows)
    evidence: dict[str, dict[str, Any]] = {}
    meta = _meta(device)
    for name, members in groups.items():
        said = _both(device, members, report)
        say(f"{name}: {len(said)} of {len(members)} forms answered")
        kept = [probe for probe in members if probe.form in said]
        if not kept:
            continue
        path = folder / f"ptx-{name}.npz"
        golden.write(path, kept, [said[probe.form] for probe in kept])
        report.files.append(path)
        kernels = hashlib.sha256(b"".join(golden.question(probe) for probe in kept)).hexdigest()
        meta["files"][path.name] = {"forms": len(kept), "kernels": kernels}
        largest = {v.form: v.largest_error for v in report.verdicts}
        evidence |= {p.form: _entry(path.stem, said[p.form], largest.get(p.form)) for p in kept}
    report.files.append(_write_json(folder / golden.SIDECAR, meta))
    facts = {key: meta[key] for key in ("gpu", "driver", "date")}
    report.files.append(_write_lines(folder / "evidence.json", facts, evidence))
    (folder / "report.txt").write_text(f"{report}\n")
    for line in str(report).splitlines()[:_SAID]:
        say(line)
    say(report.summary)
    return report


def _families(rows: Iterable[Row]) -> dict[str, list[Probe]]:
    """The probes by family; control flow, which is most likely to hang, comes last."""
    groups: dict[str, list[Probe]] = {}
    for row in sorted(rows, key=lambda row: golden.family(row) == "control"):
        groups.setdefault(golden.family(row), []).extend(probes([row]))
    return groups


def _both(device: Any, members: Sequence[Probe], report: Report) -> dict[str, Words]:
    """What the hardware answers; the verdict on the simulator goes into the report."""
    simulator, answers = Device(), dict[str, Words]()
    for batch in batches(members):
        expected = _answers(simulator, batch, report.failures, "the simulator")
        safe = [p for p in batch if p.form in expected or p.form not in _faulted(report)]
        said = _answers(device, safe, report.failures, "the hardware")
        answers |= said
        report.verdicts += [
            judge(p, operands_of(p), said[p.form], expected[p.form])
            for p in safe
            if p.form in said and p.form in expected
        ]
    return answers


def _faulted(report: Report) -> set[str]:
    return {form for form, reason in report.failures.items() if "fault" in reason.split(":")[0]}


def _answers(device: Any, batch: Sequence[Probe], failures: dict[str, str], who: str) -> dict[str, Words]:
    """The answers to one batch; where one kernel spoils the module, each is tried alone."""
    if not batch:
        return {}
    if batch[0].faults:
        answer = trapped(device, batch[0])
        if answer is None:
            failures[batch[0].form] = f"{who} neither passed nor stopped"
        return {} if answer is None else {batch[0].form: answer}
    try:
        return dict(zip((p.form for p in batch), ask(device, batch), strict=True))
    except Exception as error:
        if len(batch) == 1:
            fault = "faults" if isinstance(error, KernelFault) else "fails"
            failures[batch[0].form] = f"{who} {fault}: " + " / ".join(str(error).splitlines()[:3])
            return {}
    alone = [_answers(device, [probe], failures, who) for probe in batch]
    return {form: answer for one in alone for form, answer in one.items()}


def trapped(device: Any, probe: Probe) -> Words | None:
    """1 if the kernel ended with a fault, else 0: the answer to a probe of ``trap``.

    On hardware another process asks, since a trap ends a process's context.

    Examples
    --------
    >>> trapped(Device(), probe_of("trap")).tolist()
    [[1]]
    """
    if isinstance(device, Device):
        try:
            ask(device, [probe])
        except Trap:
            return np.ones((1, 1), np.uint64)
        return np.zeros((1, 1), np.uint64)
    program = [sys.executable, "-m", "simwarp.lab.evidence", "trap", probe.form]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    said = {"trapped": 1, "passed": 0}.get(done.stdout.strip())
    return None if said is None else np.full((1, 1), said, np.uint64)


def _entry(name: str, answer: Words, largest: float | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"golden": name, "sets": len(answer)}
    return entry if largest is None else {**entry, "largest_error": largest}


def _meta(device: Any) -> dict[str, Any]:
    return {
        "gpu": {"name": device.name, "uuid": device.uuid},
        "driver": device.driver_version,
        "arch": list(device.compute_capability),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": COMMAND,
        "files": {},
    }


def _write_json(path: Path, data: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n")
    return path


def _write_lines(path: Path, facts: dict[str, Any], forms: dict[str, dict[str, Any]]) -> Path:
    """``evidence.json``: one form on each line, so that changes can be read."""
    head = json.dumps(facts)[1:-1]
    lines = ",\n".join(f'    "{form}": {json.dumps(entry)}' for form, entry in forms.items())
    path.write_text(f'{{\n  {head},\n  "forms": {{\n{lines}\n  }}\n}}\n')
    return path


def main(arguments: Sequence[str]) -> int:
    """``record --out FOLDER`` on the first GPU: 0 if the simulator agrees, 1 if not, 2 if there is none.

    ``trap FORM`` is what `record` asks another process to do.

    Examples
    --------
    >>> main(["--help"])
    2
    """
    if len(arguments) == 2 and arguments[0] == "trap":
        return _trap(arguments[1])
    if len(arguments) != 3 or arguments[:2] != ["record", "--out"]:
        sys.stderr.write(f"usage: {COMMAND} --out FOLDER\n")
        return 2
    try:
        report = record(default_device(), Path(arguments[2]))
    except SimwarpError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 1 if report.wrong or report.failures else 0


def _trap(form: str) -> int:
    try:
        ask(default_device(), [probe_of(form)])
    except Exception:
        sys.stdout.write("trapped\n")
        sys.stdout.flush()
        os._exit(0)  # the context is gone: nothing can be cleaned up
    sys.stdout.write("passed\n")
    return 0
