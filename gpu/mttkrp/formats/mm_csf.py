"""Mixed-mode CSF: every nonzero is stored in the longest of its fibers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from gpu.mttkrp.formats.compiled import compiled
from gpu.mttkrp.formats.entry import Columns, Format
from gpu.mttkrp.formats.fibers import columns, fibers_of
from gpu.mttkrp.formats.nonzeros import Nonzeros, arranged, nonzeros_of
from gpu.mttkrp.formats.runs import depths_of, numbers_of, starts_of
from gpu.mttkrp.formats.sort import Indices, bits_of, sorted_by
from reference.types import Coo, MmCsf
from reference.types.arguments import check_directions, check_number, leaf_last


def mm_csf(
    coo: Coo,
    *,
    split: int = 128,
    lengths: Literal["dynamic", "static"] = "dynamic",
    directions: Sequence[int] | None = None,
    ties: Literal["average", "printed"] = "average",
    order: Literal["sorted", "given"] = "sorted",
) -> MmCsf:
    """Build an MM-CSF tensor: fibers in several directions, with every nonzero in its longest fiber.

    Nonzeros choose among the leaf modes ``directions`` (all if not given); of equally long fibers they take
    the one in the direction with fewer fibers, then the lower mode, or with the "printed" rule for ``ties``
    the one with the highest leaf mode. With "dynamic" lengths each shortens its fibers in the other
    directions; they choose in lexicographic order by mode 0, 1, …, or as they are "given". "static" lengths
    do not change. Then fibers longer than ``split`` nonzeros are cut. FormatError if coordinates occur twice;
    ShapeError for dimensions above 2**32, a ``split`` below 1 or directions that are not different modes;
    SchemeError for other options. Source: MM-CSF (SC'19), section 4 and algorithm 5.

    >>> coords = [[0, 1, 2, 2], [0, 0, 0, 1], [3, 3, 3, 1]]
    >>> made = mm_csf(Coo(coords, [5.0, 6.0, 7.0, 8.0], (3, 2, 4)))
    >>> [(part.modes, part.leaves.tolist()) for part in made.partitions]
    [((1, 2, 0), [0, 1, 2, 2])]
    """
    nonzeros = nonzeros_of(coo)
    split = check_number("split", split)
    leaves = check_directions(directions, coo.shape, lengths, ties, order)
    turns = _turns(coo) if order == "given" else None
    homes = homes_of(nonzeros, leaves, lengths == "dynamic", ties == "printed", turns)
    counts = [np.count_nonzero(homes == leaf) for leaf in range(len(coo.shape))]
    parts = np.split(sorted_by(homes, bits_of(homes, [0])), np.cumsum(counts)[:-1])
    return MmCsf(
        tuple(
            fibers_of(arranged(replace(nonzeros, order=part), leaf_last(coo.shape, leaf)), split)
            for leaf, part in enumerate(parts)
            if part.size
        ),
        coo.shape,
    )


def _turns(coo: Coo) -> Indices:
    """The position in lexicographic order of each nonzero, as they are given."""
    coords = coo.coords.astype(np.uint32, copy=False)
    order = sorted_by(coords, bits_of(coords, range(len(coords))))
    turns = np.empty_like(order)
    turns[order] = np.arange(order.size, dtype=order.dtype)
    return turns


def homes_of(
    nonzeros: Nonzeros,
    leaves: Sequence[int],
    dynamic: bool,
    printed: bool = False,
    turns: Indices | None = None,
) -> Indices:
    """The leaf mode of the fiber to which each nonzero is assigned, as an array of shape (1, M).

    The nonzeros must be sorted by mode 0, 1, …; they choose in the order ``turns``.

    >>> coords = [[0, 1, 2, 2], [0, 0, 0, 1], [3, 3, 3, 1]]
    >>> homes_of(nonzeros_of(Coo(coords, [5.0, 6.0, 7.0, 8.0], (3, 2, 4))), (0, 2), dynamic=True)
    array([[0, 0, 0, 0]], dtype=uint32)
    """
    d = len(nonzeros.shape)
    numbers, lengths = np.empty_like(nonzeros.coords), np.empty_like(nonzeros.coords)
    counts: dict[int, int] = {}
    for leaf in sorted(leaves, reverse=True):
        # Moving the last mode to the front makes the mode before it the leaf; only one mode must be sorted.
        nonzeros = arranged(nonzeros, (*range(leaf + 1, d), *range(leaf + 1)))
        starts = starts_of(depths_of(nonzeros.coords, nonzeros.modes, nonzeros.order), d - 2)
        numbers_of(starts, nonzeros.order, numbers[leaf])
        counts[leaf] = starts.size - 1
        np.subtract(starts[1:], starts[:-1], out=lengths[leaf, : counts[leaf]])
    by_rule = sorted(leaves, reverse=True) if printed else sorted(leaves, key=lambda n: (counts[n], n))
    preferred = np.array(by_rule, np.uint32)
    homes = np.empty((1, nonzeros.order.size), np.uint32)
    turns = np.empty(0, np.uint32) if turns is None else turns
    compiled(_share_out)(numbers, lengths, preferred, dynamic, turns, homes[0])
    return homes


def _share_out(numbers: Any, lengths: Any, preferred: Any, dynamic: bool, turns: Any, homes: Any) -> None:
    """Assign each nonzero to a direction (algorithm 5, lines 2 to 13), in order, as choices interact."""
    for turn in range(homes.size):
        z = turns[turn] if turns.size else turn
        home = preferred[0]
        most = lengths[home, numbers[home, z]]
        for leaf in preferred[1:]:
            length = lengths[leaf, numbers[leaf, z]]
            if length > most:
                home, most = leaf, length
        homes[z] = home
        if dynamic:
            for leaf in preferred:
                if leaf != home:
                    lengths[leaf, numbers[leaf, z]] -= np.uint32(1)


def _columns(tensor: MmCsf) -> Columns:
    coords, values = zip(*map(columns, tensor.partitions), strict=True)
    return np.hstack(coords), np.hstack(values)


FORMAT = Format(MmCsf, _columns, builders={"mm-csf": mm_csf})
