"""Each launch of a program, held against a second device; the program goes on with the simulator's bytes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu.cuda.driver import is_raised_here
from reference.errors import SimwarpError
from simwarp.device.device import Device
from simwarp.exec.argument_names import ArgumentNames
from simwarp.exec.held_launches import HeldLaunch, HeldLaunches
from simwarp.exec.report import Report
from simwarp.exec.snapshot import Asked, Snapshot
from simwarp.faults import KernelFault
from simwarp.observe import Observer, WriteEvent, WriteObserver
from simwarp.places import Place
from simwarp.ptx.mangled_names import plain_variable
from simwarp.ptx.rows import DTYPES
from simwarp.run.both.again import observe
from simwarp.run.both.compare import compare, explained, last_write, on_chip
from simwarp.run.both.devices import Second, check_target
from simwarp.run.both.program_launch import Contents, ProgramLaunch, name_of, repeated
from simwarp.run.both.results import Compared
from simwarp.run.both.settings import Both, NotComparedError
from simwarp.run.tolerance import FloatOperations

if TYPE_CHECKING:
    from simwarp.program.link import Variable

_WORD = 4


class Holder:
    """Holds launches of a program against a second device, and adds the results to the program's report."""

    def __init__(self, both: Both, chip: Second, device: Device, report: Report) -> None:
        self.both, self.device, self.report = both, device, report
        self._chip: Second | None = chip
        self.held = report.both = HeldLaunches(chip.name)

    @contextmanager
    def holds(self, snapshot: Snapshot, asked: Asked, names: ArgumentNames) -> Generator[None]:
        """Hold the launch of a ``with`` block; a fault that ends it, or a finding, comes first."""
        number, errors = self.report.launches + 1, self._errors()
        try:
            launch = self._before(snapshot, asked)
        except NotComparedError as error:
            self.held.refuse(number, error)
            launch = None
        try:
            yield
        except KernelFault as fault:
            self.held.refuse(number, NotComparedError.of([fault], snapshot.kernel.shown))
            raise
        if launch is None:
            return
        try:
            found = self._found_since(errors, snapshot)
            self._compare(_Held(number, snapshot, asked, names, launch, found))
        except NotComparedError as error:
            self.held.refuse(number, error)

    def _before(self, snapshot: Snapshot, asked: Asked) -> ProgramLaunch:
        """The launch as the second device repeats it; NotComparedError if it cannot."""
        if self._chip is None:
            raise NotComparedError(
                f"{snapshot.kernel.shown} is not compared: {self.held.other} is gone\n"
                "an earlier launch ended its process or its context\nlook at that launch first"
            )
        try:
            check_target(snapshot.kernel.module.syntax, self._chip)
        except SimwarpError as error:
            raise _not_compared(snapshot, error) from None
        return snapshot.before(asked)

    def _errors(self) -> dict[int, int]:
        """The counts of the errors that the simulator found so far, each by its identity."""
        return {id(fault): fault.count for fault in self.device.checks.errors}

    def _found_since(self, before: dict[int, int], snapshot: Snapshot) -> tuple[str, ...]:
        """The findings of the launch; NotComparedError, unless it is to be compared in spite of them."""
        errors = self.device.checks.errors
        found = [fault for fault in errors if fault.count != before.get(id(fault), 0)]
        if found and not self.both.anyway:
            raise NotComparedError.of(found, snapshot.kernel.shown)
        return tuple(f"{fault.kind}: {fault.what}" for fault in found)

    def _compare(self, held: _Held) -> None:
        """Repeat the launch on the second device, and compare what both left in memory."""
        assert self._chip is not None
        here = held.snapshot.contents()
        try:
            there = on_chip(partial(self._chip.repeat, held.launch))
        except NotComparedError:
            self._chip = None
            raise
        except KernelFault as fault:
            self._chip = None
            fault.place = fault.place if fault.place != Place() else Place(held.kernel)
            self.report.add(fault)
            return
        except Exception as error:
            if not isinstance(error, SimwarpError) and not is_raised_here(error):
                raise
            raise _not_compared(held.snapshot, error) from None
        if all(np.array_equal(data, there[key]) for key, data in here.items()):
            self.held.equal += 1
            return
        compared = self._compared(held, here, there)
        if not compared.differences:
            self.held.equal += 1
            return
        launch = HeldLaunch(held.number, held.kernel, compared)
        if self.held.add(launch):
            self.report.show(str(launch))

    def _compared(self, held: _Held, here: Contents, there: Contents) -> Compared:
        """The comparison by elements; the first difference of a kernel is explained."""
        types, counted = _StoredTypes(), FloatOperations()
        observe(held.repeat, self._make, types, counted)
        views = held.views(types.by_allocation)
        arrays = {key: (name, here[key].view(dtype)) for key, (name, dtype) in views.items()}
        others: dict[int | str, npt.NDArray[Any]] = {
            key: there[key].view(dtype) for key, (_, dtype) in views.items()
        }
        blank = Compared(self.device.name, self.held.other, (), ignored=held.found)
        compared, differing = compare(blank, arrays, others, self.both, counted)
        if not differing or (held.kernel in self.held.different and not self.both.schedules):
            return compared
        key = differing[0]

        def writer_at(offset: int, size: int) -> tuple[Place | None, str]:
            observer = WriteObserver(name_of(key), offset, size)
            observe(held.repeat, self._make, observer)
            return last_write(observer)

        def run(device: Device) -> dict[int | str, npt.NDArray[Any]]:
            return {**held.repeat(device)}

        return explained(compared, arrays[key][1], others, self.both, self._make, run, writer_at)

    def _make(self, **more: Any) -> Device:
        """A device of the same kind for a further run of a launch."""
        device = self.device
        given: dict[str, Any] = {"schedule": device.schedule, "seed": device.seed, **more}
        made = Device(
            device.compute_capability,
            instruction_budget=device.instruction_budget,
            multiprocessors=device.multiprocessors,
            stack=device.stack,
            **given,
        )
        made.launches = device.launches - 1  # by which a random schedule is drawn
        return made


