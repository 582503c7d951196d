"""Warp operations (``.sync``) and barriers, at which lanes wait for one another.

`warp`, `barrier` and `cluster` take a scheduler, the number of the current step and the step. They return the
next step of the current group, or None if it waits. Lanes may meet at different instructions of the same
operation, as on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.faults import BarrierFault, InactiveSource, MemberMaskFault
from simwarp.lanes import ALL_LANES, LANE_BIT, WARP_SIZE, mask_word, popc
from simwarp.program.program import Step
from simwarp.ptx.kinds import BARRIER, CLUSTER_BARRIER, WARP, WARP_BARRIER

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk, Mask, Scheduler


def warp(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """Execute a warp operation, once all live lanes of the member mask are here or at the same operation."""
    chunk = scheduler.chunk
    # the lanes of all warps are at this step
    if chunk.alone and step.guard is None and _agree(scheduler, step):
        _compute_warp(chunk, step)
        scheduler.executed(step, chunk.mask)
        if chunk.live is not scheduler.attendance.warp.settled and step.sources:
            scheduler.attendance.at_operation(chunk, chunk.mask, step.sources[-1](chunk))
        return pc + 1
    taken, whole = scheduler.taken(step), chunk.mask
    if step.guard is not None:
        scheduler.part(pc, {pc + 1: whole & ~taken})
    if pc in scheduler.parked:
        taken, whole = taken | scheduler.parked[pc], whole | scheduler.parked.pop(pc)
    opcode = step.instruction.opcode
    same = (at for at in scheduler.parked if scheduler.steps[at].instruction.opcode == opcode)
    places = {pc: taken, **{at: scheduler.parked[at] for at in same}}
    present = np.logical_or.reduce(list(places.values()))
    ready, members = present, np.uint32(0)
    if step.sources:
        members = _read_each(scheduler, places, lambda s: s.sources[-1](chunk))
        ready = present & (members & mask_word(chunk.live) & ~_alike(members, present) == 0)
    late = taken & ~ready
    if late.any():
        scheduler.park(pc, late)
        if (ahead := ready & taken).any():
            scheduler.attendance.passed(chunk, ahead, members)
    if ready.any():
        _compute_together(scheduler, pc, step, places, ready)
        if chunk.live is not scheduler.attendance.warp.settled:
            chunk.step = step
            scheduler.attendance.at_operation(chunk, ready, members)
    return scheduler.go_on(pc + 1, whole & ~late)


def _agree(scheduler: Scheduler, step: Step) -> bool:
    """Whether, for each member mask, all lanes that it names have the same mask."""
    if not step.sources:
        return True
    chunk, attendance = scheduler.chunk, scheduler.attendance
    members = step.sources[-1](chunk)
    if np.ndim(members) < 2 or members.shape[1] == 1:
        return True
    if attendance.agreed[0] is members and attendance.agreed[1] is chunk.live:
        return True
    if not _is_partition(members & mask_word(chunk.mask), chunk.mask):
        return False
    attendance.agreed = members, chunk.live
    return True


def _is_partition(named: Any, present: Mask) -> bool:
    """Whether the present lanes' masks partition them: each mask names exactly the lanes that have it."""
    first = named & (~named + np.uint32(1))
    leader = np.where(named == 0, 0, popc(first - np.uint32(1)))
    alike = (np.take_along_axis(named, leader, axis=1) == named) & (named & LANE_BIT != 0)
    if not (alike | ~present).all():
        return False
    # count each set of lanes once, at its first lane
    led = np.where(present & (first == LANE_BIT), popc(named), 0)
    return bool((led.sum(axis=1) == present.sum(axis=1)).all())


def _alike(members: Any, present: Mask) -> Any:
    """For each lane, a mask of the present lanes that have the same member mask."""
    members = np.broadcast_to(members, present.shape)
    named = members[present]
    if not (named != named[:1]).any():
        return mask_word(present)
    return mask_word((members[:, :, None] == members[:, None, :]) & present[:, None, :])[:, :, 0]


