"""The swizzle with which a tensor map filled each 16 bytes of shared memory, compared with descriptors'."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simwarp.faults import Place, WrongDescriptor
from simwarp.lanes import WARP_SIZE

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk
    from simwarp.engine.transfers import Transfer

_CHUNK_BITS = 4
_UNKNOWN = -1


class SwizzledTiles:
    """The swizzles of the tiles in a chunk's shared memory that tensor maps filled."""

    def __init__(self, chunk: Chunk) -> None:
        units = -(-chunk.shared_stride * chunk.blocks >> _CHUNK_BITS) or 1
        self._spans = np.full(units + 1, _UNKNOWN, np.int16)
        """For each 16 bytes the span of the swizzle, or `_UNKNOWN`; the last one for addresses outside."""
        self._copies = np.zeros(units + 1, np.int32)
        """For each 16 bytes with a known span, the copy that wrote them, by its number in ``_numbers``."""
        self._numbers: dict[tuple[int, int], int] = {}
        """Thread and step of a copy → its number."""
        self._places: list[Place] = []
        """By number."""

    def fill(self, chunk: Chunk, transfer: Transfer) -> None:
        """Record the swizzle of what a transfer wrote to shared memory."""
        span, units = _UNKNOWN if transfer.swizzle is None else transfer.swizzle, self._units(transfer.writes)
        self._spans[units] = span
        if span != _UNKNOWN:
            number = self._numbers.setdefault((transfer.thread, transfer.step.number), len(self._places))
            if number == len(self._places):
                self._places.append(chunk.place_of(transfer.thread, transfer.step))
            self._copies[units] = number

    def forget(self, addresses: npt.NDArray[np.uint64]) -> None:
        """Forget the swizzle of bytes that an ordinary instruction wrote."""
        self._spans[self._units(addresses)] = _UNKNOWN

    def check(self, chunk: Chunk, at: Any, spans: npt.NDArray[Any], warps: Any, name: str) -> None:
        """Report matrices, read in chunks of 16 bytes, whose descriptor has another swizzle than their tile.

        Parameters
        ----------
        at : (n, …) uint64
            The addresses of the chunks of each warpgroup's matrix.
        spans : (n,) int
            The span of each descriptor's swizzle.
        warps : (n, 4) int
        """
        units = self._units(at).reshape(len(warps), -1)
        filled = self._spans[units]
        wrong = (filled != _UNKNOWN) & (filled != spans.astype(np.int16)[:, None])
        if not wrong.any():
            return
        which = int(wrong.any(axis=1).argmax())
        one = int(wrong[which].argmax())
        span, copy = int(filled[which, one]), self._places[self._copies[units[which, one]]]
        fault = WrongDescriptor(
            f"the descriptor of {name} has another swizzle than the tensor map that filled the tile",
            f"descriptor {int(spans[which])} bytes, tensor map {span} bytes: filled by "
            f"{replace(copy, kernel='')}",
            "give the tensor map and the descriptor the same swizzle",
        )
        first = int(at[which].reshape(-1)[one])
        fault.address = fault.offset = first % chunk.shared_stride
        fault.space, fault.width, fault.count = "shared", 1 << _CHUNK_BITS, int(np.count_nonzero(wrong))
        chunk.found(fault, int(warps[which, 0]) * WARP_SIZE)

    def _units(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        units = addresses >> np.uint64(_CHUNK_BITS)
        return np.minimum(units, np.uint64(self._spans.size - 1)).astype(np.int64)
