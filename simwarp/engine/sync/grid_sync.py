"""Recognition of cooperative groups' grid sync: its trap in launches that are not cooperative, its polling.

`grid_group::sync()` reads the address of its workspace from ``%envreg1`` and ``%envreg2``, and traps if it
is null. Such a trap is recognised by the header it was compiled from or, without line numbers, by its
predicate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simwarp.lanes import WARP_SIZE
from simwarp.program.graphs import reachable
from simwarp.program.liveness import registers_in
from simwarp.program.provenance import GRID_BARRIER, known_origins
from simwarp.ptx.kinds import BRANCH, PURE

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk
    from simwarp.program.program import Program, Step

_HEADERS = "cooperative_groups"
_WORKSPACE = frozenset(("%envreg1", "%envreg2"))


def needs_cooperation(chunk: Chunk, trap: Step, lane: int) -> bool:
    """Whether a lane executes a trap because the launch is not cooperative."""
    if chunk.launch.workspace:
        return False
    called_from = _caller(chunk, lane)
    if any(
        step.instruction.source is not None and _HEADERS in step.instruction.source.file
        for step in (trap, *called_from)
    ):
        return any(_WORKSPACE & set(registers_in(s.instruction.operands)) for s in chunk.program.steps)
    return bool(_WORKSPACE & _decided_by(chunk.program, trap))


def polls(chunk: Chunk, step: Step) -> bool:
    """Whether a step reads grid sync's workspace, as threads do that wait for other blocks."""
    launch = chunk.launch
    origins = known_origins(launch.program, launch.symbols).get(step.number)
    return bool(launch.workspace) and origins == GRID_BARRIER


def _caller(chunk: Chunk, lane: int) -> list[Step]:
    """The call step of the function that a lane is in, as a list of one; empty in the kernel itself."""
    state = chunk.activations
    if state.current is None:
        return []
    activation = state.under_way.get(int(state.current[lane // WARP_SIZE, lane % WARP_SIZE]))
    return [] if activation is None else [activation.step]


def _decided_by(program: Program, step: Step) -> set[str]:
    """The registers that decide whether a step runs: those of its guard and of its branches, traced back."""
    before = program.steps[step.number - 1] if step.number else step
    to_it = [s for s in program.steps if s.kind is BRANCH and s.target == step.number]
    wanted = [s.instruction.guard.name for s in (step, before, *to_it) if s.instruction.guard is not None]
    routine = program.routine_at(step.number)
    sources: dict[str, set[str]] = {}
    for at in range(routine.first, len(program.steps)):
        other = program.steps[at]
        if program.routine_at(at) is not routine:
            break
        if other.kind is PURE and other.instruction.operands:
            written, *read = other.instruction.operands
            for name in registers_in([written]):
                sources.setdefault(name, set()).update(registers_in(read))
    return reachable(wanted, lambda name: sources.get(name, set()))
