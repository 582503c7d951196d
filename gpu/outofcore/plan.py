"""A plan: the pieces of a call, their buffers, and the predicted time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache

from gpu.host_memory import shown
from gpu.outofcore.model import Buffers, Model
from gpu.outofcore.options import Options
from gpu.outofcore.pieces import Pieces, Task, tasks_of
from gpu.outofcore.pipeline import kind_of
from gpu.outofcore.planners import SEARCHES, whole
from gpu.outofcore.predicted import predict
from gpu.outofcore.problem import Problem
from gpu.outofcore.rates import Rates
from reference.devices.timeline import Timeline
from reference.errors import LaunchError, ShapeError
from reference.types.fields import is_integer
from reference.values import shortened

SMALLEST = Pieces(1, 1, 1, 1)
_KEPT = 32


@shortened
@dataclass(frozen=True)
class Plan:
    """The plan of a call.

    Attributes
    ----------
    problem : Problem
    pieces : Pieces
    buffers : Buffers
    budget : int
        The bytes that the device may use.
    rates : Rates
    seconds : float
        By the closed form of the paper, by which the planner chose.

    Examples
    --------
    >>> import simwarp
    >>> from gpu.outofcore import explain
    >>> layer = (64, 64, 56, 56), (128, 64, 3, 3)
    >>> print(explain("conv2d", *layer, device=simwarp.Machine(), memory_budget=1 << 24))
    conv2d, x 64 x 64 x 56 x 56, w 128 x 64 x 3 x 3, 0.0296 TFLOP
    32 pieces of y, cut to 2 images, 56 rows, 64 channels, 128 filters
    buffers: 3 of x, 1 of w, 3 of y; 14.7 MB of 16.8 MB
    51.7 MB in, 102.8 MB out
    predicted 2.1 ms: 1.12 ms of copies in, 0.757 ms of routines, 2.04 ms of copies out
    """

    problem: Problem
    pieces: Pieces
    buffers: Buffers
    budget: int
    rates: Rates
    seconds: float

    def tasks(self) -> Iterator[Task]:
        """The pieces of the output, and their terms."""
        return tasks_of(self.problem, self.pieces)

    @cached_property
    def kinds(self) -> tuple[Task, ...]:
        """Tasks that together have every kind of routine: see `gpu.outofcore.pipeline.kind_of`."""
        seen, tasks = set[object](), list[Task]()
        for task in self.tasks():
            kinds = {kind_of(self.problem, task, number) for number in range(len(task.steps))}
            if not kinds <= seen:
                seen |= kinds
                tasks.append(task)
        return tuple(tasks)

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline that the model predicts: three streams, each at its rates."""
        return predict(self.problem, self.tasks(), self.buffers, self.rates)

    @property
    def bytes_in(self) -> int:
        """The bytes of all copies to the device."""
        return self.timeline.nbytes("in")

    @property
    def bytes_out(self) -> int:
        """The bytes of all copies to the host."""
        return self.timeline.nbytes("out")

    def __str__(self) -> str:
        problem, timeline, count = self.problem, self.timeline, sum(1 for _ in self.tasks())
        busy = {kind: sum(one.end - one.start for one in timeline if one.kind == kind) for kind in _KINDS}
        counts = self.buffers.counts
        held = ", ".join(f"{count} of {tensor}" for tensor, count in counts.items() if count)
        pooled = f", {problem.pool.kind} to z {_times(problem.shape('z'))}" if problem.pool else ""
        here = f"; {', '.join(sorted(problem.on_device))} on the device" if problem.on_device else ""
        return (
            f"{problem.routine}, x {_times(problem.shape('x'))}, w {_times(problem.shape('w'))},"
            f" {problem.operations / 1e12:.3g} TFLOP{pooled}\n"
            f"{_counted(count, 'piece')} of {problem.result}, cut to {_listed(self.pieces)}\n"
            f"buffers: {held or 'none'}; {shown(self.buffers.total)} of {shown(self.budget)}{here}\n"
            f"{shown(self.bytes_in)} in, {shown(self.bytes_out)} out\n"
            f"predicted {_milliseconds(timeline.seconds)}:"
            f" {', '.join(f'{_milliseconds(busy[kind])} {name}' for kind, name in _KINDS.items())}"
        )


_KINDS = {"in": "of copies in", "routine": "of routines", "out": "of copies out"}


def plan_of(problem: Problem, pieces: Pieces | None, budget: int, rates: Rates, options: Options) -> Plan:
    """The plan of a problem; LaunchError if its pieces do not fit the budget.

    Plans of the last calls are cached: a search takes some milliseconds, as long as small layers take.
    """
    if pieces is not None:
        check_pieces(pieces)
    return _plan_of(problem, pieces, budget, rates, options)


@lru_cache(_KEPT)
def _plan_of(problem: Problem, pieces: Pieces | None, budget: int, rates: Rates, options: Options) -> Plan:
    """The plan of a problem with pieces that are checked."""

    def model(pieces: Pieces) -> Model:
        return Model(problem, pieces, rates, options)

    def found(depth: int) -> Pieces | None:
        """The planner's best pieces with at least ``depth`` buffers for each tensor."""

        def key(pieces: Pieces) -> tuple[int, float]:
            of = model(pieces)
            buffers = of.buffers(budget, depth)
            return (0, of.seconds(buffers)) if buffers else (of.with_depth(1).total, 0.0)

        best = SEARCHES[options.planner](whole(problem), key)
        return None if key(best)[0] > 0 else best

    least = model(SMALLEST).with_depth(1).total
    if pieces is None:
        # Steepest descent would stop at the first pieces that fit: smaller ones are faster only once copies
        # overlap.
        pieces = found(2) if options.planner == "steepest" and options.depth > 1 else None
        # the descent may end where all neighbours need as much memory
        pieces = pieces or found(1) or SMALLEST
    buffers = model(pieces).buffers(budget)
    if buffers is None:
        needed = model(pieces).with_depth(1).total
        raise LaunchError(
            f"{problem.routine} with a budget of {budget} bytes: pieces of {_listed(pieces)} need {needed}\n"
            f"one buffer holds a piece of each tensor; the smallest pieces need {least} bytes\n"
            f"pass memory_budget={least} or more"
        )
    return Plan(problem, pieces, buffers, budget, rates, model(pieces).seconds(buffers))


def check_pieces(pieces: Pieces) -> None:
    """Raise ShapeError for a piece size below 1."""
    for axis, size in asdict(pieces).items():
        if not is_integer(size) or size < 1:
            raise ShapeError(f"pieces of {size!r} {axis}\na piece has at least one\ngive a positive int")


def _listed(pieces: Pieces) -> str:
    return ", ".join(_counted(size, axis[:-1]) for axis, size in asdict(pieces).items())


def _counted(count: int, of: str) -> str:
    return f"{count} {of}{'s' * (count != 1)}"


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
