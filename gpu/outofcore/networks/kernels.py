"""The routine of each operation on a piece, with its tiles."""

from __future__ import annotations

from typing import Any

from gpu.machine import Routine, Tile
from gpu.outofcore.networks.layers import SGD
from gpu.outofcore.networks.memory import Held, Space
from gpu.outofcore.networks.phases import LABELS, LOSS, Key, Op, Phase, Piece
from gpu.outofcore.networks.planned import Planned
from gpu.outofcore.networks.routines import (
    ActivationGradient,
    AveragePoolGradient,
    FilterGradient,
    Loss,
    MaxPoolGradient,
    Moments,
    Norm,
    NormGradient,
    NormParameterGradient,
    Pool,
    StageRoutine,
    Update,
)
from gpu.outofcore.networks.stages import Stage
from gpu.outofcore.networks.strips import hull, read_rows

Four = tuple[int, int, int, int]


class Kernels:
    """Builds the tile routines of a phase's operations."""

    def __init__(self, plan: Planned, phase: Phase, space: Space) -> None:
        self._plan, self._phase, self._space = plan, phase, space
        self._stages = plan.network.stages

    def routine(self, op: Op, piece: Piece, number: int) -> Routine:
        """The tile routine of an operation on one piece."""
        phase = self._phase
        operations = phase.operations(op, len(piece.images), phase.worked(op, piece.strip))
        at = _At(self._space, piece, number, {"operations": operations, "kind": phase.rate_kind(op)})
        if op.action == "forward":
            stage = self._stages[op.key.tensor - 1]
            if stage.kind == "batch_norm":
                return self._norm(stage, at)
            return (self._convolution if stage.has_weights else self._pool)(stage, at)
        if op.action == "filters":
            stage = self._stages[op.key.tensor - 1]
            return (self._filters if stage.has_weights else self._scales)(stage, at)
        if op.action in ("moments", "norm"):
            stage = self._stages[op.key.tensor]
            return (self._moments if op.action == "moments" else self._norm_data)(stage, at)
        if op.action == "activation":
            return self._activation(op.key.tensor, at)
        if op.action == "loss":
            return self._loss(at)
        stage = self._stages[op.key.tensor]
        if stage.has_weights:
            return self._data(stage, at)
        return (self._max_pool if stage.kind == "max_pool" else self._average_pool)(stage, at)

    def _how(self, stage: Stage) -> dict[str, Any]:
        """Keyword arguments of a stage's routine that matter on GPUs."""
        return {
            "workspace": self._space.workspace,
            "transforms": self._plan.engines.transform(stage),
            "tf32": self._plan.engines.tf32,
        }

    # ----------------------------------------------------------------------------------------- forward

    def _convolution(self, stage: Stage, at: _At) -> Routine:
        x, y = at.x(stage.number - 1), at.x(stage.number)
        w, _, _ = self._space.parameter(f"{stage.name}.w")
        bias, _, _ = self._space.parameter(f"{stage.name}.bias")
        read = _as_read(stage, x.shape(x.rows))
        return StageRoutine(
            name="conv2d",
            window=stage.window(*_ranges(stage, x.rows, y.rows)),
            layout="NCHW",
            operands=(x.column(), w),
            output=y.column(),
            shapes=(read, stage.filters, y.shape(y.rows)),
            updates=False,
            bias=bias,
            activation=stage.activation,
            **at.costs,
            **self._how(stage),
        )

    def _pool(self, stage: Stage, at: _At) -> Routine:
        x, y = at.x(stage.number - 1), at.x(stage.number)
        return Pool(
            stage.kind,
            (x.tile(x.rows),),
            (y.tile(y.rows),),
            (x.shape(x.rows), y.shape(y.rows)),
            stage=stage,
            window=stage.window(x.rows, y.rows),
            outputs=y.rows,
            **at.costs,
        )

    def _norm(self, stage: Stage, at: _At) -> Routine:
        x, y = at.x(stage.number - 1), at.x(stage.number)
        sums = self._space.moments(stage.number)[0]
        w, bias = (self._space.parameter(f"{stage.name}.{name}")[0] for name in ("w", "bias"))
        return Norm(
            "batch_norm",
            (x.tile(y.rows), sums, w, bias),
            (y.tile(y.rows),),
            (x.shape(y.rows), y.shape(y.rows)),
            stage=stage,
            count=self._count(stage),
            **at.costs,
        )

    def _moments(self, stage: Stage, at: _At) -> Routine:
        x, rows = at.x(stage.number - 1), at.piece.strip.owned[stage.number - 1]
        sums = self._space.moments(stage.number)[0]
        starts = at.piece.images.start == 0 and rows.start == 0
        reads = (x.tile(rows), *(() if starts else (sums,)))
        return Moments(
            "moments",
            reads,
            (sums,),
            (x.shape(rows),),
            starts=starts,
            workspace=self._space.workspace,
            **at.costs,
        )

    def _count(self, stage: Stage) -> int:
        """The pixels of a channel in the whole batch."""
        return self._plan.batch * stage.shape[1] * stage.shape[2]

    def _loss(self, at: _At) -> Routine:
        last = len(self._stages)
        x, g = at.x(last), at.g(last)
        return Loss(
            "cross_entropy",
            (x.columns(), at.tile(LABELS)),
            (g.columns(), at.tile(LOSS)),
            (),
            batch=self._plan.batch,
            **at.costs,
        )

    # ---------------------------------------------------------------------------------------- backward

    def _filters(self, stage: Stage, at: _At) -> Routine:
        x, g = at.x(stage.number - 1), at.g(stage.number)
        outputs = at.piece.strip.owned[stage.number]
        rows = read_rows(stage, outputs, self._plan.network.shape(stage.number - 1)[1])
        sums = tuple(self._space.parameter(f"{stage.name}.{name}")[2] for name in ("w", "bias"))
        starts = at.piece.images.start == 0 and outputs.start == 0
        return FilterGradient(
            f"{stage.kind}_gradient",
            (x.tile(rows), g.tile(outputs), *(() if starts else sums)),
            sums,
            (_as_read(stage, x.shape(rows)), g.shape(outputs)),
            stage=stage,
            window=stage.window(*_ranges(stage, rows, outputs)),
            starts=starts,
            **at.costs,
            **self._how(stage),
        )

    def _scales(self, stage: Stage, at: _At) -> Routine:
        x, g = at.x(stage.number - 1), at.g(stage.number)
        rows = at.piece.strip.owned[stage.number]
        moments, *sums = self._space.moments(stage.number)
        w = self._space.parameter(f"{stage.name}.w")[0]
        starts = at.piece.images.start == 0 and rows.start == 0
        return NormParameterGradient(
            "batch_norm_gradient",
            (x.tile(rows), g.tile(rows), moments, w, *(() if starts else sums)),
            tuple(sums),
            (x.shape(rows), g.shape(rows)),
            stage=stage,
            count=self._count(stage),
            starts=starts,
            workspace=self._space.workspace,
            **at.costs,
        )

    def _norm_data(self, stage: Stage, at: _At) -> Routine:
        g, x, below = at.g(stage.number), at.x(stage.number - 1), at.g(stage.number - 1)
        rows = below.rows
        return NormGradient(
            "batch_norm_data_gradient",
            (g.tile(rows), x.tile(rows), *self._space.moments(stage.number)),
            (below.tile(rows),),
            (g.shape(rows), x.shape(rows), below.shape(rows)),
            stage=stage,
            count=self._count(stage),
            **at.costs,
        )

    def _data(self, stage: Stage, at: _At) -> Routine:
        below, g = at.g(stage.number - 1), at.g(stage.number)
        w, _, _ = self._space.parameter(f"{stage.name}.w")
        return StageRoutine(
            name="conv2d_backward_data",
            window=stage.window(*_ranges(stage, below.rows, g.rows)),
            layout="NCHW",
            operands=(g.column(), w),
            output=below.column(),
            shapes=(g.shape(g.rows), stage.filters, _as_read(stage, below.shape(below.rows))),
            updates=False,
            bias=None,
            activation=None,
            **at.costs,
            **self._how(stage),
        )

    def _max_pool(self, stage: Stage, at: _At) -> Routine:
        below, g, x = at.g(stage.number - 1), at.g(stage.number), at.x(stage.number - 1)
        height = self._plan.network.shape(stage.number - 1)[1]
        rows = hull(read_rows(stage, g.rows, height), below.rows)
        return MaxPoolGradient(
            "max_pool_gradient",
            (g.tile(g.rows), x.tile(rows)),
            (below.tile(below.rows),),
            (g.shape(g.rows), x.shape(rows), below.shape(below.rows)),
            stage=stage,
            window=stage.window(rows, g.rows),
            skip=below.rows.start - rows.start,
            of_relu=self._plan.network.pools_relu(stage.number - 1),
            **at.costs,
        )

    def _average_pool(self, stage: Stage, at: _At) -> Routine:
        below, g = at.g(stage.number - 1), at.g(stage.number)
        return AveragePoolGradient(
            "average_pool_gradient",
            (g.tile(g.rows),),
            (below.tile(below.rows),),
            (g.shape(g.rows), below.shape(below.rows)),
            stage=stage,
            window=stage.window(below.rows, g.rows),
            outputs=g.rows,
            **at.costs,
        )

    def _activation(self, tensor: int, at: _At) -> Routine:
        x, g = at.x(tensor), at.g(tensor)
        activation = self._stages[tensor - 1].activation
        assert activation is not None
        tile = g.tile(g.rows)
        reads = tile, x.tile(g.rows)
        name = f"{activation}_gradient"
        return ActivationGradient(name, reads, (tile,), (), activation=activation, **at.costs)


