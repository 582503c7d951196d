"""Builder of mixed-mode CSF, which stores every nonzero in the longest of its fibers."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from reference.sparse.formats.entry import Coordinates, Format
from reference.sparse.formats.fibers import coordinates, fibers
from reference.sparse.sort import sort_distinct
from reference.types import Coo, MmCsf
from reference.types.arguments import check_coo, check_directions, check_number, leaf_last

Lengths: TypeAlias = Literal["dynamic", "static"]
Ties: TypeAlias = Literal["average", "printed"]
Order: TypeAlias = Literal["sorted", "given"]


def mm_csf(
    coo: Coo,
    *,
    split: int = 128,
    lengths: Lengths = "dynamic",
    directions: tuple[int, ...] | None = None,
    ties: Ties = "average",
    order: Order = "sorted",
) -> MmCsf:
    """Partition the nonzeros by the direction of their longest fiber; store each part as fibers.

    Nonzeros are assigned one by one. Which of them goes first, and which of equally long fibers wins, are
    options; the defaults give one set of arrays for one set of nonzeros.

    Parameters
    ----------
    coo : Coo
        Without repeated coordinates, in any order.
    split : int
        The most nonzeros of a stored fiber, at least 1.
    lengths : {"dynamic", "static"}
        With ``"dynamic"`` a nonzero that is assigned no longer counts for the length of its other fibers
        (algorithm 5). With ``"static"`` lengths are those of the whole tensor.
    directions : tuple of int, optional
        The leaf modes of the directions to choose from; by default all.
    ties : {"average", "printed"}
        Among fibers of equal length, with ``"average"`` that one wins whose direction has fewer fibers in the
        whole tensor, hence longer ones on average (section 4.1); then that with the lower leaf mode. With
        ``"printed"`` it is the first partition of algorithm 5: that with the highest leaf mode.
    order : {"sorted", "given"}
        With ``"sorted"`` nonzeros choose in lexicographic order by mode 0, 1, …, with ``"given"`` in the
        order in which the Coo holds them, as in algorithm 5 and figure 4.

    Returns
    -------
    MmCsf

    Raises
    ------
    FormatError
        If coordinates are repeated, or the arrays are on a device.
    DtypeError
        If ``coo`` is not a Coo.
    ShapeError
        If a dimension exceeds 2**32, ``split`` is less than 1, or ``directions`` are not different modes.
    SchemeError
        For unknown ``lengths``, ``ties`` or ``order``.

    Notes
    -----
    Section 4.1 and algorithm 5 differ in a tie: the text prefers longer fibers on average, the listing its
    first partition.

    Source: MM-CSF (SC'19), section 4.1, figure 4 and algorithm 5.

    Examples
    --------
    A matrix with one dense row and one dense column becomes a row and a column:

    >>> coo = Coo([[0, 1, 2, 2, 2], [1, 1, 0, 1, 2]], [1.0, 2.0, 3.0, 4.0, 5.0], (3, 3))
    >>> [(part.modes, part.leaves.tolist()) for part in mm_csf(coo).partitions]
    [((1, 0), [0, 1, 2]), ((0, 1), [0, 2])]

    Figure 4, in its order, has three fibers; sorted, slice 0 chooses first and there are four:

    >>> figure = [[5, 5, 5, 4, 4, 4, 0, 0], [1] * 8, [1, 2, 3, 2, 1, 5, 2, 4]]
    >>> for order in ("given", "sorted"):
    ...     made = mm_csf(Coo(figure, [1.0] * 8, (6, 2, 6)), directions=(0, 2), order=order)
    ...     print(sum(part.uppers.shape[1] for part in made.partitions))
    3
    4
    """
    check_coo(coo)
    split = check_number("split", split)
    directions = check_directions(directions, coo.shape, lengths, ties, order)
    indices, values = sort_distinct(coo, tuple(range(len(coo.shape))))
    if order == "given":
        indices, values = coo.coords, coo.values
    nonzeros = [tuple(nonzero) for nonzero in indices.T.tolist()]
    chosen = np.array(choose_directions(nonzeros, directions, lengths, ties))
    return MmCsf(
        tuple(
            fibers(
                Coo(indices[:, chosen == leaf], values[chosen == leaf], coo.shape, coo.nonfinite),
                leaf_last(coo.shape, leaf),
                split=split,
            )
            for leaf in sorted({*chosen.tolist()})
        ),
        coo.shape,
    )


def choose_directions(
    nonzeros: list[tuple[int, ...]],
    directions: tuple[int, ...],
    lengths: Lengths,
    ties: Ties = "average",
) -> list[int]:
    """Assign a direction (leaf mode) to each nonzero, in the order given: algorithm 5, lines 2 to 13.

    The example is figure 4. The seventh nonzero shares ``(0, 1, :)`` with one other and ``(:, 1, 2)`` with
    two, but with "dynamic" those two have been assigned to other fibers before.

    >>> figure = [(5, 1, 1), (5, 1, 2), (5, 1, 3), (4, 1, 2), (4, 1, 1), (4, 1, 5), (0, 1, 2), (0, 1, 4)]
    >>> choose_directions(figure, (0, 2), "static")
    [2, 2, 2, 2, 2, 2, 0, 2]
    >>> choose_directions(figure, (0, 2), "dynamic")
    [2, 2, 2, 2, 2, 2, 2, 2]
    """
    length = Counter(_fiber(nonzero, leaf) for nonzero in nonzeros for leaf in directions)
    number = Counter(leaf for leaf, *_ in length)

    def preference(nonzero: tuple[int, ...], leaf: int) -> tuple[int, int, int]:
        second, third = (number[leaf], leaf) if ties == "average" else (-leaf, 0)
        return -length[_fiber(nonzero, leaf)], second, third

    chosen: list[int] = []
    for nonzero in nonzeros:
        best = min(directions, key=partial(preference, nonzero))
        chosen.append(best)
        if lengths == "dynamic":
            length.subtract(_fiber(nonzero, leaf) for leaf in directions if leaf != best)
    return chosen


def _fiber(nonzero: tuple[int, ...], leaf: int) -> tuple[int, ...]:
    """A key for the fiber through a nonzero along one mode: the leaf mode, and the other indices."""
    return (leaf, *nonzero[:leaf], *nonzero[leaf + 1 :])


def _coordinates(tensor: MmCsf) -> tuple[Coordinates, Coordinates]:
    coords, values = zip(*map(coordinates, tensor.partitions), strict=True)
    return np.concatenate(coords, axis=1), np.concatenate(values)


FORMAT = Format(MmCsf, _coordinates, builders={"mm-csf": mm_csf})
