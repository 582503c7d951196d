"""The movement of values: what a copy or routine does with them when it starts and when it ends.

All read when they start, except that a copy from the host reads when it ends, and finds what the host has
changed meanwhile. All write when they end; until then the target of a copy is poison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from reference.errors import LaunchError
from simwarp.machine.footprints import overlap
from simwarp.machine.memory import TileLike, describe, footprint_of, poison


class RoutineLike(Protocol):
    """A computation on tiles of one device, such as a matrix product."""

    @property
    def name(self) -> str:
        """The routine's name, for timelines and messages."""
        ...

    @property
    def operations(self) -> float:
        """The number of floating-point operations that the routine performs."""
        ...

    @property
    def reads(self) -> tuple[TileLike, ...]:
        """The tiles that the routine reads."""
        ...

    @property
    def writes(self) -> tuple[TileLike, ...]:
        """The tiles that the routine writes."""
        ...

    def compute(self, reads: Sequence[npt.NDArray[Any]], writes: Sequence[npt.NDArray[Any]]) -> None:
        """Compute on the host, from arrays of ``reads`` into arrays of ``writes``."""


class CpuRoutineLike(Protocol):
    """A computation of the host's cores: a `gpu.machine.CpuRoutine` of any host program."""

    @property
    def name(self) -> str:
        """The routine's name in timelines and errors."""
        ...

    @property
    def operations(self) -> float:
        """The number of floating-point operations that the routine performs."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that the routine computes in."""
        ...

    @property
    def reads(self) -> tuple[npt.NDArray[Any], ...]:
        """The parts of pinned arrays that the routine reads."""
        ...

    @property
    def writes(self) -> tuple[npt.NDArray[Any], ...]:
        """The parts of pinned arrays that the routine writes."""
        ...

    def compute(self) -> None:
        """Compute on the host."""


class Moves(NamedTuple):
    """The functions that an operation calls when it starts and when it ends."""

    begin: Callable[[], None]
    finish: Callable[[], None]


def check_aliases(routine: RoutineLike) -> None:
    """Check that each written tile overlaps no other tile, except an identical one that is read."""
    places = [(tile.memory, footprint_of(tile), f"reads[{i}]") for i, tile in enumerate(routine.reads)]
    for number, tile in enumerate(routine.writes):
        memory, footprint, name = tile.memory, footprint_of(tile), f"writes[{number}]"
        for other, place, of in places:
            same = place == footprint and of.startswith("reads")
            if other is memory and not same and overlap(place, footprint):
                raise LaunchError(
                    f"{name} of {routine.name} is {describe(tile)}, which overlaps {of}\n"
                    "a tile that is written overlaps no other, or is the same as one that is read\n"
                    "use separate tiles"
                )
        places.append((memory, footprint, name))


def nothing() -> Moves:
    """The moves of an operation on a machine without values: functions that do nothing.

    >>> nothing().begin() is None
    True
    """
    return Moves(_pass, _pass)


def from_host(source: npt.NDArray[Any], target: TileLike) -> Moves:
    """A copy of a host matrix to a tile."""

    def finish() -> None:
        view(target)[...] = source

    return Moves(lambda: poison(view(target)), finish)


def to_host(source: TileLike, target: npt.NDArray[Any]) -> Moves:
    """A copy of a tile to a host matrix."""
    moved: list[npt.NDArray[Any]] = []

    def begin() -> None:
        moved.append(view(source).copy())
        poison(target)

    def finish() -> None:
        target[...] = moved.pop()

    return Moves(begin, finish)


def between(source: TileLike, target: TileLike) -> Moves:
    """The moves of a copy from one device tile to another."""
    moved: list[npt.NDArray[Any]] = []

    def begin() -> None:
        moved.append(view(source).copy())
        poison(view(target))

    def finish() -> None:
        view(target)[...] = moved.pop()

    return Moves(begin, finish)


def computed(routine: RoutineLike) -> Moves:
    """The moves of a routine: it computes into copies when it starts, which are stored when it ends."""
    results: list[npt.NDArray[Any]] = []

    def begin() -> None:
        reads = [view(tile) for tile in routine.reads]
        for read in reads:
            read.flags.writeable = False
        results.extend(view(tile).copy(order="F") for tile in routine.writes)
        routine.compute(reads, results)

    def finish() -> None:
        for tile, result in zip(routine.writes, results, strict=True):
            view(tile)[...] = result
        results.clear()

    return Moves(begin, finish)


def on_cpu(routine: CpuRoutineLike) -> Moves:
    """The moves of a routine of the host's cores, which computes when it ends."""
    return Moves(_pass, routine.compute)


def view(tile: TileLike) -> npt.NDArray[Any]:
    """The elements of a tile, as a NumPy view of its memory."""
    return tile.memory.view(tile)


def _pass() -> None:
    pass
