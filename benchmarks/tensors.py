"""The tensors of the sparse benchmarks: random, with the shapes of the tensors in the MM-CSF paper.

    python benchmarks/tensors.py NAME PATH [--scale 1.0] [--seed 1]

``nell2``, ``darpa`` and ``fr_s`` (freebase, sampled) have the fibers of the paper's tensors of that name (its
tables 2, 4 and 5) on fewer nonzeros; ``flick4d`` and ``uber4d`` are like flickr and uber, with four modes;
``small3`` and ``small4`` are for trying things out. Indices follow Zipf's law in each mode. Where fibers are
what matters, they are drawn first, then their lengths, then their leaves. Places are different, and in
lexicographic order; values are sixteenths, 1/16 to 4.

PATH ends in ``.tns``, text that counts from 1, or in ``.npz``, NumPy's arrays. A tensor is the same wherever
NumPy draws the same: it does not promise that across its versions, so a test compares.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from reference.sparse import write_tensor, write_tns
from reference.types import Coo

Numbers: TypeAlias = npt.NDArray[np.int64]
"""Indices, or coordinates as one number each, in lexicographic order."""
Random: TypeAlias = np.random.Generator
Drawn: TypeAlias = tuple[tuple[int, ...], list[Numbers]]
"""A shape, and the indices of each mode."""

RARER = 1.15
"""Coordinates drawn at first, for each that is wanted: some are drawn twice."""


def make(name: str, scale: float = 1.0, seed: int = 1) -> Coo:
    """Make a tensor by its name; ``scale`` multiplies its nonzeros and fibers, not its dimensions."""
    random = np.random.default_rng(seed + sum(map(ord, name)))
    shape, indices = TENSORS[name](random, scale)
    coords = np.stack([each.astype(np.uint32) for each in indices])
    sixteenths = random.integers(1, 65, coords.shape[1])
    return Coo(coords, (sixteenths / 16.0).astype(np.float32), shape)


# --------------------------------------------------------------------------------------------------
# What tensors are drawn with
# --------------------------------------------------------------------------------------------------


def zipf(random: Random, n: int, size: int, exponent: float) -> Numbers:
    """Draw numbers i below n with probability ``(i + 1) ** -exponent``: the continuous law, rounded down."""
    uniform = random.random(size)
    if exponent == 1.0:
        continuous = np.exp(uniform * np.log(n + 1.0))
    else:
        rest = 1.0 - exponent
        continuous = (((n + 1.0) ** rest - 1.0) * uniform + 1.0) ** (1.0 / rest)
    return (continuous.astype(np.int64) - 1).clip(0, n - 1)


def chosen(shares: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]) -> Numbers:
    """Draw numbers by their cumulated probabilities."""
    return np.searchsorted(shares, uniform).clip(0, shares.size - 1)


def different(numbers: Numbers) -> Numbers:
    """Each number once, ascending: np.unique, but faster for these."""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def draw_different(random: Random, want: int, draw: Callable[[int], Numbers], more: float = RARER) -> Numbers:
    """Draw this many different numbers with ``draw(size)``, ascending; fewer if it has no more."""
    have = different(draw(int(want * more) + 1024))
    for _ in range(10):
        if have.size >= want:
            break
        before = have.size
        have = different(np.concatenate([have, different(draw((want - before) * 3 + 1024))]))
        if have.size - before < (want - before) // 50:
            break
    surplus = have.size - want
    if surplus > 0:
        candidates = different(random.integers(0, have.size, int(surplus * 1.05) + 16))
        left_out = candidates[random.permutation(candidates.size)[:surplus]]
        have = np.delete(have, left_out)
    return have


def numbered(indices: list[Numbers], shape: tuple[int, ...]) -> Numbers:
    """Linear indices of coordinates; the shapes here have a product below 2**63."""
    number = indices[0]
    for index, n in zip(indices[1:], shape[1:], strict=True):
        number = number * n + index
    return number


def places(numbers: Numbers, shape: tuple[int, ...]) -> list[Numbers]:
    """The coordinates of each mode, from linear indices."""
    indices: list[Numbers] = []
    for n in shape[:0:-1]:
        numbers, index = np.divmod(numbers, n)
        indices.insert(0, index)
    return [numbers, *indices]


# --------------------------------------------------------------------------------------------------
# The tensors
# --------------------------------------------------------------------------------------------------


def fibers_first(
    random: Random,
    shape: tuple[int, int, int],
    nonzeros: int,
    fibers: int,
    exponents: tuple[float, float, float],
    decay: float,
    longest: float,
) -> Drawn:
    """Different fibers along mode 2; fiber f has a length like ``f ** -decay``, at most ``longest``."""
    new_rows, new_columns = random.permutation(shape[0]), random.permutation(shape[1])

    def ends(size: int) -> Numbers:
        return numbered(
            [zipf(random, n, size, s) for n, s in zip(shape, exponents[:2], strict=False)], shape[:2]
        )

    uppers = draw_different(random, fibers, ends)
    lengths = np.arange(1, uppers.size + 1, dtype=np.float64) ** -decay
    lengths *= nonzeros / lengths.sum()
    surplus = np.maximum(lengths - longest, 0).sum()
    lengths = np.minimum(lengths, longest) + surplus / uppers.size
    shares = np.cumsum(lengths) / lengths.sum()
    of_rank = random.permutation(uppers.size)

    def inside(size: int) -> Numbers:
        upper = uppers[of_rank[chosen(shares, random.random(size))]]
        return upper * shape[2] + zipf(random, shape[2], size, exponents[2])

    i, j, k = places(draw_different(random, nonzeros, inside), shape)
    if exponents[2] > 0:  # the leaves are things; otherwise they are times, which stay in order
        k = random.permutation(shape[2])[k]
    return shape, places(np.sort(numbered([new_rows[i], new_columns[j], k], shape)), shape)


def nell2(random: Random, scale: float) -> Drawn:
    """A tensor like nell2, which has 76.9 M nonzeros and, along mode 2, about 337,000 fibers."""
    shape, sizes = (12092, 9184, 28818), (int(20e6 * scale), int(88e3 * scale))
    return fibers_first(random, shape, *sizes, (0.6, 0.6, 0.55), 0.75, 9000)


def darpa(random: Random, scale: float) -> Drawn:
    """A tensor like darpa: 28.4 M nonzeros, 76,000 fibers, 277 of them longer than 10,000; mode 2 is time."""
    shape, sizes = (22476, 22476, 2377607), (int(10e6 * scale), int(27e3 * scale))
    return fibers_first(random, shape, *sizes, (0.8, 0.8, 0.0), 1.15, 2.0e6)


def fr_s(random: Random, scale: float) -> Drawn:
    """Half of the nonzeros have a few subjects, half a few objects, so no single direction suits both."""
    n, relations = 3_900_000, 532
    nonzeros = int(14e6 * scale)
    subjects, objects = random.permutation(n), random.permutation(n)
    new_relations = random.permutation(relations)

    def hub_and_tail(size: int) -> Numbers:
        relation = zipf(random, relations, size, 1.3)
        hub, tail = zipf(random, n // 16, size, 1.0), zipf(random, n, size, 0.15)
        return numbered([hub, tail, relation], (n, n, relations))

    halves = (nonzeros // 2, nonzeros - nonzeros // 2)
    from_subjects, from_objects = (
        places(draw_different(random, half, hub_and_tail), (n, n, relations)) for half in halves
    )
    i = np.concatenate([subjects[from_subjects[0]], subjects[from_objects[1]]])
    j = np.concatenate([objects[from_subjects[1]], objects[from_objects[0]]])
    k = new_relations[np.concatenate([from_subjects[2], from_objects[2]])]
    shape = (n, n, relations)
    return shape, places(different(numbered([i, j, k], shape)), shape)


def flick4d(random: Random, scale: float) -> Drawn:
    """User, photo, tag, day: a photo has one user and one day, and users have preferred tags."""
    users, photos, tags, days = shape = (319_686, 2_815_304, 160_712, 731)
    activity = np.arange(1, users + 1) ** -0.75
    counts = random.permutation(random.multinomial(photos, activity / activity.sum()))
    ends = np.cumsum(counts)
    some = np.flatnonzero(counts > 0)
    most_first = some[np.argsort(-counts[some], kind="stable")]
    day = random.integers(0, days, photos)
    new_tags = random.permutation(tags)

    def likes(size: int) -> Numbers:
        user = most_first[zipf(random, most_first.size, size, 0.7)]
        return user * tags + zipf(random, tags, size, 0.75)

    liked = draw_different(random, int(1.2e6 * scale), likes)
    weights = np.sqrt(counts[liked // tags].astype(np.float64)) * (random.pareto(1.5, liked.size) + 0.3)
    shares = np.cumsum(weights) / weights.sum()

    def tagged(size: int) -> Numbers:
        user, tag = np.divmod(liked[chosen(shares, random.random(size))], tags)
        photo = ends[user] - counts[user] + (random.random(size) * counts[user]).astype(np.int64)
        return photo * tags + tag

    photo, tag = np.divmod(draw_different(random, int(10e6 * scale), tagged), tags)
    user = np.searchsorted(ends, photo, side="right")
    new_photos = random.permutation(photos)
    new_day = np.empty_like(day)
    new_day[new_photos] = day
    three = places(np.sort(numbered([user, new_photos[photo], new_tags[tag]], shape[:3])), shape[:3])
    return shape, [*three, new_day[three[1]]]


def uber4d(random: Random, scale: float) -> Drawn:
    """Day, hour, and two coordinates in a town, denser in its centre; all modes are short."""
    shape = days, hours, width, height = 183, 24, 1140, 1717
    hour = np.arange(hours)
    traffic = 0.3 + np.clip(np.sin((hour - 5) / hours * 2 * np.pi), 0, None) + 0.5 * (hour > 15)
    shares = np.cumsum(traffic) / traffic.sum()

    def rides(size: int) -> Numbers:
        day = random.integers(0, days, size)
        hour = chosen(shares, random.random(size))
        central = random.random(size) < 0.8
        x = np.where(central, random.normal(600, 45, size), random.normal(560, 170, size)).astype(np.int64)
        y = np.where(central, random.normal(820, 40, size), random.normal(900, 230, size)).astype(np.int64)
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        return numbered([day, hour, x, y], shape)[inside]

    return shape, places(draw_different(random, int(3e6 * scale), rides, 1.5), shape)


def small3(random: Random, scale: float) -> Drawn:
    """A small tensor like nell2."""
    sizes = int(120e3 * scale), int(9e3 * scale)
    return fibers_first(random, (700, 500, 3000), *sizes, (0.6, 0.6, 0.4), 0.9, 900)


def small4(random: Random, scale: float) -> Drawn:
    """A small tensor of four independent modes."""
    shape, exponents = (61, 24, 301, 517), (0.3, 0.3, 0.8, 0.8)

    def anywhere(size: int) -> Numbers:
        return numbered([zipf(random, n, size, s) for n, s in zip(shape, exponents, strict=True)], shape)

    return shape, places(draw_different(random, int(90e3 * scale), anywhere, 2.0), shape)


TENSORS: dict[str, Callable[[Random, float], Drawn]] = {
    draw.__name__: draw for draw in (nell2, darpa, fr_s, flick4d, uber4d, small3, small4)
}
WRITERS: dict[str, Callable[[Path, Coo], None]] = {".tns": write_tns, ".npz": write_tensor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=TENSORS)
    parser.add_argument("path", type=Path, help="the file to write, .tns or .npz")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of nonzeros")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.path.suffix not in WRITERS:
        parser.error(f"{options.path} ends in none of {', '.join(WRITERS)}")
    tensor = make(options.name, options.scale, options.seed)
    WRITERS[options.path.suffix](options.path, tensor)
    print(f"{options.path}: {' x '.join(map(str, tensor.shape))}, {tensor.values.size:,} nonzeros")


if __name__ == "__main__":
    main()
