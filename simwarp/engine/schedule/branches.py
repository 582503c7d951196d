"""Branches, exits, calls, traps and fences.

Each function takes a scheduler, the number of the current step and the step. It returns the next step of the
current group, or None if the group split or ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simwarp.engine.schedule import calls, host_functions
from simwarp.engine.sync import grid_sync
from simwarp.faults import KernelFault, NotCooperative, Trap, Unreachable
from simwarp.program.program import HOST_FUNCTIONS, Step
from simwarp.ptx.kinds import EXIT
from simwarp.ptx.mangled_names import readable

if TYPE_CHECKING:
    from simwarp.engine.state import Mask, Scheduler


def branch(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """``bra``: send the lanes whose guard is true to the label."""
    chunk = scheduler.chunk
    if step.guard is None:
        scheduler.executed(step, chunk.mask)
        return step.target
    taken = scheduler.taken(step)
    count = int(np.count_nonzero(taken))
    scheduler.executed(step, taken)
    if pc in scheduler.ways_out:
        scheduler.part(pc, {step.target: taken, pc + 1: chunk.mask & ~taken})
    if count == 0:
        return pc + 1
    if count == chunk.count:
        return step.target
    rest = chunk.mask & ~taken
    target = scheduler.steps[step.target]
    if target.kind is EXIT and target.guard is None and not target.runs_off:
        # End these lanes now: otherwise the remaining lanes would not count as alone.
        scheduler.executed(target, taken)
        scheduler.leave(taken)
        scheduler.enter(rest)
        return pc + 1
    scheduler.put(pc + 1, rest)  # before may_loop counts an iteration: these lanes leave the loop
    backward = step.target <= pc
    if backward:
        scheduler.may_loop(step)
    scheduler.put(step.target, taken, loops=backward and not step.meets)
    return None


def indexed_branch(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """``brx.idx``: send each lane to the label that its index picks."""
    chunk = scheduler.chunk
    taken = scheduler.taken(step)
    scheduler.executed(step, taken)
    index = np.broadcast_to(step.sources[0](chunk), taken.shape)
    bad = taken & (index >= len(step.table))
    if bad.any():
        what = "indexed branch past the end of its list"
        values = f"index {index[bad][0]} of {len(step.table)} labels"
        raise chunk.placed(KernelFault(what, values, "check the index before the branch"), bad)
    rest = chunk.mask & ~taken
    scheduler.part(pc, {pc + 1: rest})
    for which in np.unique(index[taken]):
        target, lanes = step.table[int(which)], taken & (index == which)
        scheduler.part(pc, {target: lanes})
        scheduler.put(target, lanes, loops=target <= pc)
    return scheduler.leave_at(pc + 1, rest)


def exit_(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """``exit``, and ``ret`` in a kernel: end the lanes whose guard is true."""
    chunk = scheduler.chunk
    taken = scheduler.taken(step)
    scheduler.executed(step, taken)
    if step.runs_off:
        _find_impossible(scheduler, step)
    rest = chunk.mask & ~taken
    scheduler.part(pc, {len(scheduler.steps): taken, pc + 1: rest})
    scheduler.leave(taken)
    return scheduler.go_on(pc + 1, rest)


def _find_impossible(scheduler: Scheduler, end: Step) -> None:
    """Report lanes that run off the end of a function, at the step before the end."""
    chunk, steps = scheduler.chunk, scheduler.steps
    before = [step for step in steps if end.number == step.target or end.number in step.table]
    last = steps[end.number - 1]
    if last.guard is not None or not last.kind.ends:
        before.append(last)
    if len(before) == 1:
        (chunk.step,) = before
    fault = Unreachable(
        f"control runs off the end of {readable(chunk.program.routine_at(end.number).name)}",
        "the compiler left out the return, as it assumes that no correct program gets there",
        "look for undefined behaviour: the use of a null pointer, an index past its array, a missing return",
    )
    chunk.found(fault, chunk.mask)
    chunk.step = end


def trap(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """``trap``: stop the launch if a lane's guard is true."""
    taken = scheduler.taken(step)
    if not taken.any():
        return pc + 1
    if grid_sync.needs_cooperation(scheduler.chunk, step, int(taken.argmax())):
        what = "grid sync in a launch that is not cooperative"
        fault = NotCooperative(what, "", "launch it with cooperative=True, or simwarp run --cooperative")
        raise scheduler.chunk.placed(fault, taken)
    fault = scheduler.chunk.placed(
        Trap("the kernel executed trap", "", "the kernel found an error; see its source line"), taken
    )
    if fault.place.source_text and "trap" not in fault.place.source_text and not fault.place.callers:
        fault.values = "compilers put a trap where the code is certainly undefined; this line has none itself"
        fault.advice = (
            "look at this line and the next ones for a store to __constant__ memory or through a null pointer"
        )
    elif fault.place.source_line is None and scheduler.launch.sources:
        fault.advice = (
            "a trap without a line of source is the compiler's, where no correct program comes: a write to "
            "__constant__ memory, a null pointer; read its warnings"
        )
    raise fault


