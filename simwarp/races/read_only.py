"""Loads of memory that nothing may write during the launch: ``ld.global.nc`` and textures.

They go through a cache that writes do not reach, and a compiler may move them: no barrier, fence or atomic
operation orders them with a write of the launch, not even with one of the same thread.

Source: PTX ISA 9.0, 9.7.9.9 (``ld.global.nc``); CUDA C++ Programming Guide, texture and surface memory,
read/write coherency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from simwarp.faults import Place, ReadOnlyLoad
from simwarp.races.report import element_in, place_in
from simwarp.races.shadow import THREAD

if TYPE_CHECKING:
    from simwarp.program.program import Step
    from simwarp.races.access import Access, Lanes
    from simwarp.races.shadow import Shadow, Units

_TEXTURES = ("texture", "texture gather")
_OF_LOADS = (
    "load it by ld.global: take __restrict__ or const off the pointer, or use a plain access instead of "
    "__ldg(), or write to another array"
)
_OF_TEXTURES = "read it by its pointer, or write to another array, or read it in a later launch"


def is_read_only(step: Step) -> bool:
    """Whether a step loads memory that nothing may write during the launch."""
    return step.kind in _TEXTURES or "nc" in step.form.modifiers


class ReadOnlyLoads:
    """Compares the read-only loads of a launch with its writes, whichever come first.

    ``steps`` are the instructions that accessed memory at each time, from time 1; ``writer`` gives the thread
    that issued the write of an entry.
    """

    def __init__(self, steps: list[Step], writer: Callable[[int, int], int]) -> None:
        self._steps, self._writer = steps, writer

    def load(self, access: Access, shadow: Shadow, units: Units) -> None:
        """Report a load of bytes that the launch has written, then record it."""
        for written, last in ((shadow.written, shadow.last_write), (shadow.updated, shadow.last_update)):
            entries = written.take(units) if written is not None and last else None
            bad = np.zeros(0, np.intp) if entries is None else np.flatnonzero(entries)
            if entries is not None and bad.size:
                lane, entry = int(bad[0]) % access.lanes.size, int(entries[bad[0]])
                loads = access.chunk.place(int(access.lanes[lane]), access.step)
                self._report(
                    access, shadow, int(access.offsets[lane]), (loads, self._place(access, entry)), bad
                )
        shadow.load_read_only(units, access.of_units(units))

    def write(self, access: Access, shadow: Shadow, units: Units) -> None:
        """Report a write of bytes that the launch has loaded."""
        if shadow.loaded is None:
            return
        entries = shadow.loaded.take(units)
        bad = np.flatnonzero(entries)
        if bad.size:
            lane = int(bad[0]) % access.lanes.size
            writes = access.chunk.place(int(access.lanes[lane]), access.step)
            places = self._place(access, int(entries[bad[0]])), writes
            self._report(access, shadow, int(access.offsets[lane]), places, bad)

    def _place(self, access: Access, entry: int) -> Place:
        """The place of an earlier access."""
        time, thread = entry >> 32, entry & THREAD
        return access.chunk.place_of(self._writer(time, thread), self._steps[time - 1])

    def _report(
        self, access: Access, shadow: Shadow, offset: int, places: tuple[Place, Place], bad: Lanes
    ) -> None:
        """Report lanes whose load and write, in this order in ``places``, meet."""
        (load, write), allocation, width = places, shadow.allocation, access.width
        texture = load.text.startswith(("tex", "tld4"))
        how = "through a texture" if texture else "by a load for memory that nothing writes (ld.global.nc)"
        fault = ReadOnlyLoad(
            f"read of {width} byte{'s' * (width > 1)} of global memory that this launch writes, {how}",
            place_in(access.chunk, allocation, offset),
            _OF_TEXTURES if texture else _OF_LOADS,
            load,
            other=write,
            address=allocation.base + offset,
            width=width,
            space="global",
            allocation=allocation.name,
            offset=offset,
            count=int(np.unique(access.lanes[bad % access.lanes.size]).size),
        )
        fault.note("written here by", write)
        fault.name_element(element_in(access.chunk, allocation, offset, width))
        access.chunk.launch.found(fault)
