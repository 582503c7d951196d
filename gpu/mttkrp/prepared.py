"""Sparse tensors checked and uploaded once, with a plan per mode and rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu.device import Device
from gpu.host import Prepared, choose_device
from gpu.mttkrp.formats import FORMATS
from gpu.mttkrp.plan import Plan
from gpu.mttkrp.structure import check_kind
from gpu.mttkrp.upload import arrays_of, upload
from reference.errors import FormatError, SchemeError
from reference.types import Coo

MOST_PLANS = 64
"""Modes and ranks for which a tensor keeps plans."""


@dataclass(frozen=True, eq=False)
class PreparedSparse(Prepared):
    """A sparse tensor on a device, and its plans for `gpu.mttkrp`.

    Attributes
    ----------
    tensor : any of `reference.types.SparseTensor`
        On the device.
    shape : tuple of int
    device : Device
    words : device array
        The values, or those of the first part.
    plans : dict
        By mode, rank, type of the factors, and so on: made at the first call.

    Examples
    --------
    >>> import simwarp
    >>> prepare_sparse(Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3)), device=simwarp.Device())
    PreparedSparse(Coo of shape (2, 3))
    """

    tensor: Any
    shape: tuple[int, ...]
    device: Device
    words: Any
    plans: dict[Any, Plan] = field(default_factory=dict[Any, Plan])

    def plan(
        self, mode: int, rank: int, dtype: np.dtype[Any], deterministic: bool = False, *, vector: bool = True
    ) -> Plan:
        """The launches for a mode; see `gpu.mttkrp.plan`."""
        key = mode, rank, dtype, deterministic, vector
        found = self.plans.get(key)
        if found is None:
            found = Plan(self.tensor, mode, rank, dtype, self.device, deterministic, vector=vector)
            if len(self.plans) >= MOST_PLANS:
                self.plans.clear()
            self.plans[key] = found
        return found

    def __repr__(self) -> str:
        return f"PreparedSparse({type(self.tensor).__name__} of shape {self.shape})"


def prepare_sparse(tensor: Any, *, scheme: str = "auto", device: Device | None = None) -> PreparedSparse:
    """A tensor for `gpu.mttkrp`, made ready; see `gpu.prepare`.

    Examples
    --------
    >>> import simwarp
    >>> tensor = Coo([[0, 1], [2, 0]], [5.0, 7.0], (2, 3))
    >>> prepare_sparse(tensor, scheme="mm-csf", device=simwarp.Device())
    PreparedSparse(MmCsf of shape (2, 3))
    """
    check_kind(tensor)
    if scheme != "auto":
        tensor = _in_format(tensor, scheme)
    arrays = tuple(arrays_of(tensor))
    device = choose_device(device, *arrays)
    placed = upload(tensor, device)
    values = next(array for array in arrays_of(placed) if array.dtype.kind == "f")
    return PreparedSparse(placed, tensor.shape, device, values)


def _in_format(tensor: Any, name: str) -> Any:
    """Build the named format from host coordinates."""
    if not isinstance(name, str) or name not in FORMATS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SchemeError(
            f"scheme={name!r} is not a format of sparse tensors\n{', '.join(FORMATS)} are known\n"
            "choose one of them"
        )
    if not isinstance(tensor, Coo) or not isinstance(tensor.values, np.ndarray):
        raise FormatError(
            f"scheme={name!r} is built from a Coo on the host, this is a {type(tensor).__name__}\n"
            "its format stays as it is without scheme=\nleave it out, or give coordinates"
        )
    return FORMATS[name](tensor)
