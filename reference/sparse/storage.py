"""The bytes that a sparse tensor needs for its indices and pointers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from reference.errors import FormatError
from reference.sparse.convert import check_kind
from reference.sparse.formats import OF_TYPE
from reference.types import SparseTensor
from reference.types.arguments import check_option

By: TypeAlias = Literal["paper", "held"]


def index_bytes(tensor: SparseTensor, by: By = "paper") -> int:
    """Return the bytes of all arrays of a tensor except its values.

    The paper's formulas for an order-d tensor of M nonzeros, where N(l) is the number of different prefixes
    of l + 1 indices: N(0) slices, N(1), …, and F = N(d - 2) fibers, each piece of a split fiber counted:

    ============= ==========================================================================
    format        bytes
    ============= ==========================================================================
    Coo           4 d M
    Csf           4 (2 (N(0) + … + N(d - 2)) + M), no fiber split
    BCsf          4 (2 (N(0) + … + N(d - 3) + F) + M)
    Fibers, MmCsf 4 (3 N(1) + 2 (N(2) + … + N(d - 2)) + M) for each partition; 4 (2 F + M) if d = 2
    FCoo          4 (d - 1) M + M/8 + M/64, rounded up: a bit flag per nonzero, a start flag per eight
    HiCoo         (8 + 4 d) B + d M for B blocks
    PerMode       the sum over its d representations
    ============= ==========================================================================

    They count n pointers for n nodes, and leave out F-COO's rows and starts and B-CSF's bins. ``by="held"``
    adds up ``nbytes`` of every array of the dataclass except ``values``.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`
        With ``by="paper"`` its arrays must be on the host.
    by : {"paper", "held"}

    Returns
    -------
    int

    Raises
    ------
    SchemeError
        For an unknown ``by``.
    DtypeError
        If the tensor is in none of the formats.
    FormatError
        For ``by="paper"`` if the arrays are on a device.

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
    check_option("by", by, ("paper", "held"), "bytes follow the paper's formulas, or are those of the arrays")
    check_kind(tensor)
    whole: Any = tensor
    if whole.parts:
        return sum(index_bytes(part, by) for part in whole.parts)
    if by == "held":
        held: list[Any] = [getattr(tensor, field.name) for field in fields(tensor) if field.name != "values"]
        return sum(getattr(array, "nbytes", 0) for x in held for array in _arrays(x))
    if not isinstance(whole.values, np.ndarray):
        raise FormatError(
            "the tensor is on a device\n"
            "the paper's formulas read its indices, which must be on the host\n"
            "call index_bytes before the upload, or pass by='held'"
        )
    return OF_TYPE[type(tensor)].paper_bytes(tensor)


def _arrays(field: Any) -> tuple[Any, ...]:
    """The arrays in a field's value: several, or one."""
    return cast("tuple[Any, ...]", field) if isinstance(field, tuple) else (field,)
