"""Who is ordered with whom within a warp: ``bar.warp.sync`` (PTX ISA 9.7.13.2).

Lanes of one warp execute in any order unless they meet at a ``bar.warp.sync`` that names them both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simwarp.lanes import LANE, LANE_BIT, WARP_SIZE

Times = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


class WarpOrder:
    """The meetings of the lanes of some warps.

    As long as each lane meets one group only, its group and the time of the last meeting say all. A warp
    whose lanes meet in groups that overlap is *tangled*: for it, a table says what each lane knows of each
    other.

    Parameters
    ----------
    warps : int

    Examples
    --------
    Lanes 0 and 1 meet at time 5, then 1 and 2 at time 9: so lane 2 knows what lane 0 did before 5.

    >>> order = WarpOrder(1)
    >>> rows, live = np.array([0]), np.array([0xFFFFFFFF], np.uint32)
    >>> for word, time in ((0b011, 5), (0b110, 9)):
    ...     groups = np.where(word >> LANE & 1, word, 0).astype(np.uint32).reshape(1, 32)
    ...     order.meet(rows, groups, live, time)
    >>> lane = lambda number: np.array([number])
    >>> [bool(order.ordered(rows, lane(2), lane(0), np.array([time]))[0]) for time in (4, 5)]
    [True, False]
    """

    def __init__(self, warps: int) -> None:
        self._warps = warps
        self._used = False
        self._whole = np.zeros(warps, np.int64)
        """When all live lanes met last."""

    def meet(
        self, rows: Rows, groups: npt.NDArray[np.uint32], live: npt.NDArray[np.uint32], time: int
    ) -> None:
        """Lanes meet.

        Parameters
        ----------
        rows : (n,) int
            Their warps.
        groups : (n, 32) uint32
            For each lane the lanes it meets, one bit each; 0 for a lane that is not there.
        live : (n,) uint32
            The lanes that have not exited.
        time : int
            What came before it is known from now on.
        """
        whole = ((groups == live[:, None]) | (live[:, None] & LANE_BIT == 0)).all(axis=1)
        self._whole[rows[whole]] = time
        self.forget(rows[whole])
        if whole.all():
            return
        if not self._used:
            self._prepare()
        rows, groups = rows[~whole], groups[~whole]
        words = self._words[rows]
        overlaps = ((groups != 0) & (words != 0) & (words != groups)).any(axis=1)
        self._tangle(rows[overlaps])
        tangled = self._tangled[rows]
        self._words[rows] = np.where(groups != 0, groups, words)
        self._times[rows] = np.where(groups != 0, time, self._times[rows])
        if tangled.any():
            self._meet_tangled(rows[tangled], groups[tangled], time)

    def forget(self, rows: Rows) -> None:
        """All lanes of these warps are ordered by now: what some of them know is worth nothing more."""
        if self._used:
            self._words[rows], self._tangled[rows] = 0, False

    def ordered(self, rows: Rows, later: Times, earlier: Times, times: Times) -> npt.NDArray[np.bool_]:
        """Whether what ``earlier`` lanes did at ``times`` is ordered before what ``later`` lanes do now.

        Parameters
        ----------
        rows, later, earlier, times : (n,) int

        Returns
        -------
        (n,) bool
        """
        result = times < self._whole[rows]
        if self._used:
            met = (self._words[rows, later] >> earlier.astype(np.uint32) & 1 != 0) & ~self._tangled[rows]
            result |= met & (times < self._times[rows, later])
            tangled = np.flatnonzero(self._tangled[rows])
            if tangled.size:
                known = self._table[rows[tangled], later[tangled], earlier[tangled]]
                result[tangled] |= times[tangled] < known
        return result

    def _prepare(self) -> None:
        shape = self._warps, WARP_SIZE
        self._used = True
        self._words, self._times = np.zeros(shape, np.uint32), np.zeros(shape, np.int64)
        self._tangled = np.zeros(self._warps, np.bool_)
        self._table = np.zeros((0, WARP_SIZE, WARP_SIZE), np.int64)

    def _tangle(self, rows: Rows) -> None:
        """From now on a table says what the lanes of these warps know."""
        rows = rows[~self._tangled[rows]]
        if rows.size and not self._table.size:
            self._table = np.zeros((self._warps, WARP_SIZE, WARP_SIZE), np.int64)
        met = self._words[rows][:, :, None] >> LANE & 1 != 0
        self._table[rows] = np.where(met, self._times[rows][:, :, None], 0)
        self._tangled[rows] = True

    def _meet_tangled(self, rows: Rows, groups: npt.NDArray[np.uint32], time: int) -> None:
        for word in np.unique(groups[groups != 0]).tolist():
            members = np.flatnonzero(word >> LANE & 1)
            here = rows[(groups == word).any(axis=1)][:, None]
            known = self._table[here, members]
            together = known.max(axis=1)
            together[:, members] = time
            self._table[here, members] = together[:, None, :]
