"""The pipeline of a call: copies in, routines and copies out, each kind in a stream of its own.

Events order them: a routine waits for its pieces, a copy for the buffer that it fills.
Source: ooc_cuDNN, section 3.2.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu.machine import Event, Memory, Routine, Stream, Tile
from gpu.outofcore.halo import offset
from gpu.outofcore.matrices import matrices_of, view_of
from gpu.outofcore.model import TENSORS, Buffers
from gpu.outofcore.on_host import Window
from gpu.outofcore.pieces import Piece, Task
from gpu.outofcore.problem import Problem
from gpu.outofcore.routines import TileRoutine
from gpu.outofcore.slots import Slot, Slots

Array = npt.NDArray[Any]
AHEAD = 64
"""Routines that are queued before the host waits for the first of them."""


class Queues(Protocol):
    """What the pipeline uses of a `gpu.machine.Machine`."""

    def stream(self, device: int) -> Stream:
        """A new stream."""
        ...

    def copy_in(self, stream: Stream, source: Array, target: Tile) -> None:
        """Queue a copy to the device."""

    def copy_out(self, stream: Stream, source: Tile, target: Array) -> None:
        """Queue a copy to the host."""

    def launch(self, stream: Stream, routine: Routine) -> None:
        """Queue a routine."""

    def record(self, stream: Stream) -> Event:
        """An event behind all work that the stream has now."""
        ...

    def wait(self, stream: Stream, event: Event) -> None:
        """Hold a stream back until an event has happened."""


class Pipeline:
    """The work of one call on a machine's first device.

    Parameters
    ----------
    machine : Queues
    problem : Problem
    buffers : Buffers
    memory : Memory
        Of ``buffers.total`` bytes.
    arrays : mapping of str to ndarray
        x, w, y and, if there is one, bias.
    """

    def __init__(
        self, machine: Queues, problem: Problem, buffers: Buffers, memory: Memory, arrays: Mapping[str, Array]
    ) -> None:
        self._machine, self._problem, self._memory, self._arrays = machine, problem, memory, arrays
        self._loads, self._computes, self._stores = (machine.stream(0) for _ in range(3))
        self._slots: dict[str, Slots] = {}
        start = buffers.bias
        for tensor in TENSORS:
            self._slots[tensor] = Slots(start, buffers.counts[tensor], buffers.nbytes[tensor])
            start += buffers.counts[tensor] * buffers.nbytes[tensor]
        self._workspace = self._bytes(start, buffers.workspace) if buffers.workspace else None
        self._queued: deque[Event] = deque()

    def work(self, tasks: Iterator[Task]) -> Iterator[Event]:
        """Compute all tasks; yields the events that the host waits for."""
        if self._problem.has_bias:
            self._load_bias()
        for task in tasks:
            slot = self._slots[task.output.tensor].next(task.output)
            self._wait(self._computes, slot.used)
            for number, step in enumerate(task.steps):
                self._queued.append(self._compute(task, slot, number, step))
                if len(self._queued) > AHEAD:
                    yield self._queued.popleft()
            self._store(task.output, slot)
        yield self._machine.record(self._stores)

    def routines(self, tasks: Iterable[Task]) -> Iterator[TileRoutine]:
        """The routines of the tasks, of several that differ only in their buffers the first."""
        slots = {tensor: self._slots[tensor].first for tensor in TENSORS}
        seen: set[object] = set()
        for task in tasks:
            for number, step in enumerate(task.steps):
                kind = kind_of(self._problem, task, number)
                if kind not in seen:
                    seen.add(kind)
                    pieces = (*step, task.output)
                    yield self._routine(task, tuple(slots[piece.tensor] for piece in pieces), number)

    # ------------------------------------------------------------------------------------------- steps

    def _compute(self, task: Task, output: Slot, number: int, step: tuple[Piece, Piece]) -> Event:
        """Queue one term of a piece of the output, with the copies that it needs; the event behind it."""
        slots = [self._load(piece) for piece in step]
        for slot in slots:
            self._wait(self._computes, slot.filled)
        self._machine.launch(self._computes, self._routine(task, (*slots, output), number))
        used = self._machine.record(self._computes)
        for slot in (*slots, output):
            slot.used = used
        return used

    def _load(self, piece: Piece) -> Slot:
        """The buffer of an operand's piece, which is filled if no buffer holds it."""
        slots = self._slots[piece.tensor]
        slot = slots.find(piece)
        if slot is None:
            slot = slots.next(piece)
            self._wait(self._loads, slot.used)
            for tile, matrix in self._matrices(piece, slot):
                self._machine.copy_in(self._loads, matrix, tile)
            slot.filled = self._machine.record(self._loads)
        return slot

    def _store(self, piece: Piece, slot: Slot) -> None:
        """Queue the copy of a finished piece to the host."""
        self._wait(self._stores, slot.used)
        for tile, matrix in self._matrices(piece, slot):
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

    def _matrices(self, piece: Piece, slot: Slot) -> Iterator[tuple[Tile, Array]]:
        """The matrices of a piece on the host, and their tiles in its buffer, one behind the other."""
        start = slot.offset
        for matrix in matrices_of(self._view(piece)):
            rows, columns = matrix.shape
            yield Tile(self._memory, start, rows, columns, rows, matrix.dtype), matrix
            start += matrix.nbytes

    def _view(self, piece: Piece) -> Array:
        """The elements of a piece on the host."""
        return view_of(self._arrays[piece.tensor], piece, self._problem.layout)

    def _column(self, start: int, elements: int) -> Tile:
        """Elements of the device's memory."""
        return Tile(self._memory, start, elements, 1, elements, self._problem.dtype)

    def _bytes(self, start: int, count: int) -> Tile:
        """Bytes of the device's memory."""
        return Tile(self._memory, start, count, 1, count, np.dtype(np.uint8))

    def _routine(self, task: Task, slots: tuple[Slot, ...], number: int) -> TileRoutine:
        """The routine of one term."""
        problem, is_last = self._problem, number == len(task.steps) - 1
        pieces = (*task.steps[number], task.output)
        shapes = [self._view(piece).shape for piece in pieces]
        first, second, output = (
            self._column(slot.offset, math.prod(shape)) for slot, shape in zip(slots, shapes, strict=True)
        )
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

    def _bias(self, output: Piece) -> Tile:
        """The bias of a piece's filters."""
        return self._column(output.channels.start * self._problem.dtype.itemsize, len(output.channels))


def kind_of(problem: Problem, task: Task, number: int) -> object:
    """What routines have in common that differ only in their buffers, their bias and their activation."""
    pieces = (*task.steps[number], task.output)
    of = {piece.tensor: piece for piece in pieces}
    sizes = tuple((len(one.first), len(one.channels), len(one.rows or ())) for one in pieces)
    return sizes, window_of(problem, of["x"], of["w"], of["y"]), number > 0


def window_of(problem: Problem, x: Piece, w: Piece, y: Piece) -> Window:
    """The convolution of pieces."""
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
