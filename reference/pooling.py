"""Pooling of bits: the maximum and the minimum of a window of ±1 are OR and AND.

Source: BTC (TPDS'20), section 6.1 (max pooling as a logic OR).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from reference.bits import Bits
from reference.errors import SchemeError, ShapeError

Pool: TypeAlias = Literal["or", "and"]


def pool_bits(bits: Bits, pool: Pool) -> Bits:
    """Join the bits of each 2×2 window of an image, windows side by side.

    With + for OR and AND alike,
    ``pooled[n, p, q, c] = bits[n, 2p, 2q, c] + bits[n, 2p, 2q+1, c] + bits[n, 2p+1, 2q, c] +
    bits[n, 2p+1, 2q+1, c]``. A last odd row or column belongs to no window.

    Parameters
    ----------
    bits : array of uint8, 0 or 1, (N, H, W, C)
    pool : {"or", "and"}
        "or" is max pooling of the signs, "and" min pooling: what max pooling before a threshold becomes
        where the threshold is flipped.

    Returns
    -------
    array of uint8, (N, H // 2, W // 2, C), C order

    Raises
    ------
    SchemeError
        For another ``pool``.
    ShapeError
        If ``bits`` has not four dimensions, or is less than 2 pixels high or wide.

    Notes
    -----
    Source: BTC (TPDS'20), section 6.1.

    Examples
    --------
    >>> bits = np.array([[1, 0, 0], [1, 1, 0]], np.uint8).reshape(1, 2, 3, 1)
    >>> pool_bits(bits, "or").tolist(), pool_bits(bits, "and").tolist()
    ([[[[1]]]], [[[[0]]]])
    """
    if pool not in ("or", "and"):
        raise SchemeError(f"there is no pool={pool!r}\nbits are joined by OR or by AND\nchoose 'or' or 'and'")
    if bits.ndim != 4 or min(bits.shape[1:3]) < 2:
        raise ShapeError(
            f"bits has shape {bits.shape}: pool={pool!r} would leave no pixel\n"
            "windows are 2 by 2 pixels of (N, H, W, C)\n"
            "leave pool out, or give at least two rows and columns"
        )
    height, width = (size // 2 * 2 for size in bits.shape[1:3])
    windows = [bits[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
    join = np.bitwise_or if pool == "or" else np.bitwise_and
    return np.ascontiguousarray(join.reduce(windows))
