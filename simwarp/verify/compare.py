"""One input through the tiers, and what a difference is traced back to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import SimwarpError
from simwarp.device.device import Device
from simwarp.faults import KernelFault, Place
from simwarp.observe import WriteObserver
from simwarp.verify.case import ORACLE, Case
from simwarp.verify.draw import Draw
from simwarp.warp import watch

Devices = Mapping[str, Callable[[], Any]]
"""Makes the device of each tier that needs one; the tiers of the ``"gpu"`` answer."""

SIMULATOR, CUDA = "simulator", "cuda"


@dataclass(frozen=True)
class Mismatch:
    """An answer that differs from the reference, traced to the lane that wrote it.

    Attributes
    ----------
    case, seed, input, tier
        The input, and the tier whose answer is wrong.
    problem : str
        The input in words.
    element : tuple of int
        Index of the first wrong element of the output.
    expected, got : int or float
    bits : tuple of int
        The bits in which integers differ, 0 the least significant.
    meaning : str
        Which element of the problem that is.
    wrong, total : int
        How many elements of the output differ, and how many there are.
    place : Place, optional
        The writer of the element: kernel, block, warp, lane, lines. On hardware, found by running the
        input again on the simulator.
    register : str
        The PTX register that held the value.
    fault : str
        The message of the fault that ended the kernel, instead of all the above.
    picture : str
        The element's part of the problem, drawn; "" if the case draws none.
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
    meaning: str = ""
    wrong: int = 0
    total: int = 0
    place: Place | None = None
    register: str = ""
    fault: str = ""
    picture: str = ""

    @property
    def command(self) -> str:
        """The command that runs this input again."""
        device = " --device cuda" if self.tier == CUDA else ""
        return f"simwarp verify --case {self.case} --seed {self.seed} --input {self.input}{device}"

    def __str__(self) -> str:
        first = f"{self.case}, input {self.input} ({self.problem}): {self.tier} differs from {ORACLE}"
        if self.fault:
            return f"{first}\n{self.fault}\nreplay: {self.command}"
        if self.expected is None or self.got is None:
            return f"{first}\n{self.meaning}\nreplay: {self.command}"
        source = f" from {self.register}" if self.register else ""
        who = f" written{source} by {self.place}" if self.place else " which nothing wrote"
        return (
            f"{first} in {self.wrong} of {self.total} elements; the first is {list(self.element)}, "
            f"{self.meaning},{who}\n"
            f"{_values(self.expected, self.got, self.bits)}\n"
            f"replay: {self.command}"
        ) + (f"\n{self.picture}" if self.picture else "")


@dataclass
class Checked:
    """The outcome of one input: seconds spent by each tier, and the mismatches."""

    shape: tuple[int, ...]
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    mismatches: list[Mismatch] = field(default_factory=list[Mismatch])


def small(device: Any) -> Any:
    """The device, with one multiprocessor."""
    device.multiprocessors = 1
    return device


def simulator(**options: Any) -> Device:
    """A `small` simulated device.

    Examples
    --------
    >>> simulator().multiprocessors
    1
    """
    return small(Device(**options))


def tiers_of(case: Case, devices: Devices) -> list[str]:
    """The tiers that answer a case, the oracle first."""
    on_hosts = [tier for tier in case.answers if tier != "gpu"]
    return [*on_hosts, *devices]


def check(case: Case, seed: int, k: int, devices: Devices, tiers: Sequence[str] | None = None) -> Checked:
    """Ask every tier about input ``k`` of a case.

    Parameters
    ----------
    case : Case
    seed, k : int
    devices : mapping of tier to a function that makes its device
    tiers : sequence of str, optional
        Only these; the reference always answers.

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
            mismatch = Mismatch(case.name, seed, k, tier, case.describe(item), fault=text, place=place)
            checked.mismatches.append(mismatch)
        else:
            if not case.equal(item, expected, got):
                checked.mismatches.append(
                    _mismatch(case, seed, k, tier, item, expected, got, tier in devices)
                )
        checked.seconds[tier] = time.perf_counter() - start
    return checked


def _mismatch(
    case: Case,
    seed: int,
    k: int,
    tier: str,
    item: Any,
    expected: npt.NDArray[Any],
    got: npt.NDArray[Any],
    on_device: bool,
) -> Mismatch:
    """The first difference between two answers, and its writer."""
    problem = case.describe(item)
    if not case.alike(expected, got):
        meaning = f"expected {expected.dtype} {expected.shape}, got {got.dtype} {got.shape}"
        return Mismatch(case.name, seed, k, tier, problem, meaning=meaning)
    wrong = np.argwhere(case.wrong(item, expected, got))
    element = tuple(int(i) for i in wrong[0])
    x, y = expected[element].item(), got[element].item()
    bits = _bits(x, y, expected.dtype.itemsize * 8)
    answer = "gpu" if on_device else tier
    lead = case.lead(item, bits) if bits else 0
    place, register = last_write(case, answer, item, element, got, lead)
    return Mismatch(
        case.name,
        seed,
        k,
        tier,
        problem,
        element,
        x,
        y,
        bits,
        case.explain(item, element, lead),
        len(wrong),
        expected.size,
        place,
        register,
        picture="" if case.picture is None else case.picture(item, element, lead),
    )


def last_write(
    case: Case,
    answer: str,
    item: Any,
    element: tuple[int, ...],
    output: npt.NDArray[Any],
    bit: int = 0,
) -> tuple[Place | None, str]:
    """Run the input again, observed: the last writer of an element, and its register."""
    flat, width = int(np.ravel_multi_index(element, output.shape)), output.dtype.itemsize
    name = case.outputs[answer]
    if answer == "gpu":
        observer = WriteObserver(name, flat * width + bit // 8, 1)
        with suppress(KernelFault):  # the writes before it are enough
            case.answers[answer](item, simulator(observers=[observer]))
        return (observer.writes[-1].place, observer.writes[-1].register) if observer.writes else (None, "")
    with watch(name, flat) as places:
        case.answers[answer](item)
    return (places[-1], "") if places else (None, "")


def _bits(x: float, y: float, width: int) -> tuple[int, ...]:
    """In which bits two integers differ; floats are compared as numbers."""
    if isinstance(x, float) or isinstance(y, float):
        return ()
    return tuple(b for b in range(width) if (x ^ y) >> b & 1)


def _values(expected: float, got: float, bits: tuple[int, ...]) -> str:
    if isinstance(expected, float) or isinstance(got, float):
        return f"expected {expected!r}, got {got!r}: {got - expected:.3g} apart"
    return f"expected {expected} ({_hex(expected)}), got {got} ({_hex(got)}): bits {_short(bits)} differ"


def _hex(value: int) -> str:
    return f"{value % 2**32 if value < 0 else value:#010x}"  # answers are int32 or unsigned


def _short(bits: tuple[int, ...]) -> str:
    return ", ".join(map(str, bits[:8])) + (f" … ({len(bits)} in all)" if len(bits) > 8 else "")
