"""Loads, stores and atomics of the executing lanes: state spaces, addresses, checks and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import AccessEvent, OrderedAccess, WriteEvent
from simwarp.engine.memory.reach import FRAME, leave_out, outside
from simwarp.engine.undefined.foreign_pointers import Cells
from simwarp.engine.undefined.values import Missing, Stored, all_undefined, of_load
from simwarp.faults import MemoryFault, UninitialisedRead
from simwarp.memory import POISON, Allocation, Memory
from simwarp.ptx.kinds import LOAD
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.same_address import Runs, all_differ
from simwarp.ptx.spaces import BLOCK_BITS, NAMES, RESERVED, RESERVED_AT, WINDOWS
from simwarp.ptx.syntax import Register, Vector

if TYPE_CHECKING:
    from simwarp.engine.components import Target
    from simwarp.engine.state import Chunk, Mask
    from simwarp.program.program import Step

_SPARSE = 4
"""The executing lanes are few if they are fewer than one lane in this many."""
_RACING = ("global", "shared")
"""The state spaces that several threads can access."""


def load(chunk: Chunk, step: Step) -> None:
    """Execute a load of one value, or of each element of a vector, from memory or a parameter."""
    dtype, write, count = DTYPES[step.form.T], step.destinations[0], step.form.vector
    if step.symbol:
        data = chunk.launch.parameters[step.symbol]
        values = [np.frombuffer(data, dtype, 1, step.offset + i * dtype.itemsize)[0] for i in range(count)]
    else:
        values = read_memory(chunk, step, dtype, count)
        if chunk.loaded is not None:
            chunk.follow_load(chunk.loaded)
    if write is not None:
        write(chunk, values if count > 1 else values[0])


def read_memory(chunk: Chunk, step: Step, dtype: np.dtype[Any], count: int, address: Any = None) -> list[Any]:
    """Read ``count`` elements per executing lane, at ``address`` or else at the step's address operand.

    Each array of the result broadcasts to (warps, 32).
    """
    mask, values = chunk.mask, list[Any]()
    if step.space == "global" and step.base is not None:  # the usual case: one state space
        address = step.base(chunk) if address is None else address
        memory = chunk.launch.reach[step.number]
        return gather(chunk, step, Place("global", memory, address, address), dtype, count)
    for place in places(chunk, step, dtype.itemsize * count, address):
        loaded = gather(chunk, step, place, dtype, count)
        if chunk.mask is mask:
            return loaded
        values = values or all_poison(mask, dtype, count)
        for value, element in zip(values, loaded, strict=True):
            np.copyto(value, element, where=chunk.mask)
    return values or all_poison(mask, dtype, count)


def store(chunk: Chunk, step: Step) -> None:
    """Execute a store; if lanes share an address, the value of the last one stays."""
    dtype, count = DTYPES[step.form.T], step.form.vector
    unit = vector_of(dtype, count)
    value = step.sources[0](chunk)
    missing = None if chunk.undefined is None else Stored.of(chunk, step, dtype, count)
    elements = [np.broadcast_to(v, chunk.mask.shape) for v in (value if count > 1 else [value])]
    lenders = chunk.launch.lent.lenders(chunk) if step.number in chunk.launch.lent.steps else None
    for place in places(chunk, step, unit.itemsize):
        undefined = None if missing is None else missing.kept(chunk, step, place)
        given = [executing(chunk, e) for e in elements]
        data = given[0] if count == 1 else np.stack(given, axis=-1).view(unit)[:, 0]
        at, _, turn = _put(chunk, step, place, data)
        if turn is not None:
            given = [e[turn] for e in given]
        if lenders is not None:
            _lend(chunk, place, at, given, lenders, turn)
        if undefined is not None:
            place.memory.forget(at, undefined if turn is None else undefined[turn])
        if place.space == "global" and chunk.launch.on_write:
            for i, element in enumerate(given):
                _notify_write(chunk, step, i, at + np.uint64(i * dtype.itemsize), element, turn)


def _lend(
    chunk: Chunk, place: Place, at: Any, elements: list[Any], lenders: tuple[Any, Any], turn: Any
) -> None:
    """Record the stored words that are addresses in shared or local memory."""
    lanes = _lanes(chunk, turn)
    threads, steps = (numbers.reshape(-1)[lanes] for numbers in lenders)
    for i, element in enumerate(elements):
        cells = Cells(at + np.uint64(8 * i), np.ascontiguousarray(element).view(np.uint64), threads, steps)
        chunk.launch.lent.note(chunk, place.memory, cells, chunk.thread.reshape(-1)[lanes])


def write_memory(
    chunk: Chunk, step: Step, values: npt.NDArray[Any], address: Any = None, register: str = ""
) -> None:
    """Write one of ``values`` (warps, 32) per executing lane; observers see it as held in ``register``."""
    for place in places(chunk, step, values.itemsize, address):
        at, data, turn = _put(chunk, step, place, executing(chunk, values))
        if place.space == "global":
            for observe in chunk.launch.on_write:
                observe(WriteEvent(chunk, _lanes(chunk, turn), at, data, register))


def _put(chunk: Chunk, step: Step, place: Place, data: Any) -> tuple[Any, Any, Any]:
    """Check the addresses, then store the data; returns both as stored, and the order of the lanes."""
    at, memory = executing(chunk, place.address), place.memory
    races, lent = chunk.launch.races, chunk.launch.lent
    turn, width = chunk.order(at.size) if chunk.order is not None else None, data.dtype.itemsize
    if turn is not None:
        at, data = at[turn], data[turn]
    if races is not None and place.space in _RACING:
        races.access(OrderedAccess(chunk, step, "write", memory, _lanes(chunk, turn), at, width, data))
    if chunk.copies is not None and chunk.copies.in_flight:
        chunk.copies.check(chunk, memory, _lanes(chunk, turn), at, width, "write")
    if chunk.launch.journal is not None:
        chunk.launch.journal.note(memory, at, width, step, data)
    if lent.cells and step.number not in lent.steps:
        lent.forget(memory, at, width)
    if chunk.tiles is not None and memory is chunk.shared:
        chunk.tiles.forget(at)
    if not memory.poke(at, data):
        examine(chunk, memory, at, width, _lanes(chunk, turn), "write")
        memory.write(at, data)
    if chunk.launch.on_access:
        _notify_access(chunk, step, "store", place, width)
    return at, data, turn


def announce_store(chunk: Chunk, step: Step, place: Target, at: Any, data: Any) -> None:
    """Run the checks and events of a store without changing memory."""
    lanes, width, memory = _lanes(chunk), data.dtype.itemsize, place.memory
    if chunk.launch.races is not None:
        chunk.launch.races.access(OrderedAccess(chunk, step, "write", memory, lanes, at, width, data))
    if memory.updatable(at, width) is None:
        examine(chunk, memory, at, width, lanes, "write")
    if chunk.launch.on_access:
        _notify_access(chunk, step, "store", place, width)


def _notify_write(chunk: Chunk, step: Step, part: int, addresses: Any, values: Any, turn: Any = None) -> None:
    """Notify the observers that element ``part`` of a step's last operand was written to memory."""
    operand = step.instruction.operands[-1]
    operand = operand.elements[part] if isinstance(operand, Vector) else operand
    register = operand.name if isinstance(operand, Register) else ""
    event = WriteEvent(chunk, _lanes(chunk, turn), addresses, values, register)
    for observe in chunk.launch.on_write:
        observe(event)


