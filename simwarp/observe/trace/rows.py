"""The rows of a trace: one for each warp and event, with what its lanes wrote or touched behind one another.

>>> rows = GrowingRows()
>>> rows.extend(2, b"abcdef", warp=[1, 0], mask=[1, 3], item=2)
>>> ordered, data = in_order(rows.rows(), rows.data)
>>> ordered["warp"].tolist(), data.tobytes()
([0, 1], b'cdefab')
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

KINDS = ("step", "load", "store", "atomic", "reduction", "barrier", "fault")
"""What a row can be: an executed step, an access to memory, a barrier passed, a fault found."""
SPACES = ("", "global", "shared", "local", "const", "param")

ROW = np.dtype(
    [
        ("launch", "<u4"),
        ("block", "<i8"),
        ("warp", "<i4"),
        ("step", "<i4"),
        ("mask", "<u4"),
        ("kind", "u1"),
        ("space", "u1"),
        ("width", "u1"),
        ("item", "u1"),
    ]
)
"""A row: ``step`` is the number of the step in its kernel, of a fault that of its text, of a barrier -1;
each lane of ``mask`` has ``item`` bytes of data, in the order of the lanes: the words written, or the
address of an access of ``width`` bytes."""
_AT_ONCE = 1 << 12
"""Rows whose data is put in order at a time."""

Rows = npt.NDArray[np.void]
Bytes = npt.NDArray[np.uint8]


class GrowingRows:
    """Rows in the order in which they come.

    Attributes
    ----------
    data : bytearray
        Of all rows, one behind the other.
    """

    def __init__(self) -> None:
        self._rows: Rows = np.zeros(1024, ROW)
        self._count = 0
        self.data = bytearray()

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and their data."""
        return self._count * ROW.itemsize + len(self.data)

    def extend(self, count: int, data: bytes, **columns: Any) -> None:
        """Add some rows, by their columns; a column that is not given is 0."""
        end = self._count + count
        if end > self._rows.size:
            larger = np.zeros(max(end, 2 * self._rows.size), ROW)
            larger[: self._count] = self._rows[: self._count]
            self._rows = larger
        for name, values in columns.items():
            self._rows[name][self._count : end] = values
        self._count = end
        self.data += data

    def rows(self) -> Rows:
        """All rows so far."""
        return self._rows[: self._count]


def lengths(rows: Rows) -> npt.NDArray[np.int64]:
    """The bytes of each row's data.

    Examples
    --------
    >>> row = np.zeros(1, ROW)
    >>> row["mask"], row["item"] = 0xFF, 4
    >>> lengths(row).tolist()
    [32]
    """
    return np.bitwise_count(rows["mask"]).astype(np.int64) * rows["item"]


def starts(rows: Rows) -> npt.NDArray[np.int64]:
    """Where each row's data starts, and, last, where all of it ends: (rows + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths(rows))])


def in_order(rows: Rows, data: bytes | bytearray) -> tuple[Rows, Bytes]:
    """Rows by launch, block and warp, those of one warp in the order in which they came; with their data."""
    held = np.frombuffer(bytes(data), np.uint8)  # a copy: what is looked at cannot grow
    order = np.lexsort((rows["warp"], rows["block"], rows["launch"]))
    return rows[order], take(held, starts(rows), order)


def take(data: Bytes, at: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]) -> Bytes:
    """The data of chosen rows, in their order.

    Parameters
    ----------
    data : uint8
        Of all rows.
    at : (rows + 1,) int64
        What `starts` gave for them.
    chosen : (n,) int

    Examples
    --------
    >>> take(np.frombuffer(b"abcdef", np.uint8), np.array([0, 2, 2, 6]), np.array([2, 0])).tobytes()
    b'cdefab'
    """
    if not chosen.size:
        return data[:0]
    if (np.diff(chosen) == 1).all():
        return data[at[chosen[0]] : at[chosen[-1] + 1]]
    pieces = [chosen[first : first + _AT_ONCE] for first in range(0, chosen.size, _AT_ONCE)]
    return np.concatenate([gather(data, at[some], at[some + 1] - at[some]) for some in pieces])


def gather(data: Bytes, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Bytes:
    """Pieces of the data, one behind the other.

    Examples
    --------
    >>> gather(np.frombuffer(b"abcdef", np.uint8), np.array([4, 1]), np.array([2, 1])).tobytes()
    b'efb'
    """
    ends = np.cumsum(sizes)
    return data[np.repeat(begins - (ends - sizes), sizes) + np.arange(ends[-1] if ends.size else 0)]
