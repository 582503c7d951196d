"""`summa`: a product of matrices that are spread over processes (van de Geijn and Watts, 1997).

Panels along k are broadcast, of A along the rows of the grid and of B along its columns; the next panel is on
its way while the present one is multiplied by the devices of this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpu.blas3 import doors
from gpu.blas3.agreement import gathered, layout_of, part_of, raise_failures
from gpu.blas3.arguments import Array
from gpu.blas3.options import Options
from gpu.blas3.problem import PREFIX_OF
from gpu.blas3.processes import Communicator, ProcessGrid, Request, world
from gpu.machine import Machine, check_machine


def summa(
    alpha: complex,
    a: Array,
    b: Array,
    beta: complex,
    c: Array,
    *,
    comm: Communicator | None = None,
    grid: ProcessGrid | None = None,
    panel: int = 8192,
    device: Machine | None = None,
    tile: int | None = None,
    memory_budget: int | Sequence[int] | None = None,
    options: Options | None = None,
) -> Array:
    """Compute ``alpha A B + beta C`` of matrices in blocks; each process of a grid has one block of each.

    Parameters
    ----------
    alpha, beta : number
        With ``beta`` 0, C is not read.
    a, b, c : array of float32, float64, complex64 or complex128
        This process's blocks, such as `ProcessGrid.owned` gives. Blocks of A and C in a row of the grid have
        the same rows, blocks of B and C in a column the same columns; any sizes, 0 too. C is computed in
        place.
    comm : mpi4py.MPI.Comm, optional
        Default: all processes. All of them must call it.
    grid : ProcessGrid, optional
        Default: the one nearest to a square.
    panel : int
        Columns of A and rows of B of one broadcast and one product. Each product reads and writes C, so a
        wide panel moves less between host and devices.
    device, tile, memory_budget, options
        Of the product in this process, as of `dgemm`.

    Returns
    -------
    array
        ``c``.

    Raises
    ------
    ShapeError, DtypeError, FormatError, SchemeError
        For an argument of any process, on all of them, before anything is written.
    LaunchError
        If a product failed on another process; there its own error is raised.
    MissingExtraError
        Without ``comm`` and mpi4py.

    Notes
    -----
    Transposes are left out. Sums run along k in panels. With ``Options(addend="first")`` they have one order
    on every grid: if tiles divide the panel and the blocks, bits are those of one process with the same tile
    and option, as long as the tile routine's do not depend on the layout of its operands. Source: van de
    Geijn and Watts, SUMMA: Scalable Universal Matrix Multiplication Algorithm (1997).

    Examples
    --------
    >>> import simwarp
    >>> from gpu.blas3 import OneProcess
    >>> a, b, c = np.ones((2, 3)), np.ones((3, 2)), np.full((2, 2), np.nan)
    >>> summa(2.0, a, b, 0.0, c, comm=OneProcess(), device=simwarp.Machine()).tolist()
    [[6.0, 6.0], [6.0, 6.0]]
    """
    comm = world() if comm is None else comm
    grid = ProcessGrid.of(comm.size) if grid is None else grid
    try:
        if device is not None:
            check_machine(device)
        own = part_of(alpha, a, b, beta, c, panel, grid, comm.size)
    except Exception as error:  # the error is raised on all processes
        own = error
    layout = layout_of(gathered(comm, own), grid)
    spans = _panels(layout.a_cuts[-1] if alpha != 0 else 0, panel)
    row, column = grid.place(comm.rank)
    lines = comm.Split(row, column), comm.Split(column, row)
    try:
        left = _Operand(lines[0], a, layout.a_cuts, len(spans[0]))
        right = _Operand(lines[1], b.T, layout.b_cuts, len(spans[0]))
        operands = left, right
    except MemoryError as error:
        operands = error
    gathered(comm, None if isinstance(operands, tuple) else operands)
    assert isinstance(operands, tuple)
    keywords = {"device": device, "tile": tile, "memory_budget": memory_budget, "options": options}
    failure = _multiply(operands, spans, (alpha, beta), c, keywords)
    for line in lines:
        line.Free()
    raise_failures(comm, failure)
    return c


def _panels(k: int, panel: int) -> list[range]:
    """The columns of A in each panel; for K = 0, one empty panel, which scales C."""
    return [range(start, min(start + panel, k)) for start in range(0, k, panel)] or [range(0)]


def _multiply(
    operands: tuple[_Operand, _Operand],
    spans: Sequence[range],
    scalars: tuple[complex, complex],
    c: Array,
    keywords: dict[str, Any],
) -> Exception | None:
    """Add the products of all panels to C; after an error, only broadcast, since the other processes wait."""
    gemm = getattr(doors, PREFIX_OF[c.dtype] + "gemm")
    alpha, beta = scalars
    failure: Exception | None = None
    for operand in operands:
        operand.begin(spans[0])
    for number, span in enumerate(spans):
        a, b_transposed = (operand.finish(span) for operand in operands)
        if number + 1 < len(spans):
            for operand in operands:
                operand.begin(spans[number + 1])
        if failure is None:
            try:
                gemm(alpha, a, b_transposed.T, 1.0 if number else beta, c, overwrite_c=1, **keywords)
            except Exception as error:  # the error is raised when all panels have been broadcast
                failure = error
    return failure


class _Operand:
    """The panels of A, or of Bᵀ, on a line of the grid: one is received while another is used."""

    def __init__(self, line: Communicator, block: Array, cuts: Sequence[int], width: int) -> None:
        self._line, self._block, self._cuts = line, block, cuts
        self._buffers = [np.empty((len(block), width), block.dtype, order="F") for _ in range(2)]
        self._requests: list[Request] = []

    def begin(self, span: range) -> None:
        """Begin to broadcast the pieces of a panel, each from its owner."""
        self._buffers.reverse()
        for owner, start, stop in self._pieces(span):
            piece = self._buffers[0][:, start - span.start : stop - span.start]
            if owner == self._line.rank:
                first = self._cuts[owner]
                piece[...] = self._block[:, start - first : stop - first]
            if self._line.size > 1 and piece.size:
                # the transposed piece is contiguous
                self._requests.append(self._line.Ibcast(piece.T, root=owner))

    def finish(self, span: range) -> Array:
        """Wait for the panel that was begun last, and return it."""
        for request in self._requests:
            request.Wait()
        self._requests = []
        return self._buffers[0][:, : len(span)]

    def _pieces(self, span: range) -> Iterator[tuple[int, int, int]]:
        """The owners of a panel's columns, each with its first column and the one behind its last."""
        for owner, (first, last) in enumerate(pairwise(self._cuts)):
            start, stop = max(first, span.start), min(last, span.stop)
            if start < stop:
                yield owner, start, stop
