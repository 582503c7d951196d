"""Calls that are recorded once and played again: their arrays reserved, their kernels launched.

The allocations and launches of a call depend on the shapes, types and alignment of its device arrays, not on
their contents. So later calls of the same kind skip all checks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from gpu.device import Device, LaunchChain, LaunchPlan, planned
from gpu.host import nan_flag


class Recording:
    """A device that records the allocations and launches of a call."""

    def __init__(self, device: Device, arrays: Sequence[Any]) -> None:
        self._device = device
        self._arrays = list(arrays)  # they live, so that no two have one identity
        self._count = len(self._arrays)
        self._steps: list[_Step] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str = "") -> Any:
        """Reserve an array."""
        array = self._device.allocate(shape, dtype, name)
        self._arrays.append(array)
        self._steps.append((None, (shape, dtype, name)))
        return array

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch."""
        self._device.launch(plan, arrays)
        self._steps.append((plan, tuple(map(self._place, arrays))))

    def _place(self, array: Any) -> int:
        """The number of an array; -1 for the flag of packing kernels, which is not the call's own."""
        return next((i for i, known in enumerate(self._arrays) if known is array), -1)

    def keep(self, result: Any, key: Hashable) -> None:
        """Remember the call, for `play`."""
        first = next(i for i, (plan, _) in enumerate(self._steps) if plan is not None)
        later = self._steps[first + 1 :]
        launches = [(plan, given) for plan, given in later if plan is not None]
        places = [given for plan, given in self._steps if plan is not None]
        call = _Call(
            before=tuple(given for _, given in self._steps[:first]),
            first=self._steps[first],
            after=tuple(given for plan, given in later if plan is None),
            chain=LaunchChain(tuple(plan for plan, _ in launches)),
            given=tuple(given for _, given in launches),
            packs=any(-1 in given for given in places),
            result=self._place(result),
        )
        planned(self._device.plans, key, lambda: call)


_Step = tuple[LaunchPlan | None, tuple[Any, ...]]
"""A launch and the numbers of its arrays, or None and what `Device.allocate` is given."""


@dataclass(eq=False)
class _Call:
    """The arrays of a call before and after its first launch, its launches, and the number of its result.

    The first launch goes out at once, so that the GPU has work; the others follow as one. ``packs`` is
    True where a launch takes the flag of packing kernels.
    """

    before: tuple[tuple[Any, ...], ...]
    first: _Step
    after: tuple[tuple[Any, ...], ...]
    chain: LaunchChain
    given: tuple[tuple[int, ...], ...]
    packs: bool
    result: int


def play(device: Device, key: Hashable, arrays: Sequence[Any]) -> Any:
    """Repeat the call recorded for ``key`` with other arrays; None without a recording."""
    call: _Call | None = device.plans.get(key)
    if call is None:
        return None
    known = [*arrays, *[device.allocate(*each) for each in call.before]]
    plan, given = call.first
    flag = nan_flag(device) if call.packs else None
    if plan is not None:
        device.launch(plan, [flag if i < 0 else known[i] for i in given])
    known += [device.allocate(*each) for each in call.after]
    if call.given:
        device.launch_all(call.chain, [[flag if i < 0 else known[i] for i in each] for each in call.given])
    return known[call.result]
