"""Matrix products of warpgroups: the meeting of their four warps, and the operands that they name.

`product` and `order` take a scheduler, the number of the current step and the step, and return the next step
of the current group; `simwarp.engine.tensor_core.async_products` holds the products until they happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simwarp.faults import DivergentMatrix, OutOfBounds, WrongDescriptor
from simwarp.fragments import fragments_of
from simwarp.fragments.descriptors import CHUNK, Descriptors
from simwarp.lanes import WARP_SIZE
from simwarp.program.liveness import registers_in
from simwarp.program.program import Program, Step
from simwarp.ptx.mangled_names import plain_variable
from simwarp.ptx.syntax import Immediate, Vector

if TYPE_CHECKING:
    from simwarp.engine.events import OrderedAccess
    from simwarp.engine.state import Chunk, Mask, Scheduler

WARPS = 4
"""Warps of a warpgroup; the number of the first in its block is a multiple of it."""
_LANES = WARPS * WARP_SIZE
_KNOWN = 32
"""Descriptors of one instruction whose addresses are kept: more than the stages of a pipeline."""
NOWHERE = np.uint64(1 << 62)
"""In place of an address that a descriptor must not reach; reads there give poison."""

_Warps = npt.NDArray[np.intp]
_Words = npt.NDArray[np.uint64]


def product(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """Issue ``wgmma.mma_async`` for each warpgroup with all 128 lanes at this step; other lanes wait."""
    chunk = scheduler.chunk
    assert chunk.products is not None
    if (
        chunk.active is None
        and step.guard is None
        and not chunk.is_part
        and not chunk.warps_per_block % WARPS
    ):
        chunk.products.issue(chunk, step, np.arange(chunk.warps).reshape(-1, WARPS))
        scheduler.executed(step, chunk.mask)
        return pc + 1
    taken, whole = scheduler.taken(step), chunk.mask
    if pc in scheduler.parked:
        waiting = scheduler.parked.pop(pc)
        taken, whole = taken | waiting, whole | waiting
    number = _warpgroups(chunk)
    came, lost = (_count(number, lanes) for lanes in (taken, ~taken & (~chunk.live | whole)))
    if not chunk.is_part:
        lost += _LANES - _count(number, np.ones_like(taken))  # count warps beyond the end of the block, too
    broken = (came > 0) & (lost > 0)
    if broken.any():
        _find_missing(chunk, taken & broken[number][:, None], int(lost[broken][0]))
    ready = taken & (broken | (came == _LANES))[number][:, None]
    if (late := taken & ~ready).any():
        scheduler.park(pc, late)
    if ready.any():
        chunk.enter(ready, alone=False)
        some = np.flatnonzero((came == _LANES)[number])
        chunk.products.issue(chunk, step, some.reshape(-1, WARPS))
        scheduler.executed(step, ready)
    return scheduler.go_on(pc + 1, whole & ~late)


def order(chunk: Chunk, step: Step) -> None:
    """Execute ``wgmma.fence``, ``commit_group`` or ``wait_group``."""
    products = chunk.products
    assert products is not None
    name = step.row.name.split(".")[1]
    if name == "fence":
        products.fence(chunk)
    elif name == "commit_group":
        products.commit(chunk)
    else:
        products.wait(chunk, int(step.sources[0](chunk)))


def _warpgroups(chunk: Chunk) -> _Warps:
    """(warps,): the number of each warp's warpgroup in the whole chunk."""
    of_block = -(-chunk.warps_per_block // WARPS)
    return (chunk.block_in_chunk * of_block + chunk.warp_in_block // WARPS)[:, 0]


def _count(warpgroup: _Warps, lanes: Mask) -> npt.NDArray[np.int64]:
    """By warpgroup, the number of lanes in a mask."""
    return np.bincount(warpgroup, lanes.sum(axis=1)).astype(np.int64)


def _find_missing(chunk: Chunk, lanes: Mask, missing: int) -> None:
    """Report a product that other lanes of the warpgroup will never execute."""
    fault = DivergentMatrix(
        "a product of a warpgroup without all of its lanes",
        f"{missing} of its 128 lanes have exited, do not exist, or are predicated off",
        "let four neighbouring warps, the first of a number divisible by 4, execute it together",
    )
    chunk.found(fault, lanes)


# ---- operands -------------------------------------------------------------------------------------


class Chunks(NamedTuple):
    """The chunks of A or B of some warpgroups.

    Attributes
    ----------
    at : (n, …) uint64
        Their addresses, or `NOWHERE`.
    accesses : dict of int to OrderedAccess, or None
        Agent → its reads of them, if the same chunks may come again.
    """

    at: _Words
    accesses: dict[int, OrderedAccess] | None


class Plan:
    """Operands, shape and types of a ``wgmma`` instruction, decoded once per step.

    Attributes
    ----------
    d, a : tuple of int
        The slots of the accumulators, and of A's registers; empty for A in shared memory.
    d_places : (registers, 128) int
        The words of the accumulators, as a matrix, that the lanes hold.
    shape : (str, str)
        The shape and the type of the accumulators.
    word : dtype
        Of the elements of A and B; words of 32 bits for bits.
    n, k : int
        The columns of B, and the words along k.
    exact : bool
        Whether products may be added in any order.
    negated, k_major : (bool, bool)
        Of A and of B.
    known : dict of (str, bytes, bytes) to Chunks
        By operand, descriptors and warps, the chunks that had no fault.
    """

    def __init__(self, program: Program, step: Step) -> None:
        first, second, *_ = step.instruction.operands
        slots = {program.registers[slot]: slot for slot in program.routine_at(step.number).slots}
        fragments = fragments_of(step.instruction.opcode)
        d, a = (fragments.operands[name] for name in "da")
        self.step, self.shape = step, (str(fragments.shape), d.type)
        self.d = tuple(slots[name] for name in registers_in([first]))
        self.a = tuple(slots[name] for name in registers_in([second])) if isinstance(second, Vector) else ()
        self.d_layout, words = d.layout, d.layout.words()
        places = words.element(np.arange(_LANES), np.arange(words.registers)[:, None])
        self.d_places = np.asarray(places.row * words.columns + places.column)
        self.a_layout = a.layout.words() if a.type == "b1" else a.layout
        self.word = np.dtype(f"u{self.a_layout.bits // 8}")
        self.n, self.k = fragments.shape.n, self.a_layout.columns
        self.exact = d.type == "s32" and not step.form.has("satfinite")
        given = [o.value for o in step.instruction.operands[4:] if isinstance(o, Immediate)]
        signs, transposes = [*given[:2], 1, 1][:2], [0, 0, *given[2:]][-2:]
        self.negated = (signs[0] == -1, signs[1] == -1)
        self.k_major = (not transposes[0], not transposes[1])
        self.known: dict[tuple[str, bytes, bytes], Chunks] = {}

    @property
    def sign(self) -> Any:
        """The sign bit of an element of A or B."""
        return self.word.type(1 << (8 * self.word.itemsize - 1))


def agreed(chunk: Chunk, value: Any, warps: _Warps, what: str) -> npt.NDArray[Any]:
    """(n,): the value that all lanes of each of n warpgroups have; report warpgroups whose lanes disagree."""
    if np.ndim(value) == 0:
        return np.full(len(warps), value)
    each = np.broadcast_to(value, chunk.mask.shape)[warps].reshape(len(warps), _LANES)
    first = each[:, 0]
    bad = each != first[:, None]
    if bad.any():
        which, lane = np.unravel_index(int(bad.argmax()), bad.shape)
        fault = DivergentMatrix(
            f"the lanes of a warpgroup do not give the same {what}",
            f"{int(first[which]):#x} in its lane 0, {int(each[which, lane]):#x} in its lane {lane}",
            "compute descriptors and predicates alike in all 128 lanes",
        )
        fault.count = int(np.count_nonzero(bad))
        chunk.found(fault, int(warps[which, lane // WARP_SIZE]) * WARP_SIZE + int(lane % WARP_SIZE))
    return first


def chunks_of(chunk: Chunk, plan: Plan, words: Any, warps: _Warps, name: str) -> Chunks:
    """The chunks in shared memory of each warpgroup's A or B, after checks."""
    words = agreed(chunk, words, warps, f"descriptor of {name}")
    key = name, words.tobytes(), chunk.warp[:, 0][warps].tobytes()
    chunks = plan.known.get(key)
    if chunks is None:
        descriptors = Descriptors.of(words)
        _check_fields(chunk, descriptors, words, warps, name)
        side = "AB".index(name)
        extent, k_major = (64, plan.n)[side], plan.k_major[side]
        at = descriptors.chunks(extent, plan.k * plan.word.itemsize // CHUNK if k_major else plan.k, k_major)
        outside = _outside(chunk, descriptors, at, warps, name)
        at = at + chunk.shared_start[warps[:, 0]][:, :, None]
        if outside is not None:
            at = np.where(outside, NOWHERE, at)
        faulty = outside is not None or descriptors.reserved.any()
        chunks = Chunks(at, None if faulty or len(plan.known) >= _KNOWN else {})
        if chunks.accesses is not None:  # the first operands of each product are kept
            plan.known[key] = chunks
    _examine(chunk, chunks.at, warps)
    if chunk.tiles is not None:
        chunk.tiles.check(chunk, chunks.at, Descriptors.of(words), warps, name)
    return chunks


def _check_fields(chunk: Chunk, descriptors: Descriptors, words: _Words, warps: _Warps, name: str) -> None:
    """Report matrix descriptors whose reserved bits are set."""
    bad = descriptors.reserved != 0
    if bad.any():
        which = int(bad.argmax())
        fault = WrongDescriptor(
            f"the descriptor of {name} has bits that have no meaning",
            f"descriptor {int(words[which]):#018x}: {int(descriptors.reserved[which]):#x}",
            "set the other bits to 0 (PTX ISA, section 9.7.15.5.1.2.2)",
        )
        fault.address = fault.offset = int(descriptors.start[which])
        fault.space, fault.width = "shared", CHUNK
        chunk.found(fault, lanes_of(chunk, warps[bad]))


def _outside(
    chunk: Chunk, descriptors: Descriptors, at: _Words, warps: _Warps, name: str
) -> npt.NDArray[np.bool_] | None:
    """The chunks outside the shared variable in which the matrix starts; None if there are none."""
    size = chunk.launch.shared_size
    low, high = np.zeros_like(descriptors.start), np.full_like(descriptors.start, size)
    for first, end in chunk.program.shared_variables.values():
        here = (descriptors.start >= first) & (descriptors.start < min(end, size))
        low[here], high[here] = first, min(end, size)
    outside = (at < low[:, None, None]) | (at + np.uint64(CHUNK) > high[:, None, None])
    if not outside.any():
        return None
    bad = outside.any(axis=(1, 2))
    which = int(bad.argmax())
    start, offset = int(descriptors.start[which]), int(at[which][outside[which]][0])
    names = [
        plain_variable(variable)
        for variable, (first, end) in chunk.program.shared_variables.items()
        if first <= start < min(end, size)
    ]
    where = " or ".join(sorted(names)) if names and offset + CHUNK <= size else "the block's shared memory"
    fault = OutOfBounds(
        f"the descriptor of {name} reaches outside {where}",
        f"byte {offset} of {size}; start {start}, leading offset {int(descriptors.leading[which])}, "
        f"stride offset {int(descriptors.stride[which])}, swizzle {int(descriptors.span[which])}",
        "check the offsets against the tile's layout, and where the tile starts",
        allocation=where,
    )
    fault.address = fault.offset = offset
    fault.width, fault.space = CHUNK, "shared"
    chunk.found(fault, lanes_of(chunk, warps[bad]))
    return outside


def _examine(chunk: Chunk, at: _Words, warps: _Warps) -> None:
    """Report 16-byte chunks of shared memory that a copy in flight writes, or that are uninitialised."""
    memory, flat = chunk.shared, at.reshape(-1)
    if chunk.copies is not None and chunk.copies.in_flight:
        lanes = np.repeat(warps[:, 0] * WARP_SIZE, flat.size // len(warps))
        chunk.copies.check(chunk, memory, lanes, flat, CHUNK, "read")
    if memory.updatable(flat, CHUNK) is not None:
        return
    inside = np.flatnonzero(flat != NOWHERE)
    for fault in memory.examine(flat[inside], CHUNK, "read"):
        which = inside[fault.position] * len(warps) // flat.size
        chunk.within(fault, memory)
        chunk.found(fault, int(warps[which, 0]) * WARP_SIZE)


def lanes_of(chunk: Chunk, warps: _Warps) -> Mask:
    """(warps, 32) bool: the lanes of some warps of the chunk."""
    mask = np.zeros_like(chunk.mask)
    mask[warps.reshape(-1)] = True
    return mask
