"""The pipeline of a layer that reads one map and writes one: copies in, routines and copies out overlap.

Bias and activation are computed where the piece of x was copied to. Pooling has a piece of each map.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from gpu.device_tensor import DeviceTensor
from gpu.machine import Event, Memory, Tile
from gpu.outofcore.maps import MapPlan
from gpu.outofcore.matrices import matrices_of, packed, planes_of, view_of
from gpu.outofcore.networks.routines import Pool
from gpu.outofcore.pieces import Piece
from gpu.outofcore.pipeline import AHEAD, Queues
from gpu.outofcore.routines import Finish, Move

Array = npt.NDArray[Any]


@dataclass(eq=False)
class _Buffer:
    """The place of a piece of each map, and the last operation that used it."""

    x: int
    y: int
    used: Event | None = None


class MapPipeline:
    """The work of one call on a machine's first device, in ``memory`` of ``plan.total`` bytes.

    ``arrays`` are x and y, which may be one array for bias and activation, and bias, if there is one.
    """

    def __init__(
        self, machine: Queues, plan: MapPlan, memory: Memory, arrays: Mapping[str, Array | DeviceTensor]
    ) -> None:
        self._machine, self._plan, self._map, self._memory = machine, plan, plan.map, memory
        self._homes = {name: x for name, x in arrays.items() if isinstance(x, DeviceTensor)}
        self._arrays = {name: x.outline() if isinstance(x, DeviceTensor) else x for name, x in arrays.items()}
        self._is_in_place = arrays["x"] is arrays["y"]
        self._loads, self._computes, self._stores = (machine.stream(0) for _ in range(3))
        starts = (self._map.bias_bytes + number * sum(plan.nbytes) for number in range(plan.depth))
        self._buffers = deque(_Buffer(start, start + plan.nbytes[0]) for start in starts)

    def work(self) -> Iterator[Event]:
        """Compute all pieces; yields the events that the host waits for."""
        if self._map.bias_bytes:
            bias = self._arrays["bias"]
            self._machine.copy_in(self._loads, bias[:, None], self._column(0, len(bias)))
            self._machine.wait(self._computes, self._machine.record(self._loads))
        queued: deque[Event] = deque()
        for x, y in self._map.pieces(self._plan.sizes):
            self._buffers.rotate(-1)
            queued.append(self._pooled(x, y) if self._map.stage else self._finished(x, y))
            if len(queued) > AHEAD:
                yield queued.popleft()
        yield from queued

    def _finished(self, x: Piece, y: Piece) -> Event:
        """Queue bias and activation of a piece, in its buffer or where the result lies."""
        buffer, view = self._buffers[0], self._view(y)
        tile = self._tile(y) if "y" in self._homes else self._column(buffer.y, view.size)
        if "x" not in self._homes:
            self._load(x, tile.memory, tile.offset, buffer)
        else:
            self._wait(buffer)
            if not self._is_in_place:
                self._machine.launch(self._computes, Move(self._tile(x), tile))
        of = self._map
        finish = Finish(of.name, of.layout, tile, view.shape, self._bias(y), of.activation, of.operations(y))
        self._machine.launch(self._computes, finish)
        return self._store(y, buffer)

    def _pooled(self, x: Piece, y: Piece) -> Event:
        """Queue the pooling of a piece."""
        buffer, stage = self._buffers[0], self._map.stage
        assert stage is not None
        assert x.rows is not None
        assert y.rows is not None
        if "x" not in self._homes:
            self._load(x, self._memory, buffer.x, buffer)
        else:
            self._wait(buffer)
        shapes: Any = (self._view(x).shape, self._view(y).shape)
        reads, writes = self._planes(x, buffer.x), self._planes(y, buffer.y)
        operations, window = self._map.operations(y), stage.window(x.rows, y.rows)
        self._machine.launch(
            self._computes, Pool(stage.kind, (reads,), (writes,), shapes, operations, stage, window, y.rows)
        )
        return self._store(y, buffer)

    # ------------------------------------------------------------------------------------------ copies

    def _load(self, x: Piece, memory: Memory, start: int, buffer: _Buffer) -> None:
        """Queue the copy of a piece of x from the host, once its place is free."""
        if buffer.used is not None and memory is self._memory:
            self._machine.wait(self._loads, buffer.used)
        for matrix, tile in packed(memory, start, matrices_of(self._view(x)), self._map.dtype):
            self._machine.copy_in(self._loads, matrix, tile)
        self._machine.wait(self._computes, self._machine.record(self._loads))
        self._wait(buffer)

    def _wait(self, buffer: _Buffer) -> None:
        """Hold routines back until a buffer's last result has been copied."""
        if buffer.used is not None and "y" not in self._homes:
            self._machine.wait(self._computes, buffer.used)

    def _store(self, y: Piece, buffer: _Buffer) -> Event:
        """Queue the copy of a finished piece to the host; return the event behind its last operation."""
        event = self._machine.record(self._computes)
        if "y" not in self._homes:
            self._machine.wait(self._stores, event)
            for matrix, tile in packed(self._memory, buffer.y, matrices_of(self._view(y)), self._map.dtype):
                self._machine.copy_out(self._stores, tile, matrix)
            event = self._machine.record(self._stores)
        buffer.used = event
        return event

    # ------------------------------------------------------------------------------------------- tiles

    def _view(self, piece: Piece) -> Array:
        return view_of(self._arrays[piece.tensor], piece, self._map.layout)

    def _tile(self, piece: Piece) -> Tile:
        """A piece of a device tensor, which has no gaps, as one column."""
        home, whole = self._homes[piece.tensor], self._arrays[piece.tensor]
        view = self._view(piece)
        before = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        return replace(self._column(home.offset + before, view.size), memory=home.memory)

    def _planes(self, piece: Piece, start: int) -> Tile:
        """A piece as a matrix whose columns are planes, in its buffer or where it lies."""
        view = self._view(piece)
        if piece.tensor in self._homes:
            [tile] = planes_of(self._homes[piece.tensor], self._arrays[piece.tensor], view)
            return tile
        pixels, planes = math.prod(view.shape[2:]), math.prod(view.shape[:2])
        return Tile(self._memory, start, pixels, planes, pixels, self._map.dtype)

    def _column(self, start: int, elements: int) -> Tile:
        return Tile(self._memory, start, elements, 1, elements, self._map.dtype)

    def _bias(self, y: Piece) -> Tile | None:
        """The bias of a piece's channels."""
        if not self._map.has_bias:
            return None
        start, home = y.channels.start * self._map.dtype.itemsize, self._homes.get("bias")
        tile = self._column(start, len(y.channels))
        return replace(tile, memory=home.memory, offset=home.offset + start) if home else tile
