"""Calls of device functions: who returns where, and what a recursive call must keep.

Each execution of a call makes one *activation* for all lanes that take it together. A lane knows its
current activation; that one knows the activation it came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import KernelFault, OutOfBounds
from simwarp.lanes import WARP_SIZE
from simwarp.memory import Allocation
from simwarp.program.program import Argument, Formal, Routine, Step

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask


@dataclass
class _Activation:
    """One execution of a call.

    Attributes
    ----------
    step, goes_on_at
        The call, and the step behind it.
    routine : Routine
        What was called.
    lanes : int
        How many lanes have not come back.
    caller : (warps, 32) int
        The activation of each lane before.
    frame
        The caller's frame.
    saved : dict
        Registers of a recursive function as they were: value and defined lanes.
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
    """Those under way in a chunk."""

    current: npt.NDArray[np.int64] | None = None
    """(warps, 32): the activation that each lane is in; -1 in the kernel itself."""
    under_way: dict[int, _Activation] = field(default_factory=dict[int, _Activation])
    made: int = 0


def enter(chunk: Chunk, pc: int, step: Step, routine: Routine, caller: Routine, mask: Mask) -> None:
    """Let these lanes call a device function: arguments, frame and activation change hands."""
    state = chunk.activations
    if state.current is None:
        state.current = np.full(chunk.mask.shape, -1, np.int64)
    frame = np.broadcast_to(chunk.frame, mask.shape)
    new_frame = frame + np.uint64(caller.frame)
    _check_stack(chunk, new_frame, routine, mask)
    saved = {
        slot: (chunk.registers[slot], chunk.partial.get(slot)) for slot in routine.slots if routine.recursive
    }
    call = step.call
    arguments = call.arguments if call else []
    pairs = list(zip(arguments, routine.parameters, strict=True))
    values = [_in_register(chunk, a, f.write is not None, f.size) for a, f in pairs]
    _forget(chunk, routine, mask)
    for (argument, formal), value in zip(pairs, values, strict=True):
        if formal.write is not None:
            formal.write(chunk, value)
        elif value is None:
            copy(
                chunk,
                mask,
                frame + np.uint64(argument.offset),
                new_frame + np.uint64(formal.offset),
                formal.size,
            )
    state.under_way[state.made] = _Activation(
        step, pc + 1, routine, int(np.count_nonzero(mask)), state.current, chunk.frame, saved
    )
    state.current = np.where(mask, state.made, state.current)
    state.made += 1
    chunk.frame = np.where(mask, new_frame, frame)
    for (_, formal), value in zip(pairs, values, strict=True):
        if formal.write is None and value is not None:
            give(chunk, Argument(formal.offset), _words(chunk, value), formal.size)


def leave(chunk: Chunk, mask: Mask) -> list[tuple[int, Mask]]:
    """Let these lanes return; the steps they go on at, with the lanes of each."""
    state, back = chunk.activations, list[tuple[int, "Mask"]]()
    current = state.current
    if current is None:
        raise TypeError("a return outside every call")
    now = current
    for number in np.unique(current[mask]).tolist():
        activation = state.under_way[number]
        lanes = mask & (current == number)
        frame = np.broadcast_to(chunk.frame, mask.shape)
        caller_frame = np.broadcast_to(activation.frame, mask.shape)
        results = _results(chunk, activation, lanes)
        for slot, (value, defined) in activation.saved.items():
            _restore(chunk, slot, value, defined, lanes)
        chunk.enter(lanes, alone=False)
        chunk.frame = np.where(lanes, caller_frame, frame)
        call = activation.step.call
        for argument, formal, value in zip(
            call.returns if call else [], activation.routine.returns, results, strict=True
        ):
            if argument.write is not None:
                argument.write(chunk, value)
            elif value is not None:
                give(chunk, argument, _words(chunk, value), formal.size)
            else:
                to = caller_frame + np.uint64(argument.offset)
                copy(chunk, lanes, frame + np.uint64(formal.offset), to, formal.size)
        state.current = now = np.where(lanes, activation.caller, now)
        activation.lanes -= int(np.count_nonzero(lanes))
        if activation.lanes == 0:
            del state.under_way[number]
        back.append((activation.goes_on_at, lanes))
    return back


