"""The event stream of a simulated launch.

An observer overrides the events it wants; the executor asks once per launch which ones these are,
so that an event nobody wants costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from simwarp.ptx.chunk import Chunk
    from simwarp.ptx.program import Step


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


class Observer:
    """Base of all observers; every event does nothing here.

    Examples
    --------
    >>> class CountSteps(Observer):
    ...     steps = 0
    ...     def on_fetch(self, chunk, step):
    ...         self.steps += 1
    >>> CountSteps().wants("on_fetch"), CountSteps().wants("on_write")
    (True, False)
    """

    def on_fetch(self, chunk: Chunk, step: Step) -> None:
        """A group of lanes is about to execute a step."""

    def on_write(self, event: WriteEvent) -> None:
        """Lanes wrote to global memory."""

    def wants(self, event: str) -> bool:
        """Whether this observer overrides an event."""
        return getattr(type(self), event) is not getattr(Observer, event)
