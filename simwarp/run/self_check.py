"""Plant a fault of each kind in a kernel, and see whether the checks name it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from reference.errors import SimwarpError
from simwarp.checks import KINDS, Checks
from simwarp.device.device import Device
from simwarp.faults import KernelFault
from simwarp.run.planters import PLANTERS, UNPLANTED
from simwarp.run.planting import Code, Plant, Recorder, executed
from simwarp.run.work import Work

State = Literal["named", "found", "missed", "harmless", "impossible", "off"]
MakeDevice = Callable[..., Device]

_MOST = 8
"""The most plants of a kind that are tried, of those that may be harmless."""
_MOST_SURE = 3
"""The most of the others: a misaligned access behind an array is out of bounds first."""
_ROOM = 100_000
"""The steps that a mutant may take beyond four times those of the kernel itself."""


@dataclass(frozen=True)
class Planted:
    """The result of planting faults for one kind of check.

    The states are "named": a check reported the fault; "found": it reported another kind of fault; "missed":
    nothing was reported; "harmless": nothing was reported, and no plant has to be a fault; "impossible": this
    launch has no place for such a fault; "off": the kind is not checked.
    """

    kind: str
    state: State
    reason: str = ""  # for planting nothing
    what: str = ""  # the plant, in words
    file: str = ""
    line: int = 0  # in the source if that is known, else in the PTX; 0 for nowhere
    found: str = ""  # first line of the fault


@dataclass(frozen=True)
class SelfCheck:
    """The results of planting faults in one launch."""

    planted: tuple[Planted, ...] = ()  # one for each kind of check; empty if the kernel itself has faults
    faults: tuple[KernelFault, ...] = field(default=())  # of the kernel itself

    @property
    def passed(self) -> bool:
        """True if the kernel has no fault, and each fault that was planted was named: at least one."""
        states = [one.state for one in self.planted]
        return not self.faults and "missed" not in states and "named" in states


def self_check(
    work: Work,
    device: MakeDevice,
    checks: str | Mapping[str, str] = "raise",
    budget: int | None = None,
    show: Callable[[str, int], object] = lambda kind, done: None,
) -> SelfCheck:
    """Run a kernel, then mutants of it that each have a fault of one kind; see `simwarp.run.planters`.

    ``device`` makes devices; ``show`` receives the kind that comes next, and how many are done.
    """
    actions, recorder = Checks(checks), Recorder()
    looked_for = {kind: "off" if actions.action(kind) == "off" else "report" for kind in KINDS}
    first = device(checks=looked_for, observers=[recorder], stdout=io.StringIO(), instruction_budget=budget)
    faults, arguments = _faults(first, work, None)
    errors = [fault for fault in faults if fault.severity == "error"]
    if errors:
        return SelfCheck(faults=tuple(errors))
    code = Code(work, arguments, list(executed(work, recorder)))
    room = 4 * recorder.steps + _ROOM
    planted: list[Planted] = []
    for done, kind in enumerate(KINDS):
        show(kind, done)
        if looked_for[kind] == "off":
            planted.append(Planted(kind, "off", "it is off; name it with --checks"))
            continue
        make = _Maker(device, {**looked_for, kind: "raise"}, min(room, budget or room))
        planted.append(_of_kind(kind, code, make))
    show("", len(KINDS))
    return SelfCheck(tuple(planted))


@dataclass(frozen=True)
class _Maker:
    """Makes the simulated devices on which mutated kernels run."""

    device: MakeDevice
    checks: Mapping[str, str]
    budget: int

    def __call__(self) -> Device:
        return self.device(checks=self.checks, stdout=io.StringIO(), instruction_budget=self.budget)


def _of_kind(kind: str, code: Code, make: _Maker) -> Planted:
    """Plant faults of a kind until one is named, or one that is a fault in any kernel is not."""
    if kind in UNPLANTED:
        return Planted(kind, "impossible", UNPLANTED[kind])
    result = Planted(kind, "impossible", f"this launch executes no {PLANTERS[kind].needs}")
    for plant in _chosen(PLANTERS[kind].plants(code)):
        mutant = replace(code.work, source=replace(code.work.source, ptx=plant.ptx(code.work.source.ptx)))
        try:
            faults, _ = _faults(make(), mutant, plant.freed)
        except SimwarpError as error:
            why = f"the mutant does not run: {str(error).splitlines()[0]}"
            result = result if result.what else Planted(kind, "impossible", why)
            continue
        errors = [fault for fault in faults if fault.severity == "error"]
        named = [fault for fault in errors if fault.check == kind]
        other: State = "found" if errors else "missed" if plant.sure else "harmless"
        if named or other != "harmless" or not result.what:
            result = _described(kind, plant, "named" if named else other, next(iter(named or errors), None))
        if result.state in ("named", "missed"):
            break
    return result


def _chosen(plants: Iterator[Plant]) -> Iterator[Plant]:
    """Yield a few plants that may be harmless, then a few that are surely faults."""
    every = list(plants)
    yield from islice((plant for plant in every if not plant.sure), _MOST)
    yield from islice((plant for plant in every if plant.sure), _MOST_SURE)


def _faults(device: Device, work: Work, freed: int | None) -> tuple[list[KernelFault], list[Any]]:
    """Launch on a device; the faults found, the one that ended the launch last, and the arguments."""
    arguments = work.prepare(device)
    try:
        if freed is not None:
            arguments[freed].value.free()
        work.start(device, arguments)
    except KernelFault as fault:
        return [*device.faults, fault], arguments
    return list(device.faults), arguments


def _described(kind: str, plant: Plant, state: State, fault: KernelFault | None) -> Planted:
    """A plant with the fault that it led to."""
    instruction = plant.statement.instruction
    line = instruction.source
    file, number = (line.file, line.line) if line is not None and line.file else ("PTX", instruction.line)
    return Planted(
        kind, state, "", plant.what, file, number, "" if fault is None else str(fault).splitlines()[0]
    )
