"""How exact the result of a launch is: by the instructions that its threads executed."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

import numpy as np

from simwarp.engine.events import Observer
from simwarp.observe.fidelity import contractable, reads_the_chip
from simwarp.observe.line_counts import line_of
from simwarp.observe.registers import destination
from simwarp.observe.trace.model import block_number
from simwarp.places import Place
from simwarp.program.liveness import registers_in
from simwarp.ptx.kinds import PURE

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Launch, Mask
    from simwarp.program.program import Step

Reasons = dict[str, list[str]]
_ORDER = "the order of atomic operations"
_COMMUTING = {"add", "min", "max", "and", "or", "xor"}
"""Those of integers give the same in any order."""


class Exactness(Observer):
    """Collects the instructions of a launch whose results are bounded or free, and those of one thread.

    ``everywhere`` and ``in_thread`` have the reasons, by "bounded" and "free".
    """

    def __init__(self, thread: Place | None) -> None:
        self.thread = thread
        self.everywhere: Reasons = {"bounded": [], "free": []}
        self.in_thread: Reasons = {"bounded": [], "free": []}
        self._known: dict[int, tuple[str, str] | None] = {}
        self._block = -1

    def on_launch(self, launch: Launch) -> None:
        """Judge the steps of the program."""
        fused, read = contractable(launch.program), _read(launch.program.steps)
        self._known = {
            step.number: _judged(step, step.number in fused, read) for step in launch.program.steps
        }
        if self.thread is not None and self.thread.block is not None:
            self._block = block_number(self.thread.block, launch.grid)

    @property
    def depends_on_order(self) -> bool:
        """Whether the launch executed atomic operations, so that another schedule may give another result."""
        return any(reason.endswith(_ORDER) for reason in self.everywhere["free"])

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Collect a step that is not exact."""
        found = self._known[step.number]
        if found is None or not mask.any():
            return
        grade, reason = found
        if reason not in self.everywhere[grade]:
            self.everywhere[grade].append(reason)
        if self.thread is not None and reason not in self.in_thread[grade]:
            mine = (chunk.block == self._block) & (chunk.warp_in_block == self.thread.warp)
            if mask[np.flatnonzero(mine), self.thread.lane].any():
                self.in_thread[grade].append(reason)


def _read(steps: Iterable[Step]) -> set[str]:
    """The registers that some step reads."""
    sources = (step.instruction.operands[len(step.row.destinations) :] for step in steps)
    return {name for operands in sources for name in registers_in(operands)}


def _commutes(step: Step, read: Set[str]) -> bool:
    """Whether an atomic operation leaves the same in any order, and nobody reads what was there before."""
    parts = step.instruction.opcode.split(".")
    whole = parts[-1][:1] in ("u", "s", "b") and not {*parts}.isdisjoint(_COMMUTING)
    return whole and (not step.row.destinations or destination(step) not in read)


def _judged(step: Step, fused: bool, read: Set[str]) -> tuple[str, str] | None:
    """The grade of a step, and why; None if it is exact. ``read`` are the registers that some step reads."""
    row, where = step.row, f"{step.instruction.opcode} at {line_of(step.instruction)}"
    if fused:
        return "free", f"{where}: ptxas may fuse a product with its sum"
    if step.kind.updates:
        if _commutes(step, read):
            return None
        return "free", f"{where}: {_ORDER}"
    if reads_the_chip(step.instruction):
        return "free", f"{where}: a clock, or a place on the chip"
    if row.fidelity == "bounded":
        return "bounded", f"{where}: off by at most {row.bound}"
    if row.fidelity == "open" and step.kind is not PURE:  # the open cases of pure ones are findings
        return "free", f"{where}: PTX leaves the result open"
    return None


def judged(found: Exactness) -> tuple[str, tuple[str, ...]]:
    """The grade of a thread's result, and its reasons; those of other threads if it has none of its own."""
    for reasons, of in ((found.in_thread, ""), (found.everywhere, "in other threads, ")):
        for grade in ("free", "bounded"):
            if reasons[grade]:
                return grade, tuple(f"{of}{reason}" for reason in reasons[grade])
    return "exact", ()
