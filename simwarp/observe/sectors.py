"""Sectors: the 32-byte pieces of global memory that each access of a warp moves, and their used bytes.

Lanes of a warp that access the same sector share it: a warp that reads 32 neighbouring floats moves 4
sectors, a warp that reads every eighth float moves 32. Lanes whose atomic operations update the same
address run one after another, and each requests the sector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import AccessEvent
from simwarp.lanes import WARP_SIZE
from simwarp.observe.line_counts import AccessCounts, Counts

SECTOR_BYTES, LINE_BYTES = 32, 128


@dataclass(frozen=True)
class SectorCounts(Counts):
    """The sectors and bytes of global-memory accesses."""

    requests: int = 0  # one request for each warp that executes an instruction
    sectors: int = 0  # distinct sectors of 32 bytes of each request
    lines: int = 0  # distinct lines of 128 bytes of each request
    bytes: int = 0  # distinct bytes of each request

    @property
    def efficiency(self) -> float:
        """Requested bytes over moved bytes; 1.0 if nothing moved.

        >>> SectorCounts(requests=1, sectors=8, lines=2, bytes=128).efficiency
        0.5
        """
        return self.bytes / (SECTOR_BYTES * self.sectors) if self.sectors else 1.0


_ADDRESS_BITS = 48


def count_sectors(
    lanes: npt.NDArray[np.int64], addresses: npt.NDArray[np.uint64], width: int, kind: str = "load"
) -> SectorCounts:
    """The sectors and bytes of one access by some warps; ``kind`` is one of `Sectors`.

    ``lanes``, (n,), ascending, are 32 times the warp's number, plus the lane; ``addresses`` are multiples of
    ``width``, the 1, 2, 4, 8 or 16 bytes per lane.

    32 neighbouring floats, aligned; then one float further, which adds a sector of a second line.

    >>> lanes = np.arange(32)
    >>> count_sectors(lanes, 1024 + 4 * lanes, 4)
    SectorCounts(requests=1, sectors=4, lines=1, bytes=128)
    >>> count_sectors(lanes, 1028 + 4 * lanes, 4)
    SectorCounts(requests=1, sectors=5, lines=2, bytes=128)
    """
    if lanes.size == 0:
        return SectorCounts()
    row = lanes // WARP_SIZE
    warp = np.cumsum(np.diff(row, prepend=row[0]) != 0)  # warps numbered from 0, without gaps
    address = addresses.astype(np.int64) & ((1 << _ADDRESS_BITS) - 1)
    keys = np.sort(warp << _ADDRESS_BITS | address)
    first_of_element = _firsts(keys)
    sector = keys[first_of_element] // SECTOR_BYTES
    first_of_sector = _firsts(sector)
    sectors, elements = first_of_sector.size, first_of_element.size
    if kind not in ("load", "store"):
        lanes_of = np.diff(first_of_element, append=keys.size)
        sectors = int(np.maximum.reduceat(lanes_of, first_of_sector).sum())
    lines = _firsts(sector * SECTOR_BYTES // LINE_BYTES).size
    return SectorCounts(int(warp[-1]) + 1, sectors, lines, elements * width)


def _firsts(ordered: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The start index of each run of equal numbers."""
    return np.flatnonzero(np.diff(ordered, prepend=-1))


class Sectors(AccessCounts[SectorCounts]):
    """Counts the sectors of accesses to global memory: ``sectors["bmm.cu:42"]`` is the number of a line.

    ``opcodes`` has the counts of each opcode, such as "ld.global.f32", ``kinds`` of each kind of access:
    "load", "store", "atomic", "reduction"; ``total`` is the sectors of all lines.

    A warp stores to every second word:

    >>> import numpy as np, simwarp
    >>> device = simwarp.Device(observe="sectors")
    >>> kernel = device.load('''
    ... .version 9.0 .target sm_90 .address_size 64
    ... .visible .entry two_apart(.param .u64 out) {
    ...     .reg .b32 %i; .reg .b64 %at, %out;
    ...     ld.param.u64 %out, [out]; mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 8; add.u64 %at, %at, %out;
    ...     st.global.u32 [%at], %i; ret; }
    ... ''').kernel("two_apart")
    >>> kernel((1, 1, 1), (32, 1, 1), device.allocate((64,), np.uint32))
    >>> sectors = device.report.sectors
    >>> sectors["ptx:6"], sectors.counts("ptx:6").efficiency
    (8, 0.5)
    """

    def __init__(self) -> None:
        super().__init__("global", SectorCounts, "sectors")

    def count(self, event: AccessEvent) -> SectorCounts:
        """The sectors and bytes of one access to global memory."""
        return count_sectors(event.lanes, event.addresses, event.width, event.kind)
