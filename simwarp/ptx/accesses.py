"""Memory accesses of all executing lanes: which memory, which addresses, what goes in and out.

Examples
--------
A generic address says which memory it means: in odd lanes the block's own, in even ones `out`. The lanes
that share a word take turns.

>>> import simwarp
>>> device = simwarp.Device()
>>> kernel = device.load('''
... .version 9.0
... .target sm_90
... .visible .entry count(.param .u64 out) {
...     .shared .b32 cell; .reg .b32 %r<3>; .reg .b64 %a<5>; .reg .pred %odd;
...     st.shared.u32 [cell], 7;
...     ld.param.u64 %a1, [out]; mov.u64 %a2, cell; cvta.shared.u64 %a2, %a2;
...     mov.u32 %r1, %laneid; and.b32 %r2, %r1, 1; setp.eq.u32 %odd, %r2, 1;
...     selp.b64 %a3, %a2, %a1, %odd;
...     atom.add.u32 %r2, [%a3], 10;
...     mul.wide.u32 %a4, %r1, 4; add.u64 %a4, %a4, %a1;
...     st.global.u32 [%a4], %r2; ret; }
... ''').kernel("count")
>>> out = device.upload(np.array([5, 0, 0, 0], np.uint32))
>>> kernel((1, 1, 1), (4, 1, 1), out)
>>> out.download().tolist()
[5, 7, 15, 17]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import MemoryFault, OutOfBounds
from simwarp.lanes import WARP_SIZE
from simwarp.memory import Memory
from simwarp.observe import WriteEvent
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.spaces import BLOCK_BITS, NAMES, WINDOWS
from simwarp.ptx.syntax import Register, Vector

if TYPE_CHECKING:
    from simwarp.ptx.chunk import Chunk, Mask
    from simwarp.ptx.program import Step

_SPARSE = 4
"""Few lanes are less than one in so many."""


def load(chunk: Chunk, step: Step) -> None:
    """Read memory, a parameter, or each element of a vector."""
    dtype, write, count = DTYPES[step.form.T], step.destinations[0], step.form.vector
    if step.symbol:
        data = chunk.launch.parameters[step.symbol]
        values = [np.frombuffer(data, dtype, 1, step.offset + i * dtype.itemsize)[0] for i in range(count)]
    elif step.space == "generic":
        values = _load_generic(chunk, step, dtype)
    else:
        values = _gather(chunk, step.space, _address(chunk, step), dtype, count)
    if write is not None:
        write(chunk, values if count > 1 else values[0])


def store(chunk: Chunk, step: Step) -> None:
    """Write memory, lane by lane in order."""
    dtype, count = DTYPES[step.form.T], step.form.vector
    unit = _vector(dtype, count)
    value = step.sources[0](chunk)
    elements = [np.broadcast_to(v, chunk.mask.shape) for v in (value if count > 1 else [value])]
    for space, address in _by_space(chunk, step):
        memory, at = _resolve(chunk, space, address, unit.itemsize)
        at = np.broadcast_to(at, chunk.mask.shape)
        given = elements
        if chunk.active is None:
            at, given = at.reshape(-1), [e.reshape(-1) for e in given]
        else:
            at, given = at[chunk.mask], [e[chunk.mask] for e in given]
        data = given[0] if count == 1 else np.stack(given, axis=-1).view(unit)[:, 0]
        try:
            memory.store(at, data)
        except MemoryFault as fault:
            masked = chunk.active is not None
            raise chunk.placed(fault, _faulty_lane(chunk, chunk.mask.shape, fault.position, masked)) from None
        if chunk.launch.on_write and memory is chunk.launch.memory:
            for i, element in enumerate(given):
                notify_write(chunk, step, i, at + np.uint64(i * dtype.itemsize), element)


def notify_write(chunk: Chunk, step: Step, part: int, addresses: Any, values: Any) -> None:
    """Tell the observers of a write of the operand's element ``part``."""
    operand = step.instruction.operands[-1]
    operand = operand.elements[part] if isinstance(operand, Vector) else operand
    register = operand.name if isinstance(operand, Register) else ""
    event = WriteEvent(chunk, np.flatnonzero(chunk.mask), addresses, values, register)
    for observe in chunk.launch.on_write:
        observe(event)


