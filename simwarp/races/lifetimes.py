"""Lifetimes of blocks in a cluster: accesses to a block's shared memory before it starts or after it exits.

An access from another block must be ordered behind something that the block did, since the block may not have
started before, and before something that it does, since it may have exited then (CUDA Programming Guide,
distributed shared memory). Both hold between two barriers of the cluster. Relaxed arrivals order execution:
their blocks have started, and have read what they read before; their writes may still be pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simwarp.faults import BlockLifetime
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.kinds import MBARRIER

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk, Mask, OrderedAccess
    from simwarp.program.program import Step
    from simwarp.races.order import Order

_ADVICE = {
    "not have started": "let the blocks meet at barrier.cluster (cluster.sync()) before the first access",
    "have exited": "let the blocks meet at barrier.cluster (cluster.sync()) before one of them exits",
}


class _Visit(NamedTuple):
    """A warp's access to another block's shared memory: `Shadow` entry, step, offset and width."""

    entry: int
    step: Step
    offset: int
    width: int


class Lifetimes:
    """The blocks in flight, and the last access of each warp to the shared memory of each other block."""

    def __init__(self, chunk: Chunk, order: Order) -> None:
        self._order, self._per_block = order, chunk.warps_per_block
        self._live = chunk.live.reshape(chunk.blocks, -1).sum(axis=1)
        """The number of live threads of each block."""
        self._visits: dict[int, dict[tuple[int, bool], _Visit]] = {}
        """Block → warp, and whether it reads → its last such access to the block."""
        self._known: set[tuple[int, int]] = set()
        """Warps, each with a block that it knows to have started."""
        self._came: dict[tuple[int, int], dict[int, int]] = {}
        """Phase of a barrier → the warps of its arrivals, relaxed ones as well → their times."""

    def visit(self, access: OrderedAccess, time: int, ends: bool = True) -> None:
        """Check that the blocks whose shared memory is accessed still run, and remember the access.

        ``ends=False`` is for a copy, whose end is checked elsewhere.
        """
        chunk, lanes, stride = access.chunk, access.lanes, np.uint64(access.chunk.shared_stride)
        owners = (access.addresses // stride).astype(np.int64)
        warps = chunk.warp[lanes // WARP_SIZE, 0]
        remote = np.flatnonzero(owners != warps // chunk.warps_per_block)
        for at in remote[np.unique(owners[remote] << 32 | warps[remote], return_index=True)[1]].tolist():
            owner, warp = int(owners[at]), int(warps[at])
            thread = int(chunk.thread.reshape(-1)[lanes[at]])
            visit = _Visit(time << 32 | thread, access.step, int(access.addresses[at] % stride), access.width)
            if (warp, owner) not in self._known and not self._order.knows(warp, owner):
                self._report(chunk, owner, visit, "not have started")
            self._known.add((warp, owner))
            form = access.step.form
            weak = access.step.kind is MBARRIER and (form.has("relaxed") or form.has("cta"))
            if not ends or weak:  # a wait for the phase of such an arrival orders nothing, but waits
                continue
            if not self._live[owner]:
                self._report(chunk, owner, visit, "have exited")
            else:
                self._visits.setdefault(owner, {})[warp, access.kind == "read"] = visit

    def come(self, phase: tuple[int, int], warp: int, time: int) -> None:
        """Record that a warp arrives in a phase of a barrier."""
        self._came.pop((phase[0], phase[1] - 2), None)
        self._came.setdefault(phase, {})[warp] = time

    def meet(self, phase: tuple[int, int], warp: int) -> None:
        """Record that a warp has waited for a phase: its arrivals are of blocks that started."""
        came = self._came.get(phase, {})
        self._known.update((warp, other // self._per_block) for other in came)
        visits = self._visits.get(warp // self._per_block, {})
        for (other, reads), visit in list(visits.items()):
            if reads and visit.entry >> 32 < came.get(other, 0):
                del visits[other, reads]

    def leave(self, chunk: Chunk, mask: Mask) -> None:
        """When the last thread of a block exits, check that other blocks' accesses to it come before."""
        blocks = chunk.block_in_chunk[:, 0]
        np.subtract.at(self._live, blocks, mask.sum(axis=1))
        for block in np.unique(blocks[mask.any(axis=1)]).tolist():
            if not self._live[block] and self._visits.get(block):
                self._check(chunk, block, list(self._visits.pop(block).values()))

    def _check(self, chunk: Chunk, block: int, visits: list[_Visit]) -> None:
        """Report accesses to a block that are not ordered before the exit of one of its warps."""
        before = np.array([visit.entry for visit in visits])
        ended = np.zeros(len(visits), np.bool_)
        for warp in range(block * chunk.warps_per_block, (block + 1) * chunk.warps_per_block):
            thread = self._order.launch_warp(warp) * WARP_SIZE
            ended |= self._order.ordered(np.full(before.size, warp), np.full(before.size, thread), before)
        if not ended.all():
            self._report(chunk, block, visits[int(ended.argmin())], "have exited")

    def _report(self, chunk: Chunk, block: int, visit: _Visit, state: str) -> None:
        rank = block % chunk.launch.blocks_per_cluster
        fault = BlockLifetime(
            f"access to the shared memory of another block of the cluster, which may {state}",
            f"{chunk.program.shared_place(visit.offset)}, of the block of rank {rank}",
            _ADVICE[state],
            chunk.place_of(visit.entry & 0xFFFFFFFF, visit.step),
        )
        fault.address = fault.offset = visit.offset
        fault.width, fault.space = visit.width, "shared"
        chunk.launch.found(fault)