def call(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """``call``: call a device or a host function with the lanes whose guard is true."""
    chunk, call = scheduler.chunk, step.call
    if call is None:
        raise TypeError(f"{step.instruction.text} calls nothing")
    taken = scheduler.taken(step)
    rest, alone = chunk.mask & ~taken, chunk.alone
    whole = chunk.mask
    for name, mask in _callees(scheduler, step, taken):
        chunk.enter(mask, alone and mask is whole)
        if name in HOST_FUNCTIONS and name not in chunk.program.routines:
            host_functions.call(chunk, step, name)
            scheduler.put(pc + 1, mask)
        else:
            routine = chunk.program.routines[name]
            calls.enter(chunk, pc, step, routine, chunk.program.routine_at(pc), mask)
            scheduler.put(routine.first, mask)
    chunk.enter(whole, alone=False)
    scheduler.executed(step, taken)
    return scheduler.leave_at(pc + 1, rest)


def _callees(scheduler: Scheduler, step: Step, taken: Mask) -> list[tuple[str, Mask]]:
    """The functions that a call's lanes call, with the lanes of each."""
    chunk, call = scheduler.chunk, step.call
    if call is None or not taken.any():
        return []
    if call.address is None:
        return [(call.function, taken)]
    address = np.broadcast_to(call.address(chunk), taken.shape)
    callees: list[tuple[str, Mask]] = []
    for value in np.unique(address[taken]).tolist():
        mask = taken & (address == value)
        name = chunk.program.addresses.get(value, "")
        if name not in chunk.program.routines and name not in HOST_FUNCTIONS:
            what = "indirect call of an address that is not a function"
            fault = KernelFault(what, f"address {value:#x}", "check the function pointer")
            raise chunk.placed(fault, mask)
        callees.append((name, mask))
    return callees


def come_back(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """``ret`` in a device function: each lane continues after its own call."""
    chunk = scheduler.chunk
    taken = scheduler.taken(step)
    if step.runs_off:
        _find_impossible(scheduler, step)
    rest = chunk.mask & ~taken
    scheduler.part(pc, {pc + 1: rest})
    for following, mask in calls.leave(chunk, taken) if taken.any() else []:
        scheduler.part(pc, {following: mask})
        scheduler.put(following, mask)
    scheduler.executed(step, taken)
    return scheduler.leave_at(pc + 1, rest)


def fence(scheduler: Scheduler, pc: int, step: Step) -> int | None:
    """A fence or a hint: neither changes memory here, and the race detector receives the fence."""
    taken, races = scheduler.taken(step), scheduler.launch.races
    scheduler.executed(step, taken)
    if races is not None and "fence" in step.row.traits:
        if not _ASYNC.isdisjoint(step.form.modifiers):
            races.proxy_fence(scheduler.chunk, taken)
        races.fence(scheduler.chunk, taken, _scope(step))
    elif races is not None and "grid" in step.row.traits:
        races.grid_control(scheduler.chunk, taken, step.form.has("wait"))
    return pc + 1


_ASYNC = {"async", "async.global", "async.shared::cta", "async.shared::cluster"}
_SCOPES = {"cta": "cta", "cluster": "cluster", "gl": "gpu", "gpu": "gpu", "sys": "sys"}


def _scope(step: Step) -> str:
    """The scope of a fence; "cta" for a proxy fence, which orders accesses of one thread only."""
    if "initialisation" in step.row.traits:
        return "mbarrier_init"
    return next((_SCOPES[m] for m in step.form.modifiers if m in _SCOPES), "cta")
