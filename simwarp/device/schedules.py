"""Run a kernel under several schedules, to see whether its result depends on the order of its threads.

The PTX ISA orders lanes, warps and blocks only where a kernel synchronises them. A result that changes with
the order is due to a race, to unordered atomic operations (floating-point sums, tickets), or to a value that
the ISA leaves undefined. Equal results are cheap evidence, not proof.

Sources: PTX ISA 9.0, chapter 3 (independent thread scheduling) and chapter 8 (memory consistency model).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError, SimwarpError
from simwarp.checks import Checks
from simwarp.device.array import DeviceArray
from simwarp.device.device import Device
from simwarp.faults import KernelFault, NeedsIndependentProgress
from simwarp.findings import Finding
from simwarp.observe import Observer, Write, WriteObserver

VERDICT = "depends on scheduling: race, unordered atomic or unspecified result"
_ADVICE = "order the accesses by barriers or fences, or compute what every order gives"


@dataclass(frozen=True)
class Schedule:
    """A schedule of `Device`: a name and, for "random", a seed."""

    name: str  # "lowest pc", "stack" or "random"
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}" if self.name == "random" else self.name


SCHEDULES = (Schedule("lowest pc"), Schedule("stack"), *(Schedule("random", seed) for seed in range(3)))
"""The schedules that `compare_schedules` runs by default."""

Result: TypeAlias = "npt.NDArray[Any] | DeviceArray"
Run: TypeAlias = Callable[[Device], "Result | Mapping[str, Result]"]


MakeDevice: TypeAlias = Callable[..., Device]
"""Called with the keyword arguments ``checks``, ``schedule``, ``seed`` and ``observers``, as `Device` is."""


class DependsOnScheduling(KernelFault):
    """A result that changes with the schedule.

    ``place`` is that of the last write under the second schedule of ``difference``.
    """

    check = "schedules"

    def __init__(self, difference: Difference) -> None:
        super().__init__(f"{difference.where} {VERDICT}", difference.values(), _ADVICE)
        self.difference = difference
        if difference.other.write is not None:
            self.place = difference.other.write.place


class UnrepeatableRunError(SimwarpError, ValueError):
    """Two runs under the same schedule gave different results."""


@dataclass(frozen=True)
class Outcome:
    """One element of a result under one schedule.

    ``write`` is the last write of a kernel to the element, if known; among lanes that wrote by one
    instruction, one that wrote this value.
    """

    schedule: Schedule
    value: str
    """Of the element; the array's shape and type, if these differ; or the fault that stopped the run."""
    bits: str = ""  # the element's bits in hexadecimal; "" if there is no such element
    write: Write | None = None
    fault: KernelFault | None = None

    def __str__(self) -> str:
        value = f"{self.bits} ({self.value})" if self.bits else self.value
        written = f", last written by {self.write.place}" if self.write is not None else ""
        return f"{self.schedule}: {value}{written}"

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, for JSON."""
        place = str(self.write.place) if self.write is not None else None
        return {"schedule": str(self.schedule), "value": self.value, "bits": self.bits, "written_by": place}


@dataclass(frozen=True)
class Difference:
    """An array that differs between the first schedule and another one."""

    array: str  # name of the array; "" if a fault stopped the run under the other schedule
    index: tuple[int, ...]  # the first element that differs, in C order; () if shapes or types differ
    first: Outcome
    other: Outcome
    count: int = 1  # number of elements that differ, out of ``size``
    size: int = 1

    @property
    def where(self) -> str:
        """The element in NumPy's notation, such as ``out[0, 3]``."""
        if not self.array:
            return "whether a fault occurs"
        return f"{self.array}{list(self.index) if self.index else ''}"

    def values(self) -> str:
        """Both outcomes in one line."""
        return f"{self.first}; {self.other}; {self.count} of {self.size} elements differ"

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, for JSON."""
        outcomes = {"first": self.first.to_json(), "other": self.other.to_json()}
        return {**vars(self), "index": list(self.index), **outcomes}


@dataclass(frozen=True)
class Differences:
    """The differences between the results of several schedules: a sequence of `Difference`."""

    compared: tuple[Schedule, ...]  # the schedules with a result; the first is compared with each other one
    declined: Mapping[Schedule, str]  # the schedules that cannot run the kernel, with the reason
    differences: tuple[Difference, ...]
    faults: tuple[KernelFault, ...]  # collected under all schedules, each once

    def __len__(self) -> int:
        return len(self.differences)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __getitem__(self, i: int) -> Difference:
        return self.differences[i]

    @property
    def findings(self) -> list[Finding]:
        """The differences and the faults as findings."""
        return [Finding.of(fault) for fault in (*map(DependsOnScheduling, self.differences), *self.faults)]

    def raise_if_any(self) -> None:
        """Raise the first difference as `DependsOnScheduling`."""
        for difference in self.differences:
            raise DependsOnScheduling(difference)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data, for JSON."""
        return {
            "compared": [str(schedule) for schedule in self.compared],
            "declined": {str(schedule): reason for schedule, reason in self.declined.items()},
            "differences": [difference.to_json() for difference in self.differences],
            "faults": [str(fault) for fault in self.faults],
        }

    def to_text(self, leaving_out: Collection[str] = ()) -> str:
        """The differences and faults as text, without the faults whose text is in ``leaving_out``."""
        compared = "; ".join(map(str, self.compared)) or "no schedule"
        lines = [f"compared: {compared}"]
        lines += [f"declined: {schedule}: {reason}" for schedule, reason in self.declined.items()]
        for d in self.differences:
            if d.array:
                lines += [f"{d.where} {VERDICT}", f"  {d.first}", f"  {d.other}"]
                lines.append(f"  {d.count} of {d.size} elements differ")
            else:
                lines += [f"{d.first.schedule} ends without a fault; a fault stops {d.other.schedule}:"]
                lines += [f"  {line}" for line in d.other.value.splitlines()]
        if not self.differences:
            lines.append("no result differs")
        return "\n".join([*lines, *(text for text in map(str, self.faults) if text not in leaving_out)])


