"""Counts of what the warps of a listing execute: operations by kind, and the lanes that took part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

import numpy as np

from simwarp.lanes import WARP_SIZE
from simwarp.warp import Warp

KINDS = {
    "ballot": "votes",
    "shfl": "shuffles",
    "load": "loads",
    "store": "stores",
    "atomic_and": "atomics",
    "atomic_or": "atomics",
}
"""Methods of a warp, by what they count as; what lanes compute in registers is not counted."""


@dataclass
class Costs:
    """The operations of all warps, each once for its warp, and the lanes that executed them."""

    operations: Counter[str] = field(default_factory=Counter[str])
    lanes: int = 0

    @property
    def steps(self) -> int:
        """All operations."""
        return sum(self.operations.values())

    @property
    def busy(self) -> float:
        """The part of the lanes that took part in an operation: 1.0 without divergence."""
        return self.lanes / (WARP_SIZE * self.steps) if self.steps else 1.0


class _Counted:
    """A warp whose operations are counted."""

    def __init__(self, warp: Warp, costs: Costs) -> None:
        self._warp, self._costs = warp, costs

    def __getattr__(self, name: str) -> Any:
        if name in KINDS:
            self._costs.operations[KINDS[name]] += 1
            self._costs.lanes += int(np.count_nonzero(self._warp.active))
        return getattr(self._warp, name)

    def as_block(self, *task: Any) -> _Counted:
        return _Counted(self._warp.as_block(*task), self._costs)


def counted(kernel: Callable[..., Any]) -> tuple[Callable[..., Any], Costs]:
    """The kernel with a warp that counts, and its counts, which are complete after the launch.

    >>> from simwarp.warp import GlobalArray, launch
    >>> def kernel(warp, x):
    ...     with warp.where(warp.lane < 8):
    ...         warp.store(x, warp.lane, np.int32(1))
    >>> counting, costs = counted(kernel)
    >>> launch(counting, 3, 32, GlobalArray("x", 8, np.int32))
    >>> costs.steps, costs.busy
    (3, 0.25)
    """
    costs = Costs()

    @wraps(kernel)
    def counting(warp: Warp, *args: Any) -> Any:
        return kernel(cast("Warp", _Counted(warp, costs)), *args)

    return counting, costs
