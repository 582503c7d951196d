"""Coordinate format: sorted on the host, duplicates summed; its kernel is ``coo.cu``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats.compiled import compiled
from gpu.mttkrp.formats.entry import Format
from gpu.mttkrp.formats.nonzeros import in_natural_order
from gpu.mttkrp.formats.runs import depths_of, starts_of
from gpu.mttkrp.formats.sort import gathered
from gpu.mttkrp.kernels import Setting, Work, pointers, rows_of
from reference.types import Coo

CHUNK = 32
"""The number of consecutive nonzeros that a group takes."""

_C_TYPES = {
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
}


def coalesce(coo: Coo) -> Coo:
    """Sum the values of equal coordinates, and sort the nonzeros by mode 0, 1, ….

    Values are added in the order of ``coo``, in their own type; a sum of 0 is stored, and coordinates become
    uint32. ShapeError for a dimension above 2**32; NotANumberError if a sum overflows, unless
    ``coo.nonfinite``.

    >>> once = coalesce(Coo([[1, 0, 1], [2, 0, 2]], [5.0, 6.0, 7.0], (2, 3)))
    >>> once.coords.tolist(), once.values.tolist()
    ([[0, 1], [0, 2]], [6.0, 12.0])
    """
    coords, values = in_natural_order(coo)
    order = np.arange(values.size, dtype=np.uint32)
    starts = starts_of(depths_of(coords, range(len(coords)), order), len(coords) - 1)
    if starts.size <= values.size:
        coords, sums = gathered(coords, starts[:-1]), np.empty(starts.size - 1, values.dtype)
        compiled(_add_runs)(values, starts, sums)
        values = sums
    return Coo(coords, values, coo.shape, coo.nonfinite)


def _add_runs(values: Any, starts: Any, sums: Any) -> None:
    for run in range(sums.size):
        total = values[starts[run]]
        for z in range(starts[run] + 1, starts[run + 1]):
            total += values[z]
        sums[run] = total


def _work(tensor: Coo, mode: int, setting: Setting) -> Work:
    """The launch of the COO kernel, which adds atomically at each change of row.

    Nonzeros may be in any order, and coordinates may repeat.
    """
    nonzeros = tensor.values.shape[0]
    modes = others(mode, setting.order)
    slot_rows, first_slots = np.empty(0, np.int64), 0
    if setting.deterministic:
        slot_rows, firsts = runs_of(tensor.coords.download()[mode].astype(np.int64))
        first_slots = setting.device.upload(firsts, "first slots")
    coordinates = rows_of(tensor.coords)
    indices, grid = pointers(*(coordinates[n] for n in (mode, *modes))), setting.grid(-(-nonzeros // CHUNK))
    arguments = indices, tensor.values, nonzeros, first_slots
    macros = {"INDEX": _C_TYPES[tensor.coords.dtype.name], "CHUNK": CHUNK}
    return Work((setting.launch("coo.cu", "coo", grid, *arguments, modes=modes, defines=macros),), slot_rows)


def others(mode: int, order: int) -> tuple[int, ...]:
    """All modes except one, ascending.

    >>> others(1, 4)
    (0, 2, 3)
    """
    return tuple(n for n in range(order) if n != mode)


def runs_of(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """The row of each run of equal rows within a chunk, and the first run of each chunk.

    >>> slot_rows, first_slots = runs_of(np.repeat([7, 5, 7], [30, 1, 40]))
    >>> slot_rows.tolist(), first_slots.tolist()
    ([7, 5, 7, 7, 7], [0, 3, 4])
    """
    begins = np.ones(rows.size, np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=begins[1:])
    begins[::CHUNK] = True
    first_slots = np.cumsum(begins, dtype=np.int64)[::CHUNK] - 1
    return rows[begins].astype(np.int64), first_slots.astype(np.uint32)


FORMAT = Format(
    Coo,
    columns=lambda tensor: (tensor.coords, tensor.values),
    builders={"coo": coalesce},
    work=_work,
    source="coo.cu",
    summary="a group for each 32 nonzeros, atomic additions where the row changes",
    macros={"INDEX": "long long", "CHUNK": CHUNK},
)