def update_of(tiles: tuple[Tile, Tile, Tile], sgd: SGD) -> Update:
    """The gradient-descent routine for one parameter's tiles."""
    w, velocity, gradient = tiles
    return Update(
        "sgd",
        (w, velocity, gradient),
        (w, velocity),
        (),
        6.0 * w.rows,
        rate=sgd.rate,
        momentum=sgd.momentum,
        decay=sgd.decay,
    )


class _At:
    """The tensors of a piece; ``costs`` are the arguments for the routine's rate."""

    def __init__(self, space: Space, piece: Piece, number: int, costs: dict[str, Any]) -> None:
        self._space, self.piece, self._number, self.costs = space, piece, number, costs

    def x(self, tensor: int) -> Held:
        """The piece's rows of an activation on the device."""
        return self._space.held(Key("x", tensor), self.piece, self._number)

    def g(self, tensor: int) -> Held:
        """The piece's rows of an activation's gradient on the device."""
        return self._space.held(Key("g", tensor), self.piece, self._number)

    def tile(self, key: Key) -> Tile:
        """The tile of the piece's labels or losses."""
        return self._space.tile(key, self.piece, self._number, range(1))


def _as_read(stage: Stage, shape: Four) -> Four:
    """The shape in which a stage reads images: a dense stage reads each number as a channel of one pixel."""
    return (shape[0], shape[1] * shape[2] * shape[3], 1, 1) if stage.kind == "dense" else shape


def _ranges(stage: Stage, rows: range, outputs: range) -> tuple[range, range]:
    """A stage's input and output rows in a piece; a dense stage has one row of each."""
    return (range(1), range(1)) if stage.kind == "dense" else (rows, outputs)
