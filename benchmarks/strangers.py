"""Public kernels that copy asynchronously, run on the simulator under all schedules with all checks.

    python benchmarks/strangers.py --artifact FOLDER [--only WORD …] [--json PATH]

FOLDER holds a checkout of each repository that `stranger_cases` names, under its own name (``cuda-samples``
for NVIDIA/cuda-samples); they are not part of this repository. A file is compiled as it is up to the end of
the kernel, without host functions and without the headers of hosts. Its lines keep their numbers.

A kernel *runs* if the simulator takes all its instructions and the launch ends, and *agrees* if every output
is what NumPy says. Its findings are what the checks report. A bug that the table declares is corrected in a
second run: then the kernel must agree, without a finding. What is left is *open*: a defect of the simulator,
or a bug of the kernel that nobody has found by reading yet. A kernel *waits* where the table says so and an
instruction is not supported.

    python benchmarks/strangers.py --suite gpuverify --artifact FOLDER --include CURAND [--json PATH]

A *labelled suite* says which of its kernels are faulty: GPUVerify's tests, ScoR's micro-benchmarks, HiRace's
Indigo kernels. Each faulty one is run by default, under other schedules, under "strict" and with ``-G`` until
something is named, each right one by default. A faulty one that is not named is *open*, and a right one that
is reported, unless the table has a reason. CURAND is a folder with curand_kernel.h.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import stranger_gpuverify
import stranger_hirace
import stranger_scor
from common import Row, about_this_run, parser_of, write
from common import show as show_rows
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stranger_cases import CASES
from stranger_labels import Judged, Labelled, judge
from stranger_labels import rows_of as labelled_rows
from stranger_problems import Out, Tiles
from stranger_sources import Case, async_instructions, compiled, entry_of

import simwarp
from gpu.compile import Ptx
from reference.errors import CompileError, SimwarpError
from simwarp.faults import KernelFault, NeedsIndependentProgress, UnsupportedInstruction

SCHEDULES = ("lowest pc", "stack", "random")
SEED = 17


@dataclass(frozen=True)
class Run:
    """The outcome under one schedule."""

    schedule: str
    agrees: bool = False
    findings: list[str] = field(default_factory=list[str])  # faults that the checks reported
    error: Exception | None = None  # why the kernel did not run to its end
    seconds: float = 0.0  # CPU time of the launch

    @property
    def declined(self) -> bool:
        """True if the schedule cannot run kernels of this kind: that is not a fault."""
        return isinstance(self.error, NeedsIndependentProgress)

    @property
    def good(self) -> bool:
        """True if the result is right and nothing was found."""
        return self.declined or (self.error is None and self.agrees and not self.findings)


@dataclass(frozen=True)
class Result:
    """The outcome of a kernel."""

    case: Case
    instructions: list[str]  # the asynchronous ones in its PTX
    published: list[Run]  # one for each schedule
    corrected: list[Run]  # the same, with the bugs corrected that the table declares

    @property
    def ran(self) -> bool:
        """True if it ran to its end under every schedule."""
        return all(run.error is None or run.declined for run in self.published)

    @property
    def agrees(self) -> bool:
        """True if it agrees with NumPy under every schedule."""
        return self.ran and all(run.agrees or run.declined for run in self.published)

    @property
    def findings(self) -> list[str]:
        """The findings under all schedules, each once."""
        return list(dict.fromkeys(finding for run in self.published for finding in run.findings))

    @property
    def waits(self) -> bool:
        """True if it uses instructions that the simulator is known to lack."""
        return bool(self.case.waits) and isinstance(self.published[0].error, UnsupportedInstruction)

    @property
    def right(self) -> bool:
        """True if it is right, without a finding, once its declared bugs are corrected."""
        return all(run.good for run in self.corrected or self.published)

    @property
    def open(self) -> bool:
        """True if something is wrong that no declared bug accounts for."""
        return not self.right and not self.waits

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, for JSON."""
        return {
            "kernel": self.case.name,
            "file": self.case.file,
            "form": self.case.form,
            "instructions": self.instructions,
            "waits_for": self.case.waits if self.waits else "",
            "runs": self.ran,
            "agrees": self.agrees,
            "findings": self.findings,
            "bugs": [bug.what for bug in self.case.bugs],
            "right_when_corrected": self.right,
            "seconds": {run.schedule: round(run.seconds, 2) for run in self.published},
        }

    def to_text(self) -> str:
        """The bugs, the findings and the errors, one to a line."""
        lines = [f"bug: {bug.what}" for bug in self.case.bugs] + self.findings
        for name, runs in (("", self.published), ("corrected, ", self.corrected if self.open else [])):
            lines += [f"{name}{run.schedule}: {_said(run.error)}" for run in runs if run.error]
        for run in self.corrected:
            lines += [f"corrected, {run.schedule}: {finding}" for finding in run.findings]
        return "\n  ".join([f"{self.case.name}{' (OPEN)' if self.open else ''}", *lines]) if lines else ""


