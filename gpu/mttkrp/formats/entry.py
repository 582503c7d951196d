"""`Format`, the entry of a sparse format in the registry.

>>> from gpu.mttkrp.formats import OF_TYPE
>>> from reference.types import Fibers
>>> OF_TYPE[Fibers].source
'fibers.cu'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.kernels import Setting, Work
from reference.types import Coo, SparseTensor

Columns: TypeAlias = tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]
Builder: TypeAlias = Callable[[Coo], SparseTensor]


@dataclass(frozen=True)
class Format:
    """A format of sparse tensors, its builders and its kernel."""

    kind: type  # the format's dataclass in `reference.types`
    columns: Callable[[Any], Columns]  # tensor on the host → coordinates (d, M), values
    # name in `FORMATS` → function that builds the format
    builders: Mapping[str, Builder] = field(default_factory=dict[str, Builder])
    # (tensor on the device, mode, setting) → launches; None if the format has no kernel
    work: Callable[[Any, int, Setting], Work] | None = None
    source: str = ""  # file name of the kernel
    summary: str = ""  # the work of a group of threads or of a warp, for the docs
    # macros that only this source needs, as `simwarp verify` compiles it
    macros: dict[str, str | int] = field(default_factory=dict[str, str | int])
    is_for_one_mode: bool = False  # whether a tensor of the format gives only the result of its first mode
    # tensor on the host → the same tensor in a format with a kernel
    for_kernels: Callable[[Any], Any] | None = None


def by_mode(levels: Sequence[npt.NDArray[np.uint32]], modes: tuple[int, ...]) -> npt.NDArray[np.uint32]:
    """Coordinates (d, M) from the indices of each level, put into the order of the modes."""
    coords = np.empty((len(modes), levels[-1].size), np.uint32)
    for mode, column in zip(modes, levels, strict=True):
        coords[mode] = column
    return coords
