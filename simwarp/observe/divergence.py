"""Divergence: active lanes per warp-instruction, and the branches that diverge.

The unit is the warp-instruction: one to 32 lanes of a warp that execute one instruction together. The
simulator runs the lanes at the lowest step first. Hardware may reconverge elsewhere, so counts after a
divergent branch hold for this schedule only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simwarp.observe.line_counts import CountingObserver, Counts, LineTable, line_of
from simwarp.ptx.kinds import BRANCH, INDEXED_BRANCH

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Mask
    from simwarp.program.program import Step


@dataclass(frozen=True)
class LaneUse(Counts):
    """The lane use of a line or of a whole kernel."""

    warp_instructions: int = 0  # includes those whose guard was false in every lane
    thread_instructions: int = 0
    predicated_off: int = 0  # lanes with a false guard, except of barriers and ``.sync`` operations
    branches: int = 0  # conditional and indexed branches that warps executed
    divergent_branches: int = 0  # branches whose lanes went to different targets

    @property
    def active_lanes(self) -> float:
        """Mean active lanes per warp-instruction, predicated off or not: 32 without divergence."""
        return (self.thread_instructions + self.predicated_off) / max(self.warp_instructions, 1)


class Divergence(CountingObserver):
    """Counts lanes and branches: ``divergence["bmm.cu:42"]`` is the `LaneUse` of a line, ``total`` the sum.

    4 of 40 threads take the branch; they are in the first of two warps:

    >>> import simwarp
    >>> device = simwarp.Device(observe="divergence")
    >>> kernel = device.load('''
    ... .version 9.0 .target sm_90 .address_size 64
    ... .visible .entry part() {
    ...     .reg .b32 %i; .reg .pred %p;
    ...     mov.u32 %i, %tid.x; setp.lt.u32 %p, %i, 4;
    ...     @%p bra FEW;
    ...     add.u32 %i, %i, 1;
    ...     FEW: ret; }
    ... ''').kernel("part")
    >>> kernel((1, 1, 1), (40, 1, 1))
    >>> branch = device.report.divergence["ptx:6"]
    >>> branch.branches, branch.divergent_branches, branch.active_lanes
    (2, 1, 20.0)
    >>> device.report.divergence["ptx:7"].thread_instructions
    36
    """

    def __init__(self) -> None:
        self._table = LineTable(LaneUse, "instructions")

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """Count the warps and lanes that executed a step, and the lanes whose guard was false."""
        present = mask if step.guard is None else chunk.mask | mask
        executed, stood = (int(np.count_nonzero(lanes)) for lanes in (mask, present))
        numbers = [int(np.count_nonzero(present.any(axis=1))), executed, stood - executed, 0, 0]
        ways = _ways(chunk, step, mask, present)
        if ways is not None:
            numbers[3:] = numbers[0], int(np.count_nonzero(ways > 1))
        self._table.add(line_of(step.instruction), LaneUse(*numbers))

    def __getitem__(self, line: str) -> LaneUse:
        return self._table[line]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    @property
    def total(self) -> LaneUse:
        """The counts summed over all source lines."""
        return self._table.total

    def to_json(self) -> dict[str, Any]:
        """The counters by line and in total, each with ``active_lanes``, as plain data."""
        table = self._table.to_json()
        for numbers in (*table["lines"].values(), table["total"]):
            numbers["active_lanes"] = round(LaneUse(**numbers).active_lanes, 2)
        return table


def _ways(chunk: Chunk, step: Step, mask: Mask, present: Mask) -> Any:
    """The number of distinct targets of each warp's lanes at a branch; None for other instructions."""
    on = (present & ~mask).any(axis=1)
    if step.kind is BRANCH and step.guard is not None:
        return mask.any(axis=1) + on.astype(int)
    if step.kind is not INDEXED_BRANCH:
        return None
    index = np.broadcast_to(step.sources[0](chunk), mask.shape)
    ways = on.astype(int)
    for target in set(step.table):
        labels = [label for label, at in enumerate(step.table) if at == target]
        ways = ways + (mask & np.isin(index, labels)).any(axis=1)
    return ways
