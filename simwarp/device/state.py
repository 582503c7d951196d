"""The part of a device that arrays, images, graphs and streams use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from simwarp.device.graph import Graph
    from simwarp.device.streams import Stream
    from simwarp.memory import Memory


class Device(Protocol):
    """A simulated device; `simwarp.device.device.Device` is the class.

    ``default_stream`` is the stream of launches without one. While ``capturing`` is a graph, launches
    are added to it, not made.
    """

    capturing: Graph | None

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def default_stream(self) -> Stream: ...

    def launch(self, plan: Any, arrays: Sequence[Any], stream: Stream | None = None) -> None:
        """Launch a plan, in a stream or the default one."""

    def synchronize(self) -> None:
        """Run the deferred checks; all work is already done."""

    def end_overlaps(self) -> None:
        """Prevent later launches from overlapping earlier ones, which the host or a copy has waited for."""
