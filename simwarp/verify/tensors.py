"""Random sparse tensors of the kinds that expose bugs of kernels and formats.

A kind is a predicate and a recipe that draws tensors which satisfy it. All numbers come from counters
(`simwarp.verify.draw.Draw`) by integer arithmetic, so that they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.types import Coo
from simwarp.verify.draw import Draw

Indices = npt.NDArray[np.int64]

NONZEROS = 600
"""The default limit of the nonzeros of a tensor."""
FACTOR = 200_000
"""The largest number of elements of a factor."""

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 31, 37, 61, 67, 127, 131)
_LONG, _LONGER = 129, 257
"""One more than the nonzeros of one piece of a fiber, and of two pieces."""
_DOMINATING = 513
"""One more than the nonzeros of a slice for one warp."""
_BLOCK = 128
_SIMPLE = np.array([0, 1, -1, 0.5, 2, -3, 0.25, 100])


# --------------------------------------------------------------------------------------------------
# The predicates of kinds
# --------------------------------------------------------------------------------------------------


def _fibers(tensor: Coo, mode: int) -> Indices:
    """The number of nonzeros of each fiber along a mode, in descending order."""
    others = np.delete(tensor.coords, mode, axis=0)
    return -np.sort(-np.unique(others, axis=1, return_counts=True)[1])


def _long_fibers(tensor: Coo) -> bool:
    longest = (_fibers(tensor, mode) for mode in range(len(tensor.shape)))
    return any(n[0] >= _LONGER and n.size > 1 and n[1] >= _LONG for n in longest)


def _dominating_slice(tensor: Coo) -> bool:
    largest = max(int(np.unique(indices, return_counts=True)[1].max()) for indices in tensor.coords)
    return largest >= max(_DOMINATING, tensor.values.size // 2)


def _hypersparse(tensor: Coo) -> bool:
    fibers = [_fibers(tensor, mode) for mode in range(len(tensor.shape))]
    return tensor.values.size > 5 and all(int((n == 1).sum()) >= 0.75 * n.size for n in fibers)


def _crossing(tensor: Coo) -> bool:
    share = tensor.values.size / (2 * len(tensor.shape))
    return all(int(_fibers(tensor, mode)[0]) >= share for mode in range(len(tensor.shape)))


def _far_corner(tensor: Coo) -> bool:
    last = tensor.coords == np.array(tensor.shape)[:, None] - 1
    return bool((last.sum(axis=0) >= len(tensor.shape) - 1).all() and last.all(axis=0).any())


def _dense_block(tensor: Coo) -> bool:
    sides: Indices = tensor.coords.max(axis=1) - tensor.coords.min(axis=1) + 1
    return tensor.values.size == int(np.prod(sides))


def _skewed(tensor: Coo) -> bool:
    """True if more than half of the nonzeros are in the first quarter of a mode's indices."""
    pairs = zip(tensor.coords, tensor.shape, strict=True)
    return any(2 * int((4 * indices < size).sum()) > tensor.values.size for indices, size in pairs)


def kinds_of(tensor: Coo) -> tuple[str, ...]:
    """The kinds that a tensor belongs to, if any; repeated coordinates count once.

    ==================== =============================================================================
    kind                 condition
    ==================== =============================================================================
    ``tiny``             one to five nonzeros
    ``ragged primes``    every dimension is a prime
    ``long fibers``      one fiber is cut into three or more pieces, and another into two
    ``dominating slice`` one slice has at least half of the nonzeros, too many for one warp
    ``hypersparse``      in every direction, three quarters of the fibers have a single nonzero
    ``crossing fibers``  in every direction, one fiber has a large part of the nonzeros
    ``far corner``       every nonzero has the last index in all modes except one, and one in all modes
    ``flat modes``       a dimension is 1
    ``huge dimensions``  a dimension is more than a hundred times the number of nonzeros
    ``dense block``      the nonzeros fill a block
    ``skewed``           in some mode, the first quarter of the indices has most of the nonzeros
    ==================== =============================================================================

    >>> kinds_of(Coo([[4, 4, 2], [2, 1, 2]], [1.0, 2.0, 3.0], (5, 3)))
    ('tiny', 'ragged primes', 'crossing fibers', 'far corner')
    """
    places = _distinct_places(tensor.coords)
    once = Coo(places, np.ones(places.shape[1]), tensor.shape)
    return tuple(name for name, (belongs, _) in _KINDS.items() if belongs(once))


# --------------------------------------------------------------------------------------------------
# Drawing tensors of a kind
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Frame:
    """The limits of a recipe: the order, the longest dimension and the most nonzeros."""

    draw: Draw
    order: int
    rows: int
    most: int

    def mode(self) -> int:
        """Draw a mode (dimension) of the tensor."""
        return self.draw.integer(0, self.order - 1)

    def sizes(self, low: int, high: int) -> list[int]:
        """Draw a shape with dimensions from low to high."""
        return [min(self.draw.integer(low, high), self.rows) for _ in range(self.order)]

    def places(self, sizes: list[int], count: int) -> Indices:
        """Draw coordinates within a shape; some may be repeated."""
        return np.stack([_below(self.draw, size, count) for size in sizes])

    def side(self, modes: int, volume: int) -> int:
        """The smallest side of a cube of ``modes`` dimensions with at least ``volume`` elements."""
        return next(n for n in range(1, volume + 1) if n**modes >= volume)


