"""The rates of GPUs, measured: of copies once for each machine, of routines once for each layer.

A layer's rate is that of one routine on pieces of whole images, as few and as many as fit the probe. These
two times give operations per second, and the slowest one's time beside its operations is that of all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gpu.cleanup import leaving_nothing
from gpu.cuda_machine import CudaMachine
from gpu.cuda_machine.timing import seconds_of
from gpu.outofcore.model import TENSORS, Buffers, Model
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces, tasks_of
from gpu.outofcore.pipeline import Pipeline
from gpu.outofcore.predicted import addresses
from gpu.outofcore.problem import Problem
from gpu.outofcore.rates import Rates, step_of
from gpu.outofcore.rates_file import Known, RatesFile
from gpu.outofcore.routines import TileRoutine
from gpu.outofcore.workspace import IMAGES

COPY_BYTES = 1 << 26
"""Bytes of the large copies that are timed."""
COLUMN_BYTES = 64
"""Bytes of the short columns that are timed."""
ROUTINE_BYTES, ROUTINE_OPERATIONS = 1 << 31, 2e11
"""The most bytes and operations of a timed routine's pieces."""
QUEUED = 32
"""Copies in a row whose time gives the fixed seconds of each."""
HALF = IMAGES // 2
"""Images of the smallest pieces that Winograd's transforms take."""
TIMES = 3
_LEAST_BYTES = 1 << 12
_UNKNOWN = Rates(0.0, 1.0, 0.0, 1.0, 0.0, 1.0)
_KNOWN: WeakKeyDictionary[CudaMachine, Known] = WeakKeyDictionary()
"""Rates of machines from their files, which are read once."""
_DEPTH_ONE = Options(depth=1, filters="streamed")


@dataclass(frozen=True)
class Links:
    """Measured latencies and speeds of copies; see `Rates`."""

    in_seconds: float
    in_bytes_per_second: float
    out_seconds: float
    out_bytes_per_second: float
    both_bytes_per_second: float
    column_seconds: float


_NOMINAL = Links(1e-5, 1e10, 1e-5, 1e10, 2e10, 0.0)
"""Rates for budgets in which no copy can be timed."""
_PIXELS = 1e-5, 1e12
"""The fixed seconds, and the operations per second, of routines that read each pixel once."""


