"""The findings of a run: faults, calls that failed, functions that this runtime lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from reference.values import shortened
from simwarp.exec.held_launches import HeldLaunches
from simwarp.faults import KernelFault, Place
from simwarp.findings import Finding
from simwarp.ptx.mangled_names import readable
from simwarp.run.outcome import styled

_OF_PYTHON, _OF_COMMAND = 'checks="report"', "--checks report"


@shortened
@dataclass
class Report:
    """The findings of a program's run under ``simwarp exec``.

    Attributes
    ----------
    command : sequence of str
        The program and its arguments.
    device : str
    findings : list of KernelFault
        Each once; see `count_of`. Two are the same if their class and lines are, in whatever memory.
    kernels : Counter of str
        Launches of each kernel, by its name in the source.
    missing : Counter of str
        Functions of CUDA that the program called and this runtime lacks.
    failed : Counter of (str, str)
        Calls that returned an error: function and error.
    notes : list of str
        Kernels and modules that could not be run, and events that need not be errors.
    executed : int
        Thread-instructions.
    connected : bool
        Whether the program loaded this runtime.
    returncode : int or None
        As `subprocess.Popen` has it; None if the program was stopped by Ctrl-C.
    unfreed : int
        Bytes of memory that the program did not free.
    seconds : float
    quiet : bool
        Whether findings are printed only at the end, by the caller.
    both : HeldLaunches, optional
        What came of holding the launches against a second device.
    """

    command: Sequence[str] = ()
    device: str = ""
    findings: list[KernelFault] = field(default_factory=list[KernelFault])
    kernels: Counter[str] = field(default_factory=Counter[str])
    missing: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    notes: list[str] = field(default_factory=list[str])
    executed: int = 0
    connected: bool = False
    returncode: int | None = None
    unfreed: int = 0
    seconds: float = 0.0
    quiet: bool = False
    both: HeldLaunches | None = None
    _same: dict[object, list[KernelFault]] = field(
        default_factory=dict[object, list[KernelFault]], repr=False
    )

    def add(self, fault: KernelFault) -> None:
        """Add a finding; print it if it has not occurred before."""
        same = self._same.setdefault(_key(fault), [])
        same.append(fault)
        if len(same) == 1:
            self.findings.append(fault)
            more = f"\n{fault.more}" if fault.more else ""
            self.show(styled(Finding.of(fault).lines()).append(more.replace(_OF_PYTHON, _OF_COMMAND)))

    @property
    def errors(self) -> list[KernelFault]:
        """The findings that are errors, not notes."""
        return [fault for fault in self.findings if fault.severity == "error"]

    @property
    def clean(self) -> bool:
        """Whether there are neither errors nor differences from a second device."""
        return not self.errors and not (self.both is not None and self.both.different)

    @property
    def launches(self) -> int:
        """The number of launches."""
        return sum(self.kernels.values())

    @property
    def all_findings(self) -> list[Finding]:
        """The findings and differences with their counts, then notes on calls that failed or are missing."""
        failed = [
            Finding(
                f"{function} returned {error}",
                "FailedCall",
                "calls",
                "note",
                count=count,
                fields={"function": function, "error": error},
            )
            for (function, error), count in (*self.failed.items(), *self._missing)
        ]
        found = [replace(Finding.of(fault), count=self.count_of(fault)) for fault in self.findings]
        return [*found, *([] if self.both is None else self.both.findings), *failed]

    @property
    def _missing(self) -> list[tuple[tuple[str, str], int]]:
        return [((function, "cudaErrorNotSupported"), count) for function, count in self.missing.items()]

    def count_of(self, fault: KernelFault) -> int:
        """How often a finding occurred in the run."""
        return sum(one.count for one in self._same[_key(fault)])

    def note(self, text: str) -> None:
        """Add a note to the report and print it, unless it was added before."""
        if text not in self.notes:
            self.notes.append(text)
            self.show(text)

    def lacks(self, function: str) -> None:
        """Count a call of a function that the runtime lacks."""
        self.missing[function] += 1

    @property
    def exit_code(self) -> int:
        """The program's exit code; 128 + the number of the signal that ended it; 130 after Ctrl-C."""
        if self.returncode is None:
            return 130
        return 128 - self.returncode if self.returncode < 0 else self.returncode

    @property
    def summary(self) -> str:
        """The lines printed at the end of a run: launches, findings, exit code and seconds."""
        lines = [
            f"{name} is not in this runtime: it returned cudaErrorNotSupported ({_counted(count, 'time')})"
            for name, count in self.missing.items()
        ]
        lines += [
            f"{function} returned {error} ({_counted(count, 'time')})"
            for (function, error), count in self.failed.items()
        ]
        if not self.connected:
            lines.append(
                "the program did not load this runtime: it has a libcudart of its own, or calls none"
            )
        lines += [] if self.both is None else [str(self.both)]
        kinds = Counter(fault.check or type(fault).__name__ for fault in self.errors)
        found = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
        notes = len(self.findings) - len(self.errors)
        found = f" ({found})" * bool(found) + f", {_counted(notes, 'note')}" * bool(notes)
        lines.append(
            f"simwarp exec: {_counted(self.launches, 'launch', 'launches')} of "
            f"{_counted(len(self.kernels), 'kernel')}, {_counted(len(self.errors), 'finding')}"
            f"{found}, {self._ended}, {self.seconds:.1f} s"
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "command": list(self.command),
            "device": self.device,
            "exit_code": self.exit_code,
            "signal": -self.returncode if self.returncode is not None and self.returncode < 0 else None,
            "stopped": self.returncode is None,
            "connected": self.connected,
            "findings": [found.to_json() for found in self.all_findings[: len(self.findings)]],
            "kernels": dict(self.kernels),
            "executed": self.executed,
            "missing": dict(self.missing),
            "failed_calls": [
                {"function": function, "error": error, "count": count}
                for (function, error), count in self.failed.items()
            ],
            "notes": self.notes,
            "both": None if self.both is None else self.both.to_json(),
            "unfreed_bytes": self.unfreed,
            "seconds": round(self.seconds, 3),
        }

    @property
    def _ended(self) -> str:
        if self.returncode is None:
            return "stopped"
        return f"signal {-self.returncode}" if self.returncode < 0 else f"exit code {self.returncode}"

    def launched(self, kernel: str) -> None:
        """Count a launch of a kernel, given its name in the PTX."""
        self.kernels[readable(kernel)] += 1

    def show(self, text: str | Text) -> None:
        """Print a text on standard error, unless the report is quiet."""
        if not self.quiet:
            Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print(text, end="\n\n")


def _key(fault: KernelFault) -> object:
    """The identity of a finding: class and lines; without a location, class and kind of access."""
    places = [place for place in (fault.place, getattr(fault, "other", None)) if isinstance(place, Place)]
    lines = [
        (
            place.kernel,
            place.source_file,
            place.source_line or place.line,
            place.text * (not place.source_line),
        )
        for place in places
    ]
    return type(fault), fault.what if fault.place == Place() else "", tuple(lines)


def _counted(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
