"""The production builders of sparse formats equal the reference bit for bit, for any number of threads."""

import contextlib
import sys
from dataclasses import fields, is_dataclass, replace
from unittest import mock

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference.sparse
from gpu.mttkrp import formats as build
from gpu.mttkrp.formats import compiled, mm_csf
from gpu.mttkrp.formats.nonzeros import nonzeros_of
from gpu.mttkrp.formats.sort import bits_of, sorted_by
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import Coo

DIMENSIONS = (1, 2, 3, 7, 31, 257, 65_537, 2**32)
VALUES = (1.0, -2.5, 0.0, -0.0, 1.0e-40, 3.0e30)
ONE_TENSOR = Coo([[0, 0, 1], [1, 1, 0], [0, 4, 2]], [5.0, 6.0, 7.0], (2, 3, 5))


@st.composite
def tensors(draw, most_order=8):
    """Tensors of distinct, unsorted coordinates with few indices per mode, first and last included."""
    shape = tuple(draw(st.lists(st.sampled_from(DIMENSIONS), min_size=2, max_size=most_order)))
    pools = [sorted({0, n - 1, n // 2, n // 3}) for n in shape]
    place = st.tuples(*map(st.sampled_from, pools))
    places = draw(st.lists(place, min_size=1, max_size=40, unique=True))
    values = [VALUES[draw(st.integers(0, 5))] for _ in places]
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    narrow = np.int64 if max(shape) > 2**31 else np.int32
    index = draw(st.sampled_from([narrow, np.uint32, np.uint64]))
    return Coo(np.array(places, index).T, np.array(values, dtype), shape)


@contextlib.contextmanager
def parts(number):
    """Split the work into the given number of parts, for any tensor and any number of cores."""
    with (
        mock.patch.object(compiled, "LEAST", 1),
        mock.patch.object(numba, "get_num_threads", return_value=number),
    ):
        yield


def chance(shape, nonzeros, seed, flat=3):
    """A random tensor, dense at low indices; ``flat=1`` is uniform."""
    words = np.random.Philox(key=[seed, 0]).random_raw(nonzeros * len(shape)) >> np.uint64(11)
    share = (words.astype(np.float64) * 2.0**-53).reshape(len(shape), nonzeros)
    coords = np.unique((share**flat * np.array(shape)[:, None]).astype(np.int64), axis=1)
    order = np.argsort(np.random.Philox(key=[seed, 1]).random_raw(coords.shape[1]))
    return Coo(coords[:, order], 1.0 + order, shape)


def plain(thing):
    """All fields of a format as types and Python values; equal if and only if the formats are, bit by bit."""
    if is_dataclass(thing):
        return type(thing), {field.name: plain(getattr(thing, field.name)) for field in fields(thing)}
    if isinstance(thing, tuple):
        return tuple(map(plain, thing))
    if isinstance(thing, np.ndarray):
        assert thing.flags.c_contiguous
        assert thing.dtype.isnative
        return thing.dtype.str, thing.shape, thing.tobytes()
    assert isinstance(thing, int), thing
    return thing


def assert_same(ours, expected, what=""):
    assert plain(ours) == plain(expected), what


# --------------------------------------------------------------------------------------------------
# The reference's arrays
# --------------------------------------------------------------------------------------------------


def test_builders_have_the_same_names_as_in_the_reference():
    assert [*build.FORMATS] == [*reference.sparse.FORMATS]
    for name, make in build.FORMATS.items():
        assert make.__name__ == reference.sparse.FORMATS[name].__name__
        assert getattr(build, make.__name__) is make


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@settings(max_examples=20)
@given(tensor=tensors())
def test_every_format_equals_the_reference(threads, tensor):
    """The order of the nonzeros does not matter."""
    with parts(threads):
        for name, make in build.FORMATS.items():
            assert_same(make(tensor), reference.sparse.FORMATS[name](tensor), name)


@pytest.mark.gate
@settings(max_examples=25)
@given(tensor=tensors(), data=st.data(), threads=st.integers(1, 5))
def test_settings_equal_those_of_the_reference(tensor, data, threads):
    modes = data.draw(st.permutations(range(len(tensor.shape))))
    split, share = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    block, partition = data.draw(st.sampled_from([2, 8, 256])), data.draw(st.sampled_from([32, 96]))
    directions = modes[: data.draw(st.integers(1, len(modes)))]
    lengths = data.draw(st.sampled_from(["dynamic", "static"]))
    mixed = {"split": split, "lengths": lengths, "directions": directions}
    mixed["ties"] = data.draw(st.sampled_from(["average", "printed"]))
    mixed["order"] = data.draw(st.sampled_from(["sorted", "given"]))
    with parts(threads):
        for call in (
            lambda tier: tier.csf(tensor, modes),
            lambda tier: tier.fibers(tensor, modes, split=split),
            lambda tier: tier.b_csf(tensor, modes, split=split, share=share),
            lambda tier: tier.b_csf_all(tensor, split=split, share=share),
            lambda tier: tier.f_coo(tensor, modes[0], partition=partition),
            lambda tier: tier.f_coo_all(tensor, partition=partition),
            lambda tier: tier.hi_coo(tensor, block=block),
            lambda tier: tier.mm_csf(tensor, **mixed),
        ):
            assert_same(call(build), call(reference.sparse))


@pytest.mark.at_most(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("shape", "nonzeros", "flat"),
    [
        ((2, 997), 1500, 1),
        ((5, 7, 1009), 4000, 2),
        ((61, 24, 301, 517), 2000, 3),
        ((3, 2, 4, 3, 2, 400), 3000, 1),
    ],
    ids=str,
)
def test_long_fibers_and_slices_equal_the_reference(shape, nonzeros, flat, threads):
    """Fibers of more than 128 and slices of more than 512 nonzeros, the default limits."""
    tensor = chance(shape, nonzeros, seed=len(shape), flat=flat)
    with parts(threads):
        for name, make in build.FORMATS.items():
            assert_same(make(tensor), reference.sparse.FORMATS[name](tensor), name)


def test_the_test_tensors_have_long_fibers_and_slices():
    tensor = chance((5, 7, 1009), 4000, 3, flat=2)
    made = build.b_csf(tensor)
    assert (np.diff(made.fiber_pointers) == 128).any()
    assert len(made.bins) > 2
    assert build.csf(tensor).indices[1].size < made.fiber_pointers.size - 1


@pytest.mark.slow
def test_builders_use_the_thread_count_of_numba():
    """The tensor is large enough to occupy all threads."""
    tensor = chance((300, 5000, 700), 200_000, seed=9)
    before, made = numba.get_num_threads(), []
    try:
        for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(threads)
            assert len(compiled.in_parts(tensor.values.size, slice)) == threads
            made.append([plain(make(tensor)) for make in build.FORMATS.values()])
    finally:
        numba.set_num_threads(before)
    assert made[0] == made[1]


@pytest.mark.gate
@settings(max_examples=15)
@given(tensor=tensors(), threads=st.integers(1, 3))
def test_to_coo_inverts_every_builder(tensor, threads):
    expected = reference.sparse.to_coo(tensor)
    with parts(threads):
        for name, make in build.FORMATS.items():
            made = make(tensor)
            assert_same(build.to_coo(made), expected, name)
            assert_same(reference.sparse.to_coo(made), expected, name)


@pytest.mark.slow
@settings(max_examples=50)
@given(tensor=tensors(most_order=3), data=st.data(), threads=st.integers(1, 3))
def test_duplicates_are_summed_in_order_of_occurrence(tensor, data, threads):
    drawn = data.draw(st.lists(st.integers(0, tensor.values.size - 1), min_size=1, max_size=60))
    values = np.resize(np.array([1.0e8, 1.0, -1.0e8, -0.0, 0.1], tensor.values.dtype), len(drawn))
    repeated = Coo(tensor.coords[:, drawn], values, tensor.shape)
    with parts(threads):
        assert_same(build.coalesce(repeated), reference.sparse.coalesce(repeated))
        assert_same(build.to_coo(repeated), reference.sparse.to_coo(repeated))


@pytest.mark.parametrize("name", build.FORMATS)
def test_nan_values_are_sorted_unchanged(name):
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    tensor = Coo([[0, 1, 1, 2], [3, 0, 2, 1]], values, (3, 4), nonfinite=True)
    assert_same(build.FORMATS[name](tensor), reference.sparse.FORMATS[name](tensor))
    assert_same(build.to_coo(build.FORMATS[name](tensor)), reference.sparse.to_coo(tensor))


def test_the_order_is_stable_for_keys_of_any_length():
    """Compared with sorting Python tuples, for keys of zero, one and several digits."""
    coords = chance((2**32, 2**20, 5), 300, seed=2).coords.astype(np.uint32)
    coords[2, 150:] = coords[2, 0]
    for modes in ((0, 1, 2), (2,), (1, 2), ()):
        keys = [tuple(int(coords[n, z]) for n in modes) for z in range(coords.shape[1])]
        expected = sorted(range(len(keys)), key=keys.__getitem__)
        for threads in (1, 2, 3):
            with parts(threads):
                assert sorted_by(coords, bits_of(coords, modes)).tolist() == expected


# --------------------------------------------------------------------------------------------------
# Planted errors that the comparison must detect
# --------------------------------------------------------------------------------------------------


def racy(numbers, lengths, preferred, dynamic, turns, homes):
    """Two halves of the nonzeros partitioned at once, each unaware of the other's fiber lengths."""
    half = homes.size // 2
    for begin, end in ((0, half), (half, homes.size)):
        seen = lengths.copy()
        for z in range(begin, end):
            home = preferred[0]
            for leaf in preferred[1:]:
                if seen[leaf, numbers[leaf, z]] > seen[home, numbers[home, z]]:
                    home = leaf
            homes[z] = home
            for leaf in preferred:
                if dynamic and leaf != home:
                    seen[leaf, numbers[leaf, z]] -= np.uint32(1)


def later_of_equals(numbers, lengths, preferred, dynamic, turns, homes):
    """A wrong partition in which ties go to the direction with more fibers."""
    share_out(numbers, lengths, preferred[::-1].copy(), dynamic, turns, homes)


def static_although_dynamic(numbers, lengths, preferred, dynamic, turns, homes):
    share_out(numbers, lengths, preferred, False, turns, homes)


mm_csf_module = sys.modules[mm_csf.__module__]  # the package attribute of this name is the function
share_out = numba.njit(mm_csf_module._share_out)


@pytest.mark.parametrize("ties", ["average", "printed"])
@pytest.mark.parametrize("order", ["sorted", "given"])
@pytest.mark.parametrize("lengths", ["dynamic", "static"])
def test_every_rule_of_the_choice_equals_the_reference(lengths, order, ties):
    rule = {"lengths": lengths, "order": order, "ties": ties}
    others = 0
    for seed in range(4):
        tensor = chance((13, 17, 11), 500, seed, flat=1)
        expected = plain(reference.sparse.mm_csf(tensor, **rule))
        assert plain(mm_csf(tensor, **rule)) == expected
        others += expected != plain(reference.sparse.mm_csf(tensor, lengths=lengths))
    assert (others > 0) == (ties == "printed" or (order == "given" and lengths == "dynamic"))


@pytest.mark.parametrize("planted", [racy, later_of_equals, static_although_dynamic])
def test_a_planted_wrong_partition_is_detected(planted):
    """The correct builder agrees on the same tensors."""
    noticed = 0
    for seed in range(4):
        tensor = chance((13, 17, 11), 500, seed, flat=1)
        expected = plain(reference.sparse.mm_csf(tensor))
        assert plain(mm_csf(tensor)) == expected
        with mock.patch.object(mm_csf_module, "_share_out", planted):
            noticed += plain(mm_csf(tensor)) != expected
    assert noticed


def test_a_planted_unstable_sort_is_detected():
    tensor = build.coalesce(chance((13, 17, 11), 500, seed=0))
    expected = plain(reference.sparse.csf(tensor, (2, 0, 1)))
    assert plain(build.csf(tensor, (2, 0, 1))) == expected
    with mock.patch("gpu.mttkrp.formats.sort._append", unstable):
        assert plain(build.csf(tensor, (2, 0, 1))) != expected


def unstable(digits, order, begin, end, places, moved):
    """A wrong sort that reads from the end and appends forward."""
    for i in range(end - 1, begin - 1, -1):
        moved[places[digits[i]]] = order[i]
        places[digits[i]] += 1


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------

BUILDERS = {
    **{name: make for name, make in build.FORMATS.items() if name != "coo"},
    "fibers": lambda tensor: build.fibers(tensor, range(len(tensor.shape))),
    "f_coo": lambda tensor: build.f_coo(tensor, 0),
    "b_csf": build.b_csf,
}


@pytest.mark.parametrize("name", BUILDERS)
def test_duplicate_coordinates_are_refused(name):
    twice = Coo([[1, 0, 1], [2, 0, 2]], [5.0, 6.0, 0.0], (2, 3))
    with pytest.raises(FormatError) as caught:
        BUILDERS[name](twice)
    explains(caught, "(1, 2)", "coalesce")
    BUILDERS[name](build.coalesce(twice))


@settings(max_examples=50)
@given(tensor=tensors(), data=st.data(), threads=st.integers(1, 3))
@pytest.mark.slow
def test_every_duplicate_coordinate_is_found(tensor, data, threads):
    again = data.draw(st.integers(0, tensor.values.size - 1))
    where = data.draw(st.integers(0, tensor.values.size))
    coords = np.insert(tensor.coords, where, tensor.coords[:, again], axis=1)
    with parts(threads), pytest.raises(FormatError) as caught:
        nonzeros_of(Coo(coords, np.insert(tensor.values, where, 1.0), tensor.shape))
    explains(caught, tuple(tensor.coords[:, again].tolist()))


def explains(caught, *parts):
    text = str(caught.value)
    assert text.count("\n") == 2
    for part in parts:
        assert str(part) in text


BAD = {
    "another type": (DtypeError, lambda: build.csf([[1, 2]]), ["list", "Coo"]),
    "another format": (DtypeError, lambda: build.f_coo_all(build.csf(ONE_TENSOR)), ["Csf", "to_coo"]),
    "no format": (DtypeError, lambda: build.to_coo(5), ["int", "MmCsf"]),
    "a mode twice": (ShapeError, lambda: build.csf(ONE_TENSOR, (0, 1, 1)), ["modes=(0, 1, 1)", "(2, 3, 5)"]),
    "a mode too few": (ShapeError, lambda: build.fibers(ONE_TENSOR, (0, 1)), ["modes=(0, 1)"]),
    "a mode that is none": (ShapeError, lambda: build.b_csf(ONE_TENSOR, (0, 1, 2.0)), ["modes=(0, 1, 2.0)"]),
    "a negative mode": (ShapeError, lambda: build.f_coo(ONE_TENSOR, -1), ["mode=-1", "0 to 2"]),
    "split 0": (ShapeError, lambda: build.mm_csf(ONE_TENSOR, split=0), ["split=0"]),
    "a real split": (ShapeError, lambda: build.fibers(ONE_TENSOR, (0, 1, 2), split=1.5), ["split=1.5"]),
    "share 0": (ShapeError, lambda: build.b_csf_all(ONE_TENSOR, share=0), ["share=0"]),
    "a partition of 48": (ShapeError, lambda: build.f_coo(ONE_TENSOR, 0, partition=48), ["48", "32"]),
    "a block of 512": (ShapeError, lambda: build.hi_coo(ONE_TENSOR, block=512), ["block=512", "256"]),
    "a block of 1": (ShapeError, lambda: build.hi_coo(ONE_TENSOR, block=1), ["block=1", "2"]),
    "other lengths": (
        SchemeError,
        lambda: build.mm_csf(ONE_TENSOR, lengths="fixed"),
        ["'fixed'", "'static'"],
    ),
    "ties": (SchemeError, lambda: build.mm_csf(ONE_TENSOR, ties="first"), ["ties='first'"]),
    "order": (SchemeError, lambda: build.mm_csf(ONE_TENSOR, order="any"), ["order='any'"]),
    "no direction": (ShapeError, lambda: build.mm_csf(ONE_TENSOR, directions=()), ["directions=()"]),
    "a direction twice": (ShapeError, lambda: build.mm_csf(ONE_TENSOR, directions=(1, 1)), ["(1, 1)"]),
    "a direction too far": (ShapeError, lambda: build.mm_csf(ONE_TENSOR, directions=(3,)), ["mode=3"]),
    "a large dimension": (
        ShapeError,
        lambda: build.csf(Coo([[0], [2**32]], [1.0], (2, 2**32 + 1))),
        ["2**32", "(2, 4294967297)"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused(name):
    error, call, parts = BAD[name]
    with pytest.raises(error) as caught:
        call()
    explains(caught, *parts)


def test_arrays_of_a_device_are_refused():
    class Array:
        pointer = 16

    with pytest.raises(FormatError) as caught:
        build.csf(replace(ONE_TENSOR, coords=Array(), values=Array()))
    explains(caught, "device", "download")


def test_an_overflowing_sum_is_reported():
    values = np.array([3.0e38, 3.0e38], np.float32)
    with pytest.raises(NotANumberError, match=r"at \(0, 1\), is inf"):
        build.coalesce(Coo([[0, 0], [1, 1]], values, (1, 2)))
    assert np.isinf(build.coalesce(Coo([[0, 0], [1, 1]], values, (1, 2), nonfinite=True)).values).all()
