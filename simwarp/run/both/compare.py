"""Compare the outputs of a launch on two devices, and find who wrote the first element that differs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from simwarp.device.device import Device
from simwarp.faults import KernelFault, Place
from simwarp.observe import WriteObserver
from simwarp.ptx.mangled_names import readable
from simwarp.run.arguments import Argument
from simwarp.run.both.devices import Answer, Second, answer, check_target, with_equal_bytes
from simwarp.run.both.exactness import Exactness, judged
from simwarp.run.both.parting import Found, find_parting
from simwarp.run.both.results import ArrayDifference, Compared
from simwarp.run.both.settings import Both, NotComparedError
from simwarp.run.outcome import Unwritten
from simwarp.run.source import Source
from simwarp.run.tolerance import FloatOperations, Tolerance, errors
from simwarp.run.work import Work

Make = Callable[..., Device]
"""Makes a simulated device; ``checks``, ``observers`` and ``stdout`` replace those that it would have."""


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
    operations = None if counted is None else counted.numbers
    outputs = simulated.outputs.by_position
    work = with_equal_bytes(work)
    other = work if other_source is None else work.of(replace(other_source, unoptimised=None))
    check_target(other.source.module, chip)
    both.show(f"running {readable(work.kernel.name)} on {chip.name}")
    there = _on_chip(chip, other)
    allowed: dict[str, str] = {}
    differences: list[tuple[int, ArrayDifference]] = []
    for position, (array, here) in outputs.items():
        tolerance = None if both.by_bits else _tolerance(here, there.arrays[position], both, operations)
        allowed[array] = "equal bits" if both.by_bits else str(tolerance or "equal integers")
        difference = _difference(array, here, there.arrays[position], tolerance, both.by_bits)
        if difference is not None:
            differences.append((position, difference))
    words = set(allowed.values())
    compared = Compared(
        make(stdout=io.StringIO()).name,
        chip.name,
        tuple(allowed),
        words.pop() if len(words) == 1 else "; ".join(f"{one}: {text}" for one, text in allowed.items()),
        tuple(one for _, one in differences),
        unwritten=tuple(map(str, simulated.unwritten)),
        ignored=tuple(f"{fault.kind}: {fault.what}" for fault in found),
    )
    if not differences:
        return compared
    position, first = differences[0]
    return _explained(compared, work, other, position, first, outputs[position][1], both, chip, make)


def _on_chip(chip: Second, work: Work) -> Answer:
    """The answer of the second device; a fault there says that the simulator found none."""
    try:
        return chip.answer(work)
    except KernelFault as fault:
        fault.advice = "the simulator ran it to its end without a finding: try more schedules there"
        raise


def _explained(
    compared: Compared,
    work: Work,
    other: Work,
    position: int,
    first: ArrayDifference,
    output: npt.NDArray[Any],
    both: Both,
    chip: Second,
    make: Make,
) -> Compared:
    """The comparison with the writer of the first element, its exactness and, if asked for, the part."""
    offset = (int(np.ravel_multi_index(first.first, output.shape)) if first.first else 0) * output.itemsize
    both.show(f"looking for the writer of {first.element}")
    writer, register = writer_of(work, position, offset, output.itemsize, make)
    grade, reasons = _exactness(work, writer, make)
    compared = replace(
        compared,
        writer=writer,
        register=register,
        exactness=grade,
        reasons=reasons,
        differences=(replace(first, unwritten=writer is None), *compared.differences[1:]),
    )
    if not both.bisect:
        return compared
    lead = _first_byte(first)
    found = Found(work, other, chip, make, position, offset + lead, writer, both.show)
    return replace(compared, parting=find_parting(found))


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

    _again(work, make, observer, begins)
    return (observer.writes[-1].place, observer.writes[-1].register) if observer.writes else (None, "")


def _exactness(work: Work, writer: Place | None, make: Make) -> tuple[str, tuple[str, ...]]:
    """How exact the first element is: by its thread's instructions, else by those of the whole launch."""
    observer = Exactness(writer)
    _again(work, make, observer)
    return judged(observer)


def _again(
    work: Work,
    make: Make,
    observer: Any,
    begins: Callable[[list[Argument]], object] = lambda arguments: None,
) -> None:
    """Run the launch on the simulator once more with an observer; faults were reported by the first run."""
    device = make(checks="report", observers=[observer], stdout=io.StringIO())
    with suppress(
        KernelFault
    ):  # an ignored finding that ends the launch: what was observed until then counts
        answer(device, work, begins=begins)
