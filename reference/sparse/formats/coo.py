"""The coordinate format, and the addition of repeated coordinates."""

from __future__ import annotations

import numpy as np

from reference.sparse.formats.entry import WORD, Format
from reference.sparse.sort import prefix_starts, sort_nonzeros
from reference.types import Coo
from reference.types.arguments import check_coo


def coalesce(coo: Coo) -> Coo:
    """Add the values of equal coordinates, and sort the nonzeros by mode 0, 1, ….

    Values are added in the order of the Coo, in their own dtype. Zeros stay, explicit ones and sums.

    Parameters
    ----------
    coo : Coo

    Returns
    -------
    Coo
        With uint32 indices.

    Raises
    ------
    DtypeError
        If ``coo`` is not a Coo.
    FormatError
        If its arrays are on a device.
    ShapeError
        If a dimension exceeds 2**32.
    NotANumberError
        If a sum overflows, unless ``coo.nonfinite``.

    Examples
    --------
    >>> coo = coalesce(Coo([[1, 0, 1], [2, 0, 2]], [5.0, 6.0, 7.0], (2, 3)))
    >>> coo.coords.tolist(), coo.values.tolist()
    ([[0, 1], [0, 2]], [6.0, 12.0])
    """
    check_coo(coo)
    indices, values = sort_nonzeros(coo, tuple(range(len(coo.shape))))
    starts = prefix_starts(indices)[-1]
    node = np.searchsorted(starts, np.arange(values.size), side="right") - 1
    again = np.ones(values.size, bool)
    again[starts] = False
    sums = values[starts]
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(sums, node[again], values[again])
    return Coo(np.ascontiguousarray(indices[:, starts]), sums, coo.shape, coo.nonfinite)


FORMAT = Format(
    Coo,
    coordinates=lambda coo: (coo.coords, coo.values),
    paper_bytes=lambda coo: WORD * coo.coords.size,
    builders={"coo": coalesce},
)
