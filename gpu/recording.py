"""Recorded calls: a later call of the same kind repeats the allocations and launches of an earlier one.

These depend on the shapes, types and alignment of the call's device arrays, not on their contents, so the
later call needs no checks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from gpu.cuda import default_device
from gpu.cuda.streams import in_current_stream_of_torch
from gpu.cuda.views import FOREIGN, Seen, of_torch
from gpu.device import MOST_PLANS, Device, LaunchChain, LaunchPlan, Recorded, Wanted, is_array, planned
from gpu.host import Prepared, key_of_memory, nan_flag
from reference.types import PackedBits, PackedTensor


class Call(NamedTuple):
    """A call whose operands lie on one device: its kind, the device in its stream, and its arrays.

    An array of another library is its address. ``pointers`` are the addresses of all.
    """

    key: Hashable
    device: Any
    arrays: list[Any]
    pointers: list[int]


def call_of(options: tuple[Any, ...], operands: Sequence[Any], device: Any, stream: Any) -> Call | None:
    """The call with these operands, by which it is recorded and played; None if it cannot be.

    The options must be hashable, and of types that comparison tells apart: 1 is not True.
    """
    kinds: list[Any] = [options]
    arrays: list[Any] = []
    home, ordinal, current = device, None, False
    for x in operands:
        if x is None:
            kinds.append(None)
            continue
        sight = _SIGHTS.get(x.__class__) or _sight_of(x)
        seen = sight(x, arrays)
        if seen is None:
            return None
        kind, there = seen
        kinds.append(kind)
        if there.__class__ is int:
            if ordinal is not None and ordinal != there:
                return None
            ordinal, current = there, current or sight is of_torch
        elif home is None:
            home = there
        elif there is not home and key_of_memory(there) != key_of_memory(home):
            return None
    if ordinal is not None:
        home = default_device() if home is None else home
        if getattr(home, "ordinal", None) != ordinal:
            return None
    if home is None or not arrays or not hasattr(home, "plans"):
        return None
    pointers = [x if x.__class__ is int else x.pointer for x in arrays]
    if len(pointers) > 1 and len(set(pointers)) < len(pointers):
        kinds.append(tuple(map(pointers.index, pointers)))  # a later call must not take one array for two
    if stream is not None:
        home = home.in_stream(stream)
    elif current:
        home = in_current_stream_of_torch(home)
    return None if home.capturing else Call(tuple(kinds), home, arrays, pointers)


def _of_array(x: Any, arrays: list[Any]) -> Seen:
    arrays.append(x)
    return (x.shape, x.dtype, x.pointer & 15), x.device


def _of_packed(x: Any, arrays: list[Any]) -> Seen | None:
    words = x.words
    if not (is_array(words) and x.layout.__class__ is x.first.__class__ is str and x.word.__class__ is int):
        return None
    arrays.append(words)
    return (
        tuple(x.shape),
        x.layout,
        x.word,
        x.first,
        words.shape,
        words.dtype,
        words.pointer & 15,
    ), words.device


def _of_prepared(x: Any, arrays: list[Any]) -> Seen | None:
    if x.arrays is None:
        return None
    arrays += x.arrays
    return x.kind, x.device


def _of_others(x: Any, arrays: list[Any]) -> None:
    return None


_SIGHTS: dict[type, Callable[[Any, list[Any]], Seen | None]] = {
    PackedBits: _of_packed,
    PackedTensor: _of_packed,
}
"""For each class of operands, what a recorded call sees of one: its kind, its device and its arrays."""


def _sight_of(x: Any) -> Callable[[Any, list[Any]], Seen | None]:
    """The function for an operand's class, which is kept for its later operands."""
    kind: type = x.__class__
    sight = FOREIGN.get((kind.__module__.partition(".")[0], kind.__name__), _of_others)
    if isinstance(x, Prepared):
        sight = _of_prepared
    elif is_array(x):
        sight = _of_array
    if sight is not _of_others:
        _SIGHTS[kind] = sight
    return sight


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
        given = [array for _, arrays in self._launches for array in arrays]
        if not last or any(array.__class__ is bytes for array in given):
            return
        known, fixed = [*self._arrays, *(array for array, _ in workspace), result], list(constants)
        pointers = {_pointer(array) for array in (*known, *fixed)}
        strange = [array for array in given if array.pointer not in pointers]
        flag = nan_flag(self._device) if strange else None
        if any(array is not flag for array in strange):
            return
        known[len(self._arrays) : len(self._arrays)] = [flag] if strange else []
        numbers = {_pointer(array): number for number, array in reversed([*enumerate([*known, *fixed])])}
        call = Recorded(
            [Wanted(x.shape, x.dtype, name) for x, name in workspace],
            [Wanted(last[0][0].shape, last[0][0].dtype, last[0][1])],
            LaunchChain(tuple(plan for plan, _ in self._launches)),
            [[numbers[array.pointer] for array in arrays] for _, arrays in self._launches],
            fixed,
            bool(strange),
            finish,
        )
        planned(calls, key, lambda: call, most)


