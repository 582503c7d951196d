"""What compiled code needs of the engine's state: `simwarp.engine.state` describes the members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Mask: TypeAlias = npt.NDArray[np.bool_]


class Products(Protocol):
    """Asynchronous products of a chunk."""

    @property
    def in_flight(self) -> Any: ...


class Chunk(Protocol):
    """The warps in flight, their registers and lanes."""

    executed: int
    registers: list[Any]
    partial: dict[int, Any]
    bits: dict[int, Any]

    @property
    def live(self) -> Mask: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def order(self) -> Callable[[int], Any] | None: ...
    @property
    def products(self) -> Products | None: ...

    def special(self, name: str, /) -> Any:
        """The value of a special register."""


class Launch(Protocol):
    """A launch: its budget, and who watches it."""

    @property
    def steps_left(self) -> float: ...
    @property
    def units_left(self) -> float: ...
    @property
    def on_step(self) -> Sequence[Any]: ...


class Group(Protocol):
    """The lanes at one step, and how often they have yielded to others."""

    @property
    def mask(self) -> Mask: ...
    @property
    def turns(self) -> int: ...
    @property
    def loops(self) -> bool: ...
    @property
    def rounds(self) -> int: ...


class Scheduler(Protocol):
    """The groups of a chunk."""

    turns: int
    loops: int

    @property
    def chunk(self) -> Chunk: ...
    @property
    def launch(self) -> Launch: ...
    @property
    def groups(self) -> Mapping[int, Group]: ...
    @property
    def parked(self) -> Mapping[int, Mask]: ...

    def enter(self, mask: Mask) -> None:
        """Make the lanes of ``mask`` the current group."""

    def spend(self, steps: int) -> None:
        """Subtract steps from the launch's budget."""

    def take_over(self, groups: Mapping[int, tuple[Mask, int, bool, int]]) -> None:
        """Replace the groups: their lanes, turns, whether they loop, and their rounds, by step."""
