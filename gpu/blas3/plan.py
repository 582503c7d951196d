"""A plan: the tasks of a problem, the memory that they need, and the bytes that they copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpu.blas3.blocks import Block
from gpu.blas3.operands import Tiles, tiles_read
from gpu.blas3.options import Options
from gpu.blas3.problem import Problem, Shape
from gpu.blas3.queue_order import in_squares
from gpu.blas3.routines import operations_of
from gpu.blas3.taskizer import taskize
from gpu.blas3.tasks import Kernel, Task
from gpu.host_memory import shown
from reference.errors import LaunchError, ShapeError
from reference.values import shortened

LARGEST, LEAST = 4096, 32
"""Default tiles have so many rows and columns."""
ENOUGH = 8
"""So many tasks of a device keep its streams busy; of more, smaller tiles are copied more slowly."""
QUICK = 1536
"""The host takes as long for a step as a device for such tiles; smaller ones gain nothing."""
ALIGNMENT = 256
LEAST_WIDTH = 32
"""Narrower panels of right-hand sides are not worth a task by default."""


@shortened
@dataclass(frozen=True)
class Plan:
    """What a call will do.

    Attributes
    ----------
    problem : Problem
    tile : int
        Rows and columns of a full tile.
    width : int
        Right-hand sides of a task of TRMM or TRSM.
    tasks : list of Task
    budgets : tuple of int
        The bytes that each device may use for tiles.
    streams : int

    Notes
    -----
    The traffic is framed by two numbers: each block moved once, and no reuse at all.

    Examples
    --------
    >>> from gpu.blas3.explain import explain
    >>> print(explain("dgemm", 16384, 16384, 16384, beta=1.0, tile=1024))
    dgemm, 16384 x 16384, sums of 16384: 256 tasks of tiles of 1024, 8.8 TFLOP
    at least 8.6 GB between host and devices, 73.0 GB without reuse
    at least 100.7 MB on each device for 4 streams
    100.0 % of the operations are of GEMM
    """

    problem: Problem
    tile: int
    width: int
    tasks: list[Task]
    budgets: tuple[int, ...]
    streams: int

    @cached_property
    def _kinds(self) -> list[tuple[Task, int]]:
        """A task of each kind, and the number of its kind: their steps differ only in where tiles lie."""
        numbers = dict[tuple[Shape, Kernel], int]()
        tasks = dict[tuple[Shape, Kernel], Task]()
        for task in self.tasks:
            kind = task.outputs[0].block.shape, task.outputs[0].first
            numbers[kind] = numbers.get(kind, 0) + 1
            tasks.setdefault(kind, task)
        return [(task, numbers[kind]) for kind, task in tasks.items()]

    @cached_property
    def segment(self) -> int:
        """The bytes of the largest tile, rounded up."""
        most = 0
        for task, _ in self._kinds:
            blocks = (*task.reads(), *(output.block for output in task.outputs))
            most = max(most, *map(self._nbytes, blocks))
        return -(-most // ALIGNMENT) * ALIGNMENT

    @cached_property
    def needed(self) -> int:
        """The least budget of a device: an output and one step's operands for each stream."""
        steps = (step for task, _ in self._kinds for _, step in task.steps())
        operands = max((len(step.reads) for step in steps), default=0)
        return self.segment * self.streams * (1 + operands)

    @cached_property
    def gemm_share(self) -> float:
        """The share of products beside the diagonal in the operations of all steps, 0 to 1 (table I)."""
        of_gemm = of_all = 0.0
        for task, number in self._kinds:
            for output, step in task.steps():
                shapes = [block.shape for block in step.reads]
                count = number * operations_of(step.kernel, shapes, output.block.shape, self.problem.dtype)
                of_all += count
                of_gemm += count * (step.kernel.name == "gemm" and bool(shapes))
        return of_gemm / of_all if of_all else 0.0

    @property
    def bytes_least(self) -> int:
        """Bytes between host and devices if each block is moved once in each direction."""
        moved = self._operands.elements * self.problem.dtype.itemsize
        for task, number in self._kinds:
            for output in task.outputs:
                is_read = output.is_loaded or output.reads_itself
                moved += number * self._nbytes(output.block) * (1 + is_read)
        return moved

    @property
    def bytes_without_reuse(self) -> int:
        """Bytes copied between host and devices if every use of a block copies it."""
        moved = 0
        for task, number in self._kinds:
            moved += number * sum(map(self._nbytes, task.reads()))
            for output in task.outputs:
                moved += number * self._nbytes(output.block) * (1 + output.is_loaded)
        return moved

    def pool(self, device: int) -> int:
        """The bytes that a device allocates: its budget, or less if that holds everything.

        Without a cache a block may be there several times, for all steps that are queued.
        """
        tiles = self._operands.number
        for task, number in self._kinds:
            for output in task.outputs:
                tiles += number * (1 + (output.is_reused or output.reads_itself))
        return min(self.budgets[device], max(self.segment * tiles, 4 * self.needed))

    @property
    def _operands(self) -> Tiles:
        """The tiles that the tasks only read, each once."""
        return tiles_read(self.problem, self.tile) if self.tasks else Tiles(0, 0)

    def _nbytes(self, block: Block) -> int:
        """The size of a block in bytes."""
        return block.shape[0] * block.shape[1] * self.problem.dtype.itemsize

    def __str__(self) -> str:
        problem = self.problem
        return (
            f"{problem.name}, {problem.m} x {problem.n}, sums of {problem.k}: {len(self.tasks)} tasks"
            f" of tiles of {self.tile}, {problem.operations / 1e12:.1f} TFLOP\n"
            f"at least {shown(self.bytes_least)} between host and devices,"
            f" {shown(self.bytes_without_reuse)} without reuse\n"
            f"at least {shown(self.needed)} on each device for {self.streams} streams\n"
            f"{self.gemm_share:.1%} of the operations are of GEMM".replace("%", " %")
        )


