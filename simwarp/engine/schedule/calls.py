"""Calls of device functions: arguments, return addresses, and the registers that a recursive call saves.

Each execution of a call makes one *activation* for all its lanes. Each lane has a current activation, which
links to that of its caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import KernelFault, OutOfBounds
from simwarp.memory import Allocation
from simwarp.program.program import Routine, Step
from simwarp.program.steps import Argument
from simwarp.ptx.mangled_names import readable

if TYPE_CHECKING:
    from simwarp.engine.components import Activation
    from simwarp.engine.state import Chunk, Mask


_Pass = tuple[Argument, Argument, int]
"""Source, destination and number of bytes of a value that a call passes or returns."""


@dataclass
class _Activation:
    """One active call of a device function, which several lanes may share.

    Attributes
    ----------
    step, goes_on_at
        The call, and the number of the step after it.
    lanes : int
        Number of lanes that have not returned.
    caller : (warps, 32) int
        The activation that each lane called from.
    frame
        The caller's frame.
    saved : dict
        For each register of a recursive function its value and defined lanes before the call.
    """

    step: Step
    goes_on_at: int
    routine: Routine
    lanes: int
    caller: npt.NDArray[np.int64]
    frame: Any
    saved: dict[int, tuple[Any, Any]]


@dataclass
class Activations:
    """The active calls of device functions in a chunk, and the call that each lane is in."""

    current: npt.NDArray[np.int64] | None = None
    """(warps, 32): the activation that each lane is in; -1 in the kernel itself."""
    under_way: dict[int, Activation] = field(default_factory=dict[int, Any])
    made: int = 0

    def of(self, lane: int) -> Iterator[tuple[str, Step]]:
        """The functions that a lane is in, from the innermost outwards, each with its call step."""
        number = -1 if self.current is None else int(self.current.reshape(-1)[lane])
        while (activation := self.under_way.get(number)) is not None:
            yield activation.routine.name, activation.step
            number = int(activation.caller.reshape(-1)[lane])


def enter(chunk: Chunk, pc: int, step: Step, routine: Routine, caller: Routine, mask: Mask) -> None:
    """Call a device function: create its activation and stack frame, and pass the arguments."""
    state = chunk.activations
    if state.current is None:
        state.current = np.full(chunk.mask.shape, -1, np.int64)
    frame = np.broadcast_to(chunk.frame, mask.shape)
    new_frame = frame + np.uint64(caller.frame)
    _check_stack(chunk, new_frame, routine, mask)
    saved = {
        slot: (chunk.registers[slot], chunk.partial.get(slot)) for slot in routine.slots if routine.recursive
    }
    arguments = step.call.arguments if step.call else ()
    passes = [(a, f, f.size) for a, f in zip(arguments, routine.parameters, strict=True)]
    values = _values(chunk, passes)
    _forget(chunk, routine, mask)
    lanes = int(np.count_nonzero(mask))
    activation = _Activation(step, pc + 1, routine, lanes, state.current, chunk.frame, saved)
    state.under_way[state.made] = activation
    state.current = np.where(mask, state.made, state.current)
    state.made += 1
    chunk.frame = np.where(mask, new_frame, frame)
    _hand_over(chunk, mask, passes, values, frame, new_frame)


def leave(chunk: Chunk, mask: Mask) -> list[tuple[int, Mask]]:
    """Return from the lanes' current functions: the steps after their calls, with the lanes of each."""
    state, back = chunk.activations, list[tuple[int, "Mask"]]()
    current = state.current
    if current is None:
        raise TypeError("return without a call")
    now = current
    for number in np.unique(current[mask]).tolist():
        activation = state.under_way[number]
        lanes = mask & (current == number)
        frame = np.broadcast_to(chunk.frame, mask.shape)
        caller_frame = np.broadcast_to(activation.frame, mask.shape)
        returns = activation.step.call.returns if activation.step.call else ()
        passes = [(f, a, f.size) for f, a in zip(activation.routine.returns, returns, strict=True)]
        chunk.enter(lanes, alone=False)
        values = _values(chunk, passes)
        for slot, (value, defined) in activation.saved.items():
            _restore(chunk, slot, value, defined, lanes)
        chunk.enter(lanes, alone=False)
        chunk.frame = np.where(lanes, caller_frame, frame)
        _hand_over(chunk, lanes, passes, values, frame, caller_frame)
        state.current = now = np.where(lanes, activation.caller, now)
        activation.lanes -= int(np.count_nonzero(lanes))
        if activation.lanes == 0:
            del state.under_way[number]
        back.append((activation.goes_on_at, lanes))
    return back


def _values(chunk: Chunk, passes: Sequence[_Pass]) -> list[Any]:
    """The values of a call's register arguments; None for an argument that is copied between memories."""
    values: list[Any] = [None] * len(passes)
    for i, (given, taken, size) in enumerate(passes):
        if given.read is not None:
            values[i] = given.read(chunk)
        elif taken.write is not None:
            values[i] = passed(chunk, given, size)
    return values


