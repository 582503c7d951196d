"""The tile routine: the computation of a device on the pieces of one term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.cuda_machine.memory import Place
from gpu.cuda_machine.queues import Queue, Volume
from gpu.machine import Tile
from gpu.outofcore.on_cuda import choose_engine, queue_finish, queue_routine
from gpu.outofcore.on_host import ACTIVATE, SUMS, Window, rounded_to_tf32
from gpu.outofcore.problem import Activation, Layout

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class TileRoutine:
    """A convolution of pieces, or one of its gradients: a `gpu.machine.Routine`.

    Each piece is a matrix whose columns have its elements in C order. Bias and activation follow the last
    term.
    """

    name: str  # name of the call's routine
    window: Window
    layout: Layout
    operands: tuple[Tile, Tile]
    output: Tile
    shapes: tuple[Shape, Shape, Shape]  # shapes of the operands and of the output, in the layout
    updates: bool  # whether the output holds the sum of earlier terms
    bias: Tile | None
    activation: Activation | None
    operations: float
    tf32: bool = False  # whether float32 operands may be rounded to TF32
    workspace: Tile | None = None  # workspace of the computation on GPUs
    transforms: bool = False  # whether GPUs may use Winograd's and Fourier transforms

    @property
    def filters(self) -> int:
        """The filters of a group, which `conv2d` computes in steps; 0 for gradients."""
        return self.shapes[1][0] // self.window.groups if self.name == "conv2d" else 0

    @property
    def reads(self) -> tuple[Tile, ...]:
        """The operands, the bias, and the output if it is updated."""
        bias = (self.bias,) if self.bias else ()
        return (*self.operands, *bias, self.output) if self.updates else (*self.operands, *bias)

    @property
    def writes(self) -> tuple[Tile, ...]:
        """The output tile."""
        return (self.output,)

    def queue_on(self, queue: Queue) -> None:
        """Queue the routine as cuDNN calls."""
        queue_routine(queue, self)

    def prepare_on(self, queue: Queue) -> None:
        """Choose cuDNN's engine by its measured time on these pieces."""
        choose_engine(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute the routine with NumPy: all sums in double precision and in a fixed order, rounded once."""
        *operands, output = (
            _channels_second(array.T.reshape(shape), self.layout)
            for array, shape in zip((*reads[:2], writes[0]), self.shapes, strict=True)
        )
        first, second = (rounded_to_tf32(x) if self.tf32 else x for x in operands)
        found = SUMS[self.name](
            self.window, first.astype(np.float64), second.astype(np.float64), output.shape
        )
        if self.updates:
            found += output.astype(np.float64)
        if self.bias:
            found += reads[2].reshape(-1, 1, 1).astype(np.float64)
        with np.errstate(over="ignore"):  # an overflow gives infinity, as on GPUs
            found = ACTIVATE[self.activation](found) if self.activation else found
            written = writes[0].T
            written[...] = _channels_of(found, self.layout).reshape(written.shape)


@dataclass(frozen=True)
class Finish:
    """Bias and activation of a piece without gaps, in place."""

    name: str
    layout: Layout
    piece: Tile
    shape: Shape  # shape of the piece, in the layout
    bias: Tile | None
    activation: Activation | None
    operations: float

    @property
    def reads(self) -> tuple[Tile, ...]:
        """The piece, and the bias."""
        return (self.piece, self.bias) if self.bias else (self.piece,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        """The piece."""
        return (self.piece,)

    def queue_on(self, queue: Queue) -> None:
        """Queue the kernel for bias and activation."""
        queue_finish(queue, self)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Compute with NumPy in double precision, and round once."""
        found = _channels_second(reads[0].T.reshape(self.shape), self.layout).astype(np.float64)
        if self.bias:
            found += reads[1].reshape(-1, 1, 1).astype(np.float64)
        with np.errstate(over="ignore"):
            found = ACTIVATE[self.activation](found) if self.activation else found
            written = writes[0].T
            written[...] = _channels_of(found, self.layout).reshape(written.shape)


@dataclass(frozen=True)
class Move:
    """A copy within the device of a piece that a routine cannot read in place; both tiles have one shape."""

    source: Tile
    target: Tile
    name: str = "copy"
    operations: float = 0.0

    @property
    def reads(self) -> tuple[Tile, ...]:
        """The tile that is copied."""
        return (self.source,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        """The tile that receives the copy."""
        return (self.target,)

    def queue_on(self, queue: Queue) -> None:
        """Queue the copy with the CUDA driver."""
        item, columns = self.source.dtype.itemsize, self.source.columns
        source, target = (Place(queue.address(t), t.stride * item) for t in (self.source, self.target))
        queue.copy_volume(source, target, self.source.rows * item, Volume(1, columns, columns, columns))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array]) -> None:
        """Copy the source tile to the target tile with NumPy."""
        writes[0][...] = reads[0]


def _channels_second(x: Array, layout: Layout) -> Array:
    """A view of a piece as (images, channels, rows, columns)."""
    return x if layout == "NCHW" else np.moveaxis(x, -1, 1)


def _channels_of(x: Array, layout: Layout) -> Array:
    """A view of (images, channels, rows, columns) in the layout."""
    return x if layout == "NCHW" else np.moveaxis(x, 1, -1)