def atomic(chunk: Chunk, step: Step) -> None:
    """Update memory lane by lane: the lanes that share an address take turns, in order.

    An instruction with a vector of operands is as many atomic operations, one for each element.
    """
    count, dtype = step.form.vector, DTYPES[step.form.T]
    sources = [read(chunk) for read in step.sources]
    results: list[Any] = [np.zeros(chunk.mask.shape, dtype) for _ in range(count)]
    with chunk.launch.atomics:
        for space, address in _by_space(chunk, step):
            if count > 1 and space != "global":
                fault = MemoryFault(
                    f"vector atomic in {space} memory",
                    step.instruction.opcode,
                    "only global memory has atomic operations on vectors",
                )
                raise chunk.placed(fault, int(chunk.mask.argmax()))
            for i in range(count):
                values = [source[i] if count > 1 else source for source in sources]
                at = np.broadcast_to(address, chunk.mask.shape) + np.uint64(i * dtype.itemsize)
                results[i][chunk.mask] = _update(chunk, step, space, at, values, i)
    write = step.destinations[0] if step.destinations else None
    if write is not None:
        write(chunk, results if count > 1 else results[0])


def _update(
    chunk: Chunk, step: Step, space: str, address: Any, values: list[Any], part: int
) -> npt.NDArray[Any]:
    """One atomic operation of each executing lane; returns the old values."""
    dtype, shape = DTYPES[step.form.T], chunk.mask.shape
    memory, address = _resolve(chunk, space, address, dtype.itemsize)
    at = np.broadcast_to(address, shape)[chunk.mask]
    operands = [np.broadcast_to(value, shape)[chunk.mask] for value in values]
    old, new = np.empty(at.size, dtype), np.empty(at.size, dtype)
    in_shared = memory is chunk.shared
    for turn in _turns(at):
        try:
            old[turn] = memory.load(at[turn], dtype)
            result = step.function(old[turn], *(operand[turn] for operand in operands), shared=in_shared)
            new[turn] = result.view(dtype)
            memory.store(at[turn], new[turn])
        except MemoryFault as fault:
            lane = _faulty_lane(chunk, shape, int(turn[fault.position]), masked=True)
            raise chunk.placed(fault, lane) from None
    if chunk.launch.on_write and memory is chunk.launch.memory:
        notify_write(chunk, step, part, at, new)
    return old


# ---- addresses -----------------------------------------------------------------------------------


def _address(chunk: Chunk, step: Step) -> Any:
    if step.base is None:
        raise TypeError(f"{step.instruction.text} has no address")
    return step.base(chunk)


def _by_space(chunk: Chunk, step: Step) -> Iterator[tuple[str, Any]]:
    """State spaces, and the addresses there; for each, the chunk's mask holds the lanes that mean it.

    A generic address says itself which space it means (PTX ISA 5.7); lanes may differ.
    """
    address = _address(chunk, step)
    if step.space != "generic":
        yield step.space, address
        return
    window = np.right_shift(address, np.uint64(40))
    first = int(np.broadcast_to(window, chunk.mask.shape)[chunk.mask][0])
    if not ((window != first) & chunk.mask).any():
        space = NAMES.get(first, "global")
        yield space, address - np.uint64(WINDOWS.get(space, 0))
        return
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    last = np.uint64(max(NAMES) + 1)
    number = np.broadcast_to(np.minimum(window, last), mask.shape)
    for which in np.unique(number[mask]).tolist():
        space = NAMES.get(which, "global")
        chunk.enter(mask & (number == which), alone=False)
        yield space, address - np.uint64(WINDOWS.get(space, 0))
    chunk.enter(mask, alone, needed)


def _load_generic(chunk: Chunk, step: Step, dtype: np.dtype[Any]) -> list[Any]:
    mask, values = chunk.mask, list[Any]()
    for space, address in _by_space(chunk, step):
        loaded = _gather(chunk, space, address, dtype, step.form.vector)
        if chunk.mask is mask:
            return loaded
        if not values:
            values = [np.zeros(mask.shape, dtype) for _ in loaded]
        for value, element in zip(values, loaded, strict=True):
            np.copyto(value, element, where=chunk.mask)
    return values


def _resolve(chunk: Chunk, space: str, address: Any, width: int) -> tuple[Memory, Any]:
    """The memory that holds a state space, and where the lanes' addresses lie in it."""
    launch = chunk.launch
    if space == "global":
        return launch.memory, address
    if space == "const":
        return launch.constants, address
    if space == "param":
        return launch.parameter_memory, address
    if space == "local":
        _check_window(chunk, address, width, launch.local_size, "local memory", "index within the array")
        lane = chunk.warp * WARP_SIZE + np.arange(WARP_SIZE)
        return chunk.local, np.add(address, (lane * chunk.local_stride).astype(np.uint64))
    if launch.blocks_per_cluster == 1 and int(np.max(address)) + width <= launch.shared_size:
        return chunk.shared, np.add(address, chunk.shared_start)
    block = chunk.block_in_chunk
    if launch.blocks_per_cluster > 1 or int(np.max(address)) >> BLOCK_BITS:
        rank = np.right_shift(address, np.uint64(BLOCK_BITS)).astype(np.int64)
        named = (rank > 0) & (rank <= launch.blocks_per_cluster)  # another number is out of bounds below
        first = block // launch.blocks_per_cluster * launch.blocks_per_cluster
        block = np.where(named, first + rank - 1, block)
        within: Any = np.bitwise_and(address, np.uint64((1 << BLOCK_BITS) - 1))
        address = np.asarray(np.where(named, within, address), np.uint64)
    advice = "declare more shared memory, or pass shared= at the launch"
    _check_window(chunk, address, width, launch.shared_size, "shared memory", advice)
    return chunk.shared, np.add(address, (block * chunk.shared_stride).astype(np.uint64))