_Places = tuple[list[int], Indices]
"""The shape of a tensor, and coordinates in it, some of them repeated."""

_Recipe = Callable[[_Frame], _Places]
_KINDS: dict[str, tuple[Callable[[Coo], bool], _Recipe]] = {}
"""The predicate and the recipe of each kind, the kind with the simplest members first."""


def _kind(name: str, belongs: Callable[[Coo], bool]) -> Callable[[_Recipe], _Recipe]:
    """Register a recipe and the predicate that all tensors drawn by it satisfy."""

    def register(recipe: _Recipe) -> _Recipe:
        _KINDS[name] = belongs, recipe
        return recipe

    return register


def draw_tensor(
    draw: Draw,
    kind: str,
    order: int,
    dtype: str,
    *,
    rank: int = 1,
    most: int = NONZEROS,
    repeats: bool = False,
) -> Coo:
    """Draw a tensor of a kind of `KINDS`, of 2 to 8 modes, with its nonzeros in random order.

    Every dimension is at most ``FACTOR // rank``, and distinct coordinates are at most ``most``, which is at
    least 600. With ``repeats`` about a quarter of the coordinates occur again, with other values.

    >>> tensor = draw_tensor(Draw(0, "tensors", 0), "long fibers", 3, "float32")
    >>> tensor.shape, tensor.values.size, kinds_of(tensor)
    ((312, 8, 9), 416, ('long fibers', 'skewed'))
    """
    frame = _Frame(draw, order, FACTOR // rank, most)
    sizes, places = _KINDS[kind][1](frame)
    places = _distinct_places(places)
    if repeats:
        again = places[:, draw.words(places.shape[1]) % 4 == 0]
        places = np.concatenate([places, again], axis=1)
    places = places[:, _shuffled(draw, places.shape[1])]
    return Coo(places, draw_values(draw, places.shape[1], dtype), tuple(sizes))


def draw_values(draw: Draw, count: int, dtype: str) -> npt.NDArray[Any]:
    """Draw values of both signs and magnitudes from 1/16 to 16; every eighth is a simple one, such as 0.

    >>> values = draw_values(Draw(0, "tensors", 0), 1000, "float32")
    >>> bool((values < 0).any()), float(abs(values).max()), bool((values == 0).any())
    (True, 100.0, True)
    """
    words = draw.words(count)
    bits = np.finfo(dtype).nmant
    fraction = np.ldexp((words >> np.uint64(64 - bits)).astype(np.float64), -bits)
    sign = 1 - 2 * (words & 1).astype(np.float64)
    exponent = (words >> 1 & 7).astype(np.int32) - 4
    drawn = sign * np.ldexp(1 + fraction, exponent)
    return np.where(words >> 4 & 7, drawn, _SIMPLE[words >> 7 & 7]).astype(dtype)


def draw_factors(
    draw: Draw, shape: tuple[int, ...], mode: int, rank: int, dtype: str
) -> tuple[npt.NDArray[Any], ...]:
    """Draw a factor for each mode; that of ``mode``, which must not be read, is all NaN.

    >>> [bool(np.isnan(a).all()) for a in draw_factors(Draw(0, "tensors", 0), (2, 3), 1, 4, "float64")]
    [False, True]
    """
    return tuple(
        np.full((size, rank), np.nan, dtype)
        if n == mode
        else draw_values(draw, size * rank, dtype).reshape(size, rank)
        for n, size in enumerate(shape)
    )


@_kind("tiny", lambda tensor: tensor.values.size <= 5)
def _draw_tiny(x: _Frame) -> _Places:
    sizes = x.sizes(1, 9)
    return sizes, x.places(sizes, x.draw.integer(1, 5))


@_kind("ragged primes", lambda tensor: set(tensor.shape) <= set(_PRIMES))
def _draw_ragged(x: _Frame) -> _Places:
    sizes = [x.draw.choice(_PRIMES) for _ in range(x.order)]
    return sizes, x.places(sizes, x.draw.integer(x.most // 8, x.most // 4))


@_kind("long fibers", _long_fibers)
def _draw_long_fibers(x: _Frame) -> _Places:
    leaf, sizes = x.mode(), x.sizes(2, 9)
    lengths = x.draw.integer(_LONGER, x.most // 2), x.draw.integer(_LONG, x.most // 4)
    sizes[leaf] = min(max(lengths) + x.draw.integer(1, 150), x.rows)
    parts = [x.places(sizes, x.draw.integer(1, x.most // 8))]
    above = x.mode()
    above = above if above != leaf else (leaf + 1) % x.order
    for number, length in enumerate(lengths):
        fiber = np.repeat(x.places(sizes, 1), min(length, sizes[leaf]), axis=1)
        fiber[above] = number
        fiber[leaf] = _some_of(x.draw, sizes[leaf], fiber.shape[1])
        parts.append(fiber)
    return sizes, np.concatenate(parts, axis=1)


@_kind("dominating slice", _dominating_slice)
def _draw_dominating_slice(x: _Frame) -> _Places:
    mode, side = x.mode(), x.side(x.order - 1, 2 * x.most)
    sizes = x.sizes(side, side + 3)
    sizes[mode] = x.draw.integer(1, 40)
    inside = [1 if n == mode else size for n, size in enumerate(sizes)]
    chosen = _some_of(x.draw, int(np.prod(inside)), x.draw.integer(x.most * 11 // 12, x.most * 19 // 20))
    slice_ = np.stack(np.unravel_index(chosen, inside)).astype(np.int64)
    slice_[mode] = x.draw.integer(0, sizes[mode] - 1)
    return sizes, np.concatenate([slice_, x.places(sizes, x.most // 20)], axis=1)


@_kind("hypersparse", _hypersparse)
def _draw_hypersparse(x: _Frame) -> _Places:
    longest = min(x.rows, 5 * x.most)
    sizes = x.sizes(longest // 2, longest)
    count = x.draw.integer(20, min(x.most, longest) // 4)
    single = np.stack([_some_of(x.draw, size, count) for size in sizes])
    near = single[:, : count // 10].copy()
    near[x.mode()] = 0  # a few that share a fiber with another
    return sizes, np.concatenate([single, near], axis=1)


@_kind("crossing fibers", _crossing)
def _draw_crossing(x: _Frame) -> _Places:
    length = x.most // x.order
    sizes = x.sizes(length, length + 50)
    lines = np.repeat(x.places(sizes, 1), sum(min(size, length) for size in sizes), axis=1)
    start = 0
    for mode, size in enumerate(sizes):
        end = start + min(size, length)
        lines[mode, start:end] = _some_of(x.draw, size, end - start)
        start = end
    return sizes, lines


@_kind("far corner", _far_corner)
def _draw_far_corner(x: _Frame) -> _Places:
    sizes, count = x.sizes(2, 70), x.draw.integer(20, 200)
    corner = np.array(sizes, np.int64) - 1
    places = np.repeat(corner[:, None], count, axis=1)
    free = _below(x.draw, x.order, count - 1)
    places[free, np.arange(count - 1)] = _below(x.draw, 2**40, count - 1) % np.array(sizes)[free]
    return sizes, places


@_kind("flat modes", lambda tensor: 1 in tensor.shape)
def _draw_flat(x: _Frame) -> _Places:
    sizes = [size if x.draw.integer(0, 1) else 1 for size in x.sizes(2, 40)]
    sizes[x.mode()] = 1
    return sizes, x.places(sizes, x.draw.integer(1, x.most // 4))


@_kind("huge dimensions", lambda tensor: max(tensor.shape) > 100 * tensor.values.size)
def _draw_huge(x: _Frame) -> _Places:
    sizes = x.sizes(1, 9)
    for _ in range(2):
        sizes[x.mode()] = x.draw.integer(2 * x.rows // 3, x.rows)
    places = x.places(sizes, x.draw.integer(1, min(20, x.rows // 200)))
    places[:, 0] = np.array(sizes) - 1
    return sizes, places


@_kind("dense block", _dense_block)
def _draw_dense_block(x: _Frame) -> _Places:
    side = x.side(x.order, x.most + 1) - 1
    sides = [x.draw.integer(max(side - 1, 1), side) for _ in range(x.order)]
    starts = [
        max(_BLOCK - x.draw.integer(0, n), 0) for n in sides
    ]  # often across the boundary of a HiCoo block
    sizes = [start + n + x.draw.integer(0, 9) for start, n in zip(starts, sides, strict=True)]
    return sizes, np.indices(sides).reshape(x.order, -1) + np.array(starts)[:, None]


@_kind("skewed", _skewed)
def _draw_skewed(x: _Frame) -> _Places:
    sizes, count = x.sizes(20, max(300, x.most // 20)), x.draw.integer(x.most // 6, x.most // 3)
    # The probability of index i falls with i: it is proportional to the sum of 1 / n over n > i.
    return sizes, np.stack([_below(x.draw, 1 + _below(x.draw, size, count), count) for size in sizes])


KINDS: tuple[str, ...] = tuple(_KINDS)
"""The kinds, the one with the simplest members first."""


def _below(draw: Draw, bound: Any, count: int) -> Indices:
    """Draw integers below one bound, or each below its own."""
    return (draw.words(count) % np.asarray(bound, np.uint64)).astype(np.int64)


def _shuffled(draw: Draw, count: int) -> Indices:
    """Draw a random permutation of 0 to ``count - 1``."""
    return np.argsort(draw.words(count), kind="stable").astype(np.int64)


def _some_of(draw: Draw, total: int, count: int) -> Indices:
    """Draw distinct integers below ``total``."""
    return _shuffled(draw, total)[:count]


def _distinct_places(places: Indices) -> Indices:
    """Sort coordinates lexicographically, and drop repeated ones."""
    return np.unique(places, axis=1)