@dataclass(frozen=True)
class _Held:
    """A launch that was compared: its memory before, and the simulator's findings."""

    number: int
    snapshot: Snapshot
    asked: Asked
    names: ArgumentNames
    launch: ProgramLaunch
    found: tuple[str, ...]

    @property
    def kernel(self) -> str:
        """The kernel's name in the source."""
        return self.snapshot.kernel.shown

    def repeat(self, device: Device) -> Contents:
        """Run the launch again on a simulated device."""
        return repeated(device, self.launch)

    def views(self, stored: dict[str, np.dtype[Any]]) -> dict[int | str, tuple[str, np.dtype[Any]]]:
        """The name and the type of the elements of each allocation and variable.

        The type is that of the parameter that points there, else of the kernel's last store, else words.
        """
        memory, module = self.snapshot.kernel.device.memory, self.snapshot.kernel.module
        pointed = self.names.pointees(self.asked.parameters, memory)
        variables = {variable.name: variable for variable in module.syntax.variables}
        found: dict[int | str, tuple[str, np.dtype[Any]]] = {}
        names: set[str] = set()
        for key, data in self.launch.contents.items():
            if isinstance(key, str):
                name, known = plain_variable(key), _type_of(variables.get(key))
            else:
                name, known = pointed.get(key, (self.snapshot.name_of(key), None))
            name = f"{name} at {key:#x}" if name in names and isinstance(key, int) else name
            names.add(name)
            wanted = [known, stored.get(name_of(key)), np.dtype(f"u{_WORD}"), np.dtype(np.uint8)]
            found[key] = name, next(x for x in wanted if x is not None and data.size % x.itemsize == 0)
        return found


class _StoredTypes(Observer):
    """Collects the type of the last store to each allocation, by its name on the device."""

    def __init__(self) -> None:
        self.by_allocation: dict[str, np.dtype[Any]] = {}

    def on_write(self, event: WriteEvent) -> None:
        """Note the type of the written values."""
        if event.addresses.size:
            found = event.chunk.launch.memory.find(int(event.addresses[0]))
            if found is not None:
                self.by_allocation[found.name] = event.values.dtype


def _type_of(variable: Variable | None) -> np.dtype[Any] | None:
    """The type of a variable's elements; None for bytes, which may be anything."""
    if variable is None or variable.type in ("b8", "u8", "s8"):
        return None
    return np.dtype(DTYPES[variable.type])


def _not_compared(snapshot: Snapshot, error: Exception) -> NotComparedError:
    """The error of a launch that the second device cannot make."""
    return NotComparedError(f"{snapshot.kernel.shown} is not compared: {error}")
