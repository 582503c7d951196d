"""Fibers along one mode, each with its indices in all other modes; its kernels are in ``fibers.cu``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.device import Array
from gpu.mttkrp.formats.entry import Columns, Format, by_mode
from gpu.mttkrp.formats.nonzeros import Nonzeros, per_mode, sorted_nonzeros
from gpu.mttkrp.formats.runs import depths_of, starts_of
from gpu.mttkrp.formats.sort import gathered, taken
from gpu.mttkrp.kernels import Setting, Work, pointers, rows_of
from reference.types import Coo, Fibers, PerMode
from reference.types.arguments import check_number

SHARE = 64
"""The approximate nonzeros of a group."""

ENOUGH_GROUPS = 1 << 16
"""The number of groups that keep a large chip busy."""


def fibers(coo: Coo, modes: Sequence[int], *, split: int = 128) -> Fibers:
    """Build a tensor of fibers along the last of ``modes``, sorted by the other modes.

    ``modes`` are all modes; fibers longer than ``split`` nonzeros are cut. FormatError if coordinates occur
    twice; ShapeError for other modes, a ``split`` below 1 or dimensions above 2**32. Source: MM-CSF (SC'19),
    section 5.1.

    >>> made = fibers(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)), (0, 1, 2))
    >>> made.uppers.tolist(), made.pointers.tolist(), made.leaves.tolist()
    ([[0, 1], [1, 0]], [0, 2, 3], [0, 4, 2])
    """
    return fibers_of(sorted_nonzeros(coo, modes), check_number("split", split))


def fibers_all(coo: Coo, *, split: int = 128) -> PerMode:
    """Build fibers for each mode, with that mode first: B-CSF-ALL for algorithm 6; see `fibers`.

    Source: MM-CSF (SC'19), section 5.

    >>> made = fibers_all(Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5)))
    >>> [part.modes for part in made.tensors]
    [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    """
    split = check_number("split", split)
    return per_mode(coo, lambda nonzeros: fibers_of(nonzeros, split))


def fibers_of(nonzeros: Nonzeros, split: int) -> Fibers:
    """Gather sorted nonzeros into fibers along the last of their modes."""
    coords, modes, order = nonzeros.coords, nonzeros.modes, nonzeros.order
    starts = starts_of(depths_of(coords, modes, order), len(modes) - 2, split)
    firsts = taken(order, starts[:-1])
    return Fibers(
        modes,
        gathered(coords, firsts, modes[:-1]),
        starts,
        taken(coords[modes[-1]], order),
        taken(nonzeros.values, order),
        nonzeros.shape,
        split,
    )


def columns(tensor: Fibers) -> Columns:
    """Coordinates and values of a tensor of fibers, in the order of the fibers.

    >>> columns(fibers(Coo([[0, 0, 1], [1, 2, 0]], [5.0, 6.0, 7.0], (2, 3)), (0, 1)))[0].tolist()
    [[0, 0, 1], [1, 2, 0]]
    """
    lengths = np.diff(tensor.pointers)
    uppers = [np.repeat(indices, lengths) for indices in tensor.uppers]
    return by_mode([*uppers, tensor.leaves], tensor.modes), tensor.values


def work_of(tensor: Fibers, mode: int, setting: Setting, slices: Array | None = None) -> Work:
    """The launch of algorithm 6, 7 or 8, by the mode's level, for a whole tensor or an MM-CSF partition.

    ``slices``, if given, has each fiber's index in the first of the modes, ``uppers`` those in the others.
    """
    level, count = tensor.modes.index(mode), tensor.pointers.shape[0] - 1
    to_leaf = level == setting.order - 1
    run = run_of_group(count, tensor.values.shape[0])
    uppers = [] if slices is None else [slices.pointer]
    uppers += rows_of(tensor.uppers) if tensor.uppers.shape[0] else []
    if not to_leaf:
        uppers.append(uppers.pop(level))
    name, grid = "to_leaf" if to_leaf else "to_upper", setting.grid(-(-count // run))
    arguments = pointers(*uppers, tensor.pointers, tensor.leaves, tensor.values), count, run
    modes = tuple(n for n in tensor.modes if n != mode)
    keep = () if slices is None else (slices,)
    launch = setting.launch(
        "fibers.cu", name, grid, *arguments, modes=modes, keep=keep, defines=aligned(tensor)
    )
    if not setting.deterministic:
        return Work((launch,))
    if to_leaf:
        return Work((launch,), tensor.leaves.download().astype(np.int64))
    apart = len(keep)  # levels whose indices are not among the uppers
    rows = tensor.uppers.download()[level - apart] if level >= apart else keep[level].download()
    return Work((launch,), _emitted(rows, run))


def run_of_group(fibers: int, nonzeros: int) -> int:
    """The number of fibers per group of lanes; smaller for long fibers, or few.

    It depends on the tensor alone, so that deterministic results are the same on every device.

    >>> run_of_group(fibers=2_000_000, nonzeros=10_000_000), run_of_group(fibers=1000, nonzeros=5000)
    (12, 1)
    """
    return max(1, min(SHARE * fibers // nonzeros, fibers // ENOUGH_GROUPS))


def aligned(tensor: Any) -> dict[str, str | int]:
    """The macro ``ALIGNED``, if leaves and values both start at multiples of 16 bytes.

    >>> import simwarp
    >>> from types import SimpleNamespace
    >>> array = simwarp.Device().upload(np.zeros(4))
    >>> aligned(SimpleNamespace(leaves=array, values=array))
    {'ALIGNED': ''}
    """
    return {"ALIGNED": ""} if (tensor.leaves.pointer | tensor.values.pointer) % 16 == 0 else {}


def _emitted(rows: npt.NDArray[np.uint32], run: int) -> npt.NDArray[np.int64]:
    """For each fiber, the row that the kernel writes after it (the row changes or a run ends), else -1."""
    ends = np.append(rows[1:] != rows[:-1], True)
    ends[run - 1 :: run] = True
    return np.where(ends, rows.astype(np.int64), -1)


FORMAT = Format(
    Fibers,
    columns,
    builders={"fibers-all": fibers_all},
    work=work_of,
    source="fibers.cu",
    summary="one of three kernels, by the level of the mode: slice, fiber or nonzero",
    macros={"ALIGNED": ""},
)