def _check_window(chunk: Chunk, address: Any, width: int, size: int, what: str, advice: str) -> None:
    """Refuse an access outside the memory of a block or a thread."""
    bad = (address > np.uint64(max(size - width, 0))) & chunk.mask if size >= width else chunk.mask
    if not bad.any():
        return
    lane = int(bad.argmax())
    offset = int(np.broadcast_to(address, chunk.mask.shape).reshape(-1)[lane])
    fault = OutOfBounds(
        f"access of {width} bytes outside {what}", f"offset {offset:#x} of {size} bytes", advice
    )
    fault.address, fault.width, fault.space, fault.offset = offset, width, what.partition(" ")[0], offset
    fault.allocation = what
    raise chunk.placed(fault, lane)


def _gather(chunk: Chunk, space: str, address: Any, dtype: np.dtype[Any], count: int) -> list[Any]:
    """The values at the executing lanes' addresses, one array for each element of a vector.

    Unless they are few, the other lanes read along: where their registers point, or else at an address
    that is read anyway.
    """
    unit = _vector(dtype, count)
    memory, address = _resolve(chunk, space, address, unit.itemsize)
    shape = np.shape(address)
    some = chunk.active is not None and shape != ()
    sparse = some and chunk.count * _SPARSE < chunk.mask.size
    loaded = None
    if sparse:
        address = np.broadcast_to(address, chunk.mask.shape)[chunk.mask]
    elif some:
        loaded = memory.peek(address.reshape(-1), unit)
        if loaded is None:
            shape, address = chunk.mask.shape, _without_others(chunk, address)
    try:
        if loaded is None:
            loaded = memory.load(np.reshape(address, -1), unit)
    except MemoryFault as fault:
        lane = _faulty_lane(chunk, shape, fault.position, masked=sparse)
        if not chunk.mask.reshape(-1)[lane]:  # it had the address of the first lane that executes
            lane = int(chunk.mask.argmax())
        raise chunk.placed(fault, lane) from None
    elements = [loaded] if count == 1 else list(loaded.view(dtype).reshape(-1, count).T)
    if sparse:
        return [_spread(element, chunk.mask) for element in elements]
    return [element.reshape(shape)[()] for element in elements]


def _without_others(chunk: Chunk, address: Any) -> Any:
    """The executing lanes' addresses; for the other lanes that of the first one of these."""
    address = np.broadcast_to(address, chunk.mask.shape)
    first = np.reshape(address, -1)[chunk.mask.argmax()]
    return np.asarray(np.where(chunk.mask, address, first), np.uint64)


def _faulty_lane(chunk: Chunk, shape: tuple[int, ...], position: int, masked: bool) -> int:
    """The lane behind position ``position`` of a vector of addresses.

    The addresses are those of the executing lanes if ``masked``, else they have this shape.
    """
    if masked:
        return int(np.flatnonzero(chunk.mask)[position])
    if shape == ():
        return int(chunk.mask.argmax())
    return position * (WARP_SIZE // shape[-1])


def _vector(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """A vector's bytes as one element, which is aligned and checked as a whole."""
    return dtype if count == 1 else np.dtype(f"V{dtype.itemsize * count}")


def _spread(values: npt.NDArray[Any], mask: Mask) -> npt.NDArray[Any]:
    """One value for each lane of the mask → an array of all lanes."""
    result = np.zeros(mask.shape, values.dtype)
    result[mask] = values
    return result


def _turns(addresses: npt.NDArray[np.uint64]) -> list[npt.NDArray[np.intp]]:
    """Positions, cut into rounds in which no address occurs twice, each in the order of the lanes."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    rank = np.arange(order.size) - np.repeat(starts, np.diff(np.r_[starts, order.size]))
    if not rank.any():
        return [np.arange(order.size)]
    by_rank = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    return [np.sort(order[turn]) for turn in np.split(by_rank, ends[:-1])]


DATA: dict[str, Callable[[Chunk, Step], None]] = {
    "load": load,
    "store": store,
    "atomic": atomic,
    "reduction": atomic,
}
"""What executes the kinds of row that access memory."""