def atomic(chunk: Chunk, step: Step) -> None:
    """Execute an atomic operation lane by lane; each element of a vector is one operation."""
    count, dtype = step.form.vector, DTYPES[step.form.T]
    sources = [read(chunk) for read in step.sources]
    results = all_poison(chunk.mask, dtype, count)
    with chunk.launch.atomics:
        for place in places(chunk, step, dtype.itemsize):
            if count > 1 and place.space != "global":
                fault = MemoryFault(
                    f"vector atomic in {place.space} memory",
                    step.instruction.opcode,
                    "use global memory, the only one with atomic operations on vectors",
                )
                raise chunk.placed(fault, chunk.mask)
            for i in range(count):
                values = [source[i] if count > 1 else source for source in sources]
                results[i][chunk.mask] = _update(chunk, step, place, values, i)
            if chunk.launch.on_access:
                does = "atomic" if step.row.destinations else "reduction"
                _notify_access(chunk, step, does, place, dtype.itemsize * count)
    if chunk.loaded is not None:
        chunk.follow_load(chunk.loaded)
    write = step.destinations[0] if step.destinations else None
    if write is not None:
        write(chunk, results if count > 1 else results[0])


def _update(chunk: Chunk, step: Step, place: Place, values: list[Any], part: int) -> npt.NDArray[Any]:
    """Execute one atomic operation per executing lane; returns the old values."""
    dtype, shape, memory = DTYPES[step.form.T], chunk.mask.shape, place.memory
    address = place.address + np.uint64(part * dtype.itemsize) if part else place.address
    at = np.broadcast_to(address, shape)[chunk.mask]
    operands = [np.broadcast_to(value, shape)[chunk.mask] for value in values]
    order = None if chunk.order is None else chunk.order(at.size)
    races = chunk.launch.races
    # warps access shared words in turn, so that each passes its vector clock on
    if races is not None and place.space in _RACING:
        lanes, first = _lanes(chunk, order), at if order is None else at[order]
        races.access(OrderedAccess(chunk, step, "atomic", memory, lanes, first, dtype.itemsize))
    if chunk.copies is not None and chunk.copies.in_flight:
        chunk.copies.check(chunk, memory, _lanes(chunk), at, dtype.itemsize, "update")
    target: Memory | Allocation | None = memory.updatable(at, dtype.itemsize)
    if target is None:
        target, exchanges = memory, step.form.has("exch")
        examine(chunk, memory, at, dtype.itemsize, _lanes(chunk), "read", "write", follows=exchanges)
        if exchanges and chunk.launch.checks.action("uninitialised") != "off":
            _follow_exchange(chunk, step, place, at, order)
    journal = chunk.launch.journal
    noted = None if journal is None else journal.note(memory, at, dtype.itemsize, step)
    if chunk.launch.lent.cells:
        chunk.launch.lent.forget(memory, at, dtype.itemsize)
    old, new = _take_turns(step, target, at, operands, order, memory is chunk.shared)
    if noted is not None:
        noted.compare(old, new)
    if chunk.launch.on_write and place.space == "global":
        _notify_write(chunk, step, part, at, new)
    return old