def _pointer(array: Any) -> int:
    return array if array.__class__ is int else array.pointer


ONCE = object()
"""Stands for a call that was made once, and is not recorded."""


def play(call: Call | None, calls: dict[Any, Any] | None = None) -> Any:
    """Repeat the recorded call of the same key with the arrays of this one; None without a recording.

    ``calls`` has the recorded calls; by default they are among the device's plans.
    """
    if call is None:
        return None
    known: Any = (call.device.plans if calls is None else calls).get(call.key)
    if known.__class__ is not Recorded:
        return None
    device = call.device
    if known.packs:
        flag = nan_flag(device)
        call.arrays.append(flag)
        call.pointers.append(flag.pointer)
    repeat = getattr(device, "repeat", None)
    results = _repeat(known, call) if repeat is None else repeat(known, call)
    return results[0] if known.finish is None else known.finish(*results)


def _repeat(known: Recorded, call: Call) -> list[Any]:
    """Make a recorded call's allocations and launches again, on a device without a way of its own."""
    device, wanted = call.device, (*known.workspace, *known.results)
    made = [device.allocate(each.shape, each.dtype, each.name) for each in wanted]
    arrays = [*call.arrays, *made, *known.constants]
    device.launch_all(known.chain, [[arrays[number] for number in each] for each in known.numbers])
    return made[len(known.workspace) :]


def recorded_graph(
    graph: Any, call: Call, given: Any, results: Sequence[Any], finish: Callable[..., Any]
) -> Recorded | None:
    """The call with one array whose launches a graph has; None if it cannot be recorded.

    All that is neither an operand nor a result stays as it is, and is kept with the recorded call: it runs in
    one stream after the other, since the driver lets a graph run once at a time.
    """
    plans: list[tuple[LaunchPlan, tuple[Any, ...]]] | None = graph.plans
    if not plans or any(plan.cooperative for plan, _ in plans):
        return None
    arrays = [array for _, each in plans for array in each]
    if any(array.__class__ is bytes for array in arrays):
        return None
    changing = [*call.pointers, *(array.pointer for array in results)]
    others = {array.pointer: array for array in arrays if array.pointer not in changing}
    if any(_inside((given, *results), array) for array in others.values()):
        return None
    known = {pointer: number for number, pointer in enumerate([*changing, *others])}
    settled = {n for n, (_, each) in enumerate(plans) if all(array.pointer in others for array in each)}
    return Recorded(
        [],
        [Wanted(x.shape, x.dtype, "") for x in results],
        LaunchChain(tuple(plan for plan, _ in plans), frozenset(settled)),
        [[known[array.pointer] for array in each] for _, each in plans],
        list(others.values()),
        False,
        finish,
    )


def _inside(arrays: Sequence[Any], x: Any) -> bool:
    """Whether an array begins in the memory of another."""
    return any(y.pointer < x.pointer < y.pointer + y.nbytes for y in arrays)


def made_or_recorded(
    calls: dict[Any, Any],
    call: Call,
    make: Callable[[Any], Any],
    finish: Callable[..., Any],
    constants: Callable[[], Iterable[Any]] = tuple,
    most: int = MOST_PLANS,
) -> Any:
    """Make a call: ``make`` gives the array, on a device, of which ``finish`` makes the answer.

    Its second time is recorded: the first one makes what ``constants`` then has.
    """
    if calls.get(call.key) is not ONCE:
        made = make(call.device)
        planned(calls, call.key, lambda: ONCE, most)
        return finish(made)
    recording = Recording(call.device, call.arrays)
    made = make(recording)
    calls.pop(call.key, None)
    recording.keep(calls, call.key, made, finish, constants(), most)
    return finish(made)
