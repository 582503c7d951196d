"""The executor: runs a `Program` over a grid, whole blocks at a time, all their warps at once.

`Launch` holds what one launch has (grid, parameters, memory) and knows what a step does to the
registers and to memory. Which lanes execute which step, and when, is `simwarp.ptx.schedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from simwarp.faults import InactiveSource, KernelFault, MemberMaskFault, MemoryFault, OutOfBounds
from simwarp.lanes import LANE_BIT, WARP_SIZE
from simwarp.memory import Memory
from simwarp.observe import Observer, WriteEvent
from simwarp.ptx.chunk import Chunk, Mask
from simwarp.ptx.program import Program, Step
from simwarp.ptx.rows import DTYPES
from simwarp.ptx.schedule import Scheduler
from simwarp.ptx.syntax import Register, Vector

Dim = tuple[int, int, int]


@dataclass
class Launch:
    """One launch of a kernel.

    Attributes
    ----------
    grid, block : (x, y, z)
    parameters : mapping of name to bytes
    memory : Memory
        Global memory.
    shared_size : int
        Bytes per block, static and dynamic.
    chunk_lanes : int
        How many lanes are in flight at a time; registers of this size should fit a cache.
    instruction_budget : int or None
        Steps that may be executed before `RunawayKernel` is raised.
    """

    program: Program
    grid: Dim
    block: Dim
    parameters: Mapping[str, bytes]
    memory: Memory
    shared_size: int = 0
    chunk_lanes: int = 32768
    cooperative: bool = False
    instruction_budget: int | None = None
    observers: Sequence[Observer] = ()

    def __post_init__(self) -> None:
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.steps_left = self.instruction_budget
        self.on_write = [o.on_write for o in self.observers if o.wants("on_write")]
        self.on_fetch = [o.on_fetch for o in self.observers if o.wants("on_fetch")]

    def run(self) -> int:
        """Execute every block; return the number of thread-instructions."""
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        lanes_per_block = -(-self.threads // WARP_SIZE) * WARP_SIZE
        at_once = blocks if self.cooperative else max(1, self.chunk_lanes // lanes_per_block)
        executed = 0
        with np.errstate(all="ignore"):
            for first in range(0, blocks, at_once):
                chunk = Chunk(self, first, min(at_once, blocks - first))
                Scheduler(self, chunk).run()
                executed += chunk.executed
        return executed

    # ---- what each kind of step does ---------------------------------------------------------------

    def pure(self, chunk: Chunk, step: Step) -> None:
        """Compute on registers."""
        if step.compute is not None:
            step.compute(chunk)

    def warp(self, chunk: Chunk, step: Step) -> None:
        """Compute across the lanes of each warp."""
        sources = [read(chunk) for read in step.sources]
        *results, defined = step.function(chunk.active, *sources)
        bad = chunk.mask & ~defined
        if bad.any():
            raise self.undefined(chunk, step, int(bad.argmax()), sources[-1])
        for write, value in zip(step.destinations, results, strict=False):
            if write is not None:
                write(chunk, value)

    def undefined(self, chunk: Chunk, step: Step, lane: int, member_mask: Any) -> KernelFault:
        """The fault of a lane whose warp-wide result the PTX ISA leaves undefined."""
        mask = int(np.broadcast_to(member_mask, chunk.mask.shape).reshape(-1)[lane])
        active = int((LANE_BIT * chunk.mask[lane // WARP_SIZE]).sum())
        values = f"member mask {mask:#010x}, executing lanes {active:#010x}"
        if not mask >> lane % WARP_SIZE & 1:
            fault: KernelFault = MemberMaskFault(
                "lane outside its own member mask", values, "name every executing lane in the mask"
            )
        else:
            fault = InactiveSource(
                "read of a lane that does not take part",
                values,
                "let the source lane execute the shuffle too, and name it in the mask",
            )
        return chunk.placed(fault, lane)

    def load(self, chunk: Chunk, step: Step) -> None:
        """Read memory, a parameter, or each element of a vector."""
        dtype, write = DTYPES[step.form.T], step.destinations[0]
        if step.space == "param":
            data = self.parameters[step.symbol]
            values = [
                np.frombuffer(data, dtype, 1, step.offset + i * dtype.itemsize)[0]
                for i in range(step.form.vector)
            ]
        else:
            values = self.gather(chunk, step, dtype)
        if write is not None:
            write(chunk, values if step.form.vector > 1 else values[0])

    def gather(self, chunk: Chunk, step: Step, dtype: np.dtype[Any]) -> list[Any]:
        """The values at the executing lanes' addresses, one array for each element of a vector."""
        count = step.form.vector
        unit = _vector(dtype, count)
        memory, address = self.address(chunk, step, unit.itemsize)
        shape = np.shape(address)
        if chunk.active is not None and shape != ():
            shape = chunk.mask.shape
            address = np.broadcast_to(address, shape)[chunk.mask]
        try:
            loaded = memory.load(address.reshape(-1), unit)
        except MemoryFault as fault:
            raise chunk.placed(fault, self.faulty_lane(chunk, shape, fault.position)) from None
        elements = [loaded] if count == 1 else list(loaded.view(dtype).reshape(-1, count).T)
        if chunk.active is None or shape == ():
            return [element.reshape(shape)[()] for element in elements]
        return [_spread(element, chunk.mask) for element in elements]

    def store(self, chunk: Chunk, step: Step) -> None:
        """Write memory, lane by lane in order."""
        dtype, count = DTYPES[step.form.T], step.form.vector
        unit = _vector(dtype, count)
        memory, address = self.address(chunk, step, unit.itemsize)
        value = step.sources[0](chunk)
        shape = chunk.mask.shape
        elements = [np.broadcast_to(v, shape) for v in (value if count > 1 else [value])]
        at = np.broadcast_to(address, shape)
        if chunk.active is None:
            at, elements = at.reshape(-1), [e.reshape(-1) for e in elements]
        else:
            at, elements = at[chunk.mask], [e[chunk.mask] for e in elements]
        data = elements[0] if count == 1 else np.stack(elements, axis=-1).view(unit)[:, 0]
        try:
            memory.store(at, data)
        except MemoryFault as fault:
            raise chunk.placed(fault, self.faulty_lane(chunk, shape, fault.position)) from None
        if self.on_write and step.space == "global":
            for i, element in enumerate(elements):
                self.notify_write(chunk, step, i, at + np.uint64(i * dtype.itemsize), element)

    def notify_write(self, chunk: Chunk, step: Step, part: int, addresses: Any, values: Any) -> None:
        """Tell the observers of a write of the operand's element ``part``."""
        operand = step.instruction.operands[-1]
        operand = operand.elements[part] if isinstance(operand, Vector) else operand
        register = operand.name if isinstance(operand, Register) else ""
        event = WriteEvent(chunk, np.flatnonzero(chunk.mask), addresses, values, register)
        for observe in self.on_write:
            observe(event)

    def atomic(self, chunk: Chunk, step: Step) -> None:
        """Update memory lane by lane: the lanes that share an address take turns, in order."""
        dtype = DTYPES[step.form.T]
        memory, address = self.address(chunk, step, dtype.itemsize)
        shape = chunk.mask.shape
        at = np.broadcast_to(address, shape)[chunk.mask]
        operands = np.broadcast_to(step.sources[0](chunk), shape)[chunk.mask]
        old, new = np.empty_like(operands), np.empty_like(operands)
        for turn in _turns(at):
            try:
                old[turn] = memory.load(at[turn], dtype)
                new[turn] = step.function(old[turn], operands[turn])
                memory.store(at[turn], new[turn])
            except MemoryFault as fault:
                lane = self.faulty_lane(chunk, shape, int(turn[fault.position]))
                raise chunk.placed(fault, lane) from None
        if self.on_write and step.space == "global":
            self.notify_write(chunk, step, 0, at, new)
        write = step.destinations[0]
        if write is not None:
            write(chunk, _spread(old, chunk.mask))

    def address(self, chunk: Chunk, step: Step, width: int) -> tuple[Memory, Any]:
        """The memory of an access of ``width`` bytes, and its addresses there."""
        if step.base is None:
            raise TypeError(f"{step.instruction.text} has no address")
        address = step.base(chunk)
        if step.offset:
            address = address + np.uint64(step.offset & 0xFFFF_FFFF_FFFF_FFFF)
        if step.space == "global":
            return self.memory, address
        return chunk.shared, self.in_window(chunk, address, width)

    def in_window(self, chunk: Chunk, address: Any, width: int) -> Any:
        """Addresses within the block's shared memory → addresses within the chunk's."""
        at = np.broadcast_to(address, chunk.mask.shape)
        bad = (at > np.uint64(max(self.shared_size - width, 0))) & chunk.mask
        if self.shared_size < width:
            bad = chunk.mask
        if bad.any():
            lane = int(bad.argmax())
            offset = int(at.reshape(-1)[lane])
            fault = OutOfBounds(
                f"access of {width} bytes outside shared memory",
                f"offset {offset:#x} of {self.shared_size} bytes",
                "declare more shared memory, or pass shared= at the launch",
            )
            fault.address, fault.width, fault.space, fault.offset = offset, width, "shared", offset
            fault.allocation = "shared memory"
            raise chunk.placed(fault, lane)
        block = np.arange(chunk.warps, dtype=np.uint64).reshape(-1, 1) // np.uint64(chunk.warps_per_block)
        return at + block * np.uint64(chunk.shared_stride)

    def faulty_lane(self, chunk: Chunk, shape: tuple[int, ...], position: int) -> int:
        """The lane behind position ``position`` of a vector of addresses of this shape."""
        if chunk.active is not None and shape != ():
            return int(np.flatnonzero(chunk.mask)[position])
        if shape == ():
            return int(chunk.mask.argmax())
        return position * (WARP_SIZE // shape[-1])

    data: ClassVar[dict[str, Callable[[Launch, Chunk, Step], None]]] = {
        "pure": pure,
        "load": load,
        "store": store,
        "atomic": atomic,
    }
    """What executes the kinds of row that always go on to the next step."""


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
    return [np.sort(order[rank == r]) for r in range(int(rank.max(initial=-1)) + 1)]
