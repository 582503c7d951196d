"""Host memory: pinned arrays, and the matrices in them that copies read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from reference.errors import DtypeError, ShapeError
from simwarp.machine.accesses import Accesses
from simwarp.machine.faults import MemoryInUseError, UnpinnedError
from simwarp.machine.footprints import Footprint, footprint
from simwarp.machine.memory import TileLike
from simwarp.machine.order import Order

_BUCKET = 1 << 24


@dataclass
class Pinned:
    """A pinned (page-locked) host array, with its addresses and its count of pins."""

    start: int  # first address of the array
    end: int
    number: int
    count: int  # pins not yet matched by an unpin
    array: npt.NDArray[Any]  # kept alive, so that no other array gets its addresses


class Host:
    """The host's memory: its pinned arrays and the accesses to them.

    ``accesses`` are by address, of all pinned arrays together: they may overlap.
    """

    def __init__(self, order: Order) -> None:
        self.accesses = Accesses(order, _BUCKET)
        self._pinned: dict[tuple[int, int], Pinned] = {}
        self._numbers = 0

    def pin(self, array: npt.NDArray[Any]) -> None:
        """Pin an array, or increase the count of an array that is pinned."""
        bounds = byte_bounds(array_of(array, "the array"))
        if bounds not in self._pinned:
            self._pinned[bounds] = Pinned(*bounds, self._numbers, 0, array)
            self._numbers += 1
        self._pinned[bounds].count += 1

    def unpin(self, array: npt.NDArray[Any]) -> None:
        """Undo one pin; for the last one, the host must have waited for the array's copies."""
        bounds = byte_bounds(array_of(array, "the array"))
        pinned = self._pinned.get(bounds)
        if pinned is None:
            raise UnpinnedError(
                f"unpin of an array of {array.nbytes} bytes",
                "it is not pinned",
                "unpin each array as often as it was pinned",
            )
        if pinned.count == 1:
            if operation := self.accesses.unfinished(*bounds):
                raise MemoryInUseError(
                    f"unpin of array {pinned.number}, which {operation} uses",
                    "the host has not waited for that copy",
                    "record an event behind it, and wait for the event first",
                    operation=str(operation),
                )
            del self._pinned[bounds]
        pinned.count -= 1

    def pins(self, array: npt.NDArray[Any]) -> int:
        """The pins of an array that no unpin has undone."""
        pinned = self._pinned.get(byte_bounds(array_of(array, "the array")))
        return pinned.count if pinned else 0

    def pinned(self) -> int:
        """The number of host arrays that are pinned."""
        return len(self._pinned)

    def matrix(self, matrix: npt.NDArray[Any], tile: TileLike, what: str) -> Footprint:
        """The addresses of a host matrix, checked against the tile of its copy."""
        array_of(matrix, what)
        if matrix.shape != (tile.rows, tile.columns) or matrix.dtype != tile.dtype:
            raise ShapeError(
                f"{what} is a {matrix.dtype} array of shape {matrix.shape}\n"
                f"the tile has shape {(tile.rows, tile.columns)} and dtype {tile.dtype}\n"
                "give a matrix and a tile of one shape and dtype"
            )
        return self.part(matrix, what)

    def part(self, matrix: npt.NDArray[Any], what: str) -> Footprint:
        """The addresses of a column-major part of a pinned array; ShapeError or UnpinnedError for others."""
        rows, columns = matrix.shape
        item = matrix.dtype.itemsize
        down, across = matrix.strides
        if (rows > 1 and down != item) or (columns > 1 and across < rows * item):
            raise ShapeError(
                f"{what} has strides {matrix.strides} in bytes\n"
                f"a copy moves whole columns: strides ({item}, at least {rows * item})\n"
                "give a column-major matrix, such as a slice of an array with order='F'"
            )
        pitch = across if columns > 1 else rows * item
        of = footprint(byte_bounds(matrix)[0], rows * item, pitch, columns)
        if self._holder(of) is None:
            raise UnpinnedError(
                f"{what} is a {matrix.dtype} matrix of shape {matrix.shape} that is not pinned",
                f"it lies in none of the {len(self._pinned)} pinned arrays",
                "pin its array with Machine.pin before the copy",
            )
        return of

    def describe(self, matrix: npt.NDArray[Any], of: Footprint) -> str:
        """A host matrix in words, for messages: shape, dtype and position in its pinned array."""
        rows, columns = matrix.shape
        holder = self._holder(of)
        place = f" at byte {of.start - holder.start} of array {holder.number}" if holder else ""
        return f"host matrix {rows} × {columns} {matrix.dtype}{place}"

    def _holder(self, of: Footprint) -> Pinned | None:
        """The pinned array that contains the bytes of a footprint; None if there is none."""
        return next(
            (one for one in self._pinned.values() if one.start <= of.start and of.end <= one.end), None
        )


def array_of(value: object, what: str) -> npt.NDArray[Any]:
    """Return ``value`` if it is a NumPy array; else raise `DtypeError`."""
    if not isinstance(value, np.ndarray):
        raise DtypeError(
            f"{what} is a {type(value).__name__}\nhost memory is given as NumPy arrays\ngive a numpy.ndarray"
        )
    return cast("npt.NDArray[Any]", value)
