"""What ``simwarp run`` says of a kernel, and the files that it writes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from simwarp.cli.files import write_array
from simwarp.cli.run_words import Word
from simwarp.draw.report import to_text
from simwarp.faults import KernelFault
from simwarp.run.kernel import Result, Work
from simwarp.run.names import readable
from simwarp.run.outcome import fault_to_json
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
    unwritten : list of str
        Arrays that the kernel changed, and that were only to be read.
    """

    work: Work
    device: Any
    printed: io.StringIO
    result: Result | None = None
    fault: KernelFault | None = None
    differences: Differences | None = None
    files: dict[str, Path] = field(default_factory=dict[str, Path])
    unwritten: list[str] = field(default_factory=list[str])

    @property
    def faults(self) -> list[KernelFault]:
        """All that were found, the one that stopped the kernel last."""
        collected: list[KernelFault] = list(getattr(self.device, "faults", []))
        return collected if self.fault is None else [*collected, self.fault]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        of_schedules = self.differences is not None and (self.differences or self.differences.faults)
        return not self.faults and not of_schedules

    def write(self, folder: Path, words: Mapping[str, Word]) -> None:
        """Write the arrays that are asked for."""
        if self.result is None:
            return
        for name, array in self.result.outputs.items():
            if words[name].written:
                self.files[name] = folder / f"{name}.npy"
                write_array(self.files[name], array)
            elif name in self.result.changed:
                self.unwritten.append(name)

    def show(self, console: Console) -> None:
        """For people: what the kernel printed and the tables on stdout, the rest beside it."""
        sys.stdout.write(self.printed.getvalue())
        data = {name: table for name, table in self._report().items() if name != "fidelity"}
        if data:
            sys.stdout.write(f"{to_text(data)}\n")
        if self.differences is not None:
            sys.stdout.write(f"{self.differences.to_text()}\n")
        sys.stdout.flush()
        for fault in self.faults:
            _say(console, f"{fault}\n" if fault.count == 1 else f"{fault}\n({fault.count} times)\n")
        for name, path in self.files.items():
            array = self.arrays[name]
            _say(console, f"wrote {path}: {' x '.join(map(str, array.shape))} {array.dtype}")
        for name in self.unwritten:
            _say(console, f"the kernel changed {name}; to write it, give its file as FILE.npy:inout")
        _say(console, f"{readable(self.work.kernel.name)} on {self.device.name}: {self._fidelity()}")

    def print_json(self) -> None:
        """For programs: one object on stdout."""
        result = self.result
        data: dict[str, Any] = {
            "kernel": readable(self.work.kernel.name),
            "grid": self.work.grid,
            "block": self.work.block,
            "device": self.device.name,
            "ended": result is not None,
            "executed": result.executed if result else None,
            "outputs": {name: self._described(name) for name in self.files},
            "changed": result.changed if result else [],
            "faults": [fault_to_json(fault) for fault in self.faults],
            "schedules": None if self.differences is None else self.differences.to_json(),
            "report": self._report(),
            "stdout": self.printed.getvalue(),
        }
        sys.stdout.write(json.dumps(data, indent=2) + "\n")

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

    def _fidelity(self) -> str:
        """One line: how much of the run is the same to the last bit on hardware."""
        report = getattr(self.device, "report", None)
        return "this is what the hardware answered" if report is None else str(report.fidelity)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