def _compute_together(
    scheduler: Scheduler, pc: int, step: Step, places: dict[int, Mask], ready: Mask
) -> None:
    """Execute a warp operation for all ready lanes, at any step, and release the waiting ones."""
    chunk = scheduler.chunk
    here = ready & places[pc]
    if (ready & ~here).any():
        _compute_at_several(scheduler, step, places, ready)
    else:
        chunk.enter(here, alone=False)
        _compute_warp(chunk, step)
        scheduler.executed(step, here)
    for at in [at for at in places if at != pc]:
        freed = scheduler.unpark(at, ready)
        if freed.any():
            scheduler.put(at + 1, freed)


def _compute_at_several(scheduler: Scheduler, step: Step, places: dict[int, Mask], ready: Mask) -> None:
    """Execute a warp operation whose lanes are at several instructions, each with its own registers."""
    chunk = scheduler.chunk
    sources: list[Any] = []
    missing: Mask | None = None
    for i in range(len(step.sources)):
        sources.append(_read_each(scheduler, places, lambda s, i=i: s.sources[i](chunk)))
        missing = missing if missing is not None else chunk.undefined_now()
    chunk.enter(ready, alone=False)
    missing = None if missing is None else _moved(chunk, step, sources, missing)
    results = _warp_results(chunk, step, sources)
    for at, mask in places.items():
        chunk.step = scheduler.steps[at]
        chunk.enter(mask & ready, alone=False)
        chunk.undefined = None if missing is None else missing & chunk.mask
        _write_results(chunk, chunk.step, results)
        scheduler.executed(chunk.step, chunk.mask)


def _read_each(scheduler: Scheduler, places: dict[int, Mask], read: Callable[[Step], Any]) -> Any:
    """Read an operand of lanes at several instructions, for each lane from its own instruction's register."""
    chunk, whole, step = scheduler.chunk, scheduler.chunk.mask, scheduler.chunk.step
    value: Any = None
    missing: list[Mask] = []
    for at, mask in places.items():
        chunk.step = scheduler.steps[at]
        chunk.enter(mask, alone=False)
        one = np.broadcast_to(read(chunk.step), mask.shape)
        value = one if value is None else np.where(mask, one, value)
        if (undefined := chunk.undefined_now()) is not None:
            missing.append(undefined)
    chunk.step = step
    chunk.enter(whole, alone=False)
    if missing:
        chunk.undefined, chunk.undefined_at = np.logical_or.reduce(missing), chunk.executed
    return value


