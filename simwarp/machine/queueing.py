"""Queueing of operations: their order, their accesses, and the conflicts between them.

Whether two operations are ordered is known when the later one is queued, so that is when conflicts are found.
They are reported when the operation starts; until then nothing wrong has happened.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy.typing as npt

from simwarp.machine.accesses import Access
from simwarp.machine.execution import Execution
from simwarp.machine.footprints import Footprint
from simwarp.machine.host import Host
from simwarp.machine.memory import DeviceMemory, TileLike, describe, footprint_of
from simwarp.machine.moves import CpuRoutineLike, Moves, nothing, on_cpu
from simwarp.machine.operations import Conflict, Operation, Stream
from simwarp.machine.order import Order
from simwarp.machine.topology import Kind, Route

_WORDS = "read", "write"


class Queueing:
    """Creates the operations of a machine; they move values only if ``values`` is set."""

    def __init__(self, order: Order, execution: Execution, host: Host, values: bool) -> None:
        self._order, self._execution, self._host, self._values = order, execution, host, values

    def operation(self, stream: Stream, name: str, moves: Moves) -> Operation:
        """Create an operation with the next number of a stream, without queueing it."""
        before = self._order.before(stream)
        stream.count += 1
        before[stream.number] = stream.count
        begin, finish = moves if self._values else nothing()
        return Operation(stream, stream.count, self._order.epoch, name, _caller(), begin, finish)

    def copy(self, stream: Stream, kind: Kind, tile: TileLike, moves: Moves, peer: int = -1) -> Operation:
        """Create a copy of a tile's bytes."""
        operation = self.operation(stream, f"copy {kind}", moves)
        operation.route = Route(kind, stream.device, peer)
        operation.nbytes = tile.rows * tile.columns * tile.dtype.itemsize
        return operation

    def cpu(self, stream: Stream, routine: CpuRoutineLike) -> Operation:
        """Create a routine of the host's cores, with its accesses."""
        operation = self.operation(stream, routine.name, on_cpu(routine))
        operation.operations = routine.operations
        for parts, writes in ((routine.reads, False), (routine.writes, True)):
            for matrix in parts:
                self.host(operation, matrix, self._host.part(matrix, f"a matrix of {routine.name}"), writes)
        return operation

    def add(self, operation: Operation) -> None:
        """Queue an operation whose accesses are all recorded."""
        self._execution.add(operation.stream, operation)

    def reads(self, operation: Operation, tile: TileLike) -> None:
        """Record that an operation reads a tile; note a conflict with another operation."""
        self.needs(operation, tile)
        self._access(operation, tile, False)

    def needs(self, operation: Operation, tile: TileLike) -> None:
        """Note that an operation reads a tile that it writes, too."""
        if self._values and not tile.memory.is_written(tile) and operation.conflict is None:
            operation.conflict = Conflict(describe(tile), "read", None)

    def writes(self, operation: Operation, tile: TileLike) -> None:
        """Record that an operation writes a tile; note a conflict with another operation."""
        if self._values:
            tile.memory.mark_written(tile)
        self._access(operation, tile, True)

    def _access(self, operation: Operation, tile: TileLike, writes: bool) -> None:
        memory: DeviceMemory = tile.memory
        access = Access(operation, footprint_of(tile), writes)
        other = memory.accesses.add(access, operation.stream.known.counts)
        if other is not None and operation.conflict is None:
            operation.conflict = _conflict(describe(tile), writes, other)

    def host(
        self, operation: Operation, matrix: npt.NDArray[Any], addresses: Footprint, writes: bool
    ) -> None:
        """Note that an operation reads or writes a host matrix."""
        access = Access(operation, addresses, writes)
        other = self._host.accesses.add(access, operation.stream.known.counts)
        if other is not None and operation.conflict is None:
            operation.conflict = _conflict(self._host.describe(matrix, addresses), writes, other)


def _conflict(name: str, writes: bool, other: Access) -> Conflict:
    return Conflict(name, _WORDS[writes], other.operation, _WORDS[other.writes])


def _caller() -> tuple[str, int]:
    """The file and line of the host program that called the machine."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("simwarp.machine."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