def _said(error: Exception) -> str:
    """The first line of an error; of a compiler's, the lines with errors."""
    lines = error.log.splitlines() if isinstance(error, CompileError) else str(error).splitlines()[:1]
    return "\n  ".join(line for line in lines if not isinstance(error, CompileError) or "error" in line)


# ---- the runs ------------------------------------------------------------------------------------------


def result_of(folder: Path, case: Case) -> Result:
    """Compile and run a case, and again with its bugs corrected."""
    try:
        ptx = compiled(folder, case)
        corrected = compiled(folder, case, corrected=True) if case.bugs else None
    except CompileError as error:
        return Result(case, [], [Run("compiling", error=error)], [])
    published, fixed = (
        [run(text, case, schedule) for schedule in SCHEDULES] if text is not None else []
        for text in (ptx, corrected)
    )
    return Result(case, async_instructions(ptx.text), published, fixed)


def run(ptx: Ptx, case: Case, schedule: str) -> Run:
    """Launch a kernel on fresh arrays."""
    device = simwarp.Device(case.arch, schedule=schedule, checks="report")
    problem = case.problem(np.random.default_rng(SEED))
    on_device = [uploaded(device, given) for given in problem.arguments]
    how = {"shared": problem.shared, "cooperative": problem.cooperative}
    start = time.process_time()
    try:
        kernel = device.load(ptx.text).kernel(entry_of(ptx.text, case.entry or case.name))
        kernel(problem.grid, problem.block, *(argument for argument, _ in on_device), **how)
    except (KernelFault, SimwarpError) as error:
        return Run(schedule, False, findings(device), error)
    seconds = time.process_time() - start
    pairs = zip(problem.arguments, on_device, strict=True)
    agrees = all(given.agrees(array.download()) for given, (array, _) in pairs if isinstance(given, Out))
    return Run(schedule, agrees, findings(device), None, seconds)


def uploaded(device: simwarp.Device, given: Any) -> tuple[Any, Any]:
    """An argument of a launch, and the array that must live as long."""
    if isinstance(given, Out):
        unwritten = given.before is None
        array = (
            device.allocate(given.expected.shape, given.dtype) if unwritten else device.upload(given.before)
        )
        return array, None
    if isinstance(given, Tiles):
        array = device.upload(given.array)
        described = device.tensor_map(array, given.box, swizzle=128, data_type="bfloat16")
        return device.upload(np.frombuffer(described, np.uint8)) if given.by_pointer else described, array
    return device.upload(given) if isinstance(given, np.ndarray) else given, None


def findings(device: simwarp.Device) -> list[str]:
    """The reported faults, by kind and places."""
    texts: list[str] = []
    for fault in device.faults:
        places = [fault.place, *(getattr(fault, name, None) for name in ("other", "copy"))]
        lines = [f"{place.source_file}:{place.source_line}" for place in places if place is not None]
        texts.append(
            f"{type(fault).__name__}: {fault.what.removeprefix('race: ')} ({', '.join(dict.fromkeys(lines))})"
        )
    return texts


# ---- the report ----------------------------------------------------------------------------------------


