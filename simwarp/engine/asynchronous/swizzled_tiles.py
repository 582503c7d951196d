"""The tile that a tensor map put into each 16 bytes of shared memory, compared with descriptors.

A swizzle permutes the bits of an address. So a tile may begin in any row of its pattern, and a matrix that
begins in the same row of the pattern as its tile, at any address, is read as it was written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import Place, WrongDescriptor
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from simwarp.engine.components import Transfer
    from simwarp.engine.state import Chunk
    from simwarp.fragments.descriptors import Descriptors

_CHUNK_BITS = 4
_UNKNOWN = -1


class SwizzledTiles:
    """The swizzles of the tiles in a chunk's shared memory that tensor maps filled."""

    def __init__(self, chunk: Chunk) -> None:
        units = -(-chunk.shared_stride * chunk.blocks >> _CHUNK_BITS) or 1
        self._spans = np.full(units + 1, _UNKNOWN, np.int16)
        """For each 16 bytes the span of the swizzle, or `_UNKNOWN`; the last one for addresses outside."""
        self._rows = np.zeros(units + 1, np.int8)
        """For each 16 bytes with a known span, the row of the pattern in which their tile begins."""
        self._copies = np.zeros(units + 1, np.int32)
        """For each 16 bytes with a known span, the copy that wrote them, by its number in ``_numbers``."""
        self._numbers: dict[tuple[int, int], int] = {}
        """Thread and step of a copy → its number."""
        self._places: list[Place] = []
        """By number."""

    def fill(self, chunk: Chunk, transfer: Transfer) -> None:
        """Record the swizzle mode of the shared-memory bytes that a transfer wrote."""
        span, units = _UNKNOWN if transfer.swizzle is None else transfer.swizzle, self._units(transfer.writes)
        self._spans[units] = span
        if span != _UNKNOWN:
            number = self._numbers.setdefault((transfer.thread, transfer.step.number), len(self._places))
            if number == len(self._places):
                self._places.append(chunk.place_of(transfer.thread, transfer.step))
            self._copies[units] = number
            first = int(transfer.writes.min()) % chunk.shared_stride
            self._rows[units] = _row_of(np.array([first], np.uint64), np.array([span], np.uint64))[0]

    def forget(self, addresses: npt.NDArray[np.uint64]) -> None:
        """Forget the swizzle of bytes that an ordinary instruction wrote."""
        self._spans[self._units(addresses)] = _UNKNOWN

    def check(self, chunk: Chunk, at: Any, descriptors: Descriptors, warps: Any, name: str) -> None:
        """Report matrices whose descriptor does not fit the tile that a tensor map filled.

        Parameters
        ----------
        at : (n, …) uint64
            The addresses of the 16 bytes of each warpgroup's matrix.
        descriptors : Descriptors
            Of the n warpgroups.
        warps : (n, 4) int
        """
        units = self._units(at).reshape(len(warps), -1)
        filled = self._spans[units]
        wrong = (filled != _UNKNOWN) & (filled != descriptors.span.astype(np.int16)[:, None])
        if wrong.any():
            which = int(wrong.any(axis=1).argmax())
            one = int(wrong[which].argmax())
            fault = WrongDescriptor(
                f"the descriptor of {name} has another swizzle than the tensor map that filled the tile",
                f"descriptor {int(descriptors.span[which])} bytes, tensor map {int(filled[which, one])} "
                "bytes: "
                f"{self._filled_by(units[which, one])}",
                "give the tensor map and the descriptor the same swizzle",
            )
            self._report(fault, chunk, at[which].reshape(-1)[one], int(np.count_nonzero(wrong)), warps[which])
            return
        first, row = units[:, 0], _row_of(descriptors.start, descriptors.span)
        apart = (filled[:, 0] > 0) & (descriptors.base == 0) & (row != self._rows[first])
        if apart.any():
            which = int(apart.argmax())
            fault = WrongDescriptor(
                f"the descriptor of {name} begins in another row of the swizzle's pattern than its tile",
                f"descriptor row {int(row[which])}, tile row {int(self._rows[first[which]])} of 8, "
                f"swizzle {int(descriptors.span[which])} bytes: {self._filled_by(first[which])}",
                "move along k within the first row of the tile, and along m or n by multiples of 8 rows",
            )
            self._report(fault, chunk, at[which].reshape(-1)[0], int(np.count_nonzero(apart)), warps[which])

    def _filled_by(self, unit: Any) -> str:
        return f"filled by {replace(self._places[self._copies[unit]], kernel='')}"

    def _report(self, fault: WrongDescriptor, chunk: Chunk, at: Any, count: int, warps: Any) -> None:
        fault.address = fault.offset = int(at) % chunk.shared_stride
        fault.space, fault.width, fault.count = "shared", 1 << _CHUNK_BITS, count
        chunk.found(fault, int(warps[0]) * WARP_SIZE)

    def _units(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        units = addresses >> np.uint64(_CHUNK_BITS)
        return np.minimum(units, np.uint64(self._spans.size - 1)).astype(np.int64)


def _row_of(starts: npt.NDArray[np.uint64], spans: npt.NDArray[np.uint64]) -> npt.NDArray[np.int8]:
    """The rows of a swizzle's pattern in which addresses lie; 0 without a swizzle."""
    rows = starts // np.maximum(spans, np.uint64(1)) % np.uint64(8)
    return np.where(spans == 0, np.uint64(0), rows).astype(np.int8)