def compare_schedules(
    run: Run,
    schedules: Iterable[Schedule | str] = SCHEDULES,
    checks: str | Mapping[str, str] = MappingProxyType({"races": "report"}),
    device: MakeDevice = Device,
) -> Differences:
    """Run the same work under several schedules; compare each result bit by bit with that of the first.

    ``run`` gets a fresh device of the constructor ``device``, e.g. ``functools.partial(Device, cc=(8, 0))``,
    launches kernels on it and returns an array, or a mapping of names to arrays, of NumPy or of the device;
    the same each time, else UnrepeatableRunError. Other names in another run, or anything but arrays of
    numbers, raise ShapeError or DtypeError. The devices have the checks ``checks``; by default races are
    collected, not raised, since they are one cause of differences. A fault under the first schedule is
    raised; under another it is a difference. Two NaN with different payloads differ. The last writer of an
    element is known for device arrays, and for NumPy arrays whose key is the name of one.

    All lanes store to the same word; which store comes last?

    >>> import numpy as np
    >>> def run(device):
    ...     kernel = device.load('''
    ...         .version 9.0
    ...         .target sm_90
    ...         .visible .entry last(.param .u64 out) {
    ...             .reg .b32 %r; .reg .b64 %a;
    ...             ld.param.u64 %a, [out];
    ...             mov.u32 %r, %laneid;
    ...             st.global.u32 [%a], %r;
    ...             ret; }
    ...     ''').kernel("last")
    ...     out = device.allocate((1,), np.uint32, "out")
    ...     kernel((1, 1, 1), (32, 1, 1), out)
    ...     return out
    >>> differences = compare_schedules(run)
    >>> difference = differences[0]
    >>> difference.array, difference.index, difference.first.schedule, difference.first.value
    ('out', (0,), Schedule(name='lowest pc', seed=0), '31')
    >>> difference.first.write.place.text
    'st.global.u32 [%a], %r;'
    """
    if not callable(device):
        raise DtypeError(
            f"device is a {type(device).__name__}\neach run needs a new device, so it must be a constructor\n"
            "pass simwarp.Device, or functools.partial(simwarp.Device, cc=(8, 0))"
        )
    wanted = [Schedule(s) if isinstance(s, str) else s for s in schedules]
    return _Comparison(run, checks, device).compare(wanted)


_Arrays: TypeAlias = "dict[str, npt.NDArray[Any]]"
_Element: TypeAlias = tuple[str, tuple[int, ...]]


