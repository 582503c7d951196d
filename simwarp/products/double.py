"""Products of float64: the f64 forms of mma and wmma.

Source: PTX ISA 9.0, section 9.7.14.5.14 (mma), which requires the precision of fma. The order of the sum is
that of MMA-Sim (arXiv 2511.10909); the order and the payloads of NaN agree with a chip of sm_90.
"""

from __future__ import annotations

import numpy as np

from simwarp.floats import Rounding, fma
from simwarp.products.warps import Tiles, check


def doubles(a: Tiles, b: Tiles, c: Tiles, rounding: Rounding = "rn") -> Tiles:
    """Compute a · b + c as a chain of fused multiply-adds that starts with c, k ascending.

    ``d[i, j] = fma(a[i, k-1], b[k-1, j], … fma(a[i, 0], b[0, j], c[i, j]))``.

    Parameters
    ----------
    a : float64 (…, m, k)
    b : float64 (…, k, n)
    c : float64 (…, m, n)
    rounding : "rn", "rz", "rm" or "rp"
        The rounding of every fused multiply-add.

    Returns
    -------
    float64 (…, m, n)
        The result of a fused multiply-add with NaN operands is the first NaN in the order b, c, a, made
        quiet; a NaN from numbers is 0xFFF8000000000000.

    Raises
    ------
    ShapeError, DtypeError, SchemeError
        For operands that do not fit together, other element types, or another rounding.

    Examples
    --------
    >>> a, b, c = np.array([[1e-30, 1.0]]), np.array([[1.0], [1.0]]), np.array([[-1.0]])
    >>> doubles(a, b, c).item(), doubles(a[:, ::-1], b, c).item(), doubles(a, b, c, "rp").item() > 0
    (0.0, 1e-30, True)
    """
    check(a, b, c, "float64", "float64", "float64")
    total = c
    for k in range(a.shape[-1]):
        x, y = a[..., k, None], b[..., k, None, :]
        total = _nan(x, y, total, np.asarray(fma(x, y, total, rounding)))
    return total


def _nan(a: Tiles, b: Tiles, c: Tiles, result: Tiles) -> Tiles:
    """Set the payloads of the NaN among the results of a fused multiply-add."""
    unordered = np.isnan(result)
    if unordered.any():
        words = np.full(result.shape, _ARISEN)
        for x in (a, c, b):  # the NaN of the last operand takes precedence
            words = np.where(np.isnan(x), x.view(np.uint64) | _QUIET, words)
        result[unordered] = words.view(np.float64)[unordered]
    return result


_ARISEN = np.uint64(0xFFF8000000000000)
_QUIET = np.uint64(1 << 51)
