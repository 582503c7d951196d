"""How a function of tiles is applied to many warps: some at a time, their tiles' axes in front.

NumPy runs along the last axis. A tile's own axes are short, so the warps go there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError

Tiles: TypeAlias = npt.NDArray[Any]


def warps_last(
    function: Callable[[Tiles, Tiles, Tiles], Tiles], a: Tiles, b: Tiles, c: Tiles, dtype: Any, block: int
) -> Tiles:
    """Apply a function of (m, k, warps), (k, n, warps) and (m, n, warps) to tiles with leading axes.

    Parameters
    ----------
    function : callable
        Returns (m, n, warps).
    a, b, c : (…, m, k), (…, k, n) and (…, m, n) arrays
        Of leading axes that broadcast.
    dtype : dtype
        Of the result.
    block : int
        How many warps at a time: the temporaries of so many should stay in the second level of cache.

    Returns
    -------
    (…, m, n) array

    Raises
    ------
    ShapeError
        For tiles that do not fit together.

    Examples
    --------
    >>> a, b, c = np.ones((3, 2, 4), int), np.ones((4, 2), int), np.ones((3, 2, 2), int)
    >>> warps_last(lambda a, b, c: np.einsum("ikw,kjw->ijw", a, b) + c, a, b, c, int, 2)[2].tolist()
    [[5, 5], [5, 5]]
    """
    leading = check_tiles(a, b, c)
    a, b, c = (np.broadcast_to(x, leading + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (a, b, c))
    result = np.empty(c.shape, dtype)
    for start in range(0, len(c), block):
        part = slice(start, start + block)
        operands = (np.ascontiguousarray(x[part].transpose(1, 2, 0)) for x in (a, b, c))
        result[part] = function(*operands).transpose(2, 0, 1)
    return result.reshape(leading + c.shape[1:])


def check_tiles(a: Tiles, b: Tiles, c: Tiles) -> tuple[int, ...]:
    """The leading axes of tiles that fit together.

    Raises
    ------
    ShapeError
        If they do not.

    Examples
    --------
    >>> check_tiles(np.zeros((5, 2, 3)), np.zeros((3, 4)), np.zeros((5, 2, 4)))
    (5,)
    """
    try:
        (m, k), (k_of_b, n) = a.shape[-2:], b.shape[-2:]
        if k == k_of_b and c.shape[-2:] == (m, n):
            return np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    except ValueError:
        pass
    raise ShapeError(
        f"a {a.shape}, b {b.shape} and c {c.shape} are no operands of one product\n"
        "pass a (…, m, k), b (…, k, n) and c (…, m, n), with leading axes that broadcast"
    )


def check_dtypes(operands: tuple[Tiles, Tiles, Tiles], names: tuple[str, str, str]) -> None:
    """Refuse operands of other element types.

    Parameters
    ----------
    operands : a, b and c
    names : tuple of str
        The dtypes that each may have: ``"int8 or uint8"``.

    Raises
    ------
    DtypeError

    Examples
    --------
    >>> x = np.zeros((1, 1), np.float32)
    >>> check_dtypes((x, x, x), ("float32", "float32", "uint32"))
    Traceback (most recent call last):
    ...
    reference.errors.DtypeError: c has elements of type float32
    this product takes uint32
    """
    for operand, letter, allowed in zip(operands, "abc", names, strict=True):
        if operand.dtype.name not in allowed.split():
            raise DtypeError(f"{letter} has elements of type {operand.dtype}\nthis product takes {allowed}")
