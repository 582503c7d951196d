"""From every format back to coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import FormatError
from reference.sparse.check import block_places, check_format, flag_bits
from reference.sparse.order import sort_nonzeros
from reference.types import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, MmCsf, PerMode, SparseTensor

Places = npt.NDArray[Any]


def to_coo(tensor: SparseTensor) -> Coo:
    """The nonzeros of any format, in lexicographic order by mode 0, 1, ….

    Nothing is dropped or added up: explicit zeros stay, and a place that occurs twice in a Coo does so in
    the result, in the same order.

    Parameters
    ----------
    tensor : Coo, Csf, Fibers, MmCsf, BCsf, FCoo, HiCoo or PerMode
        On the host.

    Returns
    -------
    Coo
        With uint32 indices.

    Raises
    ------
    FormatError
        If the arrays do not fit one another, as `reference.sparse.check.check_format` describes, or the
        representations of a PerMode hold different tensors.
    DtypeError
        If it is none of the formats.
    ShapeError
        For a Coo with a dimension above 2**32.

    Examples
    --------
    >>> from reference.sparse import mm_csf
    >>> coo = Coo([[1, 0, 0], [2, 2, 1]], [5.0, 6.0, 7.0], (2, 3))
    >>> again = to_coo(mm_csf(coo))
    >>> again.coords.tolist(), again.values.tolist()
    ([[0, 0, 1], [1, 2, 2]], [7.0, 6.0, 5.0])
    """
    check_format(tensor)
    if isinstance(tensor, Coo):
        return _sorted(tensor.coords, tensor.values, tensor.shape)
    if isinstance(tensor, MmCsf):
        parts = [_from_fibers(part) for part in tensor.partitions]
        coords, values = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
        return _sorted(coords, values, tensor.shape)
    if isinstance(tensor, PerMode):
        return _the_one([to_coo(copy) for copy in tensor.tensors])
    coords, values = _READERS[type(tensor)](tensor)
    return _sorted(coords, values, tensor.shape)


def _sorted(coords: Places, values: Places, shape: tuple[int, ...]) -> Coo:
    modes = tuple(range(len(shape)))
    nonfinite = not np.isfinite(values).all()
    return Coo(*sort_nonzeros(Coo(coords, values, shape, nonfinite), modes), shape, nonfinite)


def _the_one(copies: list[Coo]) -> Coo:
    """The tensor that all the copies hold, compared bit by bit: NaNs and the sign of 0 count."""
    first, *others = copies
    for mode, other in enumerate(others, start=1):
        same_places = np.array_equal(first.coords, other.coords)
        if not same_places or first.values.tobytes() != other.values.tobytes():
            raise FormatError(
                f"PerMode: tensors[{mode}] holds another tensor than tensors[0]\n"
                "each is the whole tensor, for one mode\n"
                "build the format again from a Coo"
            )
    return first


def _by_mode(levels: list[Places], modes: tuple[int, ...]) -> Places:
    return np.stack([levels[modes.index(mode)] for mode in range(len(modes))])


def _from_csf(tree: Csf) -> tuple[Places, Places]:
    """Each level's indices, repeated for all the leaves below."""
    levels = [tree.indices[-1]]
    leaves_below = np.ones(tree.values.size, np.int64)
    for indices, pointers in zip(reversed(tree.indices[:-1]), reversed(tree.pointers), strict=True):
        leaves_below = np.add.reduceat(leaves_below, pointers[:-1])
        levels.insert(0, np.repeat(indices, leaves_below))
    return _by_mode(levels, tree.modes), tree.values


def _from_fibers(part: Fibers) -> tuple[Places, Places]:
    uppers = np.repeat(part.uppers, np.diff(part.pointers), axis=1)
    return _by_mode([*uppers, part.leaves], part.modes), part.values


def _from_b_csf(tree: BCsf) -> tuple[Places, Places]:
    uppers = np.vstack([np.repeat(tree.slices, np.diff(tree.slice_pointers)), tree.uppers])
    levels = np.repeat(uppers, np.diff(tree.fiber_pointers), axis=1)
    return _by_mode([*levels, tree.leaves], tree.modes), tree.values


def _from_f_coo(flagged: FCoo) -> tuple[Places, Places]:
    segment_of = np.cumsum(flag_bits(flagged.flags, flagged.values.size)) - 1
    return _by_mode([flagged.rows[segment_of], *flagged.products], flagged.modes), flagged.values


def _from_hi_coo(blocked: HiCoo) -> tuple[Places, Places]:
    return block_places(blocked), blocked.values


_READERS: dict[type[Any], Callable[[Any], tuple[Places, Places]]] = {
    Csf: _from_csf,
    Fibers: _from_fibers,
    BCsf: _from_b_csf,
    FCoo: _from_f_coo,
    HiCoo: _from_hi_coo,
}