def copy(chunk: Chunk, mask: Mask, source: Any, destination: Any, size: int) -> None:
    """Copy bytes within each lane's local memory, padding included."""
    memory = chunk.local.find(0)
    if memory is None or not size:
        return
    lane = chunk.warp * WARP_SIZE + np.arange(WARP_SIZE)
    base = (lane * chunk.local_stride)[mask].reshape(-1, 1)
    each = np.arange(size)
    at = base + source[mask].astype(np.int64).reshape(-1, 1) + each
    to = base + destination[mask].astype(np.int64).reshape(-1, 1) + each
    memory.bytes[to] = memory.bytes[at]
    memory.written_bits[to] = memory.written_bits[at]


def _check_stack(chunk: Chunk, frame: Any, routine: Routine, mask: Mask) -> None:
    limit = chunk.launch.local_size
    bad = mask & (frame + np.uint64(routine.frame) > np.uint64(limit))
    if bad.any():
        fault: KernelFault = OutOfBounds(
            f"call of {routine.name}: the stack is full",
            f"{limit} bytes of local memory per thread",
            "let the recursion end sooner, or give the device more: Device(stack=…)",
        )
        raise chunk.placed(fault, bad)


def _results(chunk: Chunk, activation: _Activation, lanes: Mask) -> list[Any]:
    """The return values that live in registers; read before the caller's registers come back."""
    chunk.enter(lanes, alone=False)
    wanted = activation.step.call.returns if activation.step.call else []
    pairs = zip(wanted, activation.routine.returns, strict=True)
    return [_in_register(chunk, f, a.write is not None, f.size) for a, f in pairs]


def _in_register(chunk: Chunk, given: Argument | Formal, wanted: bool, size: int) -> Any:
    """A value that comes from a register or goes to one; None for memory that is copied as it is."""
    if given.read is not None:
        return given.read(chunk)
    return passed(chunk, given, size) if wanted else None


def _words(chunk: Chunk, value: Any) -> npt.NDArray[np.uint64]:
    return np.broadcast_to(value, chunk.mask.shape).astype(np.uint64)


def _forget(chunk: Chunk, routine: Routine, lanes: Mask) -> None:
    """A function's registers are undefined when it starts, whatever an earlier call left there."""
    for slot in routine.slots:
        chunk.bits.pop(slot, None)
        if chunk.alone:
            chunk.registers[slot] = None
            chunk.partial.pop(slot, None)
        elif chunk.registers[slot] is not None:
            chunk.partial[slot] = chunk.partial.get(slot, True) & ~lanes


def _restore(chunk: Chunk, slot: int, value: Any, defined: Any, lanes: Mask) -> None:
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


def passed(chunk: Chunk, argument: Argument | Formal, size: int) -> npt.NDArray[np.uint64]:
    """(warps, 32): a number of ``size`` bytes for each lane, from a register or the current frame."""
    if argument.read is not None:
        return _words(chunk, argument.read(chunk))
    memory, at = _own_bytes(chunk, argument.offset, size)
    words = np.zeros((*chunk.mask.shape, 8), np.uint8)
    words[chunk.mask, :size] = memory.bytes[at[chunk.mask]]
    return words.view(np.uint64)[..., 0]


def give(chunk: Chunk, argument: Argument, values: npt.NDArray[np.uint64], size: int) -> None:
    """Put a number of ``size`` bytes for each lane into a register or the current frame."""
    if argument.write is not None:
        argument.write(chunk, values.astype(f"u{size}"))
        return
    memory, at = _own_bytes(chunk, argument.offset, size)
    data = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, 8)
    memory.bytes[at[chunk.mask]] = data[chunk.mask][:, :size]
    memory.written_bits[at[chunk.mask]] = 0xFF


def _own_bytes(chunk: Chunk, offset: int, size: int) -> tuple[Allocation, npt.NDArray[np.int64]]:
    """Local memory, and where each lane's bytes at an offset of the current frame lie in it."""
    memory = chunk.local.find(0)
    if memory is None:
        raise TypeError("a variable in local memory, which the kernel does not have")
    lane = chunk.warp * WARP_SIZE + np.arange(WARP_SIZE)
    frame = np.broadcast_to(chunk.frame, lane.shape).astype(np.int64)
    return memory, (lane * chunk.local_stride + frame + offset)[..., None] + np.arange(size)