@dataclass
class _Comparison:
    """The runs of one `compare_schedules`, and their results by schedule."""

    run: Run
    checks: str | Mapping[str, str]
    device: MakeDevice
    results: dict[Schedule, _Arrays] = field(default_factory=dict[Schedule, _Arrays])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """From the name of a result to the name of its array on the device."""

    def compare(self, schedules: Iterable[Schedule]) -> Differences:
        """Run every schedule, and compare its result with the first."""
        declined, differences, collected = dict[Schedule, str](), list[Difference](), Checks("report")
        for schedule in schedules:
            first = next(iter(self.results), schedule)
            try:
                arrays, faults = self.execute(schedule)
            except NeedsIndependentProgress as fault:
                declined[schedule] = str(fault)
            except KernelFault as fault:
                if not self.results:
                    raise
                stopped = Outcome(schedule, str(fault), fault=fault)
                differences.append(Difference("", (), Outcome(first, "ends"), stopped))
            else:
                self.results[schedule] = arrays
                differences += _differences(first, self.results[first], schedule, arrays)
                for fault in faults:
                    collected.keep(fault)
        differences = self.with_writers(differences)
        return Differences(tuple(self.results), declined, tuple(differences), tuple(collected.faults))

    def execute(
        self, schedule: Schedule, observers: Sequence[Observer] = ()
    ) -> tuple[_Arrays, list[KernelFault]]:
        """Run once, and return the results on the host and the collected faults."""
        device = self.device(
            checks=self.checks, schedule=schedule.name, seed=schedule.seed, observers=observers
        )
        returned = self.run(device)
        device.synchronize()
        if isinstance(returned, DeviceArray):
            returned = {returned.name: returned}
        named = returned if isinstance(returned, Mapping) else {"result": returned}
        self.names = {name: a.name if isinstance(a, DeviceArray) else name for name, a in named.items()}
        return {name: _on_host(name, array) for name, array in named.items()}, device.faults

    def with_writers(self, differences: Iterable[Difference]) -> list[Difference]:
        """Add the last writers to the differences, from a second run under each schedule."""
        differences = list(differences)
        wanted = defaultdict[Schedule, set[_Element]](set)
        for d in differences:
            if d.first.bits:
                wanted[d.first.schedule].add((d.array, d.index))
                wanted[d.other.schedule].add((d.array, d.index))
        writers = {schedule: self.writers(schedule, elements) for schedule, elements in wanted.items()}
        return [
            replace(d, first=_written(d.first, d, writers), other=_written(d.other, d, writers))
            for d in differences
        ]

    def writers(self, schedule: Schedule, elements: Iterable[_Element]) -> dict[_Element, Write]:
        """Run again with observers, and return the last write of a kernel to each element, if any."""
        before = self.results[schedule]
        observers = {(name, index): self.observer(before[name], name, index) for name, index in elements}
        again, _ = self.execute(schedule, list(observers.values()))
        if _differences(schedule, before, schedule, again):
            raise UnrepeatableRunError(
                f"two runs under the same schedule ({schedule}) gave different results\n"
                "run must do the same each time\n"
                "seed its random inputs, and use only the device that it receives"
            )
        return {
            (name, index): _last(observer.writes, before[name], index)
            for (name, index), observer in observers.items()
            if observer.writes
        }

    def observer(self, array: npt.NDArray[Any], name: str, index: tuple[int, ...]) -> WriteObserver:
        """An observer of the writes to one element."""
        position = int(np.ravel_multi_index(index, array.shape)) if index else 0
        return WriteObserver(self.names[name], position * array.itemsize, array.itemsize)


def _last(writes: list[Write], array: npt.NDArray[Any], index: tuple[int, ...]) -> Write:
    """The last write of the element's final value; lanes of one instruction write in any order."""
    value = int.from_bytes(array[index].tobytes(), "little")
    return next((write for write in reversed(writes) if write.value == value), writes[-1])


def _written(
    outcome: Outcome, at: Difference, writers: Mapping[Schedule, Mapping[_Element, Write]]
) -> Outcome:
    """The outcome with the last write to its element."""
    return replace(outcome, write=writers.get(outcome.schedule, {}).get((at.array, at.index)))


def _on_host(name: str, given: Result) -> npt.NDArray[Any]:
    """Download a result; DtypeError unless it is an array of numbers."""
    array = given.download() if isinstance(given, DeviceArray) else np.asarray(given)
    if array.dtype.hasobject:
        raise DtypeError(
            f"result {name} has elements of type {array.dtype}\n"
            "results are compared bit by bit\n"
            "return arrays of numbers"
        )
    return array


def _differences(
    schedule: Schedule, results: _Arrays, other_schedule: Schedule, others: _Arrays
) -> list[Difference]:
    """One difference for each array that differs."""
    if results.keys() != others.keys():
        raise ShapeError(
            f"results {', '.join(results)} under {schedule}, but {', '.join(others)} under {other_schedule}\n"
            "results are compared array by array\n"
            "return the same names each time"
        )
    pairs = ((name, array, others[name]) for name, array in results.items())
    found = (_difference(schedule, other_schedule, *pair) for pair in pairs)
    return [difference for difference in found if difference is not None]


def _difference(
    schedule: Schedule, other_schedule: Schedule, name: str, array: npt.NDArray[Any], other: npt.NDArray[Any]
) -> Difference | None:
    """The first element that differs in any bit, and the number of such elements."""
    if (array.dtype, array.shape) != (other.dtype, other.shape):
        size = max(array.size, other.size)
        kinds = [Outcome(s, f"{a.dtype} {a.shape}") for s, a in ((schedule, array), (other_schedule, other))]
        return Difference(name, (), *kinds, count=size, size=size)
    bits, other_bits = _bytes(array), _bytes(other)
    differs = np.flatnonzero((bits != other_bits).any(axis=1))
    if not differs.size:
        return None
    at = int(differs[0])
    index = tuple(int(i) for i in np.unravel_index(at, array.shape))
    outcomes = (
        Outcome(s, str(a[index]), f"0x{b[at, ::-1].tobytes().hex()}")
        for s, a, b in ((schedule, array, bits), (other_schedule, other, other_bits))
    )
    return Difference(name, index, *outcomes, count=differs.size, size=array.size)


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of each element, (elements, bytes)."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(array.size, array.itemsize)