def plan_of(problem: Problem, tile: int | None, budgets: Sequence[int], options: Options) -> Plan:
    """The plan of a problem for devices with these budgets.

    Raises LaunchError if a budget does not hold one batch of tiles, ShapeError for a wrong tile.
    """
    if tile is not None:
        if isinstance(tile, bool) or tile < 1:
            raise ShapeError(f"tile is {tile}\na tile has at least 1 row\ngive a positive int")
        plan = _with_tile(problem, tile, budgets, options)
        _check_budgets(plan)
        return plan
    sizes = _sizes(problem, len(budgets))
    # smaller tiles need less memory, but more tasks: skip the sizes that cannot fit
    fitting = [size for size in sizes if _least_segment(problem, size) * 2 <= min(budgets)] or sizes[-1:]
    plan = _with_tile(problem, fitting[0], budgets, options)
    for size in fitting[1:]:
        if plan.needed <= min(budgets):
            break
        plan = _with_tile(problem, size, budgets, options)
    _check_budgets(plan)
    return plan


def _least_segment(problem: Problem, tile: int) -> int:
    """The bytes of the largest tile of the result."""
    return min(tile, problem.m) * min(tile, problem.n) * problem.dtype.itemsize


def _sizes(problem: Problem, devices: int) -> list[int]:
    """Candidate tile sizes: the largest with enough tasks, or a quick one, and its divisors."""
    longest, sizes = max(problem.m, problem.n, 1), list[int]()
    parts = -(-longest // LARGEST)
    while not sizes or sizes[-1] > LEAST:
        size = _rounded(longest / parts)
        if sizes or size <= QUICK or _tasks(problem, size) >= ENOUGH * devices:
            sizes.append(size)
        parts = 2 * parts if sizes else parts + 1
    return sizes


def _rounded(size: float) -> int:
    """A size that is not smaller, and a multiple of 64, or of 32 below."""
    unit = 64 if size > 64 else LEAST
    return -(-int(-(-size // 1)) // unit) * unit


def _tasks(problem: Problem, size: int) -> int:
    """The number of result tiles for a tile size."""
    return -(-problem.m // size) * -(-problem.n // size)


def _with_tile(problem: Problem, tile: int, budgets: Sequence[int], options: Options) -> Plan:
    """The plan of a problem with a given tile size."""
    across = problem.n if problem.side == "L" else problem.m
    width = tile
    if problem.row.form == "triangular":  # the tasks of a triangular routine are block columns or block rows
        width = min(tile, max(-(-across // (4 * len(budgets))), min(LEAST_WIDTH, tile)))
    tasks = taskize(problem, tile, width, adds_late=options.addend == "late")
    # at least one task for each device
    streams = max(1, min(options.streams, -(-len(tasks) // len(budgets))))
    plan = Plan(problem, tile, width, tasks, tuple(budgets), streams)
    if options.queue == "rows" or not plan.segment:
        return plan
    tiles = (min(budgets) - plan.needed) // plan.segment
    return replace(plan, tasks=in_squares(tasks, problem, tile, tiles))


def _check_budgets(plan: Plan) -> None:
    """Raise LaunchError if a device cannot hold one batch."""
    for device, budget in enumerate(plan.budgets):
        if budget < plan.needed:
            raise LaunchError(
                f"device {device} has a budget of {budget} bytes: a batch of tiles of {plan.tile} needs"
                f" {plan.needed}\n{plan.streams} streams need an output and the operands of a step each\n"
                "choose a larger memory_budget, a smaller tile, or fewer streams"
            )
