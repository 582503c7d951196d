"""Whether the arrays of a format fit one another: what every reader of a format may rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from reference.sparse import _fit
from reference.sparse.arguments import check_coo
from reference.sparse.b_csf import slice_bins
from reference.sparse.f_coo import WORD_BITS, segment_flags
from reference.sparse.hi_coo import BLOCKS
from reference.types import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, MmCsf, PerMode


def check_format(tensor: object) -> None:
    """Raise unless the arrays of a sparse tensor fit one another.

    They have the types and lengths that `reference.types` gives, pointers ascend from 0 to the end
    without an empty node, indices lie within the shape, and what is stored twice agrees. That nonzeros are
    in order, and no place occurs twice, is not looked at.

    Parameters
    ----------
    tensor : Coo, Csf, Fibers, MmCsf, BCsf, FCoo, HiCoo or PerMode
        On the host.

    Raises
    ------
    DtypeError
        If it is none of them.
    FormatError
        If its arrays do not fit; names the array.
    ShapeError
        For a Coo with a dimension above 2**32.

    Examples
    --------
    >>> index, values = np.array([0], np.uint32), np.array([1.0])
    >>> pointers = np.array([0, 2], np.uint32)
    >>> check_format(Csf((0, 1), (index, index), (pointers,), values, (2, 3)))
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: Csf: pointers[0] ends at 2
    it points to 1 nodes or nonzeros
    build the format again from a Coo
    """
    check_kind(tensor)
    _CHECKS[type(tensor)](tensor)


def check_kind(tensor: object) -> None:
    """Raise DtypeError unless ``tensor`` is of one of the formats.

    Examples
    --------
    >>> check_kind([[5.0, 0.0]])
    Traceback (most recent call last):
    ...
    reference.errors.DtypeError: the tensor is a list
    the formats are Coo, Csf, Fibers, MmCsf, BCsf, FCoo, HiCoo, PerMode
    make a Coo(coords, values, shape) of it
    """
    if type(tensor) not in _CHECKS:
        raise DtypeError(
            f"the tensor is a {type(tensor).__name__}\n"
            f"the formats are {', '.join(kind.__name__ for kind in _CHECKS)}\n"
            "make a Coo(coords, values, shape) of it"
        )


def _csf(tree: Csf) -> None:
    dimensions, nonzeros = _fit.dimensions(tree), _fit.nonzeros(tree)
    _fit.tuple_of(tree, "indices", tree.indices, len(dimensions))
    _fit.tuple_of(tree, "pointers", tree.pointers, len(dimensions) - 1)
    nodes = [_fit.nodes(tree, f"indices[{level}]", indices) for level, indices in enumerate(tree.indices)]
    nodes[-1] = nonzeros
    for level, dimension in enumerate(dimensions):
        _fit.vector_below(tree, f"indices[{level}]", tree.indices[level], nodes[level], dimension)
    for level, pointers in enumerate(tree.pointers):
        _fit.pointers(tree, f"pointers[{level}]", pointers, nodes[level], nodes[level + 1])


def _fibers(part: Fibers) -> None:
    dimensions, nonzeros = _fit.dimensions(part), _fit.nonzeros(part)
    fibers = _fit.split_fibers(part, "pointers", part.pointers, nonzeros)
    _fit.rows_below(part, "uppers", part.uppers, fibers, dimensions[:-1])
    _fit.vector_below(part, "leaves", part.leaves, nonzeros, dimensions[-1])


def _mm_csf(tensor: MmCsf) -> None:
    _fit.order(tensor)
    if not tensor.partitions or not _fit.is_tuple(tensor.partitions, Fibers):
        raise _fit.wrong(tensor, "partitions is not a tuple of Fibers", "there is at least one")
    for part in tensor.partitions:
        _fibers(part)
        if part.shape != tensor.shape:
            raise _fit.wrong(tensor, f"a partition has shape {part.shape}", f"the tensor has {tensor.shape}")
        if part.values.dtype != tensor.partitions[0].values.dtype:
            raise _fit.wrong(tensor, "the partitions have values of two types", "all are of one")
    leaves = [part.modes[-1] for part in tensor.partitions]
    if leaves != sorted(set(leaves)):
        raise _fit.wrong(tensor, f"the partitions have the leaf modes {leaves}", "they ascend")


def _b_csf(tree: BCsf) -> None:
    dimensions, nonzeros = _fit.dimensions(tree), _fit.nonzeros(tree)
    slices = _fit.nodes(tree, "slices", tree.slices)
    fibers = _fit.split_fibers(tree, "fiber_pointers", tree.fiber_pointers, nonzeros)
    _fit.pointers(tree, "slice_pointers", tree.slice_pointers, slices, fibers)
    _fit.vector_below(tree, "slices", tree.slices, slices, dimensions[0])
    _fit.rows_below(tree, "uppers", tree.uppers, fibers, dimensions[1:-1])
    _fit.vector_below(tree, "leaves", tree.leaves, nonzeros, dimensions[-1])
    _fit.array(tree, "order", tree.order, (slices,))
    lengths = np.diff(tree.fiber_pointers[tree.slice_pointers]).tolist()
    order, bins = slice_bins(lengths, _fit.integer(tree, "share", tree.share))
    if not _fit.is_tuple(tree.bins, int) or tree.bins != bins or tree.order.tolist() != order:
        raise _fit.wrong(tree, f"order, or bins {tree.bins!r}, is not that of the slices", f"bins is {bins}")


def _f_coo(flagged: FCoo) -> None:
    dimensions, nonzeros = _fit.dimensions(flagged), _fit.nonzeros(flagged)
    partition = _fit.integer(flagged, "partition", flagged.partition, WORD_BITS)
    _fit.rows_below(flagged, "products", flagged.products, nonzeros, dimensions[1:])
    _fit.array(flagged, "flags", flagged.flags, (-(-nonzeros // WORD_BITS),))
    begins = flag_bits(flagged.flags, nonzeros)
    segments = np.flatnonzero(begins)
    if not begins[0] or not np.array_equal(flagged.flags, segment_flags(segments.tolist(), nonzeros)):
        raise _fit.wrong(
            flagged, "flags lacks bit 0 or has bits past the last nonzero", "compare with `f_coo`"
        )
    _fit.vector_below(flagged, "rows", flagged.rows, segments.size, dimensions[0])
    first = (np.cumsum(begins) - 1)[::partition]
    _fit.array(flagged, "first", flagged.first, first.shape)
    if not np.array_equal(flagged.first, first):
        raise _fit.wrong(
            flagged, "first does not follow from flags", "it has the segments of the flags so far"
        )


def _hi_coo(blocked: HiCoo) -> None:
    order, nonzeros = _fit.order(blocked), _fit.nonzeros(blocked)
    block = _fit.integer(blocked, "block", blocked.block)
    if block not in BLOCKS:
        raise _fit.wrong(blocked, f"block is {block}", f"it is one of {', '.join(map(str, BLOCKS))}")
    blocks = _fit.nodes(blocked, "block_pointers", blocked.block_pointers) - 1
    _fit.pointers(blocked, "block_pointers", blocked.block_pointers, blocks, nonzeros, np.uint64)
    _fit.array(blocked, "block_coords", blocked.block_coords, (order, blocks))
    _fit.array(blocked, "offsets", blocked.offsets, (order, nonzeros), np.uint8)
    if int(blocked.offsets.max()) >= block:
        raise _fit.wrong(blocked, f"offsets has {blocked.offsets.max()}", f"a block has {block} a side")
    for mode, largest in enumerate(block_places(blocked).max(axis=1).tolist()):
        if largest >= blocked.shape[mode]:
            found = f"block_coords and offsets give the index {largest} in mode {mode}"
            raise _fit.wrong(blocked, found, f"its dimension is {blocked.shape[mode]}")


def _per_mode(tensor: PerMode) -> None:
    order = _fit.order(tensor)
    _fit.tuple_of(tensor, "tensors", tensor.tensors, order)
    if not any(_fit.is_tuple(tensor.tensors, kind) for kind in (Csf, BCsf, FCoo)):
        raise _fit.wrong(tensor, "tensors are not of one kind", "all are Csf, all BCsf or all FCoo")
    for mode, one in enumerate(tensor.tensors):
        check_format(one)
        if one.modes[0] != mode or one.shape != tensor.shape:
            found = f"tensors[{mode}] has modes {one.modes} and shape {one.shape}"
            raise _fit.wrong(tensor, found, f"mode {mode} is to be first, and the shape {tensor.shape}")


_CHECKS: dict[type[Any], Callable[[Any], None]] = {
    Coo: check_coo,
    Csf: _csf,
    Fibers: _fibers,
    MmCsf: _mm_csf,
    BCsf: _b_csf,
    FCoo: _f_coo,
    HiCoo: _hi_coo,
    PerMode: _per_mode,
}


def flag_bits(flags: npt.NDArray[np.uint32], nonzeros: int) -> npt.NDArray[np.bool_]:
    """For each nonzero whether it begins a segment of an FCoo.

    Examples
    --------
    >>> flag_bits(np.array([0b101], np.uint32), 4)
    array([ True, False,  True, False])
    """
    z = np.arange(nonzeros, dtype=np.uint32)
    return (flags[z // WORD_BITS] >> z % WORD_BITS) & 1 == 1


def block_places(blocked: HiCoo) -> npt.NDArray[np.int64]:
    """The indices of a HiCoo's nonzeros, (order, M).

    Examples
    --------
    >>> corner, offset = np.array([[2], [1]], np.uint32), np.array([[1], [3]], np.uint8)
    >>> pointers, values = np.array([0, 1], np.uint64), np.array([1.0])
    >>> block_places(HiCoo(pointers, corner, offset, values, (10, 10), 4)).tolist()
    [[9], [7]]
    """
    lengths = np.diff(blocked.block_pointers).astype(np.int64)
    corners = np.repeat(blocked.block_coords.astype(np.int64), lengths, axis=1)
    return int(blocked.block) * corners + blocked.offsets
