"""The entry of a format in the registry, and steps that formats share.

>>> by_mode([np.array([7, 8]), np.array([4, 5])], (1, 0)).tolist()
[[4, 5], [7, 8]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.sparse._order import Indices, prefix_starts
from reference.types import Coo, PerMode, SparseTensor
from reference.types.arguments import check_coo, root_first

Coordinates: TypeAlias = npt.NDArray[Any]
WORD = 4
"""Bytes of an index and of a pointer in the paper's formulas."""


@dataclass(frozen=True)
class Format:
    """A format of sparse tensors.

    Attributes
    ----------
    kind : type
        Its dataclass in `reference.types`, which knows its invariants.
    coordinates : callable
        Of a tensor on the host: coordinates (order, M) and values, in any order.
    paper_bytes : callable
        Of a tensor on the host: the bytes of its indices and pointers by the paper's formula. 0 for a
        format that consists of others, whose bytes are added.
    builders : mapping
        By the names under which formats are compared, functions that make it from a Coo.
    """

    kind: type[SparseTensor]
    coordinates: Callable[[Any], tuple[Coordinates, Coordinates]]
    paper_bytes: Callable[[Any], int] = lambda tensor: 0
    builders: Mapping[str, Callable[[Coo], SparseTensor]] = field(
        default_factory=dict[str, Callable[[Coo], SparseTensor]]
    )


def for_every_mode(coo: Coo, build: Callable[[tuple[int, ...]], Any]) -> PerMode:
    """Build the tensor once per mode, with that mode first."""
    check_coo(coo)
    every = range(len(coo.shape))
    return PerMode(tuple(build(root_first(coo.shape, mode)) for mode in every), coo.shape)


def by_mode(levels: Sequence[Coordinates], modes: tuple[int, ...]) -> Coordinates:
    """Indices by level, permuted to the order of the modes."""
    return np.stack([levels[modes.index(mode)] for mode in range(len(modes))])


def nodes(uppers: Indices) -> list[int]:
    """N(0), N(1), … of sorted fibers, then the number of fibers, with split ones counted per piece."""
    return [*(starts.size for starts in prefix_starts(uppers)[:-1]), uppers.shape[1]]
