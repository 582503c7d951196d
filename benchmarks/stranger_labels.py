"""Labelled kernels of strangers: which faulty ones are named, and which right ones are reported."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common import Row
from stranger_sources import entry_of

import simwarp
from gpu.compile import Ptx, compile
from reference.errors import CompileError, SimwarpError
from simwarp.checks import KINDS
from simwarp.device import DeviceArray
from simwarp.device.module import Module
from simwarp.device.schedules import SCHEDULES, Schedule
from simwarp.faults import KernelFault, NeedsIndependentProgress

BUDGET = 200_000
"""Steps of a launch: these kernels are small, and some never end."""
Extent = tuple[int, ...]
Checks = str | Mapping[str, str]
Put = Callable[[Any], DeviceArray]
"""Puts an array on the device of a launch."""
Arguments = Callable[[Module, Put], Sequence[Any]]
ALL_KINDS: Checks = dict.fromkeys(KINDS, "report")
WAYS: Mapping[str, tuple[Checks, bool, Sequence[Schedule]]] = {
    "default": ("report", False, SCHEDULES[:1]),
    "another schedule": ("report", False, SCHEDULES[1:]),
    "strict": ("report+strict", False, SCHEDULES[:1]),
    "strict, another schedule": ("report+strict", False, SCHEDULES[1:]),
    "exits": (ALL_KINDS, False, SCHEDULES[:1]),
    "-G": ("report", True, SCHEDULES[:1]),
    "-G, strict": ("report+strict", True, SCHEDULES),
}
"""Checks, whether to compile with ``-G``, and schedules; the cheapest first."""
BY_DEFAULT = ("default", "another schedule")


@dataclass(frozen=True)
class Labelled:
    """A kernel whose author says whether it is faulty."""

    name: str  # in its suite
    faulty: bool
    source: str = ""
    file: str = "kernel.cu"  # its name in messages
    entry: str = ""  # the kernel's name
    grid: Extent = (1,)
    block: Extent = (1,)
    arguments: Arguments = lambda module, put: ()  # makes fresh arguments for a launch
    # more keyword arguments of `compile`
    compiling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cooperative: bool = False
    reason: str = ""  # why no run shows the fault of a faulty kernel, or why a report on a right one is true
    unused: str = ""  # why it is not run


@dataclass(frozen=True)
class Judged:
    """The reports on a labelled kernel."""

    case: Labelled
    # the first of `WAYS` that names something, for a right kernel of `BY_DEFAULT`; "" if none does
    how: str = ""
    found: list[str] = field(default_factory=list[str])  # the named things
    notes: int = 0  # on a right kernel, under "strict"
    error: str = ""  # why the kernel was not compiled or not run

    @property
    def good(self) -> bool:
        """True if a fault is named or a right kernel silent; the opposite where the table gives a reason."""
        return not self.error and (bool(self.how) == self.case.faulty) != bool(self.case.reason)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, for JSON."""
        reason = self.case.unused or self.case.reason or self.error
        notes = {} if self.case.faulty else {"notes": self.notes}
        return {"kernel": self.case.name, "named": self.how, "found": self.found, "reason": reason, **notes}

    def to_text(self) -> str:
        """One line, and one for each finding."""
        state = "not run" if self.case.unused else self.how or "silent"
        label, wrong = "faulty" if self.case.faulty else "right", self.case.unused or self.good
        lines = [f"{self.case.name}: {label}, {state}{'' if wrong else ' (OPEN)'}", *self.found]
        return "\n  ".join([*lines, *filter(None, (self.case.unused, self.case.reason, self.error))])


def judge(case: Labelled) -> Judged:
    """Run a faulty kernel in one way after the other until one reports something; a right one by default."""
    if case.unused:
        return Judged(case)
    texts: dict[bool, Ptx] = {}

    def found_in(ways: Iterable[str]) -> tuple[str, list[str]]:
        for way in ways:
            checks, debug, schedules = WAYS[way]
            if debug not in texts:
                texts[debug] = compiled(case, debug)
            for schedule in schedules:
                if found := run(case, texts[debug], checks, schedule):
                    return way, found
        return "", []

    try:
        how, found = found_in(WAYS if case.faulty else BY_DEFAULT)
        notes = 0 if case.faulty or how else len(found_in(["strict", "strict, another schedule"])[1])
    except SimwarpError as error:
        log = error.log.splitlines() if isinstance(error, CompileError) else []
        return Judged(case, error=next((line for line in log if "error" in line), str(error)))
    return Judged(case, how, found, notes)


def compiled(case: Labelled, debug: bool) -> Ptx:
    """The PTX of a kernel, with or without ``-G``."""
    options = [*case.compiling.get("options", ()), *(["-G"] if debug else [])]
    more: dict[str, Any] = {**case.compiling, "options": options}
    return compile(case.source, case.file, **more)


def run(case: Labelled, ptx: Ptx, checks: Checks, schedule: Schedule) -> list[str]:
    """The reports of a launch on fresh arguments."""
    how: dict[str, Any] = {"schedule": schedule.name, "seed": schedule.seed, "instruction_budget": BUDGET}
    device, kept = simwarp.Device(ptx.arch, checks=checks, **how), list[DeviceArray]()

    def put(array: Any) -> DeviceArray:
        kept.append(device.upload(array))
        return kept[-1]

    module = device.load(ptx)
    try:
        kernel = module.kernel(entry_of(ptx.text, case.entry))
        kernel(case.grid, case.block, *case.arguments(module, put), cooperative=case.cooperative)
    except NeedsIndependentProgress:
        return []
    except KernelFault as fault:
        return [one_line(fault)]
    return [one_line(fault) for fault in device.faults]


def one_line(fault: KernelFault) -> str:
    """A finding on one line: its source line, class and message, without the text of an assertion."""
    what = re.sub("`.*`", "", fault.what)
    return f"{fault.place.source_line or '?'}: {type(fault).__name__}: {what}"


def rows_of(suite: str, results: Sequence[Judged], **params: Any) -> list[Row]:
    """A row of the faulty kernels that are named, and one of the right ones that are not reported falsely."""
    rows: list[Row] = []
    for faulty, word in ((True, "faulty"), (False, "right")):
        own = [result for result in results if result.case.faulty is faulty]
        judged = [one for one in own if not one.case.unused and not (faulty and one.case.reason)]
        if own:
            kernels = [result.to_json() for result in own]
            counts = Counter(one.how for one in own)
            more = {**params, "ways": {way: counts[way] for way in WAYS if counts[way]}, "kernels": kernels}
            good = sum(one.good for one in judged)
            rows.append(Row(f"strangers/{suite}/{word}", more, "kernels", "higher", good, target=len(judged)))
    return rows
