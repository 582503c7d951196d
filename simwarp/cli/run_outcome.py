"""Report of ``simwarp run``, and the files that it writes."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from simwarp.cli.files import write_array
from simwarp.cli.output import print_json
from simwarp.cli.run_words import Word
from simwarp.device.schedules import Differences
from simwarp.draw.report import to_text
from simwarp.faults import KernelFault
from simwarp.findings import Finding, verdict
from simwarp.findings.finding import errors, of_compiler
from simwarp.ptx.mangled_names import readable
from simwarp.run.kernel import Result
from simwarp.run.not_seen import NotSeen
from simwarp.run.outcome import Unwritten, styled
from simwarp.run.work import Work


@dataclass
class Outcome:
    """The result of a launch, or the fault that stopped it.

    ``kept`` and ``same`` are not written: read-only arguments that the kernel changed, and arrays of files
    that it might have changed and did not. Elements of output arrays may stay unwritten if ``partial``.
    """

    work: Work
    device: Any
    printed: io.StringIO  # the kernel's output
    result: Result | None = None  # None if a fault stopped the launch
    fault: KernelFault | None = None  # stopped the launch
    differences: Differences | None = None  # between schedules, if they were compared
    files: dict[str, Path] = field(default_factory=dict[str, Path])
    kept: list[str] = field(default_factory=list[str])
    same: list[str] = field(default_factory=list[str])
    partial: bool = False

    @property
    def faults(self) -> list[KernelFault]:
        """The collected faults, then the fault that stopped the kernel."""
        collected: list[KernelFault] = list(getattr(self.device, "faults", []))
        return collected if self.fault is None else [*collected, self.fault]

    @property
    def clean(self) -> bool:
        """True if there are only notes: no fault, difference or unwritten output element."""
        return not errors(self.findings)

    @property
    def findings(self) -> list[Finding]:
        """The faults, differences between schedules, and unwritten elements; each once."""
        findings = [Finding.of(fault) for fault in self.faults]
        texts = {str(one) for one in findings}
        if self.differences is not None:
            findings += [one for one in self.differences.findings if str(one) not in texts]
        return findings + [missing.finding for missing in self.unwritten if not self.partial]

    @property
    def all_findings(self) -> list[Finding]:
        """The findings of the run, followed by the compiler's warnings."""
        log = self.work.source.log
        return [*self.findings, *(of_compiler(log) if log else ())]

    @property
    def paths(self) -> dict[str, str]:
        """The paths to show for the names of source files."""
        source = self.work.source
        return {source.name: source.path or source.name}

    @property
    def ptx(self) -> str:
        """The path of the file, if that is PTX; else ""."""
        source = self.work.source
        return "" if source.text or source.files else source.path or source.name

    @property
    def unwritten(self) -> tuple[Unwritten, ...]:
        """The elements of output arrays that the kernel did not write."""
        return () if self.result is None else self.result.unwritten

    @property
    def not_seen(self) -> list[NotSeen]:
        """The limits of a clean run's checks; not the order of threads if schedules were compared."""
        limits = self.result.not_seen if self.result is not None and self.clean else ()
        return [one for one in limits if self.differences is None or one.kind != "order"]

    def write(self, folder: Path, words: Mapping[str, Word]) -> None:
        """Write the output arrays of the run to ``.npy`` files in a folder."""
        if self.result is None:
            return
        for name, array in self.result.outputs.items():
            if words[name].from_file and name not in self.result.changed:
                self.same += [name] if words[name].written else []
            elif words[name].written:
                self.files[name] = folder / f"{name}.npy"
                write_array(self.files[name], array)
            elif name in self.result.changed:
                self.kept.append(name)

    def show(self, console: Console) -> None:
        """Print the kernel's output and the tables on stdout, everything else on the console."""
        sys.stdout.write(self.printed.getvalue())
        data = {name: table for name, table in self._report.items() if name != "fidelity"}
        if data:
            sys.stdout.write(f"{to_text(data)}\n")
        if self.differences is not None:
            shown = {str(fault) for fault in self.faults}
            sys.stdout.write(f"{self.differences.to_text(leaving_out=shown)}\n")
        sys.stdout.flush()
        if self.work.source.log:
            console.print(f"{self.work.source.log}\n")
        for fault in self.faults:
            console.print(styled(Finding.of(fault).lines(self.paths)), end="\n\n")
        if self.fault is not None and self.fault.more:
            console.print(self.fault.more.replace('checks="report"', "--checks report"))
        incomplete = {left.array for left in self.unwritten}
        for name, path in self.files.items():
            array = self.arrays[name]
            what = f"{' x '.join(map(str, array.shape))} {array.dtype}"
            console.print(f"wrote {path}: {what}{', incomplete' if name in incomplete else ''}")
        for name in self.same:
            console.print(f"{name} is unchanged, and not written")
        for left in self.unwritten:
            advice = "" if self.partial else "\nlet the kernel write all of them, or give --partial"
            console.print(f"{left}{advice}")
        for note in self.work.notes:
            console.print(f"note: {note}\nset it with --set {note.partition(' ')[0]}=FILE.npy")
        for name in self.kept:
            console.print(f"the kernel changed {name}; to write it, give its file as FILE.npy:inout")
        console.print(f"{readable(self.work.kernel.name)} on {self.device.name}: {self.summary}")
        for one in self.not_seen[:1]:
            console.print(f"not looked at: {one}")

    @property
    def summary(self) -> str:
        """The run's conclusion about results on hardware."""
        reason = verdict(self.findings, stopped=self.fault is not None)
        if any(one.kind == "optimised" for one in self.not_seen):
            reason = "the optimiser removed an access that has no defined value: another build may differ"
        if self._report:
            return self.device.report.fidelity.summary(reason)
        return reason or "the hardware's own results"

    def print_json(self) -> None:
        """Print one JSON object on stdout."""
        print_json(self._data())

    def _data(self) -> dict[str, Any]:
        """The JSON object of the run."""
        result, report = self.result, self._report
        return {
            "kernel": readable(self.work.kernel.name),
            "grid": self.work.grid,
            "block": self.work.block,
            "device": self.device.name,
            "ended": result is not None,
            "executed": result.executed if result else _executed(report),
            "outputs": {name: self._described(name) for name in self.files},
            "changed": result.changed if result else [],
            "unwritten": [asdict(left) for left in self.unwritten],
            "notes": self.work.notes,
            "not_seen": [asdict(one) for one in self.not_seen],
            "warnings": self.work.source.log,
            "faults": [Finding.of(fault).to_json() for fault in self.faults],
            "findings": [found.to_json() for found in self.findings],
            "summary": self.summary,
            "schedules": None if self.differences is None else self.differences.to_json(),
            "report": report,
            "stdout": self.printed.getvalue(),
        }

    def _described(self, name: str) -> dict[str, Any]:
        array = self.arrays[name]
        return {"file": str(self.files[name]), "dtype": str(array.dtype), "shape": array.shape}

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The kernel's arrays after the launch; empty if a fault stopped it."""
        return {} if self.result is None else self.result.outputs

    @property
    def _report(self) -> dict[str, Any]:
        """The simulator's report as plain data; empty for hardware."""
        report = getattr(self.device, "report", None)
        return {} if report is None else report.to_json()


def _executed(report: dict[str, Any]) -> int | None:
    """The thread-instructions that the simulator executed; None for a run on hardware."""
    return sum(report["fidelity"]["counts"].values()) if report else None