def _hand_over(
    chunk: Chunk, lanes: Mask, passes: Sequence[_Pass], values: list[Any], source: Any, destination: Any
) -> None:
    """Write the values to registers or the destination frame; copy the others between frames."""
    for (given, taken, size), value in zip(passes, values, strict=True):
        if taken.write is not None:
            taken.write(chunk, value)
        elif value is not None:
            give(chunk, taken, _words(chunk, value), size)
        else:
            places = source + np.uint64(given.offset), destination + np.uint64(taken.offset)
            _copy(chunk, lanes, *places, size)


def _copy(chunk: Chunk, mask: Mask, source: Any, destination: Any, size: int) -> None:
    """Copy bytes within each lane's local memory, padding included."""
    if not size:
        return
    memory, source_at = _own_bytes(chunk, source, size)
    _, at = _own_bytes(chunk, destination, size)
    memory.bytes[at[mask]] = memory.bytes[source_at[mask]]
    memory.written_bits[at[mask]] = memory.written_bits[source_at[mask]]


def _check_stack(chunk: Chunk, frame: Any, routine: Routine, mask: Mask) -> None:
    """Raise `OutOfBounds` if a called function's frame does not fit in local memory."""
    limit = chunk.launch.local_size
    bad = mask & (frame + np.uint64(routine.frame) > np.uint64(limit))
    if bad.any():
        fault: KernelFault = OutOfBounds(
            f"call of {readable(routine.name)}: the stack is full",
            f"{limit} bytes of local memory per thread",
            "end the recursion sooner, or give the device a larger stack: Device(stack=…)",
        )
        raise chunk.placed(fault, bad)


def _words(chunk: Chunk, value: Any) -> npt.NDArray[np.uint64]:
    """(warps, 32): a value as one 64-bit word per lane."""
    return np.broadcast_to(value, chunk.mask.shape).astype(np.uint64)


def _forget(chunk: Chunk, routine: Routine, lanes: Mask) -> None:
    """Mark a function's registers as undefined: an earlier call may have left values."""
    for slot in routine.slots:
        chunk.bits.pop(slot, None)
        if chunk.alone:
            chunk.registers[slot] = None
            chunk.partial.pop(slot, None)
        elif chunk.registers[slot] is not None:
            chunk.partial[slot] = chunk.partial.get(slot, True) & ~lanes


def _restore(chunk: Chunk, slot: int, value: Any, defined: Any, lanes: Mask) -> None:
    """Restore the value and definedness that a register had before a call, in some lanes."""
    chunk.bits.pop(slot, None)
    now = chunk.registers[slot]
    if value is None:
        if now is not None:
            chunk.partial[slot] = chunk.partial.get(slot, True) & ~lanes
        return
    if now is None:
        chunk.registers[slot], chunk.partial[slot] = value, lanes if defined is None else lanes & defined
        return
    if now is not value:
        chunk.registers[slot] = np.where(lanes, value, now)
    if defined is not None or slot in chunk.partial:
        everywhere = np.ones_like(lanes)
        was = everywhere if defined is None else defined
        chunk.partial[slot] = np.where(lanes, was, chunk.partial.get(slot, everywhere))


def passed(chunk: Chunk, argument: Argument, size: int) -> npt.NDArray[np.uint64]:
    """(warps, 32): the argument of ``size`` bytes of each lane, from a register or the current frame."""
    if argument.read is not None:
        return _words(chunk, argument.read(chunk))
    memory, at = _own_bytes(chunk, chunk.frame + np.uint64(argument.offset), size)
    words = np.zeros((*chunk.mask.shape, 8), np.uint8)
    words[chunk.mask, :size] = memory.bytes[at[chunk.mask]]
    return words.view(np.uint64)[..., 0]


def give(chunk: Chunk, argument: Argument, values: npt.NDArray[np.uint64], size: int) -> None:
    """Write an argument or result of ``size`` bytes per lane to a register or the current frame."""
    if argument.write is not None:
        argument.write(chunk, values.astype(f"u{size}"))
        return
    memory, at = _own_bytes(chunk, chunk.frame + np.uint64(argument.offset), size)
    data = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, 8)
    memory.bytes[at[chunk.mask]] = data[chunk.mask][:, :size]
    memory.written_bits[at[chunk.mask]] = 0xFF


def _own_bytes(chunk: Chunk, offset: Any, size: int) -> tuple[Allocation, npt.NDArray[np.int64]]:
    """Local memory, and the positions in it of ``size`` bytes at an offset in each lane's window."""
    memory = chunk.local.find(0)
    if memory is None:
        raise TypeError("access to local memory in a kernel without any")
    return memory, (chunk.local_start + offset).astype(np.int64)[..., None] + np.arange(size)
