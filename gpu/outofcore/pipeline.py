"""The pipeline of a call: copies in, routines and copies out, each in its own stream.

Events order them: a routine waits for its pieces, a copy for the buffer that it fills.
Source: ooc_cuDNN, section 3.2.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu.device_tensor import DeviceTensor
from gpu.machine import Event, Memory, Routine, Stream, Tile
from gpu.outofcore.halo import offset
from gpu.outofcore.matrices import matrices_of, packed, planes_of, tiles_of, view_of
from gpu.outofcore.model import Buffers
from gpu.outofcore.networks.routines import Pool
from gpu.outofcore.on_host import Window
from gpu.outofcore.pieces import Piece, Task
from gpu.outofcore.problem import Problem
from gpu.outofcore.routines import Move, TileRoutine
from gpu.outofcore.slots import Slot, Slots
from gpu.outofcore.workspace import ALIGNMENT

Array = npt.NDArray[Any]
AHEAD = 64
"""Routines that are queued before the host waits for the first of them."""


class Queues(Protocol):
    """The part of a `gpu.machine.Machine` that the pipeline uses."""

    def stream(self, device: int) -> Stream:
        """Create a stream on a device."""
        ...

    def copy_in(self, stream: Stream, source: Array, target: Tile) -> None:
        """Queue a copy from host to device."""

    def copy_out(self, stream: Stream, source: Tile, target: Array) -> None:
        """Queue a copy from device to host."""

    def launch(self, stream: Stream, routine: Routine) -> None:
        """Queue a tile routine."""

    def record(self, stream: Stream) -> Event:
        """Record an event behind all work now in the stream."""
        ...

    def wait(self, stream: Stream, event: Event) -> None:
        """Hold a stream back until an event has happened."""


class Pipeline:
    """The work of one call on a machine's first device, in ``memory`` of ``buffers.total`` bytes.

    ``arrays`` are x, w and y, or with pooling its result z in place of y; and bias, if there is one.
    """

    def __init__(
        self,
        machine: Queues,
        problem: Problem,
        buffers: Buffers,
        memory: Memory,
        arrays: Mapping[str, Array | DeviceTensor],
    ) -> None:
        self._machine, self._problem, self._memory = machine, problem, memory
        self._homes = {name: x for name, x in arrays.items() if isinstance(x, DeviceTensor)}
        self._arrays = {name: x.outline() if isinstance(x, DeviceTensor) else x for name, x in arrays.items()}
        if problem.pool:  # the result y is never stored whole: only its pooled result is
            self._arrays["y"] = DeviceTensor(memory, problem.shape("y"), problem.dtype).outline()
        self._loads, self._computes, self._stores = (machine.stream(0) for _ in range(3))
        self._slots: dict[str, Slots] = {}
        start = buffers.bias
        for tensor, count in buffers.counts.items():
            if count:
                reuses = buffers.reuses or tensor not in problem.form.operands
                self._slots[tensor] = Slots(start, count, buffers.nbytes[tensor], reuses=reuses)
            start += count * buffers.nbytes[tensor]
        self._workspace = self._bytes(start, buffers.workspace) if buffers.workspace else None
        self._queued: deque[Event] = deque()

    def work(self, tasks: Iterator[Task]) -> Iterator[Event]:
        """Compute all tasks; yields the events that the host waits for."""
        if self._problem.has_bias and "bias" not in self._homes:
            self._load_bias()
        for task in tasks:
            slot = self._emptied(task.output)
            for number, step in enumerate(task.steps):
                self._queued.append(self._compute(task, slot, number, step))
                if len(self._queued) > AHEAD:
                    yield self._queued.popleft()
            if task.pooled:
                slot = self._pool(task, task.pooled)
            self._store(task.pooled or task.output, slot)
        yield self._machine.record(self._stores)

    def routines(self, tasks: Iterable[Task]) -> Iterator[TileRoutine]:
        """The routines of the tasks; one of each kind, where only buffers differ."""
        seen: set[object] = set()
        for task in tasks:
            for number, step in enumerate(task.steps):
                slots = (self._slots.get(piece.tensor) for piece in (*step, task.output))
                tiles = self._tiles(task, tuple(one and one.first for one in slots), number)
                kind = kind_of(self._problem, task, number), *(tile.offset % ALIGNMENT for tile in tiles)
                if kind not in seen:
                    seen.add(kind)
                    yield self._routine(task, tiles, number)

    # ------------------------------------------------------------------------------------------- steps

    def _compute(self, task: Task, output: Slot | None, number: int, step: tuple[Piece, Piece]) -> Event:
        """Queue one term of an output piece, with the copies that it needs; return the event behind it."""
        slots = *(self._load(piece) for piece in step), output
        for slot in slots[:2]:
            self._wait(self._computes, slot and slot.filled)
        self._machine.launch(self._computes, self._routine(task, self._tiles(task, slots, number), number))
        used = self._machine.record(self._computes)
        for slot in slots:
            if slot is not None:
                slot.used = used
        return used

    def _emptied(self, piece: Piece) -> Slot | None:
        """The next buffer for a piece that routines write; None if they write it in place."""
        slots = self._slots.get(piece.tensor)
        if slots is None:
            return None
        slot = slots.next(piece)
        self._wait(self._computes, slot.used)
        return slot

    def _pool(self, task: Task, pooled: Piece) -> Slot | None:
        """Queue the pooling of a finished piece of the convolution; return the buffer of its result."""
        slot = self._emptied(pooled)
        for routine in self._pools(task, pooled, slot):
            self._machine.launch(self._computes, routine)
        if slot is not None:
            slot.used = self._machine.record(self._computes)
        return slot

    def _load(self, piece: Piece) -> Slot | None:
        """The buffer with an operand's piece, copied in if necessary; None if the piece is read in place."""
        slots = self._slots.get(piece.tensor)
        if slots is None:
            return None
        slot = slots.find(piece)
        if slot is not None:
            return slot
        slot = slots.next(piece)
        if piece.tensor in self._homes:  # earlier uses of the buffer are in the same stream
            for home, tile in zip(self._home(piece), self._parts(piece, slot), strict=True):
                self._machine.launch(self._computes, Move(home, tile))
            slot.filled = None
            return slot
        self._wait(self._loads, slot.used)
        for matrix, tile in zip(self._matrices(piece), self._parts(piece, slot), strict=True):
            self._machine.copy_in(self._loads, matrix, tile)
        slot.filled = self._machine.record(self._loads)
        return slot

    def _store(self, piece: Piece, slot: Slot | None) -> None:
        """Queue the copy of a finished piece from its buffer to the result; do nothing if it is in place."""
        if slot is None:
            return
        if piece.tensor in self._homes:
            for tile, home in zip(self._parts(piece, slot), self._home(piece), strict=True):
                self._machine.launch(self._computes, Move(tile, home))
            return
        self._wait(self._stores, slot.used)
        for tile, matrix in zip(self._parts(piece, slot), self._matrices(piece), strict=True):
            self._machine.copy_out(self._stores, tile, matrix)
        slot.used = self._machine.record(self._stores)

    def _load_bias(self) -> None:
        """Copy the bias to the device, before everything else."""
        bias = self._arrays["bias"]
        self._machine.copy_in(self._loads, bias[:, None], self._column(0, len(bias)))
        self._machine.wait(self._computes, self._machine.record(self._loads))

    def _wait(self, stream: Stream, event: Event | None) -> None:
        if event is not None:
            self._machine.wait(stream, event)

    # ------------------------------------------------------------------------------------------- tiles

    def _matrices(self, piece: Piece) -> Iterator[Array]:
        """The host matrices that a piece is copied as."""
        return matrices_of(self._view(piece))

    def _home(self, piece: Piece) -> Iterator[Tile]:
        """The matrices of a piece in its device tensor."""
        tensor = piece.tensor
        return tiles_of(self._homes[tensor], self._arrays[tensor], self._view(piece))

    def _parts(self, piece: Piece, slot: Slot) -> Iterator[Tile]:
        """The matrices of a piece in its buffer, one behind another."""
        matrices, dtype = self._matrices(piece), self._problem.dtype
        return (tile for _, tile in packed(self._memory, slot.offset, matrices, dtype))

    def _tiles(self, task: Task, slots: tuple[Slot | None, ...], number: int) -> tuple[Tile, ...]:
        """The pieces of one term as tiles: in their buffers, or in place."""
        return tuple(
            self._column(slot.offset, self._view(piece).size) if slot else next(self._home(piece))
            for piece, slot in zip((*task.steps[number], task.output), slots, strict=True)
        )

    def _view(self, piece: Piece) -> Array:
        """A piece as a view of its array; the view of a device tensor has only addresses to give."""
        return view_of(self._arrays[piece.tensor], piece, self._problem.layout)

    def _column(self, start: int, elements: int) -> Tile:
        """A one-column tile of ``elements`` elements at byte ``start`` of the call's device memory."""
        return Tile(self._memory, start, elements, 1, elements, self._problem.dtype)

    def _bytes(self, start: int, count: int) -> Tile:
        """A one-column tile of ``count`` bytes at byte ``start`` of the call's device memory."""
        return Tile(self._memory, start, count, 1, count, np.dtype(np.uint8))

    def _routine(self, task: Task, tiles: tuple[Tile, ...], number: int) -> TileRoutine:
        """The tile routine that adds term ``number`` to a task's output."""
        problem, is_last = self._problem, number == len(task.steps) - 1
        pieces = (*task.steps[number], task.output)
        shapes = [self._view(piece).shape for piece in pieces]
        first, second, output = tiles
        of = {piece.tensor: piece for piece in pieces}
        return TileRoutine(
            problem.routine,
            window_of(problem, of["x"], of["w"], of["y"]),
            problem.layout,
            (first, second),
            output,
            (shapes[0], shapes[1], shapes[2]),
            updates=number > 0,
            bias=self._bias(of["y"]) if problem.has_bias and is_last else None,
            activation=problem.activation if is_last else None,
            operations=operations_of(problem, of["w"], of["y"]),
            tf32=problem.tf32,
            workspace=self._workspace,
            transforms=problem.transforms,
        )

    def _pools(self, task: Task, pooled: Piece, slot: Slot | None) -> Iterator[Pool]:
        """Pooling routines of a piece: one for all its images, or one per image."""
        stage, source = self._problem.pool, self._slots["y"].find(task.output)
        assert stage is not None
        assert source is not None
        assert task.output.rows is not None
        assert pooled.rows is not None
        (_, _, *size), view = self._view(task.output).shape, self._view(pooled)
        (images, channels, *result), pixels = view.shape, math.prod(size)
        if slot is None:
            targets = [*planes_of(self._homes["z"], self._arrays["z"], view)]
        else:
            targets = [replace(self._column(slot.offset, math.prod(result)), columns=images * channels)]
        images //= len(targets)
        for number, target in enumerate(targets):
            start = number * images * channels * pixels * self._problem.dtype.itemsize
            planes = replace(self._column(source.offset + start, pixels), columns=images * channels)
            yield Pool(
                stage.kind,
                (planes,),
                (target,),
                ((images, channels, *size), (images, channels, *result)),
                float(math.prod((images, channels, *result, *stage.filters[2:]))),
                stage,
                stage.window(task.output.rows, pooled.rows),
                pooled.rows,
            )

    def _bias(self, output: Piece) -> Tile:
        """The tile of the bias for the filters of an output piece."""
        start, home = output.channels.start * self._problem.dtype.itemsize, self._homes.get("bias")
        tile = self._column(start, len(output.channels))
        return replace(tile, memory=home.memory, offset=home.offset + start) if home else tile


def kind_of(problem: Problem, task: Task, number: int) -> object:
    """A key for routines that differ only in their buffers, their bias and their activation."""
    pieces = (*task.steps[number], task.output)
    of = {piece.tensor: piece for piece in pieces}
    sizes = tuple((len(one.first), len(one.channels), len(one.rows or ())) for one in pieces)
    return sizes, window_of(problem, of["x"], of["w"], of["y"]), number > 0


def window_of(problem: Problem, x: Piece, w: Piece, y: Piece) -> Window:
    """The padding and sizes of the convolution of one piece of x with one of w."""
    plane = problem.plane
    assert x.rows is not None
    assert y.rows is not None
    return Window(
        (offset(plane, x.rows, y.rows), plane.pad_left),
        (plane.stride_h, plane.stride_w),
        (plane.dilation_h, plane.dilation_w),
        len(x.channels) // len(w.channels),
    )


def operations_of(problem: Problem, w: Piece, y: Piece) -> float:
    """Floating-point operations of pieces, taps outside the images included."""
    assert y.rows is not None
    outputs = len(y.first) * len(y.channels) * len(y.rows) * problem.plane.out_width
    return 2.0 * outputs * len(w.channels) * problem.plane.filter_height * problem.plane.filter_width
