"""The entry of a format in the registry.

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
    """A format of sparse tensors.

    Attributes
    ----------
    kind : type
        Its dataclass in `reference.types`, which knows its invariants.
    columns : callable
        Of a tensor on the host: coordinates (d, M) and values, in the format's own order.
    builders : mapping
        By the names under which formats are compared, functions that make it from a Coo.
    work : callable, optional
        Of a tensor on the device, a mode and a `Setting`: the launches.
    source, summary : str
        The file of its kernel, and what its groups do.
    macros : dict
        Macros of the source beside those of all, in a variant that `simwarp verify` compiles.
    is_for_one_mode : bool
        Whether the kernel gives the result of the first of ``modes`` only.
    for_kernels : callable, optional
        A tensor without a kernel of its own turned into one that has one, on the host.
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
    """Indices by level, permuted to the order of the modes."""
    coords = np.empty((len(modes), levels[-1].size), np.uint32)
    for mode, column in zip(modes, levels, strict=True):
        coords[mode] = column
    return coords
