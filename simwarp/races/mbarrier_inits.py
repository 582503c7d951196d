"""Initialisations of barriers in shared memory that ``fence.mbarrier_init`` publishes to the cluster.

Behind the fence, a relaxed arrival at the cluster's barrier publishes the initialisations before the fence,
and nothing else (PTX ISA 9.0, 9.7.13.4 and 9.7.13.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.lanes import WARP_SIZE
from simwarp.ptx.kinds import MBARRIER
from simwarp.races.shadow import THREAD

if TYPE_CHECKING:
    from simwarp.program.program import Step
    from simwarp.races.shadow import Entries


class InitialisedBarriers:
    """The mbarrier initialisations that each warp knows; warps are numbered in the launch."""

    def __init__(self) -> None:
        self._fences: dict[int, int] = {}
        """Warp → the time of its last fence."""
        self._published: dict[tuple[int, int], dict[int, int]] = {}
        """By phase of a cluster's barrier: the fences before its arrivals."""
        self._known: dict[int, dict[int, int]] = {}
        """By warp: the fences that it knows."""

    def fence(self, warps: Iterable[int], time: int) -> None:
        """Record that warps execute ``fence.mbarrier_init`` at a time."""
        self._fences.update(dict.fromkeys(warps, time))

    def publish(self, phase: tuple[int, int], warp: int) -> None:
        """Publish a warp's last fence in a phase; forget the phase before the previous one."""
        if warp in self._fences:
            self._published.pop((phase[0], phase[1] - 2), None)
            self._published.setdefault(phase, {})[warp] = self._fences[warp]

    def acquire(self, phase: tuple[int, int], warp: int) -> None:
        """Record that a warp knows the fences of a phase."""
        if phase in self._published:
            self._known.setdefault(warp, {}).update(self._published[phase])

    def seen(
        self, threads: npt.NDArray[np.int64], before: Entries, steps: list[Step]
    ) -> npt.NDArray[np.bool_]:
        """Whether earlier accesses are initialisations that the later accesses' threads know."""
        found = np.zeros(before.size, np.bool_)
        if self._known:
            for at, (thread, entry) in enumerate(zip(threads.tolist(), before.tolist(), strict=True)):
                step, fences = steps[int(entry >> 32) - 1], self._known.get(thread // WARP_SIZE, {})
                fenced = entry >> 32 < fences.get((entry & THREAD) // WARP_SIZE, 0)
                found[at] = fenced and step.kind is MBARRIER and step.form.has("init")
        return found