def rows_of(folder: Path, results: Iterable[Result]) -> list[Row]:
    """A row for each project: the kernels that are right once their declared bugs are corrected."""
    by_project: dict[str, list[Result]] = {}
    for result in results:
        by_project.setdefault(result.case.project, []).append(result)
    rows: list[Row] = []
    for project, own in by_project.items():
        kernels = [result.to_json() for result in own]
        params = {"commit": commit_of(folder / own[0].case.repository), "kernels": kernels}
        right = sum(result.right for result in own)
        rows.append(Row(f"strangers/{project}", params, "kernels", "higher", right, target=len(own)))
    return rows


def commit_of(folder: Path) -> str:
    """The commit of a checkout; "" where the folder is not one."""
    command = ["git", "-C", str(folder), "rev-parse", "--show-toplevel", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    top, _, commit = done.stdout.strip().partition("\n")
    return commit if top and Path(top) == folder.resolve() else ""


def show(results: Sequence[Result]) -> None:
    """Print a table of the kernels, and below it the findings."""
    table, console = Table("kernel", "form", "runs", "agrees", "findings", "corrected", "seconds"), Console()
    for result in results:
        case, yes = result.case, ("no", "yes")
        corrected = ("wrong", "right")[result.right] if result.corrected and not result.waits else ""
        seconds = f"{sum(run.seconds for run in result.published):.1f}"
        ran = "waits" if result.waits else yes[result.ran]
        cells = (ran, yes[result.agrees], str(len(result.findings)), corrected, seconds)
        table.add_row(f"{case.repository} {case.name}", case.form, *cells)
    console.print(table)
    console.print(*filter(None, (result.to_text() for result in results)), sep="\n", markup=False)


def labelled(
    suite: str, folder: Path, include: Sequence[Path], words: Sequence[str]
) -> tuple[list[Row], bool]:
    """Judge and print the kernels of a labelled suite; True if something is open."""

    def judged(cases: Iterable[Labelled]) -> list[Judged]:
        chosen = [case for case in cases if any(word in case.name for word in words)]
        return [judge(case) for case in track(chosen, suite, console=Console(stderr=True))]

    if suite == "gpuverify":
        project, results = stranger_gpuverify.PROJECT, judged(stranger_gpuverify.cases(folder, include))
        more: list[Judged] = []
    else:
        project, results = stranger_scor.PROJECT, judged(stranger_scor.cases(folder))
        more = judged(stranger_scor.cases(folder, volatile=False))
    params = {"commit": commit_of(folder / project.partition("/")[2])}
    rows = labelled_rows(suite, results, **params) + labelled_rows(
        f"{suite} without volatile", more, **params
    )
    print(*(result.to_text() for result in [*results, *more]), sep="\n")
    for row in rows:
        print(f"{row.case}: {row.ours:.0f} of {row.target:.0f} {dict(row.params['ways'])}")
    return rows, any(not result.good and not result.case.unused for result in [*results, *more])


def main(cases: Sequence[Case] = CASES, arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 1 if something is open, else 0."""
    parser = parser_of(__doc__)
    parser.add_argument("--artifact", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--suite", choices=("asynchronous", "gpuverify", "scor", "hirace"), default="asynchronous"
    )
    parser.add_argument("--include", type=Path, nargs="+", default=[], metavar="FOLDER", help="more headers")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="cases whose project or kernel contains one"
    )
    options = parser.parse_args(arguments)
    meta = about_this_run() if options.json else {}
    if options.suite == "asynchronous":
        words = options.only
        chosen = [case for case in cases if any(word in f"{case.project} {case.name}" for word in words)]
        results = [result_of(options.artifact, case) for case in chosen]
        show(results)
        rows, is_open = rows_of(options.artifact, results), any(result.open for result in results)
    elif options.suite == "hirace":
        rows = stranger_hirace.rows_of(options.artifact, options.only)
        is_open = any(row.ours != row.target or row.params["false_alarms"] for row in rows)
        show_rows(rows)
    else:
        rows, is_open = labelled(options.suite, options.artifact, options.include, options.only)
    if options.json:
        write(options.json, meta, rows)
    return int(is_open)


if __name__ == "__main__":
    raise SystemExit(main())