def measured_rates(machine: CudaMachine, problem: Problem, budget: int) -> Rates:
    """The rates for a problem on a machine's first device, from the user's cache or measured now.

    Rates measured with less than half the memory that a probe asks for are not cached.
    """
    layer, known = key_of(problem), _KNOWN.get(machine)
    if known is None or known.links is None or layer not in known.routines:
        known = _found(machine, problem, budget)
    assert known.links is not None
    of, step = Links(*known.links), known.filters_step
    seconds, rate = known.routines[layer]
    if problem.routine == "conv2d":  # it was measured with the filters of the layer
        rate *= -(-problem.group_filters // step) * step / problem.group_filters
    return Rates(
        of.in_seconds,
        of.in_bytes_per_second,
        of.out_seconds,
        of.out_bytes_per_second,
        seconds,
        rate,
        both_bytes_per_second=of.both_bytes_per_second,
        column_seconds=of.column_seconds,
        filters_step=step,
    )


def measured_step(machine: CudaMachine, problem: Problem, counts: Sequence[int]) -> list[tuple[int, float]]:
    """The seconds of a convolution of a problem's images with some of its filters, for some numbers of them.

    The step that explains them (`step_of`) is kept in the machine's file, and goes into its rates from then
    on. Source: ooc_cuDNN, section 4.2 and figure 6.
    """
    problem, sizes = replace(problem, workspace=None), (problem.batch, problem.rows, problem.channels)
    curve = [(count, _timed(machine, problem, Pieces(*sizes, count))[1]) for count in counts]
    file = RatesFile(machine)
    known = replace(_KNOWN.get(machine) or file.read(), filters_step=step_of(curve))
    _KNOWN[machine] = file.write(known)
    return curve


def copy_rates(machine: CudaMachine, budget: int) -> Rates:
    """The rates for bias, activation and pooling, which copies bound: those of routines are nominal."""
    file, found = RatesFile(machine), _KNOWN.get(machine)
    known, _KNOWN[machine] = _with_links(machine, file, found or file.read(), budget)
    assert known.links is not None
    of = Links(*known.links)
    copies = of.in_seconds, of.in_bytes_per_second, of.out_seconds, of.out_bytes_per_second
    return Rates(*copies, *_PIXELS, of.both_bytes_per_second, of.column_seconds)


def _with_links(machine: CudaMachine, file: RatesFile, known: Known, budget: int) -> tuple[Known, Known]:
    """Known rates with those of copies, measured if they are missing; and those of them to keep."""
    if known.links is not None:
        return known, known
    nbytes = min(COPY_BYTES, budget // 2)
    links = _measured_links(machine, nbytes) if nbytes >= _LEAST_BYTES else _NOMINAL
    found = replace(known, links=tuple(vars(links).values()))
    return found, file.write(found) if 2 * nbytes >= COPY_BYTES else known


def _found(machine: CudaMachine, problem: Problem, budget: int) -> Known:
    """The rates in a machine's file; missing rates of copies, or of this layer, are measured."""
    file = RatesFile(machine)
    known, kept = _with_links(machine, file, file.read(), budget)
    layer = key_of(problem)
    if layer not in known.routines:
        routine = {layer: _measured_routine(machine, problem, min(ROUTINE_BYTES, budget))}
        known = replace(known, routines={**known.routines, **routine})
        if 2 * budget >= ROUTINE_BYTES:
            kept = file.write(replace(kept, routines=known.routines))
    _KNOWN[machine] = kept
    return known


def key_of(problem: Problem) -> str:
    """The name of the rate of a routine: the layer, without the number of images, and the dtype."""
    numbers = [problem.channels, problem.filters, problem.groups, *vars(problem.plane).values()]
    math = "tf32" if problem.tf32 else problem.dtype.name
    workspace = "" if problem.workspace is None else f" {problem.workspace}"
    how = f"{math} transforms" if problem.transforms else math
    return f"{problem.routine} {problem.layout} {how} {' '.join(map(str, numbers))}{workspace}"


# --------------------------------------------------------------------------------------------------
# Copies
# --------------------------------------------------------------------------------------------------


def _measured_links(machine: CudaMachine, nbytes: int) -> Links:
    """Time copies in both directions: of ``nbytes`` bytes, of few bytes, and in short columns."""
    hosts = [np.zeros(nbytes, np.uint8) for _ in range(2)]
    with probing(machine, hosts):
        memory = machine.allocate(0, 2 * nbytes)
        streams = machine.stream(0), machine.stream(0)

        def into(rows: int, columns: int) -> None:
            source = hosts[0][: 2 * rows * columns].reshape(columns, -1)[:, :rows].T
            machine.copy_in(streams[0], source, memory.tile(rows, columns, np.uint8))

        def out(rows: int, columns: int) -> None:
            target = hosts[1][: 2 * rows * columns].reshape(columns, -1)[:, :rows].T
            machine.copy_out(streams[1], memory.tile(rows, columns, np.uint8, nbytes), target)

        def both() -> None:
            into(nbytes // 2, 1)
            out(nbytes // 2, 1)

        def queued(copy: Callable[[int, int], None], count: int) -> None:
            copy(half, 1)  # during this copy the host queues the others
            for _ in range(count):
                copy(few, 1)

        half, few = nbytes // 2, min(1 << 10, nbytes // 4)
        alone = [_least(machine, lambda copy=copy: copy(few, 1)) for copy in (into, out)]
        one, many = (
            [_least(machine, lambda copy=copy, count=count: queued(copy, count)) for copy in (into, out)]
            for count in (1, QUEUED + 1)
        )
        starts = [max(long - short, 0.0) / QUEUED for long, short in zip(many, one, strict=True)]
        longer = [_least(machine, lambda copy=copy: copy(half, 1)) for copy in (into, out)]
        rates = [(half - few) / max(long - short, 1e-9) for long, short in zip(longer, alone, strict=True)]
        together = 2 * half / max(_least(machine, both) - max(alone), 1e-9)
        columns = min(nbytes // (2 * COLUMN_BYTES), 1 << 16)
        short = _least(machine, lambda: into(COLUMN_BYTES, columns)) - alone[0]
        each = max(short - columns * COLUMN_BYTES / rates[0], 0.0) / columns
        return Links(starts[0], rates[0], starts[1], rates[1], min(together, sum(rates)), each)


@contextmanager
def probing(machine: CudaMachine, arrays: Sequence[npt.NDArray[Any]] = ()) -> Generator[None]:
    """Pin arrays for a block of measurements; at its end, wait for all work and free the block's memory."""
    with leaving_nothing(machine, arrays):
        try:
            yield
        finally:
            machine.settle()


def _least(machine: CudaMachine, work: Callable[[], object]) -> float:
    """The shortest time in seconds of several runs of ``work``."""
    return min(seconds_of(machine, work, TIMES))


# --------------------------------------------------------------------------------------------------
# Routines
# --------------------------------------------------------------------------------------------------


def _measured_routine(machine: CudaMachine, problem: Problem, nbytes: int) -> tuple[float, float]:
    """The fixed seconds of a routine, and its operations per second, as measured."""
    samples = [_timed(machine, problem, pieces) for pieces in _probes(problem, nbytes)]
    if not samples:  # the planner will raise an error with the budget that it needs
        return 0.0, 1.0
    (few, short), (many, long) = min(samples), max(samples)
    if many > few and long > short:
        rate = (many - few) / (long - short)
        return max(0.0, *(seconds - operations / rate for operations, seconds in samples)), rate
    return 0.0, many / long


def _probes(problem: Problem, nbytes: int) -> Iterator[Pieces]:
    """Yield pieces to time: one image or a part of it, a few images (which transforms need), and the most."""
    sizes = [1, problem.rows, problem.channels, problem.filters]
    for axis in (1, 3, 2):
        while not _fits(problem, Pieces(*sizes), nbytes) and sizes[axis] > 1:
            sizes[axis] = -(-sizes[axis] // 2)
    if not _fits(problem, Pieces(*sizes), nbytes):
        return
    images = 1
    while 2 * images <= problem.batch and _fits(problem, Pieces(2 * images, *sizes[1:]), nbytes):
        images *= 2
    few = {1, HALF} if problem.transforms else {1}
    for each in sorted({images} | {one for one in few if one < images}):
        yield Pieces(each, *sizes[1:])


def _fits(problem: Problem, pieces: Pieces, nbytes: int) -> bool:
    """True if a probe may run such pieces: few operations, and buffers within ``nbytes``."""
    if pieces.images > 1:
        share = problem.operations * pieces.images / problem.batch
        if share > ROUTINE_OPERATIONS:
            return False
    return _buffers(problem, pieces).total <= nbytes


def _buffers(problem: Problem, pieces: Pieces) -> Buffers:
    return Model(problem, pieces, _UNKNOWN, _DEPTH_ONE).with_depth(1)


def _timed(machine: CudaMachine, problem: Problem, pieces: Pieces) -> tuple[float, float]:
    """The operations of a routine on pieces of zeros, and the seconds that they took."""
    buffers = _buffers(problem, pieces)
    with probing(machine):
        memory = machine.allocate(0, buffers.total)
        arrays = {tensor: addresses(problem.shape(tensor), problem.dtype) for tensor in TENSORS}
        bare = replace(problem, has_bias=False, activation=None)
        pipeline = Pipeline(machine, bare, buffers, memory, arrays)
        routine: TileRoutine = next(pipeline.routines(tasks_of(bare, pieces)))
        machine.prepare(0, [routine])
        stream = machine.stream(0)
        return routine.operations, _least(machine, lambda: machine.launch(stream, routine))
