"""Conversion of every format to a Coo, with a check that its arrays are consistent."""

from __future__ import annotations

import numpy as np

from reference.errors import DtypeError, FormatError
from reference.sparse.formats import OF_TYPE
from reference.sparse.sort import sort_nonzeros
from reference.types import Coo, PerMode, SparseTensor
from reference.types.arguments import check_coo
from reference.types.fields import check_fields


def to_coo(tensor: SparseTensor) -> Coo:
    """Convert a sparse tensor of any format to a Coo, in lexicographic order by mode 0, 1, ….

    Explicit zeros stay, and repeated coordinates of a Coo stay repeated, in the same order.

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`
        Its arrays must be on the host.

    Returns
    -------
    Coo
        With uint32 indices.

    Raises
    ------
    FormatError
        If the arrays do not fit one another: other dtypes or lengths than those of `reference.types`,
        pointers that do not ascend from 0 to the end, indices outside the shape, redundant arrays that
        disagree, a PerMode whose representations differ. The order of the nonzeros is not checked.
    DtypeError
        If ``tensor`` is not in one of the formats.
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
    check_kind(tensor)
    if isinstance(tensor, Coo):
        check_coo(tensor)
    else:
        check_fields(tensor)
    if isinstance(tensor, PerMode):
        return _the_one([to_coo(part) for part in tensor.tensors])
    for part in tensor.parts or (tensor,):
        part.check_arrays()
    coords, values = OF_TYPE[type(tensor)].coordinates(tensor)
    nonfinite = not np.isfinite(values).all()
    unsorted = Coo(coords, values, tensor.shape, nonfinite)
    return Coo(*sort_nonzeros(unsorted, tuple(range(len(tensor.shape)))), tensor.shape, nonfinite)


def check_kind(tensor: object) -> None:
    """Raise DtypeError unless ``tensor`` is in one of the formats.

    >>> check_kind([[5.0, 0.0]])
    Traceback (most recent call last):
    ...
    reference.errors.DtypeError: the tensor is a list
    the formats are Coo, Csf, Fibers, BCsf, FCoo, HiCoo, MmCsf, PerMode
    convert it with from_scipy, from_pydata, from_torch or Coo(coords, values, shape)
    """
    known = (*OF_TYPE, PerMode)
    if type(tensor) not in known:
        raise DtypeError(
            f"the tensor is a {type(tensor).__name__}\n"
            f"the formats are {', '.join(kind.__name__ for kind in known)}\n"
            "convert it with from_scipy, from_pydata, from_torch or Coo(coords, values, shape)"
        )


def _the_one(copies: list[Coo]) -> Coo:
    """The one tensor that all copies hold; raise FormatError unless they agree bit by bit."""
    first, *others = copies
    for mode, other in enumerate(others, start=1):
        if not np.array_equal(first.coords, other.coords) or first.values.tobytes() != other.values.tobytes():
            raise FormatError(
                f"PerMode: tensors[{mode}] holds other nonzeros than tensors[0]\n"
                "each must represent the same tensor\n"
                "build the format again from a Coo"
            )
    return first
