"""How many bytes the indices of a sparse tensor take."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from reference.errors import FormatError, SchemeError
from reference.sparse.check import check_kind
from reference.sparse.order import Indices, prefix_starts
from reference.types import BCsf, Coo, Csf, FCoo, Fibers, HiCoo, MmCsf, PerMode, SparseTensor

By: TypeAlias = Literal["paper", "held"]

_WORD = 4
_NONZEROS_OF_A_START = 8


def index_bytes(tensor: SparseTensor, by: By = "paper") -> int:
    """The bytes of everything but the values.

    By the paper's formulas, for an order-d tensor of M nonzeros, with N(l) the different prefixes of
    l + 1 indices: N(0) slices, N(1), …, and F = N(d - 2) fibers, split ones counted as several.

    ============= ==========================================================================
    format        bytes
    ============= ==========================================================================
    Coo           4 d M
    Csf           4 (2 (N(0) + … + N(d - 2)) + M), no fiber split
    BCsf          4 (2 (N(0) + … + N(d - 3) + F) + M)
    Fibers, MmCsf 4 (3 N(1) + 2 (N(2) + … + N(d - 2)) + M) for each partition; 4 (2 F + M) if d = 2
    FCoo          4 (d - 1) M + M/8 + M/64, rounded up: a bit flag each, a start flag for each eight
    HiCoo         (8 + 4 d) B + d M for B blocks
    PerMode       the sum over its d representations
    ============= ==========================================================================

    A pointer array of n nodes counts as n pointers there, F-COO's rows and starts and B-CSF's bins not at
    all. ``by="held"`` counts every array of the dataclass but ``values`` as it is.

    Parameters
    ----------
    tensor : Coo, Csf, Fibers, MmCsf, BCsf, FCoo, HiCoo or PerMode
        For ``by="paper"`` on the host.
    by : {"paper", "held"}

    Returns
    -------
    int

    Raises
    ------
    SchemeError
        For another ``by``.
    DtypeError
        If the tensor is none of the formats.
    FormatError
        For ``by="paper"`` on a device.

    Notes
    -----
    Source: MM-CSF (SC'19), sections 3.1, 5, 5.1 and 6.8, tables 3 and 8; HiCOO (SC'18).

    Examples
    --------
    >>> from reference.sparse import csf, mm_csf
    >>> coo = Coo([[0, 0, 1], [1, 1, 0], [0, 3, 3]], [1.0, 2.0, 3.0], (2, 3, 4))
    >>> index_bytes(coo), index_bytes(csf(coo)), index_bytes(csf(coo), by="held")
    (36, 44, 52)
    """
    if by not in ("paper", "held"):
        raise SchemeError(
            f"there is no by={by!r}\n"
            "it says what is counted\n"
            "choose 'paper', its formulas, or 'held', the arrays as they are"
        )
    check_kind(tensor)
    if isinstance(tensor, MmCsf):
        return sum(index_bytes(part, by) for part in tensor.partitions)
    if isinstance(tensor, PerMode):
        return sum(index_bytes(copy, by) for copy in tensor.tensors)
    if by == "held":
        return sum(array.nbytes for array in _index_arrays(tensor))
    if not isinstance(tensor.values, np.ndarray):
        raise FormatError(
            "the tensor lies on a device\n"
            "the formulas count different prefixes, on the host\n"
            "count it before the upload, or say by='held'"
        )
    return _paper(tensor)


def _paper(tensor: Coo | Csf | Fibers | BCsf | FCoo | HiCoo) -> int:
    order, nonzeros = len(tensor.shape), int(tensor.values.size)
    match tensor:
        case Coo():
            return _WORD * order * nonzeros
        case Csf():
            return _WORD * (2 * sum(nodes.size for nodes in tensor.indices[:-1]) + nonzeros)
        case BCsf():
            slice_of = np.repeat(tensor.slices, np.diff(tensor.slice_pointers))
            nodes = _nodes(np.vstack([slice_of, tensor.uppers]))
            return _WORD * (2 * sum(nodes) + nonzeros)
        case Fibers():
            nodes = _nodes(tensor.uppers)
            # A pointer and an index for each node from level 1 on; level 1 has the slice's index too.
            return _WORD * (2 * sum(nodes[1:] or nodes) + sum(nodes[1:2]) + nonzeros)
        case FCoo():
            bits = nonzeros * (8 * _WORD * (order - 1) + 1) + -(-nonzeros // _NONZEROS_OF_A_START)
            return -(-bits // 8)
        case HiCoo():
            return (8 + _WORD * order) * tensor.block_coords.shape[1] + order * nonzeros


def _nodes(uppers: Indices) -> list[int]:
    """N(0), N(1), … of sorted fibers, and last the fibers themselves, split ones as several."""
    return [*(starts.size for starts in prefix_starts(uppers)[:-1]), uppers.shape[1]]


def _index_arrays(tensor: Coo | Csf | Fibers | BCsf | FCoo | HiCoo) -> tuple[Any, ...]:
    match tensor:
        case Coo():
            return (tensor.coords,)
        case Csf():
            return (*tensor.indices, *tensor.pointers)
        case Fibers():
            return (tensor.uppers, tensor.pointers, tensor.leaves)
        case BCsf():
            return (
                *(tensor.slices, tensor.slice_pointers, tensor.uppers),
                *(tensor.fiber_pointers, tensor.leaves, tensor.order),
            )
        case FCoo():
            return (tensor.products, tensor.flags, tensor.rows, tensor.first)
        case HiCoo():
            return (tensor.block_pointers, tensor.block_coords, tensor.offsets)