def barrier(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """Execute a barrier of the block: wait for its threads, or only arrive."""
    chunk = scheduler.chunk
    plain = pc in chunk.program.whole_barriers and not chunk.is_part
    if plain and chunk.alone and step.guard is None and not scheduler.barriers.arrived:  # the usual case
        scheduler.executed(step, chunk.mask)
        if chunk.live is not scheduler.attendance.block.settled:
            scheduler.attendance.at_barrier(chunk, chunk.mask)
        scheduler.attendance.meet(step, chunk.mask)
        _passed(scheduler, chunk.mask)
        return pc + 1
    taken = scheduler.taken(step)
    rest = chunk.mask & ~taken
    scheduler.part(pc, {pc + 1: rest})
    if taken.any():
        scheduler.park(pc, taken)
        if not chunk.is_part:
            note_arrivals(scheduler)
            open_barriers(scheduler)
    return scheduler.leave_at(pc + 1, rest)


def note_arrivals(scheduler: Scheduler) -> None:
    """Record the arrival of lanes that are parked at a barrier and not yet counted."""
    chunk, barriers = scheduler.chunk, scheduler.barriers
    for pc, mask in list(scheduler.parked.items()):
        step, new = scheduler.steps[pc], mask & (barriers.waits_at < 0)
        if step.kind is not BARRIER or not new.any():
            continue
        chunk.step = step
        chunk.enter(new, alone=False)
        scheduler.executed(step, new)
        barriers.come(step, new)
        if step.form.has("arrive"):
            if scheduler.launch.races is not None:
                scheduler.launch.races.block_arrive(chunk, new)
            scheduler.put(pc + 1, scheduler.unpark(pc, new))


def open_barriers(scheduler: Scheduler) -> None:
    """Release the lanes that wait at a block barrier where all participants have arrived."""
    opened = scheduler.barriers.complete()
    if not opened:
        return
    chunk = scheduler.chunk
    free = np.logical_or.reduce([opening.waiting for opening in opened])
    standing = {
        at: mask & free
        for at, mask in scheduler.parked.items()
        if scheduler.steps[at].kind is BARRIER and (mask & free).any()
    }
    _check_aligned(scheduler, standing)
    if chunk.live is not scheduler.attendance.block.settled:
        _check_attendance(scheduler, standing)
    for at, mask in standing.items():
        scheduler.attendance.meet(scheduler.steps[at], mask)
    for opening in opened:
        _passed(scheduler, opening.waiting, opening.arrived, opening.whole, mixed=len(standing) > 1)
    reducing = {at: mask for at, mask in standing.items() if scheduler.steps[at].form.has("red")}
    if reducing:
        holds = _read_each(scheduler, reducing, lambda s: s.sources[-1](chunk))
        together = np.logical_or.reduce(list(reducing.values()))
        for at, mask in reducing.items():
            step = scheduler.steps[at]
            chunk.enter(mask, alone=False)
            result = scheduler.barriers.reduce(step.form.modifiers[-1], holds, together)
            _write_results(chunk, step, [result])
    for at, mask in standing.items():
        scheduler.put(at + 1, scheduler.unpark(at, mask))


def _passed(
    scheduler: Scheduler, mask: Mask, arrived: Mask | None = None, whole: bool = True, mixed: bool = False
) -> None:
    """Notify the race detector and the observers that lanes pass a barrier of their block."""
    chunk, launch = scheduler.chunk, scheduler.launch
    chunk.shared.settle()  # once all shared memory is written, reads skip the check for uninitialised bytes
    if launch.races is not None:
        launch.races.block_barrier(chunk, mask, whole, arrived, mixed)
    for observe in launch.on_barrier:
        observe(chunk, mask)


def _check_attendance(scheduler: Scheduler, standing: dict[int, Mask]) -> None:
    """Report threads that exited before a barrier that should include them."""
    chunk = scheduler.chunk
    counted = scheduler.barriers.expects > 0
    aligned = np.zeros(chunk.mask.shape, np.bool_)
    for at, mask in standing.items():
        aligned |= mask & _is_aligned(scheduler.steps[at])
    for at, mask in standing.items():
        chunk.step = scheduler.steps[at]
        scheduler.attendance.at_barrier(chunk, mask, counted, aligned)


def _is_aligned(step: Step) -> bool:
    """Whether a barrier instruction is ``.aligned``: all lanes of a warp must execute it together."""
    return step.row.aligned or step.form.has("aligned")


def _check_aligned(scheduler: Scheduler, standing: dict[int, Mask]) -> None:
    """Report an aligned barrier that a warp's lanes pass at different instructions (PTX ISA 9.7.13.1)."""
    seen: Mask = np.zeros((scheduler.chunk.warps, 1), np.bool_)
    for at, mask in standing.items():
        step, here = scheduler.steps[at], mask.any(axis=1, keepdims=True)
        twice = mask & seen & here
        if twice.any() and _is_aligned(step):
            scheduler.chunk.step = step
            fault = BarrierFault(
                "lanes of one warp at different aligned barriers",
                f"{step.instruction.opcode} requires whole warps",
                "let the warp reconverge before the barrier, or use barrier.sync without .aligned",
            )
            scheduler.chunk.found(fault, int(twice.argmax()))
        seen = seen | here


def cluster(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """Execute ``barrier.cluster.arrive`` or ``.wait``."""
    chunk = scheduler.chunk
    taken = scheduler.taken(step)
    scheduler.executed(step, taken)
    if step.form.has("wait") or chunk.is_part:
        scheduler.park(pc, taken)
    rest = chunk.mask & ~taken
    if not chunk.is_part:
        if step.form.has("arrive"):
            scheduler.cluster_barrier.arrive(taken, step)
            rest = chunk.mask
        else:
            scheduler.cluster_barrier.check_wait(taken)
        open_cluster_barrier(scheduler)
    return scheduler.leave_at(pc + 1, rest)


def open_cluster_barrier(scheduler: Scheduler) -> None:
    """Record the arrivals of a part of the chunk, then release lanes whose cluster barrier is complete."""
    barrier = scheduler.cluster_barrier
    waiting = [pc for pc in scheduler.parked if scheduler.steps[pc].kind is CLUSTER_BARRIER]
    for pc in [pc for pc in waiting if scheduler.steps[pc].form.has("arrive")]:
        waiting.remove(pc)
        arriving = scheduler.parked.pop(pc)
        scheduler.put(pc + 1, arriving)
        barrier.arrive(arriving, scheduler.steps[pc])
    for pc in waiting:
        free = scheduler.parked[pc] & ~barrier.arrived
        if free.any():
            scheduler.put(pc + 1, scheduler.unpark(pc, free))
            barrier.pass_(free)


def _compute_warp(chunk: Chunk, step: Step) -> None:
    """Execute a warp operation (shuffle, vote, match, ``bar.warp.sync``, …) for the executing lanes."""
    chunk.undefined = None
    sources = [read(chunk) for read in step.sources]
    missing = chunk.undefined_now()
    results = _warp_results(chunk, step, sources)
    if step.kind is WARP:
        chunk.undefined = None if missing is None else _moved(chunk, step, sources, missing)
        _write_results(chunk, step, results)


def _moved(chunk: Chunk, step: Step, sources: list[Any], missing: Mask) -> Mask | None:
    """The lanes that receive an undefined value from the ``missing`` lanes."""
    marks = missing.astype(sources[0].dtype)
    received = np.broadcast_to(step.function(chunk.active, marks, *sources[1:])[0], missing.shape)
    lanes = chunk.mask & (received != 0)
    return lanes if lanes.any() else None


def _warp_results(chunk: Chunk, step: Step, sources: list[Any]) -> list[Any]:
    """Compute the results of a warp operation; report those that the PTX ISA leaves undefined."""
    if step.kind is WARP_BARRIER:
        members = sources[-1]
        if np.ndim(members) or int(members) != ALL_LANES:
            _find_undefined(chunk, chunk.mask & (members & LANE_BIT == 0), members)
        if chunk.launch.races is not None:
            chunk.launch.races.warp_barrier(chunk, chunk.mask, members)
    if step.kind is not WARP:
        return []
    *results, defined = step.function(chunk.active, *sources)
    if not np.all(defined):  # usually one row for all warps: cheap to test
        _find_undefined(chunk, chunk.mask & ~defined, sources[-1])
    return results


def _write_results(chunk: Chunk, step: Step, results: list[Any]) -> None:
    """Write the results of a warp operation or barrier to the destination registers."""
    for write, value in zip(step.destinations, results, strict=False):
        if write is not None:
            write(chunk, value)
        chunk.undefined = None  # only the first destination can be undefined


def _find_undefined(chunk: Chunk, lanes: Mask, member_mask: Any) -> None:
    """Report lanes for which the PTX ISA leaves the result of a warp operation undefined."""
    if not lanes.any():
        return
    lane = int(lanes.argmax())
    mask = int(np.broadcast_to(member_mask, chunk.mask.shape).reshape(-1)[lane])
    active = int((LANE_BIT * chunk.mask[lane // WARP_SIZE]).sum())
    kind, what = MemberMaskFault, "lane outside its own member mask"
    advice = "name every executing lane in the mask"
    if mask >> lane % WARP_SIZE & 1:
        kind, what = InactiveSource, "read of a lane that does not take part"
        advice = "let the source lane execute the shuffle too, and name it in the mask"
    chunk.found(kind(what, f"member mask {mask:#010x}, executing lanes {active:#010x}", advice), lanes)
