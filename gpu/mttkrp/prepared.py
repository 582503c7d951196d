"""Sparse tensors that are checked and uploaded once, and keep a plan for each mode and rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gpu.device import Device, planned
from gpu.host import Prepared, choose_device
from gpu.mttkrp.checks import check_arrays, check_kind
from gpu.mttkrp.formats import FORMATS
from gpu.mttkrp.plan import Plan
from gpu.mttkrp.upload import arrays_of, on_device
from reference.errors import FormatError, SchemeError
from reference.types import Coo

MOST_PLANS = 64
"""The most plans that a tensor keeps."""


@dataclass(frozen=True, eq=False)
class PreparedSparse(Prepared):
    """A sparse tensor on a device, and its plans for `gpu.mttkrp`.

    >>> import simwarp
    >>> prepare_sparse(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3)), device=simwarp.Device())
    PreparedSparse(Coo of shape (2, 3))
    """

    tensor: Any  # a `reference.types.SparseTensor` on the device
    shape: tuple[int, ...]
    device: Device
    words: Any  # the values of the tensor, or of its first part
    plans: dict[Any, Plan] = field(default_factory=dict[Any, Plan])  # by the arguments of `plan`
    calls: dict[Any, Plan] = field(default_factory=dict[Any, Plan])  # by what a call sees of its factors

    def plan(
        self, mode: int, rank: int, dtype: np.dtype[Any], deterministic: bool = False, *, vector: bool = True
    ) -> Plan:
        """The plan for a mode and for factors of a rank and type; see `gpu.mttkrp.plan`."""
        key = mode, rank, dtype, deterministic, vector
        cached = self.plans.get(key)
        if cached is None:
            plan = partial(Plan, vector=vector, checked=True)
            make = partial(plan, self.tensor, mode, rank, dtype, self.device, deterministic)
            cached = planned(self.plans, key, make, MOST_PLANS)
        return cached

    def __repr__(self) -> str:
        return f"PreparedSparse({type(self.tensor).__name__} of shape {self.shape})"


def prepare_sparse(tensor: Any, *, scheme: str = "auto", device: Device | None = None) -> PreparedSparse:
    """Check and upload a tensor for `gpu.mttkrp`; see `gpu.prepare`.

    >>> import simwarp
    >>> tensor = Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3))
    >>> prepare_sparse(tensor, scheme="mm-csf", device=simwarp.Device())
    PreparedSparse(MmCsf of shape (2, 3))
    """
    tensor = check_kind(tensor)
    if scheme != "auto":
        tensor = _in_format(tensor, scheme)
    device = choose_device(device, *arrays_of(tensor))
    if scheme == "auto":  # an explicit scheme is built from a Coo, which was checked when it was made
        check_arrays(tensor)
    placed = on_device(tensor, device)
    values = next(array for array in arrays_of(placed) if array.dtype.kind == "f")
    return PreparedSparse(placed, tensor.shape, device, values)


def _in_format(tensor: Any, name: str) -> Any:
    """Build the format of that name from a Coo on the host."""
    if not isinstance(name, str) or name not in FORMATS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SchemeError(
            f"scheme={name!r} is not a format of sparse tensors\n{', '.join(FORMATS)} are known\n"
            "choose one of them"
        )
    if not isinstance(tensor, Coo) or not isinstance(tensor.values, np.ndarray):
        raise FormatError(
            f"scheme={name!r} is built from a Coo on the host, this is a {type(tensor).__name__}\n"
            "without scheme= the tensor keeps its format\nleave out scheme=, or give a Coo"
        )
    return FORMATS[name](tensor)
