"""Comparison of the tiers on one input, and tracing of a difference to the lane that wrote it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import SimwarpError
from reference.values import shortened
from simwarp.device.device import Device
from simwarp.faults import KernelFault, Place
from simwarp.observe import WriteObserver
from simwarp.verify.case import ORACLE, Case
from simwarp.verify.draw import Draw
from simwarp.verify.hypotheses import in_words, listed
from simwarp.warp import watch

Devices = Mapping[str, Callable[[], Any]]
"""Functions that make the device of each tier of the ``"gpu"`` answer, by tier."""

SIMULATOR, CUDA = "simulator", "cuda"


@shortened
@dataclass(frozen=True)
class Mismatch:
    """An answer that differs from the reference, traced to the lane that wrote it.

    Attributes
    ----------
    case, seed, input, tier
        The input, and the tier whose answer differs.
    problem : str
        A description of the input.
    element : tuple of int
        The index of the first wrong element of the output.
    expected, got : int or float
    bits : tuple of int
        The bits in which two integers differ, 0 the least significant.
    apart : int, optional
        By how much signed integers differ, got - expected.
    as_if : str
        The simple bugs that would give the whole answer: "as if …"; "" if none is known to.
    meaning : str
        The element in terms of the problem.
    wrong, total : int
        The number of elements that differ, and of all elements of the output.
    place : Place, optional
        The last writer of the element: kernel, block, warp, lane, lines. For hardware it is found by running
        the input again on the simulator.
    register : str
        The PTX register that held the value.
    fault : str
        The message of the exception that ended the tier; the fields above are then not set.
    picture : str
        A drawing of the element's part of the problem; "" if the case has none.
    traced : bool
        Whether the writer was looked for.
    file : str
        The file that holds a case of a user; "" for one of simwarp's.
    """

    case: str
    seed: int
    input: int
    tier: str
    problem: str
    element: tuple[int, ...] = ()
    expected: int | float | None = None
    got: int | float | None = None
    bits: tuple[int, ...] = ()
    apart: int | None = None
    as_if: str = ""
    meaning: str = ""
    wrong: int = 0
    total: int = 0
    place: Place | None = None
    register: str = ""
    fault: str = ""
    picture: str = ""
    traced: bool = True
    file: str = ""

    @property
    def command(self) -> str:
        """The ``simwarp verify`` command that runs the mismatched input again."""
        device = " --device cuda" if self.tier == CUDA else ""
        file = f"{shlex.quote(self.file)} " if self.file else ""
        case = shlex.quote(self.case)
        return f"simwarp verify {file}--case {case} --seed {self.seed} --input {self.input}{device}"

    def __str__(self) -> str:
        first = f"{self.case}, input {self.input} ({self.problem}): {self.tier} differs from {ORACLE}"
        if self.fault:
            return f"{first}\n{self.fault}\nreplay: {self.command}"
        if self.expected is None or self.got is None:
            return f"{first}\n{self.meaning}\nreplay: {self.command}"
        source = f" from {self.register}" if self.register else ""
        who = f", written{source} by {self.place}" if self.place else ", which nothing wrote"
        who = who if self.traced else ""
        return (
            f"{first} in {self.wrong} of {self.total} elements; the first is {list(self.element)}, "
            f"{self.meaning}{who}\n"
            f"{_values(self.expected, self.got, self.bits, self.apart)}\n"
            + (f"{self.as_if}\n" if self.as_if else "")
            + f"replay: {self.command}"
        ) + (f"\n{self.picture}" if self.picture else "")


@dataclass
class Checked:
    """The result of one input: the seconds of each tier, and the mismatches."""

    shape: tuple[int, ...]
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    mismatches: list[Mismatch] = field(default_factory=list[Mismatch])


def small(device: Any) -> Any:
    """Set a device to one multiprocessor, and return it."""
    device.multiprocessors = 1
    return device


def simulator(**options: Any) -> Device:
    """Make a simulated device with one multiprocessor.

    Examples
    --------
    >>> simulator().multiprocessors
    1
    """
    return small(Device(**options))


def tiers_of(case: Case, devices: Devices) -> list[str]:
    """The tiers that answer a case: those on the host, the oracle first, then devices."""
    on_hosts = [tier for tier in case.answers if tier != "gpu"]
    return [*on_hosts, *devices]


def check(case: Case, seed: int, k: int, devices: Devices, tiers: Sequence[str] | None = None) -> Checked:
    """Run input ``k`` of a case through every tier, and compare the answers with the reference.

    Parameters
    ----------
    case : Case
    seed, k : int
    devices : mapping of tier to a function that makes its device
    tiers : sequence of str, optional
        Run only these, and the reference.

    Examples
    --------
    >>> from simwarp.verify import CASES
    >>> check(CASES["bmm"], 0, 2, {"simulator": simulator}).mismatches
    []
    """
    item = case.draw(Draw(seed, case.name, k))
    checked = Checked(case.shape(item))
    asked = tiers or tiers_of(case, devices)
    start = time.perf_counter()
    expected = case.answers[ORACLE](item)
    checked.seconds[ORACLE] = time.perf_counter() - start
    for tier in asked:
        if tier == ORACLE:
            continue
        start = time.perf_counter()
        try:
            got = case.answers["gpu"](item, devices[tier]()) if tier in devices else case.answers[tier](item)
        except Exception as error:
            place = error.place if isinstance(error, KernelFault) else None
            text = str(error) if isinstance(error, SimwarpError) else f"{type(error).__name__}: {error}"
            found: dict[str, Any] = {"fault": text, "place": place}
        else:
            answer = "gpu" if tier in devices else tier
            found = {} if case.equal(item, expected, got) else _difference(case, answer, item, expected, got)
        if found:
            found["file"] = case.file
            checked.mismatches.append(Mismatch(case.name, seed, k, tier, case.describe(item), **found))
        checked.seconds[tier] = time.perf_counter() - start
    return checked


def _difference(
    case: Case, answer: str, item: Any, expected: npt.NDArray[Any], got: npt.NDArray[Any]
) -> dict[str, Any]:
    """The fields of a mismatch that describe the first wrong element and its writer."""
    if not case.alike(expected, got):
        return {"meaning": f"expected {expected.dtype} {expected.shape}, got {got.dtype} {got.shape}"}
    wrong = np.argwhere(case.wrong(item, expected, got))
    element = tuple(int(i) for i in wrong[0])
    x, y = expected[element].item(), got[element].item()
    bits = _bits(x, y, expected.dtype.itemsize * 8)
    lead = case.lead(item, bits) if bits else 0
    place, register = last_write(case, answer, item, element, got, lead)
    meaning = case.explain(item, element, lead)
    picture = "" if case.picture is None else case.picture(item, element, lead)
    apart = y - x if expected.dtype.kind == "i" and got.dtype.kind == "i" else None
    as_if = "" if case.as_if is None else case.as_if(item, expected, got)
    difference = {"element": element, "expected": x, "got": y, "bits": bits, "meaning": meaning}
    counts = {"wrong": len(wrong), "total": expected.size, "traced": bool(case.outputs[answer])}
    difference |= {"apart": apart, "as_if": as_if}
    return {**difference, **counts, "place": place, "register": register, "picture": picture}


def last_write(
    case: Case, answer: str, item: Any, element: tuple[int, ...], output: npt.NDArray[Any], bit: int = 0
) -> tuple[Place | None, str]:
    """Run the input again with an observer; return the last writer of an element, and its register."""
    flat, width = int(np.ravel_multi_index(element, output.shape)), output.dtype.itemsize
    name = case.outputs[answer]
    if not name:
        return None, ""
    if answer == "gpu":
        observer = WriteObserver(name, flat * width + bit // 8, 1)
        with suppress(KernelFault):  # the writes before the fault are enough
            case.answers[answer](item, simulator(observers=[observer]))
        return (observer.writes[-1].place, observer.writes[-1].register) if observer.writes else (None, "")
    with watch(name, flat) as places:
        case.answers[answer](item)
    return (places[-1], "") if places else (None, "")


def _bits(x: float, y: float, width: int) -> tuple[int, ...]:
    """The bits in which two integers differ; () for floats."""
    if isinstance(x, float) or isinstance(y, float):
        return ()
    return tuple(b for b in range(width) if (x ^ y) >> b & 1)


def _values(expected: float, got: float, bits: tuple[int, ...], apart: int | None) -> str:
    """The line of a mismatch that shows both values."""
    if isinstance(expected, float) or isinstance(got, float):
        return f"expected {expected!r}, got {got!r}: {got - expected:.3g} apart"
    by = "" if apart is None else in_words(apart)
    return f"expected {expected} ({_hex(expected)}), got {got} ({_hex(got)}){by}: bits {listed(bits)} differ"


def _hex(value: int) -> str:
    """The 32-bit two's complement of a negative value in hex, other values as they are."""
    return f"{value % 2**32 if value < 0 else value:#010x}"  # negative answers are int32
