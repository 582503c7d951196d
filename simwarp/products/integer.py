"""Products of integers: what the s8, u8, s4 and u4 forms of mma and wmma compute.

Source: PTX ISA 9.0, sections 9.7.14.4.5 (wmma.mma) and 9.7.14.5.14 (mma), ``.satfinite``.
"""

from __future__ import annotations

import numpy as np

from simwarp.products.warps import Tiles, check_dtypes, check_tiles


def integers(a: Tiles, b: Tiles, c: Tiles, saturate: bool = False) -> Tiles:
    """The exact sum a · b + c, brought into 32 bits at the end.

    ``d[i, j] = c[i, j] + sum over k of a[i, k] · b[k, j]``.

    Parameters
    ----------
    a : int8 or uint8 (…, m, k)
        The values; those of 4-bit types, too, one in each byte.
    b : int8 or uint8 (…, k, n)
    c : int32 (…, m, n)
    saturate : bool
        Clamp a sum that int32 cannot hold (``.satfinite``) instead of wrapping it around.

    Returns
    -------
    int32 (…, m, n)

    Raises
    ------
    ShapeError, DtypeError
        For operands that do not fit together, or of other element types.

    Examples
    --------
    >>> a, b = np.array([[100, -2]], np.int8), np.array([[100], [3]], np.uint8)
    >>> c = np.array([[2**31 - 1]], np.int32)
    >>> integers(a, b, c).item(), integers(a, b, c, saturate=True).item()
    (-2147473655, 2147483647)
    """
    check_tiles(a, b, c)
    check_dtypes((a, b, c), ("int8 or uint8", "int8 or uint8", "int32"))
    # Matrix products of floats are fast, and exact as long as a float holds every integer on the way.
    exact = np.float32 if a.shape[-1] * 255 * 255 < 2**24 else np.float64
    products = np.matmul(a.astype(exact), b.astype(exact))
    if saturate:
        limits = np.iinfo(np.int32)
        return np.clip(products + c.astype(np.float64), limits.min, limits.max).astype(np.int32)
    return products.astype(np.int32) + c
