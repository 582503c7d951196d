"""Checks of sparse tensors, whose indices and pointers kernels follow, and of the rank and type of factors.

Arrays on the host are checked before they are uploaded. Arrays that are on a device already are not checked.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from gpu.device import is_foreign
from gpu.mttkrp.formats import OF_TYPE
from gpu.mttkrp.kernels import MOST_PASSES, WARP
from reference.errors import DtypeError, FormatError, ShapeError
from reference.types import Coo, PerMode
from reference.types.fields import LARGEST_DIMENSION, LEAST_ORDER, MOST_ORDER, check_fields
from reference.types.libraries import read_sparse


def check_tensor(tensor: Any) -> Any:
    """Check a sparse tensor, and its host arrays, and return it as `check_kind` does.

    >>> from reference.types import Fibers
    >>> one_fiber = np.array([[0]], np.uint32), np.array([0, 2], np.uint32), np.array([1, 3], np.uint32)
    >>> check_tensor(Fibers((0, 1), *one_fiber, np.ones(2), shape=(1, 3), split=128))
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: Fibers: leaves has the index 3 in mode 1
    its dimension is 3: indices count from 0 to 2
    build the format again from a Coo
    """
    tensor = check_kind(tensor)
    check_arrays(tensor)
    return tensor


def check_arrays(tensor: Any) -> None:
    """Raise for a tensor of a known kind whose host arrays do not fit one another."""
    for part in tensor.parts or (tensor,):
        if not hasattr(part.values, "pointer") and not is_foreign(part.values):
            part.check_arrays()


def check_kind(tensor: Any) -> Any:
    """Return a sparse tensor with the fields of its format, or raise; does not read its arrays.

    A sparse tensor of another library is read into a Coo.

    >>> check_kind(5)
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: expected a sparse tensor, got int
    Coo, Csf, Fibers, BCsf, FCoo, HiCoo, MmCsf, PerMode are known
    give one, e.g. simwarp.Coo(coords, values, shape), or one of SciPy, pydata/sparse, PyTorch or pyttb
    """
    known = (*OF_TYPE, PerMode)
    tensor = read_sparse(tensor)
    if type(tensor) not in known:
        raise FormatError(
            f"expected a sparse tensor, got {type(tensor).__name__}\n"
            f"{', '.join(one.__name__ for one in known)} are known\n"
            "give one, e.g. simwarp.Coo(coords, values, shape), "
            "or one of SciPy, pydata/sparse, PyTorch or pyttb"
        )
    if not isinstance(tensor, Coo):
        check_fields(tensor)
    elif not LEAST_ORDER <= len(tensor.shape) <= MOST_ORDER or max(tensor.shape) > LARGEST_DIMENSION:
        raise ShapeError(
            f"Coo: shape {tensor.shape} is not possible\n"
            f"a tensor has {LEAST_ORDER} to {MOST_ORDER} modes, of 1 to 2**32 indices\n"
            "merge modes, or give the true dimensions"
        )
    return tensor


def check_rank(rank: Any, largest: int = MOST_PASSES * WARP) -> int:
    """Check the rank of factors, and return it as an int."""
    try:
        known = 0 if isinstance(rank, bool) else operator.index(rank)
    except TypeError:
        known = 0
    if not 1 <= known <= largest:
        raise ShapeError(f"rank {rank!r} is not possible\nranks are 1 to {largest}\nchoose another rank")
    return known


def check_dtype(dtype: Any, values: Any) -> np.dtype[Any]:
    """Check that factors have the tensor's dtype, float32 or float64, and return it."""
    known = np.dtype(dtype)
    if known.name not in ("float32", "float64") or known != np.dtype(values):
        raise DtypeError(
            f"factors are {known}, the tensor's values are {np.dtype(values)}\n"
            "both are float32, or both float64\nconvert one of them"
        )
    return known
