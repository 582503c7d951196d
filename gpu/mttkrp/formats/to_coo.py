"""Back to coordinates, from every format."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats.nonzeros import in_natural_order
from reference.errors import DtypeError
from reference.types import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, MmCsf, PerMode, SparseTensor

Columns = tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]


def to_coo(tensor: SparseTensor) -> Coo:
    """The coordinates and values of a tensor in any format.

    Parameters
    ----------
    tensor : Coo, Csf, Fibers, MmCsf, BCsf, FCoo, HiCoo or PerMode
        On the host.

    Returns
    -------
    Coo
        With uint32 coordinates in lexicographic order by mode 0, 1, …; zeros that are stored stay.

    Raises
    ------
    DtypeError
        For anything else.

    Examples
    --------
    >>> from gpu.mttkrp.formats import mm_csf
    >>> to_coo(mm_csf(Coo([[1, 0], [2, 0]], [5.0, 6.0], (2, 3)))).coords.tolist()
    [[0, 1], [0, 2]]
    """
    coords, values = columns_of(tensor)
    nonfinite = not np.isfinite(values).all()
    coords, values = in_natural_order(Coo(coords, values, tensor.shape, nonfinite))
    return Coo(coords, values, tensor.shape, nonfinite)


@singledispatch
def columns_of(tensor: Any) -> Columns:
    """Coordinates (d, M) and values of a tensor on the host, in the format's own order.

    Examples
    --------
    >>> from gpu.mttkrp.formats import hi_coo
    >>> coords, values = columns_of(hi_coo(Coo([[1, 0], [2, 0]], [5.0, 6.0], (2, 3))))
    >>> coords.tolist(), values
    ([[0, 1], [0, 2]], array([6., 5.]))
    """
    raise DtypeError(
        f"the tensor is a {type(tensor).__name__}\n"
        "Coo, Csf, Fibers, MmCsf, BCsf, FCoo, HiCoo and PerMode are known\ngive one of them"
    )


@columns_of.register
def _(tensor: Coo) -> Columns:
    return tensor.coords, tensor.values


@columns_of.register
def _(tensor: Csf) -> Columns:
    columns = [tensor.indices[-1]]
    for level, nodes in enumerate(tensor.indices[:-1]):
        ends = tensor.pointers[level]
        for pointers in tensor.pointers[level + 1 :]:
            ends = pointers[ends]
        columns.insert(level, np.repeat(nodes, np.diff(ends)))
    return _by_mode(columns, tensor.modes), tensor.values


@columns_of.register
def _(tensor: Fibers) -> Columns:
    lengths = np.diff(tensor.pointers)
    columns = [np.repeat(indices, lengths) for indices in tensor.uppers]
    return _by_mode([*columns, tensor.leaves], tensor.modes), tensor.values


@columns_of.register
def _(tensor: MmCsf) -> Columns:
    parts = [columns_of(part) for part in tensor.partitions]
    return np.hstack([coords for coords, _ in parts]), np.hstack([values for _, values in parts])


@columns_of.register
def _(tensor: BCsf) -> Columns:
    slices = np.repeat(tensor.slices, np.diff(tensor.fiber_pointers[tensor.slice_pointers]))
    lengths = np.diff(tensor.fiber_pointers)
    columns = [np.repeat(indices, lengths) for indices in tensor.uppers]
    return _by_mode([slices, *columns, tensor.leaves], tensor.modes), tensor.values


@columns_of.register
def _(tensor: FCoo) -> Columns:
    flags = np.asarray(tensor.flags, "<u4").view(np.uint8)
    begins = np.unpackbits(flags, count=tensor.values.size, bitorder="little")
    rows = tensor.rows[np.cumsum(begins) - 1]
    return _by_mode([rows, *tensor.products], tensor.modes), tensor.values


@columns_of.register
def _(tensor: HiCoo) -> Columns:
    lengths = np.diff(tensor.block_pointers).astype(np.int64)
    blocks = np.repeat(tensor.block_coords, lengths, axis=1)
    return blocks * np.uint32(tensor.block) + tensor.offsets, tensor.values


@columns_of.register
def _(tensor: PerMode) -> Columns:
    return columns_of(tensor.tensors[0])


def _by_mode(columns: list[npt.NDArray[np.uint32]], modes: tuple[int, ...]) -> npt.NDArray[np.uint32]:
    """Columns from level to mode."""
    coords = np.empty((len(modes), columns[-1].size), np.uint32)
    for mode, column in zip(modes, columns, strict=True):
        coords[mode] = column
    return coords
