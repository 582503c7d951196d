"""Numbering places with one bit for each: so a chip that only moves bits tells where each came from.

In the first pass every place holds 0, in the second 1, and in pass 2 + p bit p of its own number. What
arrives somewhere, pass by pass, spells the number of the place that it came from.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bits: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int32]

NOWHERE = -1
"""In place of a number: what arrives is the same in every pass."""
UNCLEAR = -2
"""In place of a number: what arrives depends on the pass, but is no number."""


def passes(count: int) -> Bits:
    """What the places 0 … ``count`` - 1 hold in each pass.

    Returns
    -------
    bool, (2 + bits of count - 1, count)

    Examples
    --------
    >>> passes(4).astype(int).tolist()
    [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1]]
    """
    number = np.arange(count)
    digits = [number >> p & 1 for p in range(int(count - 1).bit_length())]
    return np.stack([0 * number, 0 * number + 1, *digits]).astype(np.bool_)


def numbers(arrived: npt.NDArray[Any]) -> Numbers:
    """Which place each bit came from.

    Parameters
    ----------
    arrived : bool, (passes, …)
        What was found in each pass of `passes`.

    Returns
    -------
    int32, (…)
        A number, `NOWHERE` or `UNCLEAR`.

    Examples
    --------
    Of four places, the last comes first; then a bit that is always 1.

    >>> sent = passes(4)
    >>> numbers(np.stack([sent[:, 3], sent[:, 0], sent[:, 0] | True], axis=1)).tolist()
    [3, 0, -1]
    """
    first, second, digits = arrived[0], arrived[1], arrived[2:]
    spelled = np.zeros(first.shape, np.int32)
    for p, digit in enumerate(digits):
        spelled |= digit.astype(np.int32) << np.int32(p)
    constant = (arrived == first).all(axis=0)
    return np.where(constant, NOWHERE, np.where(~first & second, spelled, UNCLEAR)).astype(np.int32)
