"""Apply functions of tiles to many warps, with the warps as the last axis, or to a few large tiles.

NumPy's inner loop is the last axis. The axes of a warp's tile are short, so the last axis is that of the
warps. A warpgroup's tile has up to 256 columns, and there are few of them: these go one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.errors import DtypeError, ShapeError

Tiles: TypeAlias = npt.NDArray[Any]


def warps_last(
    function: Callable[[Tiles, Tiles, Tiles], Tiles], a: Tiles, b: Tiles, c: Tiles, dtype: Any, block: int
) -> Tiles:
    """Apply a function of (m, k, warps), (k, n, warps) and (m, n, warps) to tiles with leading axes.

    It is called for ``block`` warps at a time, so that temporaries stay in the second-level cache.
    """
    leading, (a, b, c) = flat(a, b, c)
    result = np.empty(c.shape, dtype)
    for start in range(0, len(c), block):
        part = slice(start, start + block)
        operands = (np.ascontiguousarray(x[part].transpose(1, 2, 0)) for x in (a, b, c))
        result[part] = function(*operands).transpose(2, 0, 1)
    return result.reshape(leading + c.shape[1:])


def flat(a: Tiles, b: Tiles, c: Tiles) -> tuple[tuple[int, ...], list[Tiles]]:
    """The leading axes of tiles, which broadcast, and the tiles with one leading axis."""
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    return leading, [
        np.broadcast_to(x, leading + x.shape[-2:]).reshape(prod(leading), *x.shape[-2:]) for x in (a, b, c)
    ]


def few_tiles(a: Tiles, b: Tiles, c: Tiles) -> bool:
    """True if there are fewer tiles than a tile has columns."""
    return count_tiles(a, b, c) < c.shape[-1]


def count_tiles(a: Tiles, b: Tiles, c: Tiles) -> int:
    """The number of products of tiles whose leading axes broadcast."""
    return prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2]))


def each_tile(
    function: Callable[[Tiles, Tiles, Tiles, Tiles], Any], a: Tiles, b: Tiles, c: Tiles, dtype: Any
) -> Tiles:
    """Apply a function of (m, k), (k, n), (m, n) and the result's (m, n) to each of some tiles."""
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    result = np.empty(leading + c.shape[-2:], dtype)
    operands = [np.broadcast_to(x, leading + x.shape[-2:]) for x in (a, b, c)]
    for tile in np.ndindex(*leading):
        x, y, z = (operand[tile] for operand in operands)
        function(x, y, z, result[tile])
    return result


def check(a: Tiles, b: Tiles, c: Tiles, *dtypes: str) -> None:
    """Raise for shapes that do not multiply, and for a tile whose dtype is not among those named for it."""
    try:
        (m, k), (k_of_b, n) = a.shape[-2:], b.shape[-2:]
        fit = k == k_of_b and c.shape[-2:] == (m, n)
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    except ValueError:
        fit = False
    if not fit:
        raise ShapeError(
            f"a {a.shape}, b {b.shape} and c {c.shape} do not multiply\n"
            "pass a (…, m, k), b (…, k, n) and c (…, m, n), with leading axes that broadcast"
        )
    for operand, letter, allowed in zip((a, b, c), "abc", dtypes, strict=True):
        if operand.dtype.name not in allowed.split():
            raise DtypeError(f"{letter} has elements of {operand.dtype}\nconvert {letter} to {allowed}")
