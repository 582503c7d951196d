"""Compare the outputs of a launch on two devices, and find who wrote the first element that differs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from simwarp.device.device import Device
from simwarp.faults import KernelFault, Place
from simwarp.observe import WriteObserver
from simwarp.ptx.mangled_names import readable
from simwarp.run.arguments import Argument
from simwarp.run.both.again import Arrays, Key, Make, exactness, legal_schedule, observe
from simwarp.run.both.devices import Second, answer, check_target, with_equal_bytes
from simwarp.run.both.exactness import judged
from simwarp.run.both.parting import Found, find_parting
from simwarp.run.both.results import ArrayDifference, Compared
from simwarp.run.both.settings import Both, NotComparedError
from simwarp.run.outcome import Unwritten
from simwarp.run.source import Source
from simwarp.run.tolerance import FloatOperations, Tolerance, errors
from simwarp.run.work import Work


class Outputs(Protocol):
    """The arrays of a launch."""

    @property
    def by_position(self) -> dict[int, tuple[str, npt.NDArray[Any]]]:
        """Each array with its name, by the position of its argument."""
        ...


class Simulated(Protocol):
    """What a launch gave on the simulator; `simwarp.run.Result` is one."""

    @property
    def outputs(self) -> Outputs:
        """The arrays after the launch."""
        ...

    @property
    def faults(self) -> list[KernelFault]:
        """The findings that checks collected."""
        ...

    @property
    def unwritten(self) -> tuple[Unwritten, ...]:
        """The arrays with elements that the kernel did not write."""
        ...


def hold(
    work: Work,
    simulated: Simulated,
    both: Both,
    chip: Second,
    make: Make,
    *,
    counted: FloatOperations | None = None,
    other_source: Source | None = None,
) -> Compared:
    """Hold the result of a launch on the simulator against that of a second device.

    ``make`` makes the simulated devices of further launches, which look for writer and instruction.
    ``counted`` are the run's operations on floats, see `Tolerance.of`. Tests give the second device edited
    PTX, as ``other_source``.
    """
    found = [fault for fault in simulated.faults if fault.severity == "error"]
    if found and not both.anyway:
        raise NotComparedError.of(found, readable(work.kernel.name))
    outputs = simulated.outputs.by_position
    work = with_equal_bytes(work)
    other = work if other_source is None else work.of(replace(other_source, unoptimised=None))
    check_target(other.source.module, chip)
    both.show(f"running {readable(work.kernel.name)} on {chip.name}")
    there = on_chip(partial(chip.answer, other)).arrays
    blank = Compared(
        make(stdout=io.StringIO()).name,
        chip.name,
        (),
        unwritten=tuple(map(str, simulated.unwritten)),
        ignored=tuple(f"{fault.kind}: {fault.what}" for fault in found),
    )
    compared, differing = compare(blank, outputs, there, both, counted)
    if not differing:
        return compared
    position = differing[0]

    def arrays(device: Device) -> dict[int, npt.NDArray[Any]]:
        return answer(device, work).arrays

    def writer(offset: int, size: int) -> tuple[Place | None, str]:
        return writer_of(work, position, offset, size, make)

    compared = explained(compared, outputs[position][1], there, both, make, arrays, writer)
    if not both.bisect or compared.legal:
        return compared
    offset = _offset(compared.differences[0], outputs[position][1]) + _first_byte(compared.differences[0])
    found_at = Found(work, other, chip, make, position, offset, compared.writer, both.show)
    return replace(compared, parting=find_parting(found_at))


def on_chip(launch: Callable[[], Any]) -> Any:
    """What a launch on the second device gives; a fault there says that the simulator found none."""
    try:
        return launch()
    except KernelFault as fault:
        fault.advice = "the simulator ran it to its end without a finding: try more schedules there"
        raise


def compare(
    blank: Compared,
    here: Mapping[Key, tuple[str, npt.NDArray[Any]]],
    there: Arrays[Key],
    both: Both,
    counted: FloatOperations | None,
) -> tuple[Compared, list[Key]]:
    """The comparison of all arrays, each with its name, and the keys of those that differ."""
    operations = None if counted is None else counted.numbers
    allowed: dict[str, str] = {}
    differing: dict[Key, ArrayDifference] = {}
    for key, (name, array) in here.items():
        tolerance = None if both.by_bits else _tolerance(array, there[key], both, operations)
        allowed[name] = "equal bits" if both.by_bits else str(tolerance or "equal integers")
        difference = _difference(name, array, there[key], tolerance, both.by_bits)
        if difference is not None:
            differing[key] = difference
    words = set(allowed.values())
    compared = replace(
        blank,
        arrays=tuple(allowed),
        allowed=words.pop()
        if len(words) == 1
        else "; ".join(f"{one}: {text}" for one, text in allowed.items()),
        differences=tuple(differing.values()),
    )
    return compared, list(differing)


def explained(
    compared: Compared,
    array: npt.NDArray[Any],
    there: Arrays[Key],
    both: Both,
    make: Make,
    run: Callable[[Device], Arrays[Key]],
    writer_at: Callable[[int, int], tuple[Place | None, str]],
) -> Compared:
    """The comparison with the writer of the first element, its exactness, and a schedule that gives it.

    ``array`` is the one with the first difference, ``there`` are all of the other device, ``run`` launches on
    a simulated device, and ``writer_at`` finds the last writer of some bytes of the array, with its register.
    """
    first = compared.differences[0]
    both.show(f"looking for the writer of {first.element}")
    writer, register = writer_at(_offset(first, array), array.itemsize)
    found = exactness(run, make, writer)
    grade, reasons = judged(found)
    legal = None
    if both.schedules and found.depends_on_order:
        both.show(f"looking for a schedule that gives {first.element}")
        legal = legal_schedule(run, make, there, both.schedules)
    return replace(
        compared,
        writer=writer,
        register=register,
        exactness=grade,
        reasons=reasons,
        legal="" if legal is None else str(legal),
        schedules=both.schedules if found.depends_on_order else 0,
        differences=(replace(first, unwritten=writer is None), *compared.differences[1:]),
    )


def _offset(first: ArrayDifference, array: npt.NDArray[Any]) -> int:
    """The offset in bytes of the first element that differs."""
    return (int(np.ravel_multi_index(first.first, array.shape)) if first.first else 0) * array.itemsize


def _first_byte(first: ArrayDifference) -> int:
    """The first byte of an element in which the two values differ, in the order of memory."""
    here, there = (bytes.fromhex(bits[2:])[::-1] for bits in first.bits)
    return next((i for i, (x, y) in enumerate(zip(here, there, strict=True)) if x != y), 0)


def _tolerance(here: Any, there: Any, both: Both, operations: Mapping[str, int] | None) -> Tolerance | None:
    """The tolerance of an array; None for integers, and for what no tolerance is for."""
    if here.dtype.kind not in "fc":
        return None
    if both.rtol is not None or both.atol is not None:
        return Tolerance(both.atol or 0.0, both.rtol or 0.0)
    return Tolerance.of(there, here, operations)


def _difference(
    name: str, here: npt.NDArray[Any], there: npt.NDArray[Any], tolerance: Tolerance | None, by_bits: bool
) -> ArrayDifference | None:
    """The elements of an array that differ; None if none does."""
    if not here.size:
        return None
    if by_bits or tolerance is None:
        one, other = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (here, there))
        wrong = (one != other).reshape(here.size, -1).any(axis=1)
    else:
        wrong = errors(there, here, tolerance)[0].reshape(-1)
    if not wrong.any():
        return None
    at = int(wrong.argmax())
    index = tuple(int(i) for i in np.unravel_index(at, here.shape))
    x, y = here.reshape(-1)[at], there.reshape(-1)[at]
    bits = [f"0x{x.tobytes()[::-1].hex()}" for x in (x, y)]
    return ArrayDifference(name, int(wrong.sum()), here.size, index, x.item(), y.item(), (bits[0], bits[1]))


def writer_of(work: Work, position: int, offset: int, size: int, make: Make) -> tuple[Place | None, str]:
    """Run the launch again, and return the last writer of some bytes, with its register."""
    observer = WriteObserver("", offset, size)

    def begins(arguments: list[Argument]) -> None:
        observer.array = arguments[position].value.name

    observe(lambda device: answer(device, work, begins=begins), make, observer)
    return last_write(observer)


def last_write(observer: WriteObserver) -> tuple[Place | None, str]:
    """The place and the register of the last write that an observer saw."""
    return (observer.writes[-1].place, observer.writes[-1].register) if observer.writes else (None, "")
