"""The predicted timeline of a call: its pipeline on a machine that only adds up the model's times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from gpu.machine import Event, Routine, Stream, Tile
from gpu.outofcore.model import ITEM, TENSORS, Buffers
from gpu.outofcore.pieces import Task
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.problem import Problem
from gpu.outofcore.rates import Rates
from reference.types.timeline import Record, Timeline

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Moment:
    """An event of the model: when it happens."""

    seconds: float
    done: bool = True


@dataclass
class Row:
    """A stream of the model, and when its work so far ends."""

    number: int
    device: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Slab:
    """Memory that nobody reads."""

    nbytes: int
    device: int = 0


class ModelMachine:
    """Streams that each run one operation after the other, at the model's rates."""

    def __init__(self, rates: Rates) -> None:
        self._rates, self._streams = rates, 0
        self.timeline = Timeline()

    def stream(self, device: int) -> Row:
        """A stream."""
        self._streams += 1
        return Row(self._streams - 1, device)

    def copy_in(self, stream: Stream, source: Array, target: Tile) -> None:
        """Add a copy to the device."""
        self._add(stream, "in", "copy in", self._rates.into(target.nbytes), nbytes=target.nbytes)

    def copy_out(self, stream: Stream, source: Tile, target: Array) -> None:
        """Add a copy to the host."""
        self._add(stream, "out", "copy out", self._rates.out(source.nbytes), nbytes=source.nbytes)

    def launch(self, stream: Stream, routine: Routine) -> None:
        """Add a routine."""
        seconds = self._rates.routine(routine.operations)
        self._add(stream, "routine", routine.name, seconds, operations=routine.operations)

    def record(self, stream: Stream) -> Moment:
        """The end of the stream's work so far."""
        return Moment(_row(stream).seconds)

    def wait(self, stream: Stream, event: Event) -> None:
        """Go on after an event."""
        row = _row(stream)
        row.seconds = max(row.seconds, cast("Moment", event).seconds)

    def _add(
        self,
        stream: Stream,
        kind: Literal["in", "out", "routine"],
        name: str,
        seconds: float,
        nbytes: int = 0,
        operations: float = 0.0,
    ) -> None:
        row = _row(stream)
        start, row.seconds = row.seconds, row.seconds + seconds
        self.timeline.append(Record(0, -1, row.number, kind, name, nbytes, start, row.seconds, operations))


def predict(problem: Problem, tasks: Iterator[Task], buffers: Buffers, rates: Rates) -> Timeline:
    """The timeline of the tasks of a call."""
    machine = ModelMachine(rates)
    arrays = {tensor: addresses(problem.shape(tensor)) for tensor in TENSORS}
    bias = {"bias": addresses((problem.filters,))} if problem.has_bias else {}
    pipeline = Pipeline(machine, problem, buffers, Slab(buffers.total), arrays | bias)
    for _ in pipeline.work(tasks):
        pass
    return machine.timeline


def addresses(shape: tuple[int, ...]) -> Array:
    """An array of float32 without memory, of which only shapes and strides may be used."""
    strides = [ITEM]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return as_strided(np.zeros(1, np.float32), shape, strides, writeable=False)


def _row(stream: Stream) -> Row:
    return cast("Row", stream)
