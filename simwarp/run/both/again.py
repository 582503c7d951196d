"""Further runs of a launch on the simulator: how exact its result is, and what other schedules give."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from simwarp.device.device import Device
from simwarp.device.schedules import Schedule
from simwarp.engine.events import Observer
from simwarp.faults import KernelFault
from simwarp.places import Place
from simwarp.run.both.exactness import Exactness

Key = TypeVar("Key")
Arrays: TypeAlias = Mapping[Key, npt.NDArray[Any]]
Make: TypeAlias = Callable[..., Device]
"""Makes a simulated device; ``checks``, ``observers``, ``schedule``, ``seed`` and ``stdout`` replace those
that it would have."""


def observe(run: Callable[[Device], object], make: Make, *observers: Observer) -> None:
    """Run the launch once more with observers; faults were reported by the first run."""
    device = make(checks="report", observers=observers, stdout=io.StringIO())
    with suppress(KernelFault):  # an ignored finding that ends the launch: what was observed counts
        run(device)


def exactness(run: Callable[[Device], object], make: Make, thread: Place | None) -> Exactness:
    """Run the launch once more, and collect the instructions that make its result bounded or free."""
    found = Exactness(thread)
    observe(run, make, found)
    return found


def legal_schedule(
    run: Callable[[Device], Arrays[Key]], make: Make, there: Arrays[Key], count: int
) -> Schedule | None:
    """The first of ``count`` random schedules that gives all bits of the other device; None if none does."""
    for seed in range(1, count + 1):
        schedule = Schedule("random", seed)
        device = make(checks="report", schedule=schedule.name, seed=schedule.seed, stdout=io.StringIO())
        try:
            arrays = run(device)
        except KernelFault:  # what ends there has no answer
            continue
        if all(np.array_equal(_bytes(arrays[key]), _bytes(array)) for key, array in there.items()):
            return schedule
    return None


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
