"""The type of a registry entry, and functions that formats share.

>>> by_mode([np.array([7, 8]), np.array([4, 5])], (1, 0)).tolist()
[[4, 5], [7, 8]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.sparse.sort import Indices, prefix_starts
from reference.types import Coo, PerMode, SparseTensor
from reference.types.arguments import check_coo, root_first

Coordinates: TypeAlias = npt.NDArray[Any]
WORD = 4
"""Bytes of an index and of a pointer in the paper's formulas."""


@dataclass(frozen=True)
class Format:
    """The registry entry of a sparse format; its functions take a tensor on the host."""

    kind: type[SparseTensor]  # the format's dataclass in `reference.types`
    # coordinates (order, M) and values, in any order
    coordinates: Callable[[Any], tuple[Coordinates, Coordinates]]
    # bytes of indices and pointers by the paper's formula; unused for a format that is made of others
    paper_bytes: Callable[[Any], int] = lambda tensor: 0
    builders: Mapping[str, Callable[[Coo], SparseTensor]] = field(
        default_factory=dict[str, Callable[[Coo], SparseTensor]]
    )  # builders by the names that `simwarp tensor` compares
    # the numbers of slices, and of fibers with their pieces counted; None for a format that is not a tree
    slices_and_fibers: Callable[[Any], tuple[int, int]] | None = None


def for_every_mode(coo: Coo, build: Callable[[tuple[int, ...]], Any]) -> PerMode:
    """Call ``build`` for each mode, with an order of modes that starts with it."""
    check_coo(coo)
    every = range(len(coo.shape))
    return PerMode(tuple(build(root_first(coo.shape, mode)) for mode in every), coo.shape)


def by_mode(levels: Sequence[Coordinates], modes: tuple[int, ...]) -> Coordinates:
    """Permute rows of indices from the order of levels to the order of modes."""
    return np.stack([levels[modes.index(mode)] for mode in range(len(modes))])


def nodes(uppers: Indices) -> list[int]:
    """The numbers of prefixes N(0), N(1), … of sorted fibers, then the number of fibers, pieces counted."""
    return [*(starts.size for starts in prefix_starts(uppers)[:-1]), uppers.shape[1]]
