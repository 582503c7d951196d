"""Every sparse format equals a model of Python dictionaries and sets, and the paper's figures."""

import itertools
from bisect import bisect_left
from collections import Counter
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.sparse import (
    FORMATS,
    BCsf,
    Coo,
    Csf,
    FCoo,
    Fibers,
    HiCoo,
    MmCsf,
    PerMode,
    b_csf,
    coalesce,
    csf,
    csf_all,
    f_coo,
    f_coo_all,
    fibers,
    hi_coo,
    index_bytes,
    mm_csf,
    to_coo,
)
from support.offenders import every_case

DIMENSIONS = (1, 2, 3, 5, 17, 256, 257, 2**16, 2**31, 2**32)
VALUES = (1.0, -2.5, 0.0, -0.0, 3.0e-39, 1.0e30, 7.0)


@st.composite
def tensors(draw, most_order=8):
    """A shape and a dictionary of coordinates to values; few indices per mode, so that prefixes repeat."""
    shape = tuple(draw(st.lists(st.sampled_from(DIMENSIONS), min_size=2, max_size=most_order)))
    pools = [(0, n - 1, n // 2, min(1, n - 1)) for n in shape]
    numbers = draw(st.sets(st.integers(0, 4 ** len(shape) - 1), min_size=1, max_size=40))
    chosen = {tuple(pool[n >> 2 * mode & 3] for mode, pool in enumerate(pools)) for n in numbers}
    return shape, dict(zip(sorted(chosen), itertools.cycle(VALUES), strict=False))


def coo_of(shape, places, order=None, index=np.int64, value=np.float64):
    """The dictionary as a Coo, with its nonzeros in the given order."""
    items = list(places.items())
    items = items if order is None else [items[at] for at in order]
    return Coo(
        np.array([place for place, _ in items], index).T, np.array([v for _, v in items], value), shape
    )


def random_coo(shape, nonzeros, seed=0, dtype=np.float64):
    """Random distinct coordinates, denser at low indices."""
    generator = np.random.default_rng(seed)
    chosen = set()
    while len(chosen) < nonzeros:
        chosen.add(tuple(int(n * generator.random() ** 3) for n in shape))
    order = generator.permutation(nonzeros)
    places = dict.fromkeys(sorted(chosen), 0.0)
    coo = coo_of(shape, places, order)
    return replace(coo, values=generator.standard_normal(nonzeros).astype(dtype))


def plain(thing):
    """All fields of a format as types and Python values; equal if and only if the formats are, bit by bit."""
    if is_dataclass(thing):
        return type(thing), {field.name: plain(getattr(thing, field.name)) for field in fields(thing)}
    if isinstance(thing, tuple):
        return tuple(map(plain, thing))
    if isinstance(thing, np.ndarray):
        assert thing.flags.c_contiguous
        return str(thing.dtype), thing.shape, thing.tobytes()
    assert isinstance(thing, int), thing
    return thing


def by_modes(places, modes):
    """The coordinates in another order of modes, sorted."""
    return sorted(tuple(place[mode] for mode in modes) for place in places)


def values_by(places, modes, dtype=np.float64):
    """The values in the order of `by_modes`."""
    return np.array([places[at] for at in sorted(places, key=lambda at: [at[m] for m in modes])], dtype)


def prefixes(places, length):
    return sorted({place[:length] for place in places})


def u32(numbers):
    return np.array(numbers, np.uint32)


def ascending(shape):
    return tuple(mode for _, mode in sorted(zip(shape, itertools.count(), strict=False)))


def rooted(shape, root):
    return (root, *(mode for mode in ascending(shape) if mode != root))


# --------------------------------------------------------------------------------------------------
# The formats, from dictionaries
# --------------------------------------------------------------------------------------------------


def csf_by_hand(shape, places, modes):
    keys = by_modes(places, modes)
    levels = [prefixes(keys, length) for length in range(1, len(shape) + 1)]
    return Csf(
        modes,
        tuple(u32([prefix[-1] for prefix in level]) for level in levels),
        tuple(
            u32([*(bisect_left(below, prefix) for prefix in level), len(below)])
            for level, below in itertools.pairwise(levels)
        ),
        values_by(places, modes),
        shape,
    )


def pieces_by_hand(keys, split):
    """Prefix and length of each fiber, or of each piece of a split fiber."""
    pieces = []
    for prefix, length in sorted(Counter(key[:-1] for key in keys).items()):
        while length > 0:
            pieces.append((prefix, min(length, split)))
            length -= split
    return pieces


def fibers_by_hand(shape, places, modes, split):
    keys = by_modes(places, modes)
    pieces = pieces_by_hand(keys, split)
    return Fibers(
        modes,
        u32([[prefix[level] for prefix, _ in pieces] for level in range(len(shape) - 1)]),
        u32([0, *itertools.accumulate(length for _, length in pieces)]),
        u32([key[-1] for key in keys]),
        values_by(places, modes),
        shape,
        split,
    )


def b_csf_by_hand(shape, places, modes, split, share):
    keys = by_modes(places, modes)
    pieces = pieces_by_hand(keys, split)
    slices = Counter(key[0] for key in keys)
    bins = []
    for number, at in enumerate(sorted(slices)):
        b = 0
        while slices[at] > share * 2**b:
            b += 1
        bins += [[] for _ in range(b + 1 - len(bins))]
        bins[b].append(number)
    return BCsf(
        modes,
        u32(sorted(slices)),
        u32([0, *itertools.accumulate(sum(p[0] == at for p, _ in pieces) for at in sorted(slices))]),
        u32([[prefix[level] for prefix, _ in pieces] for level in range(1, len(shape) - 1)]).reshape(
            len(shape) - 2, len(pieces)
        ),
        u32([0, *itertools.accumulate(length for _, length in pieces)]),
        u32([key[-1] for key in keys]),
        values_by(places, modes),
        u32([*itertools.chain(*bins)]),
        (0, *itertools.accumulate(map(len, bins))),
        shape,
        split,
        share,
    )


def f_coo_by_hand(shape, places, mode, partition):
    modes = rooted(shape, mode)
    keys = by_modes(places, modes)
    rows = sorted({key[0] for key in keys})
    flags = [0] * ((len(keys) + 31) // 32)
    for z, key in enumerate(keys):
        if z == 0 or key[0] != keys[z - 1][0]:
            flags[z // 32] += 2 ** (z % 32)
    return FCoo(
        modes,
        u32([key[1:] for key in keys]).T.copy(),
        values_by(places, modes),
        u32(flags),
        u32(rows),
        u32([rows.index(keys[z][0]) for z in range(0, len(keys), partition)]),
        shape,
        partition,
    )


def z_value(place):
    """Morton code of coordinates: their bits interleaved, mode 0 first at each weight."""
    text = ["".join(bits) for bits in zip(*(f"{index:032b}" for index in place), strict=True)]
    return int("".join(text), 2)


def hi_coo_by_hand(shape, places, block):
    def corner(place):
        return tuple(index // block for index in place)

    keys = sorted(places, key=lambda place: (z_value(corner(place)), place))
    corners = list(dict.fromkeys(map(corner, keys)))
    counts = Counter(map(corner, keys))
    return HiCoo(
        np.array([0, *itertools.accumulate(counts[at] for at in corners)], np.uint64),
        u32(corners).T.copy(),
        np.array([[index % block for index in key] for key in keys], np.uint8).T.copy(),
        np.array([places[key] for key in keys]),
        shape,
        block,
    )


def choices_by_hand(places, directions, dynamic, printed=False):
    """Algorithm 5 with its tie rule as printed, or that of section 4.1, on coordinates in the given order.

    A fiber counts the nonzeros that lie in it and have not gone to another direction.
    """

    def fiber(place, leaf):
        return place[:leaf] + place[leaf + 1 :]

    number = {leaf: len({fiber(place, leaf) for place in places}) for leaf in directions}
    gone = {}
    for place in places:
        lengths = {
            leaf: sum(
                fiber(other, leaf) == fiber(place, leaf) and (not dynamic or gone.get(other, leaf) == leaf)
                for other in places
            )
            for leaf in directions
        }
        longest = [leaf for leaf in directions if lengths[leaf] == max(lengths.values())]
        fewest = [leaf for leaf in longest if number[leaf] == min(number[leaf] for leaf in longest)]
        gone[place] = max(longest) if printed else min(fewest)
    return gone


def mm_csf_by_hand(shape, places, split, directions, dynamic, printed=False, order=None):
    choice = choices_by_hand(order or sorted(places), directions, dynamic, printed)
    parts = []
    for leaf in sorted(set(choice.values())):
        modes = (*(mode for mode in ascending(shape) if mode != leaf), leaf)
        chosen = {place: value for place, value in places.items() if choice[place] == leaf}
        parts.append(fibers_by_hand(shape, chosen, modes, split))
    return MmCsf(tuple(parts), shape)


def by_hand(name, shape, places):
    every = range(len(shape))
    match name:
        case "coo":
            return Coo(u32(sorted(places)).T, values_by(places, every), shape)
        case "csf-one":
            return csf_by_hand(shape, places, ascending(shape))
        case "csf-all":
            return PerMode(tuple(csf_by_hand(shape, places, rooted(shape, mode)) for mode in every), shape)
        case "fibers-all":
            parts = (fibers_by_hand(shape, places, rooted(shape, mode), 128) for mode in every)
            return PerMode(tuple(parts), shape)
        case "b-csf-one":
            return b_csf_by_hand(shape, places, ascending(shape), 128, 512)
        case "b-csf":
            trees = tuple(b_csf_by_hand(shape, places, rooted(shape, mode), 128, 512) for mode in every)
            return PerMode(trees, shape)
        case "f-coo":
            return PerMode(tuple(f_coo_by_hand(shape, places, mode, 64) for mode in every), shape)
        case "hicoo":
            return hi_coo_by_hand(shape, places, 128)
        case "mm-csf":
            return mm_csf_by_hand(shape, places, 128, every, dynamic=True)


def test_the_registry_lists_nine_formats():
    trees = ["csf-one", "csf-all", "fibers-all", "b-csf-one", "b-csf"]
    assert [*FORMATS] == ["coo", *trees, "f-coo", "hicoo", "mm-csf"]


@pytest.mark.slow
@given(tensor=tensors(), random=st.randoms(use_true_random=False), wide=st.booleans())
def test_arrays_equal_a_dictionary_model_for_any_nonzero_order(tensor, random, wide):
    """The arrays are canonical: they do not depend on nonzero order or index type."""
    shape, places = tensor
    order = random.sample(range(len(places)), len(places))
    narrow = np.int16 if max(shape) <= 2**15 else np.uint32
    coo = coo_of(shape, places, order, np.uint64 if wide else narrow)
    for name, build in FORMATS.items():
        assert plain(build(coo)) == plain(by_hand(name, shape, places)), name


@pytest.mark.slow
@given(tensor=tensors(), data=st.data())
def test_builder_settings_equal_a_dictionary_model(tensor, data):
    shape, places = tensor
    coo = coo_of(shape, places)
    modes = tuple(data.draw(st.permutations(range(len(shape)))))
    split, share = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    assert plain(csf(coo, modes)) == plain(csf_by_hand(shape, places, modes))
    assert plain(fibers(coo, modes, split=split)) == plain(fibers_by_hand(shape, places, modes, split))
    tree = b_csf(coo, modes, split=split, share=share)
    assert plain(tree) == plain(b_csf_by_hand(shape, places, modes, split, share))
    assert plain(f_coo(coo, modes[0], partition=32)) == plain(f_coo_by_hand(shape, places, modes[0], 32))
    block = data.draw(st.sampled_from([2, 4, 8, 16, 32, 64, 128, 256]))
    assert plain(hi_coo(coo, block=block)) == plain(hi_coo_by_hand(shape, places, block))
    directions = modes[: data.draw(st.integers(1, len(modes)))]
    lengths = data.draw(st.sampled_from(["dynamic", "static"]))
    ties = data.draw(st.sampled_from(["average", "printed"]))
    given_order = data.draw(st.permutations(range(len(places))))
    order = [list(places)[at] for at in given_order] if data.draw(st.booleans()) else None
    mixed = mm_csf(
        coo_of(shape, places, given_order),
        split=split,
        lengths=lengths,
        directions=directions,
        ties=ties,
        order="given" if order else "sorted",
    )
    model = mm_csf_by_hand(shape, places, split, directions, lengths == "dynamic", ties == "printed", order)
    assert plain(mixed) == plain(model)


def test_flags_across_words_and_partitions_equal_the_model():
    shape, places = (7, 5, 11), {}
    for z, place in enumerate(itertools.islice(itertools.product(range(7), range(5), range(11)), 0, 385, 3)):
        places[place] = float(z)
    for mode, partition in itertools.product(range(3), (32, 64, 96)):
        flagged = f_coo(coo_of(shape, places), mode, partition=partition)
        assert plain(flagged) == plain(f_coo_by_hand(shape, places, mode, partition))
        assert (flagged.flags.size, flagged.first.size) == (5, -(-129 // partition))


# --------------------------------------------------------------------------------------------------
# And back
# --------------------------------------------------------------------------------------------------


def same_nonzeros(coo, places, shape, dtype):
    """Assert equal nonzeros bit by bit, including the sign of 0."""
    assert coo.shape == shape
    assert coo.coords.dtype == np.uint32
    assert [*zip(*coo.coords.tolist(), strict=True)] == sorted(places)
    expected = values_by(places, range(len(shape)), dtype)
    assert (coo.values.dtype, coo.values.tobytes()) == (expected.dtype, expected.tobytes())


@pytest.mark.slow
@given(tensor=tensors(), dtype=st.sampled_from([np.float32, np.float64]))
def test_round_trips_are_exact(tensor, dtype):
    shape, places = tensor
    for build in FORMATS.values():
        same_nonzeros(to_coo(build(coo_of(shape, places, value=dtype))), places, shape, dtype)


@pytest.mark.slow
@given(tensor=tensors(), data=st.data())
def test_round_trips_with_any_settings_are_exact(tensor, data):
    shape, places = tensor
    coo = coo_of(shape, places)
    modes = tuple(data.draw(st.permutations(range(len(shape)))))
    split = data.draw(st.integers(1, 5))
    for made in (
        csf(coo, modes),
        fibers(coo, modes, split=split),
        b_csf(coo, modes, split=split, share=1),
        f_coo(coo, modes[0], partition=32),
        hi_coo(coo, block=data.draw(st.sampled_from([2, 16, 256]))),
        mm_csf(coo, split=split, lengths="static", directions=modes[:1]),
    ):
        same_nonzeros(to_coo(made), places, shape, np.float64)


@pytest.mark.slow_cases("(13, 977, 31)-5000-coo")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("shape", "nonzeros"), [((101, 3), 150), ((13, 977, 31), 5000), ((40, 6, 50, 7, 9), 3000)], ids=str
)
def test_large_tensors_round_trip(name, shape, nonzeros):
    coo = random_coo(shape, nonzeros, dtype=np.float32)
    places = dict(zip(zip(*coo.coords.tolist(), strict=True), coo.values.tolist(), strict=True))
    again = to_coo(FORMATS[name](coo))
    same_nonzeros(again, places, shape, np.float32)
    assert plain(to_coo(again)) == plain(again)


@pytest.mark.parametrize("name", FORMATS)
def test_shapes_whose_size_exceeds_64_bits_round_trip(name):
    shape = (2**32,) * 8
    last = 2**32 - 1
    places = {(last,) * 8: 1.0, (0,) * 8: 2.0, (*(last,) * 7, 0): 3.0, (2**31, *(5,) * 7): 4.0}
    same_nonzeros(to_coo(FORMATS[name](coo_of(shape, places, index=np.uint64))), places, shape, np.float64)


@pytest.mark.parametrize("name", FORMATS)
def test_nonfinite_values_are_kept(name):
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    again = to_coo(FORMATS[name](Coo([[0, 1, 1, 2], [3, 0, 2, 1]], values, (3, 4), nonfinite=True)))
    assert again.nonfinite
    assert again.values.tobytes() == values.tobytes()


def test_to_coo_keeps_duplicate_coordinates_in_order():
    again = to_coo(Coo([[1, 0, 1, 1], [2, 0, 2, 0]], [5.0, 6.0, 7.0, 8.0], (2, 3)))
    assert again.coords.tolist() == [[0, 1, 1, 1], [0, 0, 2, 2]]
    assert again.values.tolist() == [6.0, 8.0, 5.0, 7.0]


# --------------------------------------------------------------------------------------------------
# Duplicate coordinates
# --------------------------------------------------------------------------------------------------


@given(tensor=tensors(most_order=3), data=st.data())
def test_coalesce_sums_in_order_of_occurrence(tensor, data):
    shape, places = tensor
    drawn = data.draw(st.lists(st.sampled_from(sorted(places)), min_size=1, max_size=60))
    values = data.draw(
        st.lists(st.sampled_from([1.0e8, 1.0, -1.0e8, -0.0, 0.1]), min_size=len(drawn), max_size=len(drawn))
    )
    sums = {}
    for place, value in zip(drawn, values, strict=True):
        sums[place] = sums[place] + np.float32(value) if place in sums else np.float32(value)
    summed = coalesce(Coo(np.array(drawn).T, np.array(values, np.float32), shape))
    same_nonzeros(summed, sums, shape, np.float32)


def test_coalesce_reports_an_overflowing_sum():
    coords, values = [[0, 0], [1, 1]], np.array([3.0e38, 3.0e38], np.float32)
    with pytest.raises(NotANumberError, match=r"at \(0, 1\), is inf"):
        coalesce(Coo(coords, values, (1, 2)))
    summed = coalesce(Coo(coords, values, (1, 2), nonfinite=True))
    assert (summed.values.tolist(), summed.nonfinite) == ([np.inf], True)


BUILDERS = {
    **{name: build for name, build in FORMATS.items() if name != "coo"},
    "fibers": lambda coo: fibers(coo, tuple(range(len(coo.shape)))),
    "b-csf-one": b_csf,
    "f-coo-one": lambda coo: f_coo(coo, 0),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_builders_refuse_duplicate_coordinates(name):
    coo = Coo([[3, 1, 3, 3], [0, 2, 1, 0], [4, 4, 4, 4]], [1.0, 2.0, 3.0, 4.0], (5, 6, 7))
    with pytest.raises(FormatError, match=r"the coordinates \(3, 0, 4\) occur 2 times\n.*\n.*coalesce"):
        BUILDERS[name](coo)
    assert plain(BUILDERS[name](coalesce(coo))) == plain(
        BUILDERS[name](Coo([[3, 1, 3], [0, 2, 1], [4, 4, 4]], [5.0, 2.0, 3.0], (5, 6, 7)))
    )


# --------------------------------------------------------------------------------------------------
# Storage
# --------------------------------------------------------------------------------------------------


def counted(keys, split=10**9):
    """N(0), N(1), …: the numbers of distinct prefixes; split fibers count once per piece."""
    d = len(keys[0])
    return [*(len(prefixes(keys, length)) for length in range(1, d - 1)), len(pieces_by_hand(keys, split))]


@pytest.mark.slow
@given(tensor=tensors(), split=st.integers(1, 5), block=st.sampled_from([2, 64, 256]))
def test_index_bytes_equal_the_formulas_of_the_paper(tensor, split, block):
    shape, places = tensor
    d, m = len(shape), len(places)
    coo, every = coo_of(shape, places), range(d)
    assert index_bytes(coo) == 4 * d * m
    roots = [by_modes(places, rooted(shape, mode)) for mode in every]
    assert index_bytes(csf_all(coo)) == sum(4 * (2 * sum(counted(keys)) + m) for keys in roots)
    one = by_modes(places, ascending(shape))
    assert index_bytes(csf(coo)) == 4 * (2 * sum(counted(one)) + m)
    assert index_bytes(b_csf(coo, split=split)) == 4 * (2 * sum(counted(one, split)) + m)
    bits = m * 32 * (d - 1) + m + -(-m // 8)  # indices, bit flags, start flags
    assert index_bytes(f_coo(coo, 0)) == -(-bits // 8)
    assert index_bytes(f_coo_all(coo)) == d * index_bytes(f_coo(coo, 0))
    blocks = len({tuple(index // block for index in place) for place in places})
    assert index_bytes(hi_coo(coo, block=block)) == (8 + 4 * d) * blocks + d * m
    total = 0
    mixed = mm_csf(coo, split=split)
    for part in mixed.partitions:
        inside = by_modes(zip(*to_coo(part).coords.tolist(), strict=True), part.modes)
        n = counted(inside, split)
        words = 2 * n[0] if d == 2 else 3 * n[1] + 2 * sum(n[2:])
        assert index_bytes(part) == 4 * (words + len(inside))
        total += index_bytes(part)
    assert index_bytes(mixed) == total


def test_index_bytes_of_a_third_order_tensor_equal_the_paper():
    """Sections 3.1 and 5.1: 12 M; 4 (2 S + 2 F + M); 4 (3 F + M)."""
    coo = random_coo((11, 29, 401), 700)
    keys = [*zip(*to_coo(coo).coords.tolist(), strict=True)]
    m, f, s = 700, len({key[:2] for key in keys}), len({key[0] for key in keys})
    assert s < f < m
    assert index_bytes(coo) == 12 * m
    assert index_bytes(csf(coo)) == 4 * (2 * s + 2 * f + m)
    assert index_bytes(b_csf(coo, split=10**6)) == 4 * (2 * s + 2 * f + m)
    assert index_bytes(fibers(coo, (0, 1, 2), split=10**6)) == 4 * (3 * f + m)
    assert index_bytes(f_coo_all(coo)) == 3 * (8 * m + -(-(m + -(-m // 8)) // 8))


@pytest.mark.slow
@given(tensor=tensors(most_order=5))
def test_held_bytes_count_every_index_array(tensor):
    """All arrays of the format except the values."""

    def held(thing):
        if isinstance(thing, np.ndarray):
            return thing.size * thing.dtype.itemsize
        if isinstance(thing, tuple):
            return sum(map(held, thing))
        if is_dataclass(thing):
            return sum(held(getattr(thing, f.name)) for f in fields(thing) if f.name != "values")
        return 0

    for build in FORMATS.values():
        made = build(coo_of(*tensor, index=np.uint64))
        assert index_bytes(made, by="held") == held(made)
        assert isinstance(index_bytes(made), int)


def test_index_bytes_refuses_other_arguments():
    with pytest.raises(SchemeError, match="by='values'"):
        index_bytes(random_coo((3, 4), 5), by="values")
    for by in ("paper", "held"):
        with pytest.raises(DtypeError, match="the tensor is a list"):
            index_bytes([1.0], by=by)


# --------------------------------------------------------------------------------------------------
# The figures of the MM-CSF paper
# --------------------------------------------------------------------------------------------------


def test_mixed_storage_takes_the_words_of_figure_1():
    """One dense row and one dense column: 38 words as CSR or as CSC, 32 mixed.

    Section 1 counts row pointers, column indices and values: a word for each row that is not empty and
    two for each nonzero. Rows + 2 M = columns + 2 M = 38 with M = rows + columns - 1 makes the matrix 8
    by 8. Which row and column it is, the text does not tell.
    """

    def words(*parts):
        return sum(len(part.pointers) - 1 + 2 * part.values.size for part in parts)

    for row, column in itertools.product((0, 3, 7), repeat=2):
        places = {(row, at): 1.0 for at in range(8)} | {(at, column): 1.0 for at in range(8)}
        coo = coo_of((8, 8), places)
        assert words(fibers(coo, (0, 1))) == words(fibers(coo, (1, 0))) == 38
        assert words(fibers(coo, (0, 1)), fibers(coo, (1, 0))) == 76
        for lengths in ("dynamic", "static"):
            parts = mm_csf(coo, lengths=lengths).partitions
            assert [len(part.pointers) - 1 for part in parts] == [1, 1]
            assert words(*parts) == 32


def test_coo_csf_and_b_csf_arrays_are_those_of_figure_2():
    """The structure of the figure, with nonzeros chosen here."""
    places = dict.fromkeys([(0, 0, 0), (0, 0, 3), (0, 2, 1), (2, 1, 0), (2, 1, 1), (2, 1, 2)], 1.0)
    coo = coo_of((3, 3, 4), places)
    tree = csf(coo)
    assert tree.modes == (0, 1, 2)
    assert [level.tolist() for level in tree.indices] == [[0, 2], [0, 2, 1], [0, 3, 1, 0, 1, 2]]
    assert [level.tolist() for level in tree.pointers] == [[0, 2, 3], [0, 2, 3, 6]]
    balanced = b_csf(coo, split=2, share=3)
    assert balanced.uppers.tolist() == [[0, 2, 1, 1]], "the heavy fiber is two sub-fibers"
    assert balanced.fiber_pointers.tolist() == [0, 2, 3, 5, 6]
    assert balanced.slice_pointers.tolist() == [0, 2, 4]
    s, f, m = 2, 3, 6
    assert index_bytes(coo) == 3 * 4 * m
    assert index_bytes(tree) == 4 * (2 * s + 2 * f + m)


def test_csf_trees_are_those_of_figure_3():
    """A 3 by 5 by 6 tensor: CSF-0 is the tree I → J → K, with nonzeros chosen here."""
    row = {(1, 2, k): 1.0 for k in range(4)}
    column = {(i, 4, 5): 1.0 for i in range(3)}
    coo = coo_of((3, 5, 6), row | column)
    assert csf(coo).modes == (0, 1, 2)
    assert [tree.modes for tree in csf_all(coo).tensors] == [(0, 1, 2), (1, 0, 2), (2, 0, 1)]
    along_i, along_k = mm_csf(coo).partitions
    assert (along_i.modes, along_i.uppers.tolist(), along_i.leaves.tolist()) == (
        (1, 2, 0),
        [[4], [5]],
        [0, 1, 2],
    )
    assert (along_k.modes, along_k.uppers.tolist(), along_k.leaves.tolist()) == (
        (0, 1, 2),
        [[1], [2]],
        [0, 1, 2, 3],
    )


FIGURE_4 = [(5, 1, 1), (5, 1, 2), (5, 1, 3), (4, 1, 2), (4, 1, 1), (4, 1, 5), (0, 1, 2), (0, 1, 4)]
"""In the order of the figure: slice 5 first, slice 0 last."""

PARTITION_OF_LEAF = {2: 0, 0: 1}
"""The figure's partition 0 has fibers <i, j>, along k; partition 1 has <j, k>, along i."""


def partitions_and_fibers(coo, **settings):
    mixed = mm_csf(coo, **settings)
    chosen = {
        place: PARTITION_OF_LEAF[part.modes[-1]]
        for part in mixed.partitions
        for place in zip(*to_coo(part).coords.tolist(), strict=True)
    }
    return chosen, sum(len(part.pointers) - 1 for part in mixed.partitions)


def mirrored(place):
    """Reverse the slices: nonzeros choose in ascending order, the figure shows descending slices."""
    return (5 - place[0], *place[1:])


@pytest.mark.parametrize("directions", [(0, 2), None], ids=["the two drawn", "all"])
def test_mm_csf_partitions_are_those_of_figure_4(directions):
    coo = coo_of((6, 2, 6), {mirrored(place): 1.0 for place in FIGURE_4})
    static, dynamic = [0, 0, 0, 0, 0, 0, 1, 0], [0] * 8
    for lengths, partitions, number in (("static", static, 4), ("dynamic", dynamic, 3)):
        chosen, total = partitions_and_fibers(coo, lengths=lengths, directions=directions)
        assert [chosen[mirrored(place)] for place in FIGURE_4] == partitions
        assert total == number


def test_the_fibers_of_figure_4_depend_on_the_nonzero_order():
    """With slice 0 first, <0, 1, 2> chooses while <1, 2> still has three: one fiber more."""
    coo = coo_of((6, 2, 6), dict.fromkeys(FIGURE_4, 1.0))
    chosen, total = partitions_and_fibers(coo, directions=(0, 2))
    assert (chosen[0, 1, 2], total) == (1, 4)


@pytest.mark.parametrize(
    ("lengths", "partitions", "number"),
    [("static", [0, 0, 0, 0, 0, 0, 1, 0], 4), ("dynamic", [0] * 8, 3)],
)
def test_mm_csf_in_the_order_of_figure_4_has_its_partitions(lengths, partitions, number):
    coo = coo_of((6, 2, 6), dict.fromkeys(FIGURE_4, 1.0))
    for ties in ("average", "printed"):
        chosen, total = partitions_and_fibers(
            coo, lengths=lengths, directions=(0, 2), order="given", ties=ties
        )
        assert ([chosen[place] for place in FIGURE_4], total) == (partitions, number)


def test_the_printed_rule_of_a_tie_takes_the_first_partition():
    """One nonzero, all of whose fibers have length 1: partition 0 has fibers <i, j>, along the last mode."""
    coo = Coo([[3], [1], [2]], [1.0], (4, 5, 6))
    leaves = {ties: mm_csf(coo, ties=ties).partitions[0].modes[-1] for ties in ("average", "printed")}
    assert leaves == {"average": 0, "printed": 2}
    second = mm_csf(coo, ties="printed", directions=(0, 1)).partitions[0]
    assert second.modes[-1] == 1


# --------------------------------------------------------------------------------------------------
# Invariants
# --------------------------------------------------------------------------------------------------


def test_long_fibers_are_split():
    coo = Coo([[4] * 300 + [6], [*range(300), 0]], np.arange(1.0, 302.0), (7, 300))
    cut = fibers(coo, (0, 1))
    assert (cut.pointers.tolist(), cut.uppers.tolist()) == ([0, 128, 256, 300, 301], [[4, 4, 4, 6]])
    tree = b_csf(coo, (0, 1), share=100)
    assert (tree.slice_pointers.tolist(), tree.uppers.shape) == ([0, 3, 4], (0, 4))
    assert (tree.order.tolist(), tree.bins) == ([1, 0], (0, 1, 1, 2))


@given(tensor=tensors(most_order=4))
def test_mm_csf_puts_each_nonzero_into_its_longest_fiber(tensor):
    """With static lengths, no nonzero lies on a fiber longer than its own."""
    shape, places = tensor
    parts = mm_csf(coo_of(shape, places), lengths="static").partitions
    seen = Counter(place for part in parts for place in zip(*to_coo(part).coords.tolist(), strict=True))
    assert seen == Counter(places.keys())
    for part in parts:
        for place in zip(*to_coo(part).coords.tolist(), strict=True):
            lengths = [
                sum(all(o[m] == place[m] for m in range(len(shape)) if m != leaf) for o in places)
                for leaf in range(len(shape))
            ]
            assert lengths[part.modes[-1]] == max(lengths)


def test_equal_fibers_prefer_fewer_fibers_then_the_lower_mode():
    # Two fibers of three cross in (1, 1): along mode 0 there are two fibers in all, along mode 1 three.
    coo = Coo([[0, 1, 2, 1, 1], [1, 1, 1, 0, 2]], np.ones(5), (3, 3))
    assert [part.leaves.size for part in mm_csf(coo, lengths="static").partitions] == [3, 2]
    more = Coo([[0, 1, 2, 1, 1, 5, 5], [1, 1, 1, 0, 2, 6, 7]], np.ones(7), (6, 8))
    # Now 5 fibers along mode 0, 4 along mode 1: the crossing goes to mode 1, and so does the pair.
    assert [part.leaves.size for part in mm_csf(more, lengths="static").partitions] == [2, 5]


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------


@every_case("name", [*BUILDERS, "coo"])
@every_case(
    ("given_coo", "error"),
    [
        ([[0, 1], [1, 0]], DtypeError),
        (csf(Coo([[0], [1]], [1.0], (2, 2))), DtypeError),
        (Coo([[0], [1]], [1.0], (2**32 + 1, 2)), ShapeError),
    ],
)
def test_builders_refuse_unsuitable_tensors(name, given_coo, error):
    build = BUILDERS.get(name, coalesce)
    if name == "fibers":
        build = lambda coo: fibers(coo, (0, 1))  # noqa: E731
    with pytest.raises(error) as caught:
        build(given_coo)
    assert str(caught.value).count("\n") == 2


class OnDevice:
    """An array on a GPU."""

    pointer, shape, dtype, nbytes = 4096, (2, 1), np.dtype(np.uint32), 8


def test_arrays_on_a_device_are_refused():
    coo = Coo(OnDevice(), OnDevice(), (2, 2))
    for function in (coalesce, to_coo, csf):
        with pytest.raises(FormatError, match="on a device"):
            function(coo)
    with pytest.raises(FormatError, match=r"leaves is a OnDevice"):
        to_coo(replace(fibers(random_coo((3, 4), 5), (0, 1)), leaves=OnDevice()))
    assert index_bytes(coo, by="held") == 8
    with pytest.raises(FormatError, match="on a device"):
        index_bytes(coo)


COO = random_coo((4, 5, 6), 30)

BAD_SETTINGS = {
    "csf modes twice": lambda: csf(COO, (0, 1, 1)),
    "csf modes missing": lambda: csf(COO, (0, 1)),
    "csf mode outside": lambda: csf(COO, (0, 1, 3)),
    "csf mode negative": lambda: csf(COO, (0, 1, -1)),
    "csf mode real": lambda: csf(COO, (0, 1, 2.0)),
    "fibers modes twice": lambda: fibers(COO, (2, 2, 0)),
    "fibers split": lambda: fibers(COO, (0, 1, 2), split=0),
    "fibers split real": lambda: fibers(COO, (0, 1, 2), split=2.0),
    "b_csf modes": lambda: b_csf(COO, (0,)),
    "b_csf split": lambda: b_csf(COO, split=-1),
    "b_csf share": lambda: b_csf(COO, share=0),
    "f_coo mode": lambda: f_coo(COO, 3),
    "f_coo mode negative": lambda: f_coo(COO, -1),
    "f_coo mode bool": lambda: f_coo(COO, True),
    "f_coo partition": lambda: f_coo(COO, 0, partition=48),
    "f_coo partition 0": lambda: f_coo(COO, 0, partition=0),
    "hi_coo block": lambda: hi_coo(COO, block=96),
    "hi_coo block 1": lambda: hi_coo(COO, block=1),
    "hi_coo block 512": lambda: hi_coo(COO, block=512),
    "mm_csf split": lambda: mm_csf(COO, split=0),
    "mm_csf no direction": lambda: mm_csf(COO, directions=()),
    "mm_csf direction twice": lambda: mm_csf(COO, directions=(1, 1)),
    "mm_csf direction outside": lambda: mm_csf(COO, directions=(3,)),
}


@every_case("bad", BAD_SETTINGS)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(ShapeError) as caught:
        BAD_SETTINGS[bad]()
    assert str(caught.value).count("\n") == 2


@pytest.mark.parametrize("option", ["lengths", "ties", "order"])
def test_an_unknown_option_of_the_choice_is_refused(option):
    with pytest.raises(SchemeError, match=f"{option}='eager'"):
        mm_csf(COO, **{option: "eager"})


def test_settings_may_be_numpy_integers():
    modes, two = np.array([2, 0, 1]), np.uint8(2)
    assert plain(csf(COO, modes)) == plain(csf(COO, (2, 0, 1)))
    assert plain(fibers(COO, modes, split=two)) == plain(fibers(COO, (2, 0, 1), split=2))
    assert plain(b_csf(COO, modes, split=two, share=two)) == plain(b_csf(COO, (2, 0, 1), split=2, share=2))
    assert plain(f_coo(COO, two, partition=two * 16)) == plain(f_coo(COO, 2, partition=32))
    assert plain(hi_coo(COO, block=two)) == plain(hi_coo(COO, block=2))
    assert plain(mm_csf(COO, split=two, directions=modes[:2])) == plain(
        mm_csf(COO, split=2, directions=(2, 0))
    )


@pytest.mark.parametrize("tensor", [None, [[1.0]], "coo", np.ones(3)], ids=["None", "list", "str", "array"])
def test_unknown_formats_are_refused(tensor):
    with pytest.raises(DtypeError, match="the formats are Coo, Csf"):
        to_coo(tensor)


def changed(array, at, value):
    copy = array.copy()
    copy[at] = value
    return copy


TREE = csf(COO)
PART = fibers(COO, (0, 1, 2), split=3)
BALANCED = b_csf(COO, split=3, share=2)
FLAGGED = f_coo(COO, 2, partition=32)
BLOCKED = hi_coo(COO, block=2)
MIXED = mm_csf(COO)
ALL = csf_all(COO)
OTHER = random_coo((4, 5, 6), 30, seed=1)


def level(array, number, at, value):
    """A tuple of arrays with one number changed."""
    arrays = list(array)
    arrays[number] = changed(arrays[number], at, value)
    return tuple(arrays)


def corners_of(blocked):
    """The block coordinates of each nonzero."""
    return np.repeat(blocked.block_coords, np.diff(blocked.block_pointers.astype(int)), axis=1)


HOSTILE = {
    "csf shape": replace(TREE, shape=(4, 5)),
    "csf shape list": replace(TREE, shape=[4, 5, 6]),
    "csf shape zero": replace(TREE, shape=(4, 5, 0)),
    "csf shape huge": replace(TREE, shape=(4, 5, 2**32 + 1)),
    "csf shape real": replace(TREE, shape=(4, 5, 6.0)),
    "csf modes twice": replace(TREE, modes=(0, 0, 2)),
    "csf modes none": replace(TREE, modes=None),
    "csf modes texts": replace(TREE, modes=("i", "j", "k")),
    "csf levels": replace(TREE, indices=TREE.indices[:2]),
    "csf levels list": replace(TREE, indices=list(TREE.indices)),
    "csf level empty": replace(TREE, indices=(TREE.indices[0][:0], *TREE.indices[1:])),
    "csf level none": replace(TREE, indices=(None, *TREE.indices[1:])),
    "csf level matrix": replace(TREE, indices=(TREE.indices[0][None], *TREE.indices[1:])),
    "csf leaves": replace(TREE, indices=(*TREE.indices[:2], TREE.indices[2][:-1])),
    "csf index": replace(TREE, indices=level(TREE.indices, 1, 0, 5)),
    "csf index type": replace(TREE, indices=(TREE.indices[0].astype(np.int64), *TREE.indices[1:])),
    "csf pointers": replace(TREE, pointers=TREE.pointers[:1]),
    "csf pointers none": replace(TREE, pointers=None),
    "csf pointer start": replace(TREE, pointers=level(TREE.pointers, 0, 0, 1)),
    "csf pointer end": replace(TREE, pointers=level(TREE.pointers, 1, -1, 31)),
    "csf pointer empty node": replace(TREE, pointers=level(TREE.pointers, 0, 1, 0)),
    "csf pointer far": replace(TREE, pointers=level(TREE.pointers, 0, 1, 2**32 - 1)),
    "csf values empty": replace(TREE, values=TREE.values[:0]),
    "csf values longer": replace(TREE, values=np.ones(31)),
    "csf values integers": replace(TREE, values=np.ones(30, int)),
    "csf values list": replace(TREE, values=TREE.values.tolist()),
    "fibers leaves": replace(PART, leaves=PART.leaves[1:]),
    "fibers leaf": replace(PART, leaves=changed(PART.leaves, 3, 6)),
    "fibers upper": replace(PART, uppers=changed(PART.uppers, (0, 1), 4)),
    "fibers uppers": replace(PART, uppers=PART.uppers[:, :-1]),
    "fibers pointers": replace(PART, pointers=PART.pointers[:-1]),
    "fibers no pointers": replace(PART, pointers=PART.pointers[:0]),
    "fibers one pointer": replace(PART, pointers=PART.pointers[:1], uppers=PART.uppers[:, :0]),
    "fibers pointer": replace(PART, pointers=changed(PART.pointers, 1, 29)),
    "fibers split": replace(PART, split=2),
    "fibers split zero": replace(PART, split=0),
    "fibers split none": replace(PART, split=None),
    "b_csf slices": replace(BALANCED, slices=BALANCED.slices[:-1]),
    "b_csf slice": replace(BALANCED, slices=changed(BALANCED.slices, 0, 4)),
    "b_csf slice pointer": replace(BALANCED, slice_pointers=changed(BALANCED.slice_pointers, 1, 99)),
    "b_csf fiber pointer": replace(BALANCED, fiber_pointers=changed(BALANCED.fiber_pointers, 2, 0)),
    "b_csf upper": replace(BALANCED, uppers=changed(BALANCED.uppers, (0, 0), 5)),
    "b_csf leaf": replace(BALANCED, leaves=changed(BALANCED.leaves, 0, 6)),
    "b_csf order": replace(BALANCED, order=BALANCED.order[::-1].copy()),
    "b_csf order outside": replace(BALANCED, order=changed(BALANCED.order, 0, 9)),
    "b_csf order short": replace(BALANCED, order=BALANCED.order[:-1]),
    "b_csf bins": replace(BALANCED, bins=(*BALANCED.bins, 4)),
    "b_csf bins array": replace(BALANCED, bins=np.array(BALANCED.bins)),
    "b_csf share": replace(BALANCED, share=0),
    "f_coo product": replace(FLAGGED, products=changed(FLAGGED.products, (0, 0), 4)),
    "f_coo products": replace(FLAGGED, products=FLAGGED.products[:1]),
    "f_coo rows": replace(FLAGGED, rows=FLAGGED.rows[:-1]),
    "f_coo row": replace(FLAGGED, rows=changed(FLAGGED.rows, 0, 6)),
    "f_coo first bit": replace(FLAGGED, flags=FLAGGED.flags & np.uint32(2**32 - 2)),
    "f_coo bit past the end": replace(FLAGGED, flags=FLAGGED.flags | np.uint32(2**31)),
    "f_coo flag": replace(FLAGGED, flags=FLAGGED.flags ^ np.uint32(2**20)),
    "f_coo flags": replace(FLAGGED, flags=np.append(FLAGGED.flags, FLAGGED.flags)),
    "f_coo first": replace(FLAGGED, first=changed(FLAGGED.first, 0, 1)),
    "f_coo firsts": replace(FLAGGED, first=FLAGGED.first[:0]),
    "f_coo partition": replace(FLAGGED, partition=33),
    "hi_coo block": replace(BLOCKED, block=3),
    "hi_coo block huge": replace(BLOCKED, block=512),
    "hi_coo block none": replace(BLOCKED, block=None),
    "hi_coo offset": replace(BLOCKED, offsets=changed(BLOCKED.offsets, (1, 1), 2)),
    "hi_coo offsets": replace(BLOCKED, offsets=BLOCKED.offsets[:, :-1]),
    "hi_coo offsets wide": replace(BLOCKED, offsets=BLOCKED.offsets.astype(np.uint32)),
    "hi_coo index": replace(
        BLOCKED, offsets=changed(BLOCKED.offsets, (1, np.argmax(corners_of(BLOCKED)[1])), 1)
    ),
    "hi_coo coordinate": replace(BLOCKED, block_coords=changed(BLOCKED.block_coords, (0, 0), 2)),
    "hi_coo coordinate far": replace(BLOCKED, block_coords=changed(BLOCKED.block_coords, (0, 0), 2**31)),
    "hi_coo coordinates": replace(BLOCKED, block_coords=BLOCKED.block_coords[:, 1:]),
    "hi_coo pointer": replace(BLOCKED, block_pointers=changed(BLOCKED.block_pointers, 1, 2**63)),
    "hi_coo pointers narrow": replace(BLOCKED, block_pointers=BLOCKED.block_pointers.astype(np.uint32)),
    "mm_csf none": replace(MIXED, partitions=()),
    "mm_csf list": replace(MIXED, partitions=list(MIXED.partitions)),
    "mm_csf others": replace(MIXED, partitions=(TREE,)),
    "mm_csf twice": replace(MIXED, partitions=(PART, PART)),
    "mm_csf descending": replace(MIXED, partitions=(PART, fibers(COO, (2, 1, 0)))),
    "mm_csf shape": replace(MIXED, shape=(4, 5, 7)),
    "mm_csf shape longer": replace(MIXED, shape=(4, 5, 6, 7)),
    "mm_csf types": replace(
        MIXED, partitions=(fibers(COO, (2, 1, 0)), replace(PART, values=PART.values.astype(np.float32)))
    ),
    "all too few": replace(ALL, tensors=ALL.tensors[:2]),
    "all order": replace(ALL, tensors=ALL.tensors[::-1]),
    "all mixed": replace(ALL, tensors=(*ALL.tensors[:2], FLAGGED)),
    "all others": replace(ALL, tensors=(MIXED,) * 3),
    "all shape": replace(ALL, shape=(4, 5, 7)),
    "all another tensor": replace(ALL, tensors=(*ALL.tensors[:2], csf(OTHER, (2, 0, 1)))),
    "all other values": replace(
        ALL, tensors=(*ALL.tensors[:2], replace(ALL.tensors[2], values=-ALL.tensors[2].values))
    ),
    "all another type": replace(
        ALL, tensors=(*ALL.tensors[:2], replace(ALL.tensors[2], values=ALL.tensors[2].values.astype("f4")))
    ),
    "all inside": replace(ALL, tensors=(*ALL.tensors[:2], replace(ALL.tensors[2], pointers=None))),
}


@every_case("name", HOSTILE)
def test_inconsistent_arrays_are_refused(name):
    with pytest.raises(FormatError) as caught:
        to_coo(HOSTILE[name])
    assert str(caught.value).count("\n") == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "csf index",
            r"Csf: indices\[1\] has the index 5 in mode 1\nits dimension is 5: indices count from 0 to 4\n",
        ),
        (
            "csf pointer end",
            r"Csf: pointers\[1\] does not ascend from 0 to 30\n.*first and last are \[0, 31\]",
        ),
        ("fibers uppers", r"Fibers: uppers is an array \(2, \d+\) of uint32\na host array \(2, \d+\)"),
        ("fibers split", "has a fiber of 3 nonzeros\nsplit is 2\n"),
        ("f_coo first bit", "FCoo: flags begin 4 segments, rows has 5\nflag 0 must be 1"),
        ("hi_coo index", r"block_coords\[1\] with offsets has the index 5 in mode 1\nits dimension is 5: "),
        ("all another tensor", r"PerMode: tensors\[2\] holds other nonzeros"),
    ],
)
def test_the_inconsistent_array_is_named(name, message):
    with pytest.raises(FormatError, match=message):
        to_coo(HOSTILE[name])


def test_the_unmodified_tensors_are_accepted():
    for tensor in (TREE, PART, BALANCED, FLAGGED, BLOCKED, MIXED, ALL):
        assert plain(to_coo(tensor)) == plain(to_coo(COO))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("tensor", [TREE, PART, BALANCED, FLAGGED, BLOCKED], ids=lambda t: type(t).__name__)
@given(data=st.data())
def test_a_tensor_with_one_changed_number_is_read_or_refused(tensor, data):
    held = {field.name: getattr(tensor, field.name) for field in fields(tensor)}
    names = [
        (name, None) for name, array in held.items() if isinstance(array, np.ndarray) and name != "values"
    ]
    names += [
        (name, at)
        for name in ("indices", "pointers")
        if name in held
        for at in range(len(held[name]))
        if isinstance(held[name], tuple)
    ]
    name, number = data.draw(st.sampled_from(names))
    array = held[name] if number is None else held[name][number]
    at = data.draw(st.integers(0, array.size - 1))
    value = data.draw(st.integers(0, 9) | st.sampled_from([2**7, 2**8 - 1, 2**31, 2**32 - 1]))
    new = changed(array, np.unravel_index(at, array.shape), np.array(value).astype(array.dtype))
    if number is not None:
        new = (*held[name][:number], new, *held[name][number + 1 :])
    try:
        read = to_coo(replace(tensor, **{name: new}))
    except FormatError:
        return
    assert read.values.size == 30
