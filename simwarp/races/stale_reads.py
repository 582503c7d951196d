"""Reads through caches that are not coherent with the writes of the same launch.

``ld.global.nc`` and ``ldu`` read memory that nobody writes during the whole launch, before or after (PTX ISA
9.0, 9.7.9.8 and 9.7.9.10). A texture fetch must not read what the launch wrote before, whoever wrote it, and
a surface read only what its own block wrote through surfaces (CUDA Programming Guide, read/write coherency;
PTX ISA 9.0, proxy-preserved base causality order). No barrier, fence or atomic operation helps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.faults import Place, StaleRead
from simwarp.lanes import WARP_SIZE
from simwarp.ptx.kinds import LOAD, SURFACE_STORE
from simwarp.races.shadow import THREAD, put

if TYPE_CHECKING:
    from simwarp.program.program import Step
    from simwarp.races.access import Access
    from simwarp.races.shadow import Entries, Shadow, Units

CONSTANTS = "constants"

_READS = {
    CONSTANTS: "read-only load",
    "texture": "texture fetch",
    "surface": "surface read",
}
_RULES = {
    CONSTANTS: "its cache is for memory that nobody writes from the launch's start to its end",
    "texture": "the texture's cache does not see what the same launch writes",
    "surface": "the surface's cache sees only what its own block writes through surfaces",
}
_PLAIN = "use a plain load: drop const or __restrict__ from the pointer, or __ldg() from it; no barrier helps"
_APART = "write to other memory than the launch reads so, or read it in the next launch; no barrier helps"

Positions = npt.NDArray[np.intp]


def source_of(step: Step) -> str:
    """The cache that a step reads through: a key of `_READS`, or "" for memory that is coherent."""
    if step.kind.cache:
        return step.kind.cache
    constant = step.kind is LOAD and ("constant" in step.row.traits or "nc" in step.form.modifiers)
    return CONSTANTS if constant else ""


class StaleReads:
    """Compares a launch's reads through non-coherent caches with its writes.

    Parameters
    ----------
    steps : list of Step
        The step of each time, from time 1.
    place : callable
        The place of a `Shadow` entry, for an access beside which it is reported.
    """

    def __init__(self, steps: list[Step], place: Callable[[Access, int, int], Place]) -> None:
        self._steps, self._place = steps, place

    def read(self, access: Access, shadow: Shadow, units: Units, source: str) -> bool:
        """Report a read of bytes that the launch wrote; returns whether no check for races is needed."""
        stale = False
        for written in (shadow.written, shadow.updated):
            if written is None:
                continue
            before = written.take(units)
            at = np.flatnonzero(before)
            if at.size and source == "surface":
                at = at[~self._own(access, before[at], at)]
            if at.size:
                stale = True
                for first, count in self._by_step(before, at):
                    self._report_read(access, shadow, source, first, int(before[first]), count)
        if source == CONSTANTS:
            put(shadow.constants(), units, access.of_units(units))
        return stale or source == CONSTANTS

    def write(self, access: Access, shadow: Shadow, units: Units) -> None:
        """Report a write to bytes that the launch has loaded as constants (``ld.global.nc``)."""
        if shadow.constant is None:
            return
        loaded = shadow.constant.take(units)
        for first, count in self._by_step(loaded, np.flatnonzero(loaded)):
            lane, entry = first % access.lanes.size, int(loaded[first])
            fault = self._fault(access, shadow, CONSTANTS, first, self._steps[(entry >> 32) - 1])
            fault.other, fault.count = access.chunk.place(int(access.lanes[lane])), count
            fault.place = self._place(access, lane, entry)
            fault.note("written here by", fault.other)
            access.chunk.launch.found(fault)

    def _own(self, access: Access, before: Entries, at: Positions) -> npt.NDArray[np.bool_]:
        """Whether each entry is a surface store by the reading lane's block."""
        per_block = access.chunk.warps_per_block * WARP_SIZE
        mine = access.threads[at % access.lanes.size] // per_block
        kinds = [self._steps[int(time) - 1].kind for time in (before >> 32).tolist()]
        stores = np.array([kind is SURFACE_STORE for kind in kinds], np.bool_)
        return stores & ((before & THREAD) // per_block == mine)

    def _by_step(self, entries: Entries, at: Positions) -> list[tuple[int, int]]:
        """For each step of the entries at some positions, the first position, and the number of entries."""
        first_of: dict[int, tuple[int, int]] = {}
        times, firsts, counts = np.unique(entries[at] >> 32, return_index=True, return_counts=True)
        for time, first, count in zip(times.tolist(), at[firsts].tolist(), counts.tolist(), strict=True):
            number = self._steps[int(time) - 1].number
            known, more = first_of.get(number, (first, 0))
            first_of[number] = min(known, first), more + count
        return list(first_of.values())

    def _report_read(
        self, access: Access, shadow: Shadow, source: str, first: int, entry: int, count: int
    ) -> None:
        lane = first % access.lanes.size
        fault = self._fault(access, shadow, source, first, access.step)
        fault.other, fault.count = self._place(access, lane, entry), count
        fault.note("written here by", fault.other)
        access.chunk.found(fault, int(access.lanes[lane]))

    def _fault(self, access: Access, shadow: Shadow, source: str, at: int, step: Step) -> StaleRead:
        """The fault for the unit at a position, read by a step; its locations are not yet set."""
        allocation, pieces = shadow.allocation, at // access.lanes.size
        offset = int(access.offsets[at % access.lanes.size]) + pieces * shadow.unit
        width = min(access.width, shadow.unit)
        fault = StaleRead(
            f"{_READS[source]} of {width} byte{'s' * (width > 1)} of global memory that this launch "
            f"{'writes' if source == CONSTANTS else 'wrote'}",
            f"byte {offset} of {allocation.name}; {_RULES[source]}",
            _PLAIN if source == CONSTANTS else _APART,
            address=allocation.base + offset,
            width=width,
            space="global",
            allocation=allocation.name,
            offset=offset,
        )
        fault.name_element(allocation.element(offset, width))
        return fault