def _follow_exchange(chunk: Chunk, step: Step, place: Place, at: Any, order: Any) -> None:
    """Propagate unwritten values through an exchange: those in memory go to the first lane in turn."""
    missing = of_load(chunk, step, place, DTYPES[step.form.T], 1)
    if missing is not None:
        runs, first = Runs(at, order), np.zeros(at.size, np.bool_)
        first[runs.position[runs.starts]] = True
        lanes = missing.lanes & _spread(first, chunk.mask)
        np.copyto(missing.bits[0], 0, where=~lanes)
        chunk.loaded = missing._replace(lanes=lanes).also(chunk.loaded)


def _take_turns(
    step: Step, target: Memory | Allocation, at: Any, operands: list[Any], order: Any, in_shared: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Update memory, lanes with the same address one after another; return the old and new values.

    A row's ``together`` computes all lanes of an address at once, with the same values.
    """
    dtype = DTYPES[step.form.T]
    if all_differ(at):
        old = target.read(at, dtype)
        new = step.function(old, *operands, shared=in_shared).view(dtype)
        target.write(at, new)
        return old, new
    runs = Runs(at, order)
    ordered, at = [operand[runs.position] for operand in operands], at[runs.position]
    old, new = np.empty(at.size, dtype), np.empty(at.size, dtype)
    left: Any = None
    together = step.row.together
    if together is not None and isinstance(target, Allocation):
        old, done = together(step.form, target.read(at[runs.starts], dtype), runs, *ordered, shared=in_shared)
        new = step.function(old, *ordered, shared=in_shared).view(dtype)
        last = runs.ends[done[runs.ends]]
        target.write(at[last], new[last])
        left = ~done
    for turn in runs.turns(left):
        where = at[turn]
        old[turn] = target.read(where, dtype)
        result = step.function(old[turn], *(operand[turn] for operand in ordered), shared=in_shared)
        new[turn] = result.view(dtype)
        target.write(where, new[turn])
    back = np.empty_like(runs.position)
    back[runs.position] = np.arange(back.size)
    return old[back], new[back]


# ---- checks and observers --------------------------------------------------------------------------


def examine(
    chunk: Chunk, memory: Memory, at: Any, width: int, lanes: Any, *verbs: str, follows: bool = False
) -> None:
    """Report the faults of accesses; if undefined values are followed, uninitialised reads are not faults."""
    for fault in memory.examine(at, width, *verbs):
        if follows and isinstance(fault, UninitialisedRead):
            continue
        chunk.within(fault, memory)
        chunk.found(fault, int(lanes[fault.position]))


def _notify_access(chunk: Chunk, step: Step, kind: str, place: Target, width: int) -> None:
    """Notify the observers of an access of the executing lanes."""
    lanes = _lanes(chunk)
    addresses = np.broadcast_to(place.within, chunk.mask.shape).reshape(-1)[lanes]
    event = AccessEvent(chunk, step, kind, place.space, lanes, addresses, width)
    for observe in chunk.launch.on_access:
        observe(event)


def _lanes(chunk: Chunk, order: Any = None) -> npt.NDArray[np.int64]:
    """The numbers of the executing lanes in the chunk: ascending, or permuted by ``order``."""
    lanes = np.flatnonzero(chunk.mask)
    return lanes if order is None else lanes[order]


def executing(chunk: Chunk, value: Any) -> npt.NDArray[Any]:
    """(n,): the elements of a (warps, 32) value that belong to the n executing lanes."""
    value = np.broadcast_to(value, chunk.mask.shape)
    return value.reshape(-1) if chunk.active is None else value[chunk.mask]


def all_poison(mask: Mask, dtype: np.dtype[Any], count: int) -> list[Any]:
    """``count`` arrays (warps, 32) filled with the byte of uninitialised memory."""
    poison = np.frombuffer(bytes([POISON]) * dtype.itemsize, dtype)[0]
    return [np.full(mask.shape, poison) for _ in range(count)]


# ---- addresses -----------------------------------------------------------------------------------


class Place(NamedTuple):
    """The executing lanes' addresses in a state space: in its memory, and ``within`` the lane's window."""

    space: str
    memory: Memory
    address: Any
    within: Any


def places(chunk: Chunk, step: Step, width: int, address: Any = None) -> Iterator[Place]:
    """Yield each memory that lanes address; meanwhile the chunk's mask holds only these lanes.

    ``address`` defaults to the step's address operand. Lanes whose address lies outside their window are left
    out, if checks do not raise.
    """
    if address is None:
        if step.base is None:
            raise TypeError(f"{step.instruction.text} has no address")
        address = step.base(chunk)
    mask, alone, needed = chunk.mask, chunk.alone, chunk.needed
    for space, within in _by_space(chunk, step, address):
        if space == "shared" and chunk.program.reserves_shared:
            yield from _reserved(chunk, within, width)
            if not chunk.count:
                continue
        place = _resolve(chunk, step, space, within, width)
        if chunk.count:
            yield place
    if chunk.mask is not mask:
        chunk.enter(mask, alone, needed)


def _by_space(chunk: Chunk, step: Step, address: Any) -> Iterator[tuple[str, Any]]:
    """Yield each state space that lanes address (PTX ISA 5.7), with its addresses; only its lanes execute."""
    if step.space != "generic":
        yield step.space, address
        return
    mask = chunk.mask
    window = np.right_shift(address, np.uint64(40))
    number = np.broadcast_to(window, mask.shape)
    numbers = [int(number[mask][0])]
    if ((window != numbers[0]) & mask).any():
        number = np.minimum(number, np.uint64(max(NAMES) + 1))
        numbers = np.unique(number[mask]).tolist()
    for which in numbers:
        if len(numbers) > 1:
            chunk.enter(mask & (number == which), alone=False)
        space = NAMES.get(which, "global")
        if step.number in chunk.attendance.ways and space != "local":
            # A write that others can read shows that the lanes that left did so early.
            chunk.attendance.part(chunk, step.number, {step.number + 1: chunk.mask})
        yield space, address - np.uint64(WINDOWS.get(space, 0))


def _reserved(chunk: Chunk, address: Any, width: int) -> Iterator[Place]:
    """Yield the reserved part of shared memory for lanes that address it, then let the others execute."""
    mask, offset = chunk.mask, np.subtract(address, np.uint64(RESERVED_AT))
    here = mask & (offset <= np.uint64(RESERVED - width))
    if here.any():
        chunk.enter(here, alone=False)
        start = chunk.shared_start + np.uint64(chunk.reserved_start)
        yield Place("shared", chunk.shared, np.add(offset, start), address)
        chunk.enter(mask & ~here, alone=False)


def _resolve(chunk: Chunk, step: Step, space: str, address: Any, width: int) -> Place:
    """The memory of a state space, and the lanes' addresses in that memory."""
    launch = chunk.launch
    if launch.lent.followed and space in ("shared", "local"):
        launch.lent.check(chunk, step, space, address, width)
    if space == "global":
        return Place(space, launch.reach[step.number], address, address)
    if space == "const":
        return Place(space, launch.constants, address, address)
    if space == "param":
        return Place(space, launch.parameter_memory, address, address)
    if space == "local":
        first, last, name = launch.frames[step.number]
        start = 0 if name is FRAME else chunk.frame + np.uint64(first)
        if (bad := outside(chunk, address, width, start, chunk.frame + np.uint64(last))) is not None:
            window = "local memory", launch.local_size
            leave_out(chunk, address, width, bad, window, name, "index within the array")
        return Place(space, chunk.local, np.add(address, chunk.local_start), address)
    first, end, names = launch.windows[step.number]
    usual = launch.blocks_per_cluster == 1 and int(np.max(address)) + width <= end
    if usual and (not first or int(np.min(address)) >= first):
        return Place("shared", chunk.shared, np.add(address, chunk.shared_start), address)
    block = chunk.block_in_chunk
    if launch.blocks_per_cluster > 1 or int(np.max(address)) >> BLOCK_BITS:
        rank = np.right_shift(address, np.uint64(BLOCK_BITS)).astype(np.int64)
        named = (rank > 0) & (
            rank <= launch.blocks_per_cluster
        )  # an address of another rank is reported as out of bounds below
        cluster = block // launch.blocks_per_cluster * launch.blocks_per_cluster
        block = np.where(named, cluster + rank - 1, block)
        within: Any = np.bitwise_and(address, np.uint64((1 << BLOCK_BITS) - 1))
        address = np.asarray(np.where(named, within, address), np.uint64)
    advice = "declare more shared memory, or give the launch more of it (shared=, --shared)"
    if (bad := outside(chunk, address, width, first, np.uint64(end))) is not None:
        window = "shared memory", launch.shared_size
        leave_out(chunk, address, width, bad, window, names, advice, (first, end))
    there = np.add(address, (block * chunk.shared_stride).astype(np.uint64))
    return Place("shared", chunk.shared, there, address)


def gather(chunk: Chunk, step: Step, place: Place, dtype: np.dtype[Any], count: int) -> list[Any]:
    """The values at the executing lanes' addresses, one array per element of a vector.

    Unless few lanes execute, the idle ones read as well, which is faster than a mask: at the address in their
    register or, where that is not valid, at the address of an executing lane.
    """
    unit, memory, address = vector_of(dtype, count), place.memory, place.address
    # before the check of uninitialised reads, which would report the bytes of a copy in flight
    if chunk.copies is not None and chunk.copies.in_flight:
        at = executing(chunk, address)
        chunk.copies.check(chunk, memory, _lanes(chunk), at, unit.itemsize, "read")
    shape = np.shape(address)
    some = chunk.active is not None and shape != ()
    sparse = some and chunk.count * _SPARSE < chunk.mask.size
    if sparse:
        address = np.broadcast_to(address, chunk.mask.shape)[chunk.mask]
    loaded = memory.peek(np.reshape(address, -1), unit)
    if loaded is None and some and not sparse:
        shape, address = chunk.mask.shape, _without_others(chunk, address)
        loaded = memory.peek(np.reshape(address, -1), unit)
    if loaded is None:
        at, follows = executing(chunk, place.address), step.kind is LOAD
        examine(chunk, memory, at, unit.itemsize, _lanes(chunk), "read", follows=follows)
        loaded = memory.read(np.reshape(address, -1), unit)
        if follows and chunk.launch.checks.action("uninitialised") != "off":
            missing = of_load(chunk, step, place, dtype, count)
            chunk.loaded = chunk.loaded if missing is None else missing.also(chunk.loaded)
    launch = chunk.launch
    if step.number in launch.watched_loads and launch.races is not None and place.space in _RACING:
        at = executing(chunk, place.address)
        launch.races.access(OrderedAccess(chunk, step, "read", memory, _lanes(chunk), at, unit.itemsize))
    if launch.journal is not None and step.number in launch.journal.loads:
        launch.journal.read(memory, executing(chunk, place.address), unit.itemsize)
    if launch.on_access:
        _notify_access(chunk, step, "load", place, unit.itemsize)
    elements = [loaded] if count == 1 else list(loaded.view(dtype).reshape(-1, count).T)
    values = [_spread(e, chunk.mask) if sparse else e.reshape(shape)[()] for e in elements]
    if launch.lent.cells and step.kind is LOAD and dtype in ("u8", "i8") and chunk.loaded is None:
        _borrow(chunk, step, place, values)
    return values


def _borrow(chunk: Chunk, step: Step, place: Place, values: list[Any]) -> None:
    """Mark loaded words that are addresses in another block's shared or another thread's local memory."""
    at = executing(chunk, place.address)
    for i, value in enumerate(values):
        given = executing(chunk, value)
        foreign = chunk.launch.lent.loaded(chunk, step, place.memory, at + np.uint64(8 * i), given)
        if foreign is not None:
            lanes = chunk.mask & foreign.of(chunk.thread)[1]
            bits = [np.zeros(chunk.mask.shape, value.dtype) for value in values]
            bits[i][lanes] = all_undefined(np.uint64()).view(value.dtype)
            chunk.loaded = Missing(lanes, bits, foreign).also(chunk.loaded)


def _without_others(chunk: Chunk, address: Any) -> Any:
    """(warps, 32): the addresses, where idle lanes get the address of the first executing lane."""
    address = np.broadcast_to(address, chunk.mask.shape)
    first = np.reshape(address, -1)[chunk.mask.argmax()]
    return np.asarray(np.where(chunk.mask, address, first), np.uint64)


def vector_of(dtype: np.dtype[Any], count: int) -> np.dtype[Any]:
    """The dtype of a whole vector of ``count`` elements; alignment and bounds are checked for the vector."""
    return dtype if count == 1 else np.dtype(f"V{dtype.itemsize * count}")


def _spread(values: npt.NDArray[Any], mask: Mask) -> npt.NDArray[Any]:
    """Scatter the values of a mask's lanes into an array (warps, 32) that is 0 elsewhere."""
    result = np.zeros(mask.shape, values.dtype)
    result[mask] = values
    return result
