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
    """A format of sparse tensors, its builders and its kernel.

    Attributes
    ----------
    kind : type
        Its dataclass in `reference.types`, which checks its invariants.
    columns : callable
        Takes a tensor on the host; returns coordinates (d, M) and values in the format's own order.
    builders : mapping
        Functions that build the format from a Coo, by their names in `FORMATS`.
    work : callable, optional
        Takes a tensor on the device, a mode and a `Setting`; returns the launches. None without a kernel.
    source, summary : str
        The file of the kernel, and the work of its groups or warps.
    macros : dict
        Macros of the source that other formats lack, in the variant that `simwarp verify` compiles.
    is_for_one_mode : bool
        Whether a tensor gives only the result of the first of its ``modes``.
    for_kernels : callable, optional
        Converts a tensor on the host to a format with a kernel, if its own has none.
    """

    kind: type
    columns: Callable[[Any], Columns]
    builders: Mapping[str, Builder] = field(default_factory=dict[str, Builder])
    work: Callable[[Any, int, Setting], Work] | None = None
    source: str = ""
    summary: str = ""
    macros: dict[str, str | int] = field(default_factory=dict[str, str | int])
    is_for_one_mode: bool = False
    for_kernels: Callable[[Any], Any] | None = None


def by_mode(levels: Sequence[npt.NDArray[np.uint32]], modes: tuple[int, ...]) -> npt.NDArray[np.uint32]:
    """Coordinates (d, M) from the indices of each level, put into the order of the modes."""
    coords = np.empty((len(modes), levels[-1].size), np.uint32)
    for mode, column in zip(modes, levels, strict=True):
        coords[mode] = column
    return coords
