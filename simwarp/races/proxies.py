"""The asynchronous proxy: races between accesses of copies or products and ordinary accesses.

Copies and products access shared memory through another proxy than loads and stores. What an ordinary
instruction wrote, they see only behind a ``fence.proxy.async`` that lies between the two in happens-before:
of the thread that wrote, of the one that issues, or of a third one (PTX ISA 9.0, section 8.1.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.faults import MissingProxyFence
from simwarp.lanes import WARP_SIZE
from simwarp.races.report import element_in, place_in
from simwarp.races.shadow import THREAD

if TYPE_CHECKING:
    from simwarp.engine.events import Chunk
    from simwarp.program.program import Step
    from simwarp.races.access import Access
    from simwarp.races.order import Order
    from simwarp.races.shadow import Entries, Shadow, Units


class Proxies:
    """The threads of a chunk that issued asynchronous accesses, and the fences between them.

    Attributes
    ----------
    issuers : dict of int to array
        Time of an asynchronous access → the threads that issued it, numbered in the launch.
    phases : dict of int to int
        Time of an access that a barrier in shared memory counts → the phase that it counts in.
    waited : dict of (int, int) to int
        Warp, and address of a barrier in shared memory → the last phase that the warp found complete.
    """

    def __init__(
        self, chunk: Chunk, order: Order, issuers: dict[int, npt.NDArray[np.int64]], phases: dict[int, int]
    ) -> None:
        self.issuers, self.phases = issuers, phases
        self.waited: dict[tuple[int, int], int] = {}
        self._order, self._block_size = order, chunk.warps_per_block * WARP_SIZE
        self._warps = np.sort(chunk.thread[:, 0] // WARP_SIZE)

    def issuer(self, time: int, thread: int) -> int:
        """The thread that issued the access with a time, preferably one of ``thread``'s block."""
        threads = self.issuers[time]
        same = threads // self._block_size == thread // self._block_size
        return int(threads[same.argmax()])

    def writer(self, time: int, other: int, thread: int) -> int:
        """The thread that issued an agent's access; the entry has its lane."""
        return self.issuer(time, thread) // WARP_SIZE * WARP_SIZE + other % WARP_SIZE

    def check(self, access: Access, shadow: Shadow, units: Units, steps: list[Step]) -> None:
        """Report bytes read asynchronously that an ordinary instruction wrote, without a fence since."""
        for written, last in ((shadow.written, shadow.last_write), (shadow.updated, shadow.last_update)):
            if written is not None and last:
                self._check(access, shadow, written.take(units), steps)

    def _check(self, access: Access, shadow: Shadow, before: Entries, steps: list[Step]) -> None:
        times, threads = before >> 32, before & THREAD
        suspects = np.flatnonzero(before)
        ordinary = ~self._order.are_agents(threads[suspects])
        if ordinary.any():
            # threads outside the chunk have executed a fence at their end
            ordinary &= self._in_chunk(threads[suspects])
        if self._order.has_agents("cp.async"):  # copies by cp.async are not in the asynchronous proxy
            ordinary |= self._order.are_of("cp.async", threads[suspects])
        suspects = suspects[ordinary]
        if not suspects.size:
            return
        issuers, lanes = access.warps(), suspects % access.lanes.size
        fenced = np.zeros(suspects.size, np.bool_)
        for warp in np.unique(issuers[lanes]).tolist():
            of = np.flatnonzero(issuers[lanes] == warp)
            fenced[of] = self._order.fenced(warp, threads[suspects[of]], times[suspects[of]])
        if fenced.all():
            return
        unseen = suspects[~fenced]
        first = int(unseen[0])
        writer, time = int(threads[first]), int(times[first])
        if time in self.issuers:
            writer = self.writer(time, writer, int(access.threads[first % access.lanes.size]))
        self._report(access, shadow, first, writer, steps[time - 1], unseen.size)

    def _report(self, access: Access, shadow: Shadow, at: int, writer: int, step: Step, count: int) -> None:
        """Report an asynchronous read of a unit, at position ``at``, that a thread wrote without a fence."""
        chunk, lane = access.chunk, at % access.lanes.size
        shared = shadow.allocation in chunk.shared.allocations
        offset = int(access.offsets[lane])
        offset = offset % chunk.shared_stride if shared else offset
        other = chunk.place_of(writer, step)
        fault = MissingProxyFence(
            f"an asynchronous read of {'shared' if shared else 'global'} memory that an ordinary instruction "
            "wrote, without fence.proxy.async between the two",
            place_in(chunk, shadow.allocation, offset),
            "let the threads that wrote execute fence.proxy.async, then a barrier, then issue",
        )
        fault.note("written here by", other)
        fault.name_element(element_in(chunk, shadow.allocation, offset, 1).partition(",")[0])
        fault.other, fault.offset, fault.count = other, offset, count
        fault.address = offset if shared else shadow.allocation.base + offset
        fault.space, fault.allocation, fault.width = (
            "shared" if shared else "global",
            shadow.allocation.name,
            1,
        )
        chunk.found(fault, int(access.lanes[lane]))

    def _in_chunk(self, threads: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether threads, numbered in the launch, belong to the chunk."""
        warps = threads // WARP_SIZE
        return self._warps[np.minimum(np.searchsorted(self._warps, warps), self._warps.size - 1)] == warps
