"""Checks of sparse tensors before kernels follow their indices and pointers.

Arrays of the host are looked through before they go to a device. Arrays that lie on one already are taken as
they are.
"""

from __future__ import annotations

from typing import Any

from gpu.device import is_foreign
from gpu.mttkrp.formats import OF_TYPE
from reference.errors import FormatError, ShapeError
from reference.types import Coo, PerMode
from reference.types.fields import LARGEST_DIMENSION, LEAST_ORDER, MOST_ORDER, check_fields


def check_tensor(tensor: Any) -> None:
    """Raise FormatError or ShapeError unless it is a sparse tensor whose host arrays fit one another.

    >>> import numpy as np
    >>> from reference.types import Fibers
    >>> one_fiber = np.array([[0]], np.uint32), np.array([0, 2], np.uint32), np.array([1, 3], np.uint32)
    >>> check_tensor(Fibers((0, 1), *one_fiber, np.ones(2), shape=(1, 3), split=128))
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: Fibers: leaves has the index 3 in mode 1
    its dimension is 3: indices count from 0 to 2
    build the format again from a Coo
    """
    check_kind(tensor)
    for part in tensor.parts or (tensor,):
        if not hasattr(part.values, "pointer") and not is_foreign(part.values):
            part.check_arrays()


def check_kind(tensor: Any) -> None:
    """Raise FormatError or ShapeError unless it is a sparse tensor with the fields of its format.

    No array is read.

    >>> check_kind(5)
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: expected a sparse tensor, got int
    Coo, Csf, Fibers, BCsf, FCoo, HiCoo, MmCsf, PerMode are known
    build one, e.g. reference.types.Coo(coords, values, shape)
    """
    known = (*OF_TYPE, PerMode)
    if type(tensor) not in known:
        raise FormatError(
            f"expected a sparse tensor, got {type(tensor).__name__}\n"
            f"{', '.join(one.__name__ for one in known)} are known\n"
            "build one, e.g. reference.types.Coo(coords, values, shape)"
        )
    if not isinstance(tensor, Coo):
        check_fields(tensor)
    elif not LEAST_ORDER <= len(tensor.shape) <= MOST_ORDER or max(tensor.shape) > LARGEST_DIMENSION:
        raise ShapeError(
            f"Coo: shape {tensor.shape} is not possible\n"
            f"{LEAST_ORDER} to {MOST_ORDER} modes of 1 to 2**32 are\n"
            "merge modes, or give the true dimensions"
        )
