"""Index storage of a sparse tensor, in bytes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, TypeAlias

import numpy as np

from reference.errors import FormatError, SchemeError
from reference.sparse.convert import check_kind
from reference.sparse.formats import OF_TYPE
from reference.types import SparseTensor

By: TypeAlias = Literal["paper", "held"]


def index_bytes(tensor: SparseTensor, by: By = "paper") -> int:
    """The bytes of all arrays except the values.

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
    all. ``by="held"`` counts every array of the dataclass except ``values`` as it is.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`
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
        If the tensor is in none of the formats.
    FormatError
        For ``by="paper"`` on a device.

    Notes
    -----
    Source: MM-CSF (SC'19), sections 3.1, 5, 5.1 and 6.8, tables 3 and 8; HiCOO (SC'18).

    Examples
    --------
    >>> from reference.sparse import Coo, csf
    >>> coo = Coo([[0, 0, 1], [1, 1, 0], [0, 3, 3]], [1.0, 2.0, 3.0], (2, 3, 4))
    >>> index_bytes(coo), index_bytes(csf(coo)), index_bytes(csf(coo), by="held")
    (36, 44, 52)
    """
    if by not in ("paper", "held"):
        raise SchemeError(
            f"there is no by={by!r}\n"
            "bytes are counted by the paper's formulas or as they are held\n"
            "choose 'paper' or 'held'"
        )
    check_kind(tensor)
    whole: Any = tensor
    if whole.parts:
        return sum(index_bytes(part, by) for part in whole.parts)
    if by == "held":
        held = [getattr(tensor, field.name) for field in fields(tensor) if field.name != "values"]
        return sum(_bytes(*(x if isinstance(x, tuple) else (x,))) for x in held)
    if not isinstance(whole.values, np.ndarray):
        raise FormatError(
            "the tensor lies on a device\n"
            "the formulas count different prefixes, on the host\n"
            "count it before the upload, or pass by='held'"
        )
    return OF_TYPE[type(tensor)].paper_bytes(tensor)


def _bytes(*held: Any) -> int:
    """The bytes of the arrays in a field's value."""
    return sum(getattr(array, "nbytes", 0) for array in held)
