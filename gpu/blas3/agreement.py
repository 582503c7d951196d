"""Agreement of `summa`'s processes on sizes, scalars and errors, before one of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar, cast

import numpy as np

from gpu.blas3.arguments import Array, is_whole, operand, refuse, scalar
from gpu.blas3.problem import PREFIX_OF
from gpu.blas3.processes import Communicator, ProcessGrid
from gpu.blas3.table import Name
from gpu.host_memory import overlap
from reference.errors import DtypeError, FormatError, LaunchError, SchemeError, ShapeError

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """The arguments that one process passes to `summa`."""

    shapes: dict[str, tuple[int, int]]  # operand → shape of its local block
    common: dict[str, str]  # the arguments that must be the same on all processes, as text


@dataclass(frozen=True)
class Layout:
    """The distribution of the columns of A and the rows of B; K is the last cut of both."""

    a_cuts: tuple[int, ...]  # the first column of A of each column of the grid
    b_cuts: tuple[int, ...]  # the first row of B of each row of the grid


def part_of(alpha: Any, a: Any, b: Any, beta: Any, c: Any, panel: Any, grid: ProcessGrid, size: int) -> Part:
    """Check a process's own arguments; return what the other processes need to know of them."""
    routine = PREFIX_OF.get(getattr(c, "dtype", np.dtype("O")), "d") + "gemm"
    blocks: dict[Name, Array] = {"a": a, "b": b, "c": c}
    for name, x in blocks.items():
        _check_block(routine, name, x)
    if not c.flags.writeable:
        refuse(FormatError, routine, "c", "read-only", "it is overwritten", "copy it")
    for name in cast("tuple[Name, ...]", ("a", "b")):
        if overlap(blocks[name], [c]):
            refuse(FormatError, routine, "c", f"it shares memory with {name}", f"{name} is read", "copy it")
    if not is_whole(panel) or panel < 1:
        raise ShapeError(f"panel is {panel}\na panel has at least 1 column\ngive a positive int")
    if grid.size != size:
        raise ShapeError(
            f"a grid of {grid.rows} x {grid.columns} for {size} processes\n"
            "a grid has one position for each process\n"
            "give another grid, or none"
        )
    is_real = c.dtype.kind == "f"
    scalars = {
        name: repr(scalar(routine, name, value, is_real=is_real))
        for name, value in (("alpha", alpha), ("beta", beta))
    }
    common = {"dtype": str(c.dtype), **scalars, "panel": str(panel), "grid": f"{grid.rows} x {grid.columns}"}
    return Part({name: x.shape for name, x in blocks.items()}, common)


def _check_block(routine: str, name: Name, x: Any) -> None:
    """Raise an error for a block that is not a matrix of the dtype, and for a C that BLAS cannot write."""
    if not isinstance(x, np.ndarray):
        refuse(DtypeError, routine, name, type(x).__name__, "an array is needed", "use numpy.asarray")
    block = cast("Array", x)
    operand(routine, name, block if name == "c" else np.empty(block.shape, block.dtype, order="F"))


def gathered(comm: Communicator, own: T | Exception) -> list[T]:
    """Gather one value from each process; an error of one process is raised on all."""
    everything: list[T | Exception] = comm.allgather(own)
    for rank, one in enumerate(everything):
        if isinstance(one, Exception):
            raise type(one)(f"rank {rank}: {one}")
    return cast("list[T]", everything)


def layout_of(parts: Sequence[Part], grid: ProcessGrid) -> Layout:
    """The layout of the blocks; raises the same error on each process if they do not fit."""
    for rank, one in enumerate(parts):
        for name, value in one.common.items():
            if value != parts[0].common[name]:
                raise (DtypeError if name == "dtype" else SchemeError)(
                    f"{name} is {parts[0].common[name]} on rank 0 and {value} on rank {rank}\n"
                    "all processes compute one product\ngive the same everywhere"
                )
    _check_lines(parts, grid)
    a_cuts = _cuts(parts[column].shapes["a"][1] for column in range(grid.columns))
    b_cuts = _cuts(parts[grid.columns * row].shapes["b"][0] for row in range(grid.rows))
    if a_cuts[-1] != b_cuts[-1]:
        raise ShapeError(
            f"K is {a_cuts[-1]} in the blocks of A and {b_cuts[-1]} in those of B\n"
            "the columns of A are as many as the rows of B\ncheck the blocks"
        )
    return Layout(a_cuts, b_cuts)


def _check_lines(parts: Sequence[Part], grid: ProcessGrid) -> None:
    """Raise ShapeError unless blocks have the rows of their line of the grid, and the columns of theirs."""
    for rank, one in enumerate(parts):
        row, column = grid.place(rank)
        for name, shape in one.shapes.items():
            like_rows = parts[grid.columns * row].shapes["a" if name == "c" else name][0]
            like_columns = parts[column].shapes["b" if name == "c" else name][1]
            if shape != (like_rows, like_columns):
                raise ShapeError(
                    f"rank {rank}: its block of {name} has shape {shape}\n"
                    "next to the blocks of its grid row and grid column it must have "
                    f"{(like_rows, like_columns)}\n"
                    "take the parts that ProcessGrid.owned gives"
                )


def _cuts(lengths: Any) -> tuple[int, ...]:
    """The starts of parts with these lengths, and the end of the last."""
    return tuple(accumulate(lengths, initial=0))


def raise_failures(comm: Communicator, own: Exception | None) -> None:
    """If a process has failed, raise its own error there, and LaunchError on all others."""
    failures = comm.allgather(None if own is None else f"{type(own).__name__}: {own}")
    if own is not None:
        raise own
    for rank, failure in enumerate(failures):
        if failure is not None:
            raise LaunchError(
                f"rank {rank} failed: {failure}\nits part of the result is not complete; this rank's is\n"
                "compute C again from its old values"
            )
