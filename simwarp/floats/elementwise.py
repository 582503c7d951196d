"""Elementwise application of functions to operands that broadcast, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from simwarp.floats.rounding import Floats, Lanes

BLOCK = 1 << 15
"""Bytes of an operand per block. Temporaries of this size stay in cache, and in memory that the process
keeps: new pages from the system cost more than the arithmetic."""


def elementwise(function: Callable[..., Any], *operands: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """Apply a function of equally shaped arrays to operands that broadcast, block by block.

    The result has the first operand's type unless ``dtype`` is given.
    """
    arrays: list[npt.NDArray[Any]] = [np.asarray(x) for x in operands]
    shape = arrays[0].shape
    if any(x.shape != shape for x in arrays):
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        arrays = [np.broadcast_to(x, shape) for x in arrays]
    if shape == ():
        return function(*(x.reshape(1) for x in arrays))[0]
    size = arrays[0].nbytes
    if size <= BLOCK:
        return function(*arrays)
    result = np.empty(shape, arrays[0].dtype if dtype is None else dtype)
    step = max(1, BLOCK * shape[0] // size)
    for start in range(0, shape[0], step):
        part = slice(start, start + step)
        result[part] = function(*(x[part] for x in arrays))
    return result


def redo(result: Floats, where: Lanes, function: Callable[..., Any], *operands: Any) -> Floats:
    """Recompute some elements of a result with a slower, exact function; all arrays have the same shape."""
    if where.any():
        result[where] = function(*(x[where] for x in operands))
    return result


def common_dtype(*operands: Any) -> np.dtype[Any]:
    """The common dtype of the operands; DtypeError unless all are float32 or all float64."""
    dtypes: set[Any] = {getattr(x, "dtype", None) for x in operands}
    if len(dtypes) > 1 or not dtypes <= _FLOATS:
        given = ", ".join(str(getattr(x, "dtype", type(x).__name__)) for x in operands)
        raise DtypeError(
            f"operands of types {given}\nfloats of one type are needed\n"
            "pass NumPy values, all float32 or all float64"
        )
    return dtypes.pop()


_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}
