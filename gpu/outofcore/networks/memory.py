"""The memory of a phase's tensors and parameters: tiles of the device, matrices of the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu.machine import Event, Memory, Tile
from gpu.outofcore.networks.phases import ITEM, LABELS, LOSS, Key, Phase, Piece
from gpu.outofcore.networks.planned import Parameter, Planned
from gpu.outofcore.workspace import aligned

Array = npt.NDArray[Any]
FLOAT = np.dtype(np.float32)
INT = np.dtype(np.int32)
DOUBLE = np.dtype(np.float64)


@dataclass(eq=False)
class Buffer:
    """A buffer of the device: its last copy in, routine and copy out."""

    offset: int
    filled: Event | None = None
    computed: Event | None = None
    stored: Event | None = None


class Held(NamedTuple):
    """Contiguous rows of images in device memory."""

    memory: Memory
    offset: int
    images: int
    channels: int
    rows: range
    width: int

    def tile(self, rows: range) -> Tile:
        """Rows of the tensor as a tile, one column for each image and channel."""
        start = self.offset + (rows.start - self.rows.start) * self.width * ITEM
        count, apart = len(rows) * self.width, len(self.rows) * self.width
        return Tile(self.memory, start, count, self.images * self.channels, apart, FLOAT)

    def column(self) -> Tile:
        """All elements of the tensor as a tile with one column."""
        return _column(self.memory, self.offset, self.images * self.channels * len(self.rows) * self.width)

    def columns(self) -> Tile:
        """One-pixel images as a tile, one column of channels for each image."""
        return Tile(self.memory, self.offset, self.channels, self.images, self.channels, FLOAT)

    def shape(self, rows: range) -> tuple[int, int, int, int]:
        """The shape (images, channels, rows, width) of a range of the rows."""
        return self.images, self.channels, len(rows), self.width


class Space:
    """The device memory of one phase; ``index`` is the number of its block in the slab."""

    def __init__(self, plan: Planned, phase: Phase, index: int, memory: Memory) -> None:
        self._plan, self._phase, self._memory = plan, phase, memory
        self._base = plan.device.offsets[index]
        loaded, size = plan.loaded(phase)
        self._buffers = {
            at: Buffer(self._base + size + offset) for at, offset in phase.buffers.offsets.items()
        }
        self.workspace: Tile | None = None
        """Memory for routines of GPUs beside their tiles."""
        if phase.workspace:
            self.workspace = _column(
                memory, self._base + size + phase.buffers.nbytes, phase.workspace // FLOAT.itemsize
            )
        self._depths = {key: copy + 1 for key, copy in sorted(phase.buffers.offsets)}
        self.loaded: Mapping[str, Parameter] = loaded
        self.parameters, self._start = loaded, self._base
        stages = plan.network.stages
        self._norms = {stage.name: stage.number for stage in stages if stage.kind == "batch_norm"}
        if plan.resident:
            self.parameters = plan.parameters(tuple(plan.network.parameters))[0]
            self._start = plan.device.offsets["parameters"]

    def buffer(self, key: Key, number: int) -> Buffer | None:
        """The buffer of a tensor for a piece; None for a tensor that stays on the device."""
        return self._buffers[key, number % self._depths[key]] if key in self._depths else None

    def copied(self, key: Key, number: int) -> Buffer:
        """The device buffer of a tensor that is copied from or to the host."""
        buffer = self.buffer(key, number)
        assert buffer is not None
        return buffer

    def tile(self, key: Key, piece: Piece, number: int, rows: range) -> Tile:
        """A tile of a piece: rows of a tensor, the labels, or the losses."""
        if key.kind in "xg":
            return self.held(key, piece, number).tile(rows)
        count = len(piece.images)
        dtype = INT if key == LABELS else DOUBLE
        return Tile(self._memory, self.copied(key, number).offset, count, 1, count, dtype)

    def held(self, key: Key, piece: Piece, number: int) -> Held:
        """The part of a tensor that is on the device for a piece."""
        channels, height, width = self._plan.network.shape(key.tensor)
        images = len(piece.images)
        if (buffer := self.buffer(key, number)) is None:
            start = self._plan.device.offsets[self._phase.storage(key)]
            start += piece.images.start * channels * height * width * ITEM
            return Held(self._memory, start, images, channels, range(height), width)
        rows = (piece.strip.held if key.kind == "x" else piece.strip.gradients)[key.tensor]
        return Held(self._memory, buffer.offset, images, channels, rows, width)

    def moments(self, stage: int) -> tuple[Tile, Tile, Tile, Tile]:
        """Tiles of a batch normalization: sums, gradients of weight and bias, the weight before the step."""
        channels = self._plan.network.shape(stage)[0]
        start = self._plan.device.offsets["moments"] + self._plan.moments[0][stage]
        sums, *others = (
            _column(self._memory, start + 2 * ITEM * channels * at, 2 * channels * size)
            for at, size in ((0, 2), (2, 1), (3, 1), (4, 1))
        )
        return sums, others[0], others[1], others[2]

    def parameter(self, name: str) -> tuple[Tile, Tile, Tile]:
        """Tiles of a parameter, its velocity, and its gradient, which has two elements per number."""
        one = self.parameters[name]
        offsets, sizes = (one.w, one.velocity, one.gradient), (one.elements, one.elements, 2 * one.elements)
        w, velocity, gradient = (
            _column(self._memory, self._start + offset, size)
            for offset, size in zip(offsets, sizes, strict=True)
        )
        number = self._norms.get(name.partition(".")[0])
        if number is not None:  # the next phase reads the gradients, too
            gradient = self.moments(number)[1 if name.endswith(".w") else 2]
        return w, velocity, gradient


def _column(memory: Memory, offset: int, elements: int) -> Tile:
    return Tile(memory, offset, elements, 1, elements, FLOAT)


@dataclass
class HostMemory:
    """The host's slab, of bytes.

    Behind the tensors are two states of all parameters and velocities: that before a step, number
    ``current``, and that after it. So a step that fails leaves the former.
    """

    plan: Planned
    slab: Array
    current: int = 0
    _start: int = field(init=False)
    _size: int = field(init=False)

    def __post_init__(self) -> None:
        self._start = aligned(self.plan.host.nbytes)
        self._size = _state_bytes(self.plan)

    def tensor(self, key: Key) -> Array:
        """A tensor of the whole batch, or the sums of a batch normalization."""
        batch, start = self.plan.batch, self.plan.host.offsets[key]
        if key.kind == "moments":
            return self._array(start, DOUBLE, (2, self.plan.network.shape(key.tensor)[0]))
        dtype = {LABELS: INT, LOSS: DOUBLE}.get(key, FLOAT)
        shape = (batch, *self.plan.network.shape(key.tensor)) if key.kind in "xgr" else (batch,)
        return self._array(start, dtype, shape)

    def matrix(self, key: Key, images: range, rows: range) -> Array:
        """Rows of images as a matrix: a column for each image and channel."""
        part = self.tensor(key)[images.start : images.stop]
        if key.kind not in "xgr":
            return part[:, None]
        columns = part.reshape(part.shape[0] * part.shape[1], -1).T
        width = part.shape[3]
        return columns[rows.start * width : rows.stop * width]

    def state(self, name: str, *, after: bool = False) -> tuple[Array, Array]:
        """A parameter and its velocity, or running means and variances, before or after the step."""
        one = _offsets(self.plan)[name]
        base = self._start + (self.current + after) % 2 * self._size
        shape = (self.plan.network.parameters | self.plan.network.running)[name]
        return self._array(base + one.w, FLOAT, shape), self._array(base + one.velocity, FLOAT, shape)

    def gradient(self, name: str) -> Array:
        """A parameter's gradient in double precision; without a loss, in the next state's memory."""
        base = self._start + (self.current + 1) % 2 * self._size
        return self._array(base + _offsets(self.plan)[name].w, DOUBLE, self.plan.network.parameters[name])

    def _array(self, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        size = dtype.itemsize * math.prod(shape)
        return self.slab[start : start + size].view(dtype).reshape(shape)


def host_bytes(plan: Planned) -> int:
    """The bytes of the page-locked host slab that a plan needs."""
    return aligned(plan.host.nbytes) + 2 * _state_bytes(plan)


def _state_bytes(plan: Planned) -> int:
    return plan.parameters(_names(plan), "state")[1]


def _offsets(plan: Planned) -> dict[str, Parameter]:
    return plan.parameters(_names(plan), "state")[0]


def _names(plan: Planned) -> tuple[str, ...]:
    return *plan.network.parameters, *plan.network.running
