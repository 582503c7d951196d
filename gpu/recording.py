"""Recorded calls: a later call of the same kind repeats the allocations and launches of an earlier one.

These depend on the shapes, types and alignment of the call's device arrays, not on their contents, so the
later call needs no checks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt

from gpu.device import MOST_PLANS, Device, LaunchChain, LaunchPlan, Wanted, planned
from gpu.host import nan_flag

Places: TypeAlias = tuple[Any, ...]
"""The arrays of a launch: numbers of those of the call, and constants."""

_FLAG = 0
"""The place of the NaN flag among the arrays of a call; the arguments and allocated arrays follow."""


def shared(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Which arrays of a call are one, as the first position of each; () if all differ.

    It belongs to the key of a recorded call: a later call with other arrays there must not take one for both.
    """
    pointers = [array.pointer for array in arrays]
    return () if len(set(pointers)) == len(pointers) else tuple(map(pointers.index, pointers))


class Recording:
    """A device that records the allocations and launches of a call."""

    queue = -1
    """That of no stream: the call waits for what other calls still make, since later ones will not ask."""

    def __init__(self, device: Device, arrays: Sequence[Any]) -> None:
        self._device = device
        self._arrays = list(arrays)  # kept alive, so that no two have the same address
        self._made: list[tuple[Any, str]] = []
        self._launches: list[tuple[LaunchPlan, Sequence[Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str = "") -> Any:
        """Allocate an array, and record the allocation."""
        array = self._device.allocate(shape, dtype, name)
        self._made.append((array, name))
        return array

    def launch(self, plan: LaunchPlan, arrays: Sequence[Any]) -> None:
        """Launch a plan's kernel, and record the launch."""
        self._device.launch(plan, arrays)
        self._launches.append((plan, arrays))

    def launch_all(self, chain: LaunchChain, arrays: Sequence[Sequence[Any]]) -> None:
        """Launch the plans of a chain, and record the launches."""
        for plan, each in zip(chain.plans, arrays, strict=True):
            self.launch(plan, each)

    def keep(
        self,
        calls: dict[Any, Any],
        key: Hashable,
        result: Any,
        finish: Callable[[Any], Any] | None = None,
        constants: Iterable[Any] = (),
        most: int = MOST_PLANS,
    ) -> None:
        """Store the call in ``calls`` for `play`; ``finish`` makes its answer of the array ``result``.

        ``constants`` are arrays that every later call takes, too. A call with any other array is not stored.
        """
        workspace = [each for each in self._made if each[0].pointer != result.pointer]
        last = [each for each in self._made if each[0].pointer == result.pointer]
        numbered = [*self._arrays, *(array for array, _ in workspace), result]
        known = {array.pointer: array for array in constants}
        known |= {array.pointer: place for place, array in reversed([*enumerate(numbered, 1)])}
        places = [tuple(self._place(x, known) for x in given) for _, given in self._launches]
        if not last or any(place is None for each in places for place in each):
            return
        call = _Call(
            [Wanted(x.shape, x.dtype, name) for x, name in workspace],
            Wanted(last[0][0].shape, last[0][0].dtype, last[0][1]),
            LaunchChain(tuple(plan for plan, _ in self._launches)),
            places,
            any(place is _FLAG for each in places for place in each),
            finish,
        )
        planned(calls, key, lambda: call, most)

    def _place(self, given: Any, known: dict[int, Any]) -> Any:
        """What a later call passes: an array's first place, or a constant; None for what is neither."""
        if given.__class__ is bytes:
            return None
        found = known.get(given.pointer)
        return _FLAG if found is None and given is nan_flag(self._device) else found


@dataclass(eq=False)
class _Call:
    """A recorded call: what it allocates, and its launches with the places of their arrays.

    ``packs`` is True if a launch takes the NaN flag.
    """

    workspace: list[Wanted]
    result: Wanted
    chain: LaunchChain
    places: list[Places]
    packs: bool
    finish: Callable[[Any], Any] | None


_ONCE = object()
"""Stands for a call that was made once, and is not recorded."""


def play(calls: dict[Any, Any], key: Hashable, device: Device, arrays: Sequence[Any]) -> Any:
    """Repeat the call recorded under ``key`` with other arrays; None without a recording."""
    call = calls.get(key)
    if not isinstance(call, _Call):
        return None
    flag = nan_flag(device) if call.packs else None
    known = [flag, *arrays, *device.reserve(call.workspace, call.result)]
    device.launch_all(
        call.chain, [[known[i] if i.__class__ is int else i for i in places] for places in call.places]
    )
    return known[-1] if call.finish is None else call.finish(known[-1])


def repeated(
    calls: dict[Any, Any],
    key: Hashable,
    device: Device,
    arrays: Sequence[Any],
    make: Callable[[Any], Any],
    finish: Callable[[Any], Any],
    constants: Callable[[], Iterable[Any]] = tuple,
    most: int = MOST_PLANS,
) -> Any:
    """Play a call, or make it: ``make`` gives the array, on a device, of which ``finish`` makes the answer.

    The second call of a key is recorded: the first one makes what ``constants`` then has. A capture makes
    that again and again, and is not recorded.
    """
    answer = play(calls, key, device, arrays)
    if answer is not None:
        return answer
    if device.capturing or calls.get(key) is not _ONCE:
        made = make(device)
        if not device.capturing:
            planned(calls, key, lambda: _ONCE, most)
        return finish(made)
    recording = Recording(device, arrays)
    made = make(recording)
    calls.pop(key, None)
    recording.keep(calls, key, made, finish, constants(), most)
    return finish(made)
