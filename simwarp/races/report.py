"""The fault of a race: both accesses, the bytes they share, and advice on how to order them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simwarp.faults import CopyInFlight, Race
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.kinds import CALL, MBARRIER

if TYPE_CHECKING:
    from simwarp.engine.events import Agent, Chunk
    from simwarp.memory import Allocation
    from simwarp.program.program import Step

_DOES = {"read": "read", "write": "write", "atomic": "atomic update"}
_DID = {"read": "read", "write": "wrote", "atomic": "updated"}
_DONE = {"read": "read", "write": "written", "atomic": "updated"}

_ADVICE = {
    "lane of the warp": "put __syncwarp() between the two, with both lanes in its mask",
    "warp of the block": "put __syncthreads() between the two, or let each thread have its own place",
    "block": "use atomic operations, a flag with __threadfence() on both sides, or a second launch",
}
_ONE_INSTRUCTION = "let one lane write, or each to its own place; or use an atomic operation"
_INITIALISE = (
    "let the block meet at __syncthreads() between mbarrier.init and the first use by another thread; "
    "a cluster at barrier.cluster"
)
_WRONG_SCOPE = (
    "both are strong, but one for its own block only: use the scope of the device (no .cta, no _block)"
)


_FREE = "let all who use the block meet at a barrier before one thread frees it"
NOTES = {
    "equal": (
        ", with the same bits",
        "equal bits do no harm on a chip; where they are equal by chance, let one thread write",
    ),
    "volatile": (
        ": both are strong, one of them volatile, and neither orders the two",
        "use a barrier, or atomic operations of cuda::atomic_ref with an order; volatile orders nothing",
    ),
    "warp": (
        ": warp-synchronous code without __syncwarp()",
        "put __syncwarp() between the two: since Volta the lanes of a warp need not run in step",
    ),
}
"""Reason of a note → what it adds to the message of a race, and advice."""


@dataclass(frozen=True)
class Conflict:
    """Two accesses to the same byte that race.

    Attributes
    ----------
    offset : int
        Offset of the later access in the allocation, in bytes.
    earlier, later : str
        The kinds of access: "read", "write" or "atomic".
    thread, other : int
        The later and the earlier thread, numbered in the launch.
    step : Step
        The earlier instruction.
    both_strong : bool
        Whether both are strong, but not for each other's thread.
    count : int
        Number of lanes with this race.
    """

    allocation: Allocation
    offset: int
    earlier: str
    later: str
    thread: int
    other: int
    step: Step
    both_strong: bool
    count: int
    note: str = ""


def race(chunk: Chunk, conflict: Conflict, width: int) -> Race:
    """The fault for two racing accesses; its location is not yet set."""
    shared = conflict.allocation in chunk.shared.allocations
    space = "shared" if shared else "global"
    offset = conflict.offset % chunk.shared_stride if shared else conflict.offset
    other = chunk.place_of(conflict.other, conflict.step)
    level = _level(chunk, conflict)
    together = conflict.step is chunk.step and conflict.earlier == conflict.later == "write"
    advice = _WRONG_SCOPE if conflict.both_strong else _ONE_INSTRUCTION if together else _ADVICE[level]
    if MBARRIER in (conflict.step.kind, chunk.step.kind):
        advice = _INITIALISE
    does, did, done = _DOES[conflict.later], _DID[conflict.earlier], _DONE[conflict.earlier]
    if CALL in (conflict.step.kind, chunk.step.kind):
        does = "free" if chunk.step.kind is CALL else does
        did = done = "freed" if conflict.step.kind is CALL else did
        advice = _FREE
    more = ", without synchronisation"
    if conflict.note:
        reason = "warp" if conflict.note == "volatile" and level == "lane of the warp" else conflict.note
        more, advice = NOTES[reason]
    fault = Race(
        f"{does} of {width} byte{'s' * (width > 1)} of {space} memory that another {level} {did}{more}",
        place_in(chunk, conflict.allocation, offset),
        advice,
    )
    fault.severity = "note" if conflict.note else "error"
    fault.note(f"{done} here by", other)
    fault.name_element(element_in(chunk, conflict.allocation, offset, width))
    fault.earlier, fault.later, fault.other = conflict.earlier, conflict.later, other
    fault.address = offset if shared else conflict.allocation.base + offset
    fault.width, fault.space, fault.offset = width, space, offset
    fault.allocation, fault.count = conflict.allocation.name, conflict.count
    return fault


_WAIT = "let the thread that issued the copy wait for it (cp.async.bulk.{}), then meet it at a barrier,"
_BY = {
    "mbarrier": ("copy", "wait for the phase of the mbarrier that counts its bytes"),
    "cp.async": ("copy", "wait for the phase of the mbarrier that counts its arrival"),
    "bulk read": ("copy", _WAIT.format("wait_group.read")),
    "bulk": ("copy", _WAIT.format("wait_group")),
    "wgmma": ("product", "wait for the product's group (wgmma.wait_group)"),
}
"""Word of an agent → what it performs, and what ends that."""


def in_flight(
    chunk: Chunk,
    conflict: Conflict,
    width: int,
    agent: Agent,
    phases: tuple[int | None, int | None],
) -> CopyInFlight:
    """The fault for an access to bytes that an asynchronous access still uses; its location is not yet set.

    For an mbarrier, ``phases`` are that which counts the copy, and the last that the warp found complete.
    """
    fault = CopyInFlight("", "", "")
    (what, advice), verb = _BY[agent[0]], _DOES[conflict.later]
    shared = conflict.allocation in chunk.shared.allocations
    space, offset = "shared" if shared else "global", conflict.offset
    offset = offset % chunk.shared_stride if shared else offset
    does = "read" if conflict.earlier == "read" else "write"
    fault.what = (
        f"{verb} of {width} byte{'s' * (width > 1)} of {space} memory that an asynchronous {what} may {does} "
        "at that moment"
    )
    fault.copy = chunk.place_of(conflict.other, conflict.step)
    since = "no wait for it orders the two"
    if agent[0] in ("mbarrier", "cp.async"):
        counting, completed = phases
        barrier = chunk.program.shared_place(agent[1] % chunk.shared_stride)
        since = f"the mbarrier at {barrier} counts it" + ("" if counting is None else f" in phase {counting}")
        since += (
            "; the warp has not waited for that mbarrier"
            if completed is None
            else f"; the warp's last wait for that mbarrier found phase {completed} complete"
        )
    place = place_in(chunk, conflict.allocation, offset)
    fault.values = f"{place}; {since}"
    fault.note("issued here by", fault.copy)
    fault.name_element(element_in(chunk, conflict.allocation, offset, width))
    fault.advice = f"{advice} before the access"
    fault.address = offset if shared else conflict.allocation.base + offset
    fault.width, fault.space, fault.offset = width, space, offset
    fault.allocation, fault.count = conflict.allocation.name, conflict.count
    return fault


def place_in(chunk: Chunk, allocation: Allocation, offset: int) -> str:
    """Describe a byte of an allocation; one in shared memory counts from the start of its block's part."""
    if allocation in chunk.shared.allocations:
        return chunk.program.shared_place(offset)
    return f"byte {offset} of {allocation.name}"


def element_in(chunk: Chunk, allocation: Allocation, offset: int, width: int) -> str:
    """The accessed element as text, such as "x[3]"; "" if unknown."""
    if allocation in chunk.shared.allocations:
        return chunk.shared_element(offset, width)
    return allocation.element(offset, width)


def _level(chunk: Chunk, conflict: Conflict) -> str:
    """The level at which the two threads differ, as a key of `_ADVICE`."""
    if conflict.thread // WARP_SIZE == conflict.other // WARP_SIZE:
        return "lane of the warp"
    per_block = chunk.warps_per_block * WARP_SIZE
    return "warp of the block" if conflict.thread // per_block == conflict.other // per_block else "block"
