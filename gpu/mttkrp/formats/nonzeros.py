"""Nonzeros, checked and in lexicographic order, from which every format is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.mttkrp.formats.compiled import compiled, in_parts
from gpu.mttkrp.formats.sort import Indices, bits_of, gathered, resorted, sorted_by, taken
from reference.errors import FormatError
from reference.types import Coo, PerMode
from reference.types.arguments import by_dimension, check_coo, check_modes, root_first


@dataclass(frozen=True, eq=False)
class Nonzeros:
    """Nonzeros of a tensor, all or some, sorted lexicographically by the indices of ``modes``.

    >>> nonzeros = nonzeros_of(Coo([[0, 1, 0], [2, 0, 1]], [5.0, 6.0, 7.0], (2, 3)))
    >>> nonzeros.values, arranged(nonzeros, (1, 0)).order
    (array([7., 5., 6.]), array([2, 0, 1], dtype=uint32))
    """

    coords: Indices  # (d, M), in lexicographic order by mode 0, 1, …
    values: npt.NDArray[Any]  # (M,)
    shape: tuple[int, ...]
    modes: tuple[int, ...]
    order: Indices  # (m,): positions of these nonzeros in coords and values, sorted by modes


def nonzeros_of(coo: Coo) -> Nonzeros:
    """The nonzeros of a Coo, sorted by mode 0, 1, …; raises for duplicate coordinates.

    DtypeError if ``coo`` is not a Coo; FormatError if its arrays lie on a device; ShapeError for dimensions
    above 2**32.

    >>> nonzeros_of(Coo([[1, 0, 1], [2, 0, 2]], [5.0, 6.0, 7.0], (2, 3)))
    Traceback (most recent call last):
    ...
    reference.errors.FormatError: the coordinates (1, 2) occur more than once
    only a Coo may repeat coordinates
    sum them first: coalesce(coo)
    """
    coords, values = in_natural_order(coo)
    z = _first_descent(coords)
    if z < values.size:
        raise FormatError(
            f"the coordinates {tuple(coords[:, z].tolist())} occur more than once\n"
            "only a Coo may repeat coordinates\nsum them first: coalesce(coo)"
        )
    natural = tuple(range(len(coo.shape)))
    return Nonzeros(coords, values, coo.shape, natural, np.arange(values.size, dtype=np.uint32))


def in_natural_order(coo: Coo) -> tuple[Indices, npt.NDArray[Any]]:
    """The uint32 coordinates and the values of a Coo, sorted stably by mode 0, 1, ….

    >>> coords, values = in_natural_order(Coo([[1, 0, 1], [2, 0, 2]], [5.0, 6.0, 7.0], (2, 3)))
    >>> coords.tolist(), values.tolist()
    ([[0, 1, 1], [0, 2, 2]], [6.0, 5.0, 7.0])
    """
    check_coo(coo)
    coords: Indices = coo.coords.astype(np.uint32, copy=False)
    if _first_descent(coords) == coords.shape[1]:
        return coords, coo.values
    order = sorted_by(coords, bits_of(coords, range(len(coords))))
    return gathered(coords, order), taken(coo.values, order)


def arranged(nonzeros: Nonzeros, modes: Sequence[int]) -> Nonzeros:
    """Sort the nonzeros by the modes in another order.

    >>> nonzeros = nonzeros_of(Coo([[0, 1, 0], [2, 0, 1]], [5.0, 6.0, 7.0], (2, 3)))
    >>> arranged(nonzeros, (1, 0)).modes
    (1, 0)
    """
    order = resorted(nonzeros.coords, modes, nonzeros.modes, nonzeros.order)
    return replace(nonzeros, modes=tuple(modes), order=order)


def sorted_nonzeros(coo: Coo, modes: Sequence[int] | None) -> Nonzeros:
    """The nonzeros of a Coo, sorted by the given modes, or by dimension (the shortest first) for None."""
    nonzeros = nonzeros_of(coo)
    return arranged(nonzeros, by_dimension(coo.shape) if modes is None else check_modes(modes, coo.shape))


def per_mode(coo: Coo, build: Callable[[Nonzeros], Any]) -> PerMode:
    """Build one tensor per mode with ``build``, from the nonzeros sorted with that mode first."""
    shortest_first = sorted_nonzeros(coo, None)
    orders = (root_first(coo.shape, n) for n in range(len(coo.shape)))
    return PerMode(tuple(build(arranged(shortest_first, modes)) for modes in orders), coo.shape)


def _first_descent(coords: Indices) -> int:
    """The first nonzero that does not follow its predecessor in lexicographic order; M if there is none."""
    descents = in_parts(coords.shape[1], lambda begin, end: int(compiled(_find_descent)(coords, begin, end)))
    return next((z for z in descents if z), coords.shape[1])


def _find_descent(coords: Any, begin: int, end: int) -> int:
    for z in range(max(begin, 1), end):
        ascends = False
        for n in range(coords.shape[0]):
            if coords[n, z] != coords[n, z - 1]:
                ascends = coords[n, z] > coords[n, z - 1]
                break
        if not ascends:
            return z
    return 0
