"""Thresholds and flips for products of bits."""

import numpy as np

from simwarp.verify.draw import Draw

INT32 = np.iinfo(np.int32)


def rule(n, k):
    """Thresholds (int32) near dot products of length k, every fifth at or beyond an end, and flips (bool)."""
    draw = Draw(0, "rule", n)
    spread = int(np.sqrt(k)) + 1
    thresholds = np.array([draw.integer(-spread, spread) for _ in range(n)], np.int32)
    thresholds[::5] = draw.choice([INT32.min, INT32.max, -k, k, k + 1])
    return thresholds, np.array([draw.integer(0, 1) for _ in range(n)], np.bool_)
