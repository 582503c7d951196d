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
from simwarp.draw.report import to_text
from simwarp.faults import KernelFault
from simwarp.ptx.mangled_names import readable
from simwarp.run.kernel import Result, Work
from simwarp.run.outcome import Unwritten, fault_to_json
from simwarp.schedules import Differences


@dataclass
class Outcome:
    """What became of a launch.

    Attributes
    ----------
    work : Work
    device
        Where it ran.
    printed : text stream
        What the kernel printed.
    result : Result or None
        None if a fault stopped it.
    fault : KernelFault or None
        What stopped it.
    differences : Differences or None
        Between schedules, if they were compared.
    files : dict of str to Path
        What was written, by the argument's name.
    kept : list of str
        Arrays that the kernel changed, and that were only to be read.
    partial : bool
        Whether the kernel may leave elements of arrays to be filled unwritten.
    """

    work: Work
    device: Any
    printed: io.StringIO
    result: Result | None = None
    fault: KernelFault | None = None
    differences: Differences | None = None
    files: dict[str, Path] = field(default_factory=dict[str, Path])
    kept: list[str] = field(default_factory=list[str])
    partial: bool = False

    @property
    def faults(self) -> list[KernelFault]:
        """All that were found, the one that stopped the kernel last."""
        collected: list[KernelFault] = list(getattr(self.device, "faults", []))
        return collected if self.fault is None else [*collected, self.fault]

    @property
    def clean(self) -> bool:
        """Whether nothing was found, and nothing left unwritten that was to be filled."""
        of_schedules = self.differences is not None and (self.differences or self.differences.faults)
        incomplete = self.unwritten and not self.partial
        return not self.faults and not of_schedules and not incomplete

    @property
    def unwritten(self) -> tuple[Unwritten, ...]:
        """What the kernel never wrote of the arrays that it was to fill."""
        return () if self.result is None else self.result.unwritten

    def write(self, folder: Path, words: Mapping[str, Word]) -> None:
        """Write the arrays that are asked for."""
        if self.result is None:
            return
        for name, array in self.result.outputs.items():
            if words[name].written:
                self.files[name] = folder / f"{name}.npy"
                write_array(self.files[name], array)
            elif name in self.result.changed:
                self.kept.append(name)

    def show(self, console: Console) -> None:
        """For people: what the kernel printed and the tables on stdout, the rest beside it."""
        sys.stdout.write(self.printed.getvalue())
        data = {name: table for name, table in self._report().items() if name != "fidelity"}
        if data:
            sys.stdout.write(f"{to_text(data)}\n")
        if self.differences is not None:
            shown = {str(fault) for fault in self.faults}
            sys.stdout.write(f"{self.differences.to_text(leaving_out=shown)}\n")
        sys.stdout.flush()
        if self.work.source.log:
            _print(console, f"{self.work.source.log}\n")
        for fault in self.faults:
            _print(console, f"{fault}\n" if fault.count == 1 else f"{fault}\n({fault.count} times)\n")
        incomplete = {left.array for left in self.unwritten}
        for name, path in self.files.items():
            array = self.arrays[name]
            what = f"{' x '.join(map(str, array.shape))} {array.dtype}"
            _print(console, f"wrote {path}: {what}{', incomplete' if name in incomplete else ''}")
        for left in self.unwritten:
            advice = "" if self.partial else "\nlet the kernel write all of them, or give --partial"
            _print(console, f"{left}{advice}")
        for note in self.work.notes:
            _print(console, f"note: {note}\nset it with --set {note.partition(' ')[0]}=FILE.npy")
        for name in self.kept:
            _print(console, f"the kernel changed {name}; to write it, give its file as FILE.npy:inout")
        _print(console, f"{readable(self.work.kernel.name)} on {self.device.name}: {self._fidelity()}")

    def print_json(self) -> None:
        """For programs: one object on stdout."""
        result = self.result
        data: dict[str, Any] = {
            "kernel": readable(self.work.kernel.name),
            "grid": self.work.grid,
            "block": self.work.block,
            "device": self.device.name,
            "ended": result is not None,
            "executed": result.executed if result else self._executed(),
            "outputs": {name: self._described(name) for name in self.files},
            "changed": result.changed if result else [],
            "unwritten": [asdict(left) for left in self.unwritten],
            "notes": self.work.notes,
            "warnings": self.work.source.log,
            "faults": [fault_to_json(fault) for fault in self.faults],
            "schedules": None if self.differences is None else self.differences.to_json(),
            "report": self._report(),
            "stdout": self.printed.getvalue(),
        }
        print_json(data)

    def _described(self, name: str) -> dict[str, Any]:
        array = self.arrays[name]
        return {"file": str(self.files[name]), "dtype": str(array.dtype), "shape": array.shape}

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The kernel's arrays after the launch, if it came to an end."""
        return {} if self.result is None else self.result.outputs

    def _report(self) -> dict[str, Any]:
        report = getattr(self.device, "report", None)
        return {} if report is None else report.to_json()

    def _executed(self) -> int | None:
        """Thread-instructions until a fault, as far as they were counted."""
        report = getattr(self.device, "report", None)
        return None if report is None else sum(report.fidelity.counts.values())

    def _fidelity(self) -> str:
        """One line: how much of the run is the same to the last bit on hardware."""
        report = getattr(self.device, "report", None)
        return "this is what the hardware answered" if report is None else str(report.fidelity)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
