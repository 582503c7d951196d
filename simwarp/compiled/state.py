"""What compiled code needs of the engine's state: `simwarp.engine.state` describes the members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from simwarp.program.steps import Step

Mask: TypeAlias = npt.NDArray[np.bool_]
Table: TypeAlias = npt.NDArray[Any]


class Allocation(Protocol):
    """Bytes of a memory, with marks of those that are written."""

    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def freed(self) -> bool: ...
    @property
    def complete(self) -> bool: ...
    @property
    def bytes(self) -> Table: ...
    @property
    def written_bits(self) -> Table: ...


class Shadow(Protocol):
    """The race detector's entries of an allocation; see `simwarp.races.shadow`."""

    last_write: int
    last_read: int
    pending: Callable[[], None] | None

    @property
    def unit(self) -> int: ...
    @property
    def is_plain(self) -> bool: ...
    @property
    def written(self) -> Table: ...
    @property
    def written_also(self) -> Table | None: ...
    @property
    def last_also(self) -> int: ...

    def readers(self) -> tuple[Table, Table]:
        """The arrays of last readers."""
        ...


class Races(Protocol):
    """The race detector of a launch; see `simwarp.races.detector`."""

    noted: Any
    """The reads that compiled code has noted, and the shadows do not have."""

    @property
    def is_plain(self) -> bool: ...
    @property
    def time(self) -> int: ...

    def shadow_of(self, allocation: Any, private: bool) -> Shadow | None:
        """The shadow of an allocation, if it has one yet."""
        ...

    def past(self, private: bool) -> int:
        """A time before which all accesses are ordered before all next ones."""
        ...

    def barriers(self, warps: Table) -> tuple[Table, Table]:
        """The times of the last barriers of the warps' blocks, and of all lanes of the warps."""
        ...

    @property
    def is_simple(self) -> bool: ...

    def passed(self, chunk: Any, time: int) -> None:
        """Record that all blocks of a chunk passed a barrier at a time."""

    def met(self, warps: Table, times: Table) -> None:
        """Record when all lanes of warps last met."""

    def record(self, steps: Sequence[Step]) -> None:
        """Count the accesses of some steps, one after another."""


class Chunk(Protocol):
    """The warps in flight, their registers and lanes; ``launch`` is a `simwarp.engine.state.Launch`."""

    executed: int
    tables: Any
    """What compiled code shares with the chunk, or None."""
    registers: list[Any]
    partial: dict[int, Any]
    bits: dict[int, Any]

    @property
    def launch(self) -> Any: ...
    @property
    def program(self) -> Any: ...
    @property
    def live(self) -> Mask: ...
    @property
    def mask(self) -> Mask: ...
    @property
    def order(self) -> Callable[[int], Any] | None: ...
    @property
    def products(self) -> Any: ...
    @property
    def copies(self) -> Any: ...
    @property
    def tiles(self) -> Any: ...
    @property
    def attendance(self) -> Any: ...
    @property
    def is_part(self) -> bool: ...
    @property
    def shared(self) -> Any: ...
    @property
    def local(self) -> Any: ...
    @property
    def warp(self) -> Table: ...
    @property
    def thread(self) -> Table: ...
    @property
    def shared_start(self) -> Table: ...
    @property
    def local_stride(self) -> int: ...
    @property
    def warps_per_block(self) -> int: ...

    def special(self, name: str, /) -> Any:
        """The value of a special register."""


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
    def launch(self) -> Any: ...
    @property
    def groups(self) -> Mapping[int, Group]: ...
    @property
    def barriers(self) -> Any: ...
    @property
    def parked(self) -> Mapping[int, Mask]: ...

    def enter(self, mask: Mask) -> None:
        """Make the lanes of ``mask`` the current group."""

    def spend(self, steps: int) -> None:
        """Subtract steps from the launch's budget."""

    def take_over(self, groups: Mapping[int, tuple[Mask, int, bool, int]]) -> None:
        """Replace the groups: their lanes, turns, whether they loop, and their rounds, by step."""
