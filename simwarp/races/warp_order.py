"""The happens-before order of the lanes of a warp, by ``bar.warp.sync`` (PTX ISA 9.7.13.2).

Two lanes of a warp are ordered only by a ``bar.warp.sync`` whose member masks contain both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simwarp.lanes import LANE, LANE_BIT, WARP_SIZE

Times = npt.NDArray[np.int64]
Warps = npt.NDArray[np.intp]


class WarpOrder:
    """The times of the last ``bar.warp.sync`` between the lanes of each warp.

    As long as the groups of lanes that synchronised are disjoint, the group and time of each lane are enough.
    A warp whose groups overlap is *tangled*: a table holds a time for each pair of its lanes.
    """

    def __init__(self, warps: int) -> None:
        self._warps = warps
        self._used = False
        self._whole = np.zeros(warps, np.int64)
        """The time of each warp's last barrier of all its live lanes."""

    def meet(
        self, warps: Warps, groups: npt.NDArray[np.uint32], live: npt.NDArray[np.uint32], time: int
    ) -> None:
        """Record that lanes pass a barrier; ``groups`` (n, 32) has each lane's group, 0 for absent lanes."""
        whole = ((groups == live[:, None]) | (live[:, None] & LANE_BIT == 0)).all(axis=1)
        self._whole[warps[whole]] = time
        self.forget(warps[whole])
        if whole.all():
            return
        if not self._used:
            self._prepare()
        warps, groups = warps[~whole], groups[~whole]
        words = self._words[warps]
        overlaps = ((groups != 0) & (words != 0) & (words != groups)).any(axis=1)
        self._tangle(warps[overlaps])
        tangled = self._tangled[warps]
        self._words[warps] = np.where(groups != 0, groups, words)
        self._times[warps] = np.where(groups != 0, time, self._times[warps])
        if tangled.any():
            self._meet_tangled(warps[tangled], groups[tangled], time)

    def forget(self, warps: Warps) -> None:
        """Forget the groups of warps whose lanes have all synchronised."""
        if self._used:
            self._words[warps], self._tangled[warps] = 0, False

    def met(self, warp: int) -> int:
        """The time of the last barrier of all live lanes of a warp."""
        return int(self._whole[warp])

    @property
    def is_simple(self) -> bool:
        """Whether all live lanes of a warp have met each time."""
        return not self._used

    def set_whole(self, warps: Warps, times: Times) -> None:
        """Record the times when all live lanes of warps last met."""
        self._whole[warps] = times

    def whole(self, warps: Warps) -> Times:
        """The times of the last barriers of all live lanes of warps."""
        return self._whole[warps]

    def ordered(self, warps: Warps, later: Times, earlier: Times, times: Times) -> npt.NDArray[np.bool_]:
        """Whether accesses of ``earlier`` lanes at ``times`` are ordered before those of ``later`` lanes."""
        result = times < self._whole[warps]
        if self._used:
            met = (self._words[warps, later] >> earlier.astype(np.uint32) & 1 != 0) & ~self._tangled[warps]
            result |= met & (times < self._times[warps, later])
            tangled = np.flatnonzero(self._tangled[warps])
            if tangled.size:
                known = self._table[warps[tangled], later[tangled], earlier[tangled]]
                result[tangled] |= times[tangled] < known
        return result

    def _prepare(self) -> None:
        """Allocate the arrays, at the first barrier of some of a warp's lanes."""
        shape = self._warps, WARP_SIZE
        self._used = True
        self._words, self._times = np.zeros(shape, np.uint32), np.zeros(shape, np.int64)
        self._tangled = np.zeros(self._warps, np.bool_)
        self._table = np.zeros((0, WARP_SIZE, WARP_SIZE), np.int64)

    def _tangle(self, warps: Warps) -> None:
        """Switch these warps to tables of times per pair of lanes."""
        warps = warps[~self._tangled[warps]]
        if warps.size and not self._table.size:
            self._table = np.zeros((self._warps, WARP_SIZE, WARP_SIZE), np.int64)
        met = self._words[warps][:, :, None] >> LANE & 1 != 0
        self._table[warps] = np.where(met, self._times[warps][:, :, None], 0)
        self._tangled[warps] = True

    def _meet_tangled(self, warps: Warps, groups: npt.NDArray[np.uint32], time: int) -> None:
        """Record that lanes of tangled warps pass a barrier: each group shares its members' times."""
        for word in np.unique(groups[groups != 0]).tolist():
            members = np.flatnonzero(word >> LANE & 1)
            here = warps[(groups == word).any(axis=1)][:, None]
            known = self._table[here, members]
            together = known.max(axis=1)
            together[:, members] = time
            self._table[here, members] = together[:, None, :]
