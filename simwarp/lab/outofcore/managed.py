"""A convolution of images in managed memory, the rival of figure 14, on the clock of the model.

Images and result begin on the host, filters lie on the device, as in section 6.5.2; the result ends on the
host, as ours does. The driver begins one migration of a stream after another, and a routine waits for all of
its data: the paper found no overlap, either. A prefetch takes as long to begin as a fault, an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from gpu.outofcore import Plan
from gpu.outofcore.clock import Kind, ModelMachine, Row, Work
from gpu.outofcore.matrices import matrices_of, view_of
from gpu.outofcore.pieces import Piece
from gpu.outofcore.predicted import addresses
from simwarp.machine.managed import FAULT_SECONDS, ManagedMemory, Moved

Move = Callable[[int, int], Moved]


class Rival:
    """The maps of a plan's convolution in managed memory, on a device with ``budget`` bytes, and a clock."""

    def __init__(self, plan: Plan, budget: int) -> None:
        self._plan, self._problem = plan, plan.problem
        self._arrays: dict[str, Any] = {
            tensor: addresses(self._problem.shape(tensor), self._problem.dtype) for tensor in ("x", "y")
        }
        filters = math.prod(self._problem.shape("w")) * self._problem.dtype.itemsize
        self.memory = ManagedMemory(budget - filters)
        self._at = {tensor: self.memory.allocate(array.nbytes) for tensor, array in self._arrays.items()}
        self.machine = ModelMachine(plan.rates)
        self._loads, self._computes, self._stores = (self.machine.stream(0) for _ in range(3))

    def faults(self) -> float:
        """The seconds without hints: the routine faults its maps in, the host the result out."""
        self._all("xy", self.memory.access)
        self._routine(self._problem.operations, self._problem.group_filters)
        self._all("y", self.memory.access_by_host)
        return self._seconds()

    def prefetches(self) -> float:
        """The seconds with a prefetch of each map, and one of the result back to the host."""
        self._all("xy", self.memory.prefetch)
        self._all("xy", self.memory.access)  # what did not stay
        self._routine(self._problem.operations, self._problem.group_filters)
        self._all("y", self.memory.prefetch_to_host)
        return self._seconds()

    def prefetches_pieces(self) -> float:
        """The seconds in the plan's pieces, with a prefetch of each contiguous part of a piece."""
        taps = math.prod(self._problem.shape("w")[2:])
        for task in self._plan.tasks():
            y = [*self._parts(task.output)]
            for x, w in task.steps:
                parts = [*self._parts(x), *y]
                self._each(self._loads, parts, self.memory.prefetch)
                self.machine.wait(self._computes, self.machine.record(self._loads))
                self._each(self._computes, parts, self.memory.access)
                elements = sum(end - start for start, end in y) // self._problem.dtype.itemsize
                self._routine(2 * elements * len(w.channels) * taps, len(w.first))
            self.machine.wait(self._stores, self.machine.record(self._computes))
            self._each(self._stores, y, self.memory.prefetch_to_host)
        return self._seconds()

    def _all(self, tensors: str, move: Move) -> None:
        """Move whole maps before or behind the routine."""
        for tensor in tensors:
            start = self._at[tensor]
            self._queue(self._computes, move(start, start + self._arrays[tensor].nbytes))

    def _each(self, row: Row, parts: list[tuple[int, int]], move: Move) -> None:
        for part in parts:
            self._queue(row, move(*part))

    def _parts(self, piece: Piece) -> Iterator[tuple[int, int]]:
        """The contiguous address ranges of a piece."""
        array, item = self._arrays[piece.tensor], self._problem.dtype.itemsize
        origin = array.__array_interface__["data"][0] - self._at[piece.tensor]
        for matrix in matrices_of(view_of(array, piece, self._problem.layout)):
            rows, columns = matrix.shape
            start = matrix.__array_interface__["data"][0] - origin
            for column in range(columns):
                begin = start + column * matrix.strides[1]
                yield begin, begin + rows * item

    def _queue(self, row: Row, moved: Moved) -> None:
        """Queue what the driver moves: first what has to leave, then what comes."""
        rates, begin = self._plan.rates, FAULT_SECONDS * moved.migrations
        moves: tuple[tuple[Kind, int, float], ...] = (
            ("out", moved.bytes_out, rates.out_bytes_per_second),
            ("in", moved.bytes_in, rates.in_bytes_per_second),
        )
        for kind, nbytes, rate in moves:
            if nbytes or (begin and kind == "in"):
                self.machine.add(row, _work(kind, begin, nbytes, rate))
                begin = 0.0

    def _routine(self, operations: float, filters: int) -> None:
        seconds = self._plan.rates.routine(operations, filters)
        work = Work("routine", self._problem.routine, [], seconds, operations=operations)
        self.machine.add(self._computes, work)

    def _seconds(self) -> float:
        self.machine.run()
        return self.machine.timeline.seconds


def _work(kind: Kind, begin: float, nbytes: int, rate: float) -> Work:
    return Work(kind, f"migration {kind}", [], begin, nbytes / rate, nbytes)


RIVALS: dict[str, Callable[[Rival], float]] = {
    "managed": Rival.faults,
    "managed, prefetch": Rival.prefetches,
    "managed, prefetch, pieces": Rival.prefetches_pieces,
}
"""The rivals of figure 14, by what the paper varies."""


def rates_of_rivals(plan: Plan, budget: int) -> dict[str, float]:
    """The operations per second of each rival, with the pieces of our plan."""
    return {name: plan.problem.operations / run(Rival(plan, budget)) for name, run in RIVALS.items()}
