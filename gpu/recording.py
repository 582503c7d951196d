"""Recorded calls: a later call of the same kind repeats the allocations and launches of the first one.

These depend on the shapes, types and alignment of the call's device arrays, not on their contents, so the
later call needs no checks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt

from gpu.device import Device, LaunchChain, LaunchPlan, planned
from gpu.host import nan_flag

Allocation: TypeAlias = tuple[Any, ...]
"""The arguments of `Device.allocate`."""


class Recording:
    """A device that records the allocations and launches of a call."""

    def __init__(self, device: Device, arrays: Sequence[Any]) -> None:
        self._device = device
        self._arrays = list(arrays)  # kept alive, so that no two have the same identity
        self._allocations: list[Allocation] = []
        self._launches: list[tuple[LaunchPlan, list[int]]] = []
        self._early = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str = "") -> Any:
        """Allocate an array, and record the allocation."""
        array = self._device.allocate(shape, dtype, name)
        self._arrays.append(array)
        self._allocations.append((shape, dtype, name))
        return array

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch a plan's kernel, and record the launch."""
        self._device.launch(plan, arrays)
        if not self._launches:
            self._early = len(self._allocations)
        self._launches.append((plan, [self._number(array) for array in arrays]))

    def launch_all(self, chain: LaunchChain, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch the plans of a chain, and record the launches."""
        for plan, each in zip(chain.plans, arrays, strict=True):
            self.launch(plan, each)

    def _number(self, array: Any) -> int:
        """The position of an array among those of the call; -1 for the NaN flag, which is the device's."""
        return next((i for i, known in enumerate(self._arrays) if known is array), -1)

    def keep(self, result: Any, key: Hashable, finish: Callable[[Any], Any] | None = None) -> None:
        """Store the call under ``key`` for `play`; ``finish`` makes its answer of the array ``result``."""
        first, *rest = self._launches
        call = _Call(
            early=self._allocations[: self._early],
            first=first,
            late=self._allocations[self._early :],
            chain=LaunchChain(tuple(plan for plan, _ in rest)),
            arrays=[numbers for _, numbers in rest],
            packs=any(-1 in numbers for _, numbers in self._launches),
            result=self._number(result),
            finish=finish,
        )
        planned(self._device.plans, key, lambda: call)


@dataclass(eq=False)
class _Call:
    """A recorded call; arrays are numbered, the arguments first, then the allocated ones.

    The first launch starts before the late allocations, so that the GPU has work; the other launches follow
    as a chain. ``packs`` is True if a launch takes the NaN flag.
    """

    early: list[Allocation]
    first: tuple[LaunchPlan, list[int]]
    late: list[Allocation]
    chain: LaunchChain
    arrays: list[list[int]]
    packs: bool
    result: int
    finish: Callable[[Any], Any] | None


def play(device: Device, key: Hashable, arrays: Sequence[Any]) -> Any:
    """Repeat the call recorded under ``key`` with other arrays; None without a recording."""
    call: _Call | None = device.plans.get(key)
    if call is None:
        return None
    known = [*arrays, *[device.allocate(*each) for each in call.early]]
    plan, numbers = call.first
    flag = nan_flag(device) if call.packs else None
    device.launch(plan, [flag if i < 0 else known[i] for i in numbers])
    known += [device.allocate(*each) for each in call.late]
    if call.arrays:
        device.launch_all(call.chain, [[flag if i < 0 else known[i] for i in each] for each in call.arrays])
    result = known[call.result]
    return result if call.finish is None else call.finish(result)
