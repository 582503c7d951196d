"""Processes in a grid: the part of a matrix that each owns, and the communicator that `summa` needs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy.typing as npt

from reference.errors import MissingExtraError, ShapeError

Array = npt.NDArray[Any]


class Request(Protocol):
    """A non-blocking MPI operation that is under way."""

    def Wait(self) -> Any:  # noqa: N802 - mpi4py's name
        """Block until the operation has ended."""


class Communicator(Protocol):
    """The methods of `mpi4py.MPI.Comm` that `summa` calls."""

    @property
    def rank(self) -> int:
        """The rank of this process in the communicator."""
        ...

    @property
    def size(self) -> int:
        """The number of processes in the communicator."""
        ...

    def allgather(self, sendobj: Any) -> list[Any]:
        """Gather one object of each process, in order of rank."""
        ...

    def Split(self, color: int, key: int) -> Communicator:  # noqa: N802
        """A communicator of the processes with this color."""
        ...

    def Ibcast(self, buf: Array, root: int) -> Request:  # noqa: N802
        """Begin to copy the root's array to all others."""
        ...

    def Free(self) -> None:  # noqa: N802
        """Release the communicator."""


def world() -> Communicator:
    """The communicator of all MPI processes."""
    try:
        return import_module("mpi4py.MPI").COMM_WORLD
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError without an MPI library
        raise MissingExtraError(
            f"a product over processes needs mpi4py and an MPI library ({error})\npip install 'simwarp[mpi]'"
        ) from None


class OneProcess:
    """A communicator of one process, for programs that also run without MPI.

    Examples
    --------
    >>> OneProcess().allgather("it")
    ['it']
    """

    rank = 0
    size = 1

    def allgather(self, sendobj: Any) -> list[Any]:
        """The list of the one process's object.

        Examples
        --------
        >>> OneProcess().allgather(1)
        [1]
        """
        return [sendobj]

    def Split(self, color: int, key: int) -> OneProcess:  # noqa: N802
        """A communicator of the same process.

        Examples
        --------
        >>> OneProcess().Split(0, 0).size
        1
        """
        return OneProcess()

    def Ibcast(self, buf: Array, root: int) -> OneProcess:  # noqa: N802
        """Do nothing; the returned request has ended.

        Examples
        --------
        >>> OneProcess().Ibcast(None, 0).Wait()
        """
        return self

    def Wait(self) -> None:  # noqa: N802
        """Return immediately.

        Examples
        --------
        >>> OneProcess().Wait()
        """

    def Free(self) -> None:  # noqa: N802
        """Do nothing.

        Examples
        --------
        >>> OneProcess().Free()
        """


@dataclass(frozen=True)
class ProcessGrid:
    """Processes in rows and columns; ranks run along rows.

    Parameters
    ----------
    rows, columns : int

    Raises
    ------
    ShapeError
        For a number below 1.

    Examples
    --------
    >>> ProcessGrid(2, 3).place(4)
    (1, 1)
    """

    rows: int
    columns: int

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1:
            raise ShapeError(
                f"a grid of {self.rows} x {self.columns} processes\nit has at least one row and one column\n"
                "give positive numbers"
            )

    @classmethod
    def of(cls, size: int) -> ProcessGrid:
        """The grid of a number of processes that is nearest to a square.

        Examples
        --------
        >>> ProcessGrid.of(12), ProcessGrid.of(7)
        (ProcessGrid(rows=3, columns=4), ProcessGrid(rows=1, columns=7))
        """
        rows = next((r for r in range(int(size**0.5), 0, -1) if size % r == 0), 1)
        return cls(rows, size // rows)

    @property
    def size(self) -> int:
        """The number of processes.

        Examples
        --------
        >>> ProcessGrid(2, 3).size
        6
        """
        return self.rows * self.columns

    def place(self, rank: int) -> tuple[int, int]:
        """The row and the column of a process.

        Examples
        --------
        >>> ProcessGrid(2, 2).place(2)
        (1, 0)
        """
        return divmod(rank, self.columns)

    def owned(self, rank: int, rows: int, columns: int) -> tuple[slice, slice]:
        """The part of a matrix of this shape that a process owns by default; parts are nearly equal.

        Examples
        --------
        >>> ProcessGrid(2, 2).owned(3, 5, 4)
        (slice(3, 5, None), slice(2, 4, None))
        """
        row, column = self.place(rank)
        return _part(rows, self.rows, row), _part(columns, self.columns, column)


def _part(length: int, parts: int, index: int) -> slice:
    """The slice of part ``index`` of ``parts`` nearly equal parts; the longer ones are first."""
    each, more = divmod(length, parts)
    return slice(index * each + min(index, more), (index + 1) * each + min(index + 1, more))
