"""How a function of arrays of equal shape is applied to operands of any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError
from simwarp.floats.rounding import Floats, Lanes

BLOCK = 1 << 15
"""Bytes of an operand at a time. The temporaries then stay in cache, and in memory that the process keeps:
to ask the system for new pages costs more than the arithmetic."""


def elementwise(function: Callable[..., Any], *operands: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """Apply a function block by block; it gets arrays of one shape and returns a new one of it.

    Parameters
    ----------
    function : callable
        Of arrays with at least one axis.
    operands : arrays or NumPy scalars that broadcast
    dtype : dtype, optional
        Of the result; that of the first operand if not given.

    Examples
    --------
    >>> elementwise(lambda a, b: a + b, np.arange(3.0), np.float64(1)).tolist()
    [1.0, 2.0, 3.0]
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
    rows = max(1, BLOCK * shape[0] // size)
    for start in range(0, shape[0], rows):
        part = slice(start, start + rows)
        result[part] = function(*(x[part] for x in arrays))
    return result


def redo(result: Floats, where: Lanes, function: Callable[..., Any], *operands: Any) -> Floats:
    """Replace some elements of a result by what a more careful function gives for them.

    Parameters
    ----------
    result, where, operands : arrays of one shape

    Examples
    --------
    >>> redo(np.array([1.0, 2.0]), np.array([True, False]), np.negative, np.array([5.0, 6.0])).tolist()
    [-5.0, 2.0]
    """
    if where.any():
        result[where] = function(*(x[where] for x in operands))
    return result


def common_dtype(*operands: Any) -> np.dtype[Any]:
    """The one type of all operands, float32 or float64.

    Raises
    ------
    DtypeError
        If they differ, or have another.

    Examples
    --------
    >>> common_dtype(np.float32(1), np.zeros(3, np.float32))
    dtype('float32')
    """
    dtypes: list[np.dtype[Any]] = [getattr(x, "dtype", _NO_ARRAY) for x in operands]
    dtype = dtypes[0]
    if dtype not in _FLOATS or any(other != dtype for other in dtypes):
        given = ", ".join(str(getattr(x, "dtype", type(x).__name__)) for x in operands)
        raise DtypeError(
            f"floating-point operands of types {given}\npass NumPy values, all float32 or all float64"
        )
    return dtype


_NO_ARRAY = np.dtype(np.void)
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
