"""The event stream of a simulated launch.

An observer overrides events; the executor looks once per launch for the overridden ones, so that the others
cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from simwarp.engine.chunk import Chunk, Mask
    from simwarp.engine.launch import Launch
    from simwarp.faults import KernelFault
    from simwarp.memory import Memory
    from simwarp.program.program import Step


@dataclass(frozen=True)
class WriteEvent:
    """A write to global memory.

    Attributes
    ----------
    chunk : Chunk
        The state at that moment; `Chunk.place` turns a lane into a place.
    lanes : (n,) int
        The writing lanes, numbered through the chunk.
    addresses : (n,) uint64
    values : (n,) of the written type
    register : str
        The register that held the values.
    """

    chunk: Chunk
    lanes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint64]
    values: npt.NDArray[Any]
    register: str


@dataclass(frozen=True)
class AccessEvent:
    """Lanes read or wrote memory.

    Attributes
    ----------
    chunk : Chunk
    step : Step
    kind : str
        "load", "store", "atomic" or "reduction".
    space : str
        "global", "shared", "local", "const" or "param"; of a generic address the space that it lies in.
    lanes : (n,) int
        The lanes, numbered through the chunk: 32 times the row, plus the lane; ascending.
    addresses : (n,) uint64
        Of shared memory the offset in the block's window, of local memory that in the thread's.
    width : int
        Bytes that each lane moves: those of a whole vector.
    """

    chunk: Chunk
    step: Step
    kind: str
    space: str
    lanes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint64]
    width: int


class Observer:
    """Base of all observers; every event does nothing here.

    Examples
    --------
    >>> class CountSteps(Observer):
    ...     steps = 0
    ...     def on_step(self, chunk, step, mask):
    ...         self.steps += 1
    >>> CountSteps().wants("on_step"), CountSteps().wants("on_write")
    (True, False)
    """

    def on_launch(self, launch: Launch) -> None:
        """A launch is about to begin."""

    def on_step(self, chunk: Chunk, step: Step, mask: Mask) -> None:
        """The lanes of ``mask``, those whose guard held, executed a step; its results are there."""

    def on_access(self, event: AccessEvent) -> None:
        """Lanes read or wrote memory."""

    def on_write(self, event: WriteEvent) -> None:
        """Lanes wrote to global memory."""

    def on_barrier(self, chunk: Chunk, mask: Mask) -> None:
        """The lanes of ``mask`` passed a barrier of their block."""

    def on_fault(self, fault: KernelFault) -> None:
        """A fault was found; unless checks only collect it, it is raised next."""

    def on_end(self, launch: Launch) -> None:
        """A launch has ended, and nothing stopped it."""

    def wants(self, event: str) -> bool:
        """Whether this observer overrides an event."""
        return getattr(type(self), event) is not getattr(Observer, event)


class OrderedAccess(NamedTuple):
    """Lanes have read global or shared memory, or are about to write or to update it.

    Attributes
    ----------
    kind : str
        "read", "write" or "atomic".
    lanes : (n,) int64
        Numbered through the chunk.
    addresses : (n,) uint64
        In ``memory``, or outside every allocation.
    width : int
        Bytes of each, 1 to 16.
    data : (n,) of that width, or None
        The written values.
    """

    chunk: Chunk
    step: Step
    kind: str
    memory: Memory
    lanes: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint64]
    width: int
    data: npt.NDArray[Any] | None = None


class OrderListener(Protocol):
    """Receives accesses to global and shared memory, and the events that order them, as `simwarp.races`.

    Lanes are numbered through the chunk; masks are (warps, 32) bool.

    Attributes
    ----------
    watched : set of int
        The numbers of the loads that `access` wants; it may grow.
    """

    watched: set[int]

    def enter(self, chunk: Chunk, /) -> None:
        """A chunk begins; the one before it has ended."""

    def access(self, access: OrderedAccess, /) -> None:
        """Lanes access memory."""

    def block_barrier(
        self, chunk: Chunk, mask: Mask, whole: bool, arrived: Mask | None, mixed: bool, /
    ) -> None:
        """Lanes pass a barrier of their block; others may only have arrived at it."""

    def block_arrive(self, chunk: Chunk, mask: Mask, /) -> None:
        """Lanes arrive at a barrier that they do not wait at."""

    def warp_barrier(self, chunk: Chunk, mask: Mask, members: Any, /) -> None:
        """Lanes pass ``bar.warp.sync``, each with its own word of members."""

    def fence(self, chunk: Chunk, mask: Mask, scope: str, /) -> None:
        """Lanes execute a fence of scope "cta", "cluster", "gpu" or "sys"."""

    def cluster_arrive(self, chunk: Chunk, mask: Mask, /) -> None:
        """Lanes arrive at the barrier of their cluster."""

    def cluster_wait(self, chunk: Chunk, mask: Mask, /) -> None:
        """Lanes pass the barrier of their cluster."""
