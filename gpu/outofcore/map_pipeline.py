"""The pipeline of a layer that reads maps and writes one: copies in, routines and copies out overlap.

Bias, activation and its gradient are computed where the first map's piece was copied to. Pooling has a piece
of each map. The gradient of a bias stays on the device until it is complete.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy.typing as npt

from gpu.device_tensor import DeviceTensor
from gpu.machine import Event, Memory, Routine, Tile
from gpu.outofcore.maps import MapPlan, Parts
from gpu.outofcore.matrices import matrices_of, packed, planes_of, view_of
from gpu.outofcore.networks.routines import (
    ActivationGradient,
    AveragePoolGradient,
    BiasGradient,
    MaxPoolGradient,
    Pool,
)
from gpu.outofcore.pieces import Piece
from gpu.outofcore.pipeline import AHEAD, Queues
from gpu.outofcore.problem import FLOAT
from gpu.outofcore.routines import Finish, Move
from gpu.outofcore.workspace import aligned

Array = npt.NDArray[Any]
Given: TypeAlias = tuple[str, tuple[Tile, ...], tuple[Tile, ...], Any, float]
"""Name, reads, writes, shapes and operations of a routine."""


@dataclass(eq=False)
class _Buffer:
    """The place of a piece of each map, and the last operation that used it."""

    starts: dict[str, int]
    used: Event | None = None


class MapPipeline:
    """The work of one call on a machine's first device, in ``memory`` of ``plan.total`` bytes.

    ``arrays`` are the maps, of which the first and the result may be one array for bias and activation, and
    bias, if there is one. The gradient of a bias is two elements of float32 for each number.
    """

    def __init__(
        self, machine: Queues, plan: MapPlan, memory: Memory, arrays: Mapping[str, Array | DeviceTensor]
    ) -> None:
        self._machine, self._plan, self._map, self._memory = machine, plan, plan.map, memory
        self._homes = {name: x for name, x in arrays.items() if isinstance(x, DeviceTensor)}
        self._arrays = {name: x.outline() if isinstance(x, DeviceTensor) else x for name, x in arrays.items()}
        self._is_one = arrays[plan.map.reads[0]] is arrays["out"]
        self._loads, self._computes, self._stores = (machine.stream(0) for _ in range(3))
        self._buffers = deque[_Buffer]()
        start = plan.map.bias_bytes
        for _ in range(plan.depth):
            buffer = _Buffer({})
            for name, nbytes in plan.nbytes.items():
                buffer.starts[name] = start
                start += nbytes
            self._buffers.append(buffer)

    def work(self) -> Iterator[Event]:
        """Compute all pieces; yields the events that the host waits for."""
        of = self._map
        if of.has_bias and of.bias_bytes:
            bias = self._arrays["bias"]
            self._machine.copy_in(self._loads, bias[:, None], self._column(0, len(bias)))
            self._machine.wait(self._computes, self._machine.record(self._loads))
        queued: deque[Event] = deque()
        for parts in of.pieces(self._plan.sizes):
            self._buffers.rotate(-1)
            queued.append(self._step(parts))
            if len(queued) > AHEAD:
                yield queued.popleft()
        if of.is_sum:
            self._machine.wait(self._stores, self._machine.record(self._computes))
            sums = self._arrays["out"]
            self._machine.copy_out(self._stores, self._sums(0, len(sums) // 2), sums[:, None])
            queued.append(self._machine.record(self._stores))
        yield from queued

    def _step(self, parts: Parts) -> Event:
        """Queue the copies and routines of a piece; return the event behind its last operation."""
        of, buffer = self._map, self._buffers[0]
        for name in of.reads:
            if of.is_in_place and name == of.reads[0]:
                self._place(parts, buffer)
            elif name not in self._homes:
                self._load(name, parts[name], self._memory, buffer.starts[name], buffer)
        is_stored = not (of.is_sum or "out" in self._homes)
        if buffer.used is not None and is_stored:
            self._machine.wait(self._computes, buffer.used)
        self._machine.launch(self._computes, self._routine(parts, buffer))
        event = self._machine.record(self._computes)
        if is_stored:
            self._machine.wait(self._stores, event)
            view = self._view("out", parts["out"])
            for matrix, tile in packed(self._memory, buffer.starts["out"], matrices_of(view), of.dtype):
                self._machine.copy_out(self._stores, tile, matrix)
            event = self._machine.record(self._stores)
        buffer.used = event
        return event

    # ------------------------------------------------------------------------------------------ copies

    def _place(self, parts: Parts, buffer: _Buffer) -> None:
        """Queue the copy of the first map's piece to the place of the result."""
        name = self._map.reads[0]
        target = self._contiguous("out", parts["out"], buffer)
        if name not in self._homes:
            self._load(name, parts[name], target.memory, target.offset, buffer)
        elif not self._is_one:
            if buffer.used is not None and "out" not in self._homes:
                self._machine.wait(self._computes, buffer.used)
            self._machine.launch(self._computes, Move(self._contiguous(name, parts[name], buffer), target))

    def _load(self, name: str, piece: Piece, memory: Memory, start: int, buffer: _Buffer) -> None:
        """Queue the copy of a piece from the host, once its place is free."""
        if buffer.used is not None and memory is self._memory:
            self._machine.wait(self._loads, buffer.used)
        for matrix, tile in packed(memory, start, matrices_of(self._view(name, piece)), self._map.dtype):
            self._machine.copy_in(self._loads, matrix, tile)
        self._machine.wait(self._computes, self._machine.record(self._loads))

    # ---------------------------------------------------------------------------------------- routines

    def _routine(self, parts: Parts, buffer: _Buffer) -> Routine:
        """The routine of a piece."""
        of, operations = self._map, self._map.operations(parts)
        if of.is_in_place and not of.is_gradient:
            shape = self._view("out", parts["out"]).shape
            tile = self._contiguous("out", parts["out"], buffer)
            return Finish(
                of.name, of.layout, tile, shape, self._bias(parts["out"]), of.activation, operations
            )
        tiles = {name: self._planes(name, piece, buffer) for name, piece in parts.items()}
        shapes: Any = tuple(self._view(name, piece).shape for name, piece in parts.items())
        if of.is_sum:
            return self._sum(parts["gradient"], tiles["gradient"], shapes, operations)
        if of.activation:
            gradient = tiles["out"]
            return ActivationGradient(
                of.name, (gradient, tiles["y"]), (gradient,), (), operations, of.activation
            )
        reads, writes = tuple(tiles[name] for name in of.reads), (tiles["out"],)
        return self._pooling(parts, (of.name, reads, writes, shapes, operations))

    def _pooling(self, parts: Parts, given: Given) -> Routine:
        """The routine of pooling, or of its gradient."""
        stage, rows = self._map.stage, {name: piece.rows for name, piece in parts.items()}
        assert stage is not None
        written = rows["out"]
        assert written is not None
        if not self._map.is_gradient:
            assert rows["x"] is not None
            return Pool(stage.kind, *given[1:], stage, stage.window(rows["x"], written), written)
        outputs, read = rows["gradient"], rows.get("x")
        assert outputs is not None
        if read is None:
            return AveragePoolGradient(*given, stage, stage.window(written, outputs), outputs)
        skip = written.start - read.start
        return MaxPoolGradient(*given, stage, stage.window(read, outputs), skip, of_relu=False)

    def _sum(self, piece: Piece, tile: Tile, shapes: Any, operations: float) -> BiasGradient:
        """The sums of a piece's channels, added to those of the pieces before."""
        assert piece.rows is not None
        starts = piece.first.start == piece.rows.start == 0
        sums = self._sums(piece.channels.start, len(piece.channels))
        begin, elements = aligned(8 * self._map.images[1]), self._map.workspace // FLOAT.itemsize
        return BiasGradient(
            self._map.name,
            (tile,) if starts else (tile, sums),
            (sums,),
            shapes,
            operations,
            starts,
            workspace=Tile(self._memory, begin, elements, 1, elements, FLOAT) if elements else None,
        )

    # ------------------------------------------------------------------------------------------- tiles

    def _view(self, name: str, piece: Piece) -> Array:
        return view_of(self._arrays[name], piece, self._map.layout)

    def _contiguous(self, name: str, piece: Piece, buffer: _Buffer) -> Tile:
        """A piece as one column: in its buffer, or of a device tensor, which has no gaps."""
        view, home = self._view(name, piece), self._homes.get(name)
        if home is None:
            return self._column(buffer.starts[name], view.size)
        before = _address(view) - _address(self._arrays[name])
        return replace(self._column(home.offset + before, view.size), memory=home.memory)

    def _planes(self, name: str, piece: Piece, buffer: _Buffer) -> Tile:
        """A piece as a matrix whose columns are planes, in its buffer or where it lies."""
        at = "out" if self._map.is_in_place and name == self._map.reads[0] else name
        view = self._view(name, piece)
        if at in self._homes:
            [tile] = planes_of(self._homes[at], self._arrays[at], self._view(at, piece))
            return tile
        pixels, planes = math.prod(view.shape[2:]), math.prod(view.shape[:2])
        return Tile(self._memory, buffer.starts[at], pixels, planes, pixels, self._map.dtype)

    def _column(self, start: int, elements: int) -> Tile:
        return Tile(self._memory, start, elements, 1, elements, self._map.dtype)

    def _sums(self, first: int, count: int) -> Tile:
        """Sums of double precision, as two elements of float32 each."""
        return Tile(self._memory, 8 * first, 2 * count, 1, 2 * count, FLOAT)

    def _bias(self, piece: Piece) -> Tile | None:
        """The bias of a piece's channels."""
        if not self._map.has_bias:
            return None
        start, home = piece.channels.start * self._map.dtype.itemsize, self._homes.get("bias")
        tile = self._column(start, len(piece.channels))
        return replace(tile, memory=home.memory, offset=home.offset + start) if home else tile


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]
