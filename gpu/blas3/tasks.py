"""Tasks: independent work of one device, as steps along k (BLASX, sections III.A and IV.A).

A task writes one tile of the result, or for triangular routines one block column or row, tile after tile in
an order that is safe in place. Each step of a tile is one tile routine, and reads one or two blocks of the
host's matrices. Each sum is computed by one device in one order, so results do not depend on the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu.blas3.blocks import Block
from gpu.blas3.problem import Diag, Side, Trans, Uplo
from gpu.blas3.table import ROWS


@dataclass(frozen=True)
class Kernel:
    """A tile routine's name, flags and scalars; without operands it scales the result by ``beta``."""

    name: str  # a routine of BLAS, or "geam" of cuBLAS: ``alpha A + beta C``
    alpha: complex
    beta: complex
    side: Side = "L"
    uplo: Uplo = "U"
    trans_a: Trans = "N"
    trans_b: Trans = "N"
    diag: Diag = "N"

    @property
    def updates(self) -> bool:
        """True if a step reads the tile that it writes; a triangular result keeps its other triangle."""
        row = ROWS.get(self.name)
        return self.beta != 0 or self.name == "trsm" or (row is not None and row.is_triangle)


@dataclass(frozen=True, slots=True)
class Step:
    """One BLAS kernel applied to an output tile."""

    kernel: Kernel
    reads: tuple[Block, ...] = ()  # A, or A and B


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a tile, made anew at each iteration: a plan has millions, and holds none."""

    make: Callable[[], Iterator[Step]]

    def __iter__(self) -> Iterator[Step]:
        return self.make()

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class Output:
    """A tile of the result, and the steps that compute it."""

    block: Block
    steps: Steps | tuple[Step, ...]
    is_reused: bool = False  # whether later tiles of the task read the finished one

    @property
    def first(self) -> Kernel:
        """The kernel of the first step."""
        return next(iter(self.steps)).kernel

    @property
    def is_loaded(self) -> bool:
        """True if the output tile's old values are copied in, since the first step reads them."""
        return self.first.updates

    @property
    def reads_itself(self) -> bool:
        """True if the output tile's old values are an operand of a step."""
        return any(self.block in step.reads for step in self.steps)


@dataclass(frozen=True, slots=True)
class Task:
    """The outputs that one device computes one after another."""

    number: int  # position in the global queue
    outputs: tuple[Output, ...]

    def steps(self) -> Iterator[tuple[Output, Step]]:
        """All steps in order, each with its output."""
        for output in self.outputs:
            for step in output.steps:
                yield output, step

    def reads(self) -> Iterator[Block]:
        """All input blocks in the order of their use, with repetitions, without the loads of outputs."""
        for output in self.outputs:
            for step in output.steps:
                yield from step.reads
