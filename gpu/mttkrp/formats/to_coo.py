"""Conversion of tensors of every format to coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu.mttkrp.formats.entry import Columns
from gpu.mttkrp.formats.nonzeros import in_natural_order
from gpu.mttkrp.formats.registry import OF_TYPE
from reference.errors import DtypeError
from reference.types import Coo, PerMode, SparseTensor


def to_coo(tensor: SparseTensor) -> Coo:
    """Convert a tensor of any format, on the host, to a Coo.

    Coordinates are uint32, in lexicographic order by mode 0, 1, …; stored zeros are kept. DtypeError if
    ``tensor`` is not a sparse tensor.

    >>> from gpu.mttkrp.formats import mm_csf
    >>> to_coo(mm_csf(Coo([[1, 0], [2, 0]], [5.0, 6.0], (2, 3)))).coords.tolist()
    [[0, 1], [0, 2]]
    """
    coords, values = columns_of(tensor)
    nonfinite = not np.isfinite(values).all()
    coords, values = in_natural_order(Coo(coords, values, tensor.shape, nonfinite))
    return Coo(coords, values, tensor.shape, nonfinite)


def columns_of(tensor: Any) -> Columns:
    """Coordinates (d, M) and values of a tensor on the host, in its format's own order."""
    if isinstance(tensor, PerMode):
        return columns_of(tensor.tensors[0])
    if type(tensor) not in OF_TYPE:
        known = ", ".join(kind.__name__ for kind in (*OF_TYPE, PerMode))
        raise DtypeError(f"the tensor is a {type(tensor).__name__}\n{known} are known\ngive one of them")
    return OF_TYPE[type(tensor)].columns(tensor)
