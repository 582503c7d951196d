"""`assert_same_bits` finds every difference and names its position."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import reference
import simwarp
from reference.errors import DtypeError
from simwarp.testing import assert_same_bits
from simwarp.testing.strategies import bit_matrices, lane_words


def complaint(expected, got):
    with pytest.raises(AssertionError) as caught:
        assert_same_bits(expected, got)
    return str(caught.value)


def test_a_difference_names_its_lane():
    expected = np.arange(32, dtype=np.uint32)
    got = expected.copy()
    got[[7, 9]] ^= np.array([0x80000001, 2], np.uint32)
    lines = complaint(expected, got).splitlines()
    assert lines[0] == "2 of 32 elements differ; the first is [7]"
    assert lines[1] == "expected 7 (0x00000007), got 2147483654 (0x80000006): bits 0, 31 differ"
    assert "lane 7, got 10000000 00000000 00000000 00000110  0x80000006" in lines[6]
    assert lines[7].split() == ["^", "^"]
    assert "lane 9" in lines[9]


def test_a_difference_in_a_packed_matrix_names_its_element():
    x = np.ones((40, 3), np.int8)
    expected = reference.pack(x, layout="row")
    x[33, 2] = -1
    message = complaint(expected, reference.pack(x, layout="row"))
    assert message.startswith("1 of 6 words differs; the first is [1, 2]\n")
    assert "bit 30 differs\nthe first wrong matrix element is (33, 2)\n" in message
    padded = replace(expected, words=expected.words | np.uint32(1))
    assert "is padding, past the edge of the (40, 3) matrix, and must be 0" in complaint(expected, padded)


@pytest.mark.slow
@given(expected=bit_matrices(), data=st.data())
def test_the_named_element_of_a_packed_matrix_is_the_changed_one(expected, data):
    bits = reference.unpack(expected)
    row, column = (data.draw(st.integers(0, n - 1)) for n in expected.shape)
    bits[row, column] ^= 1
    form = {"layout": expected.layout, "word": expected.word, "first": expected.first}
    got = reference.pack(2 * bits.astype(np.int8) - 1, **form)
    assert f"the first wrong matrix element is ({row}, {column})\n" in complaint(expected, got)


def test_a_difference_in_words_of_128_bits_or_a_stack_names_its_element():
    x = np.ones((2, 3, 150), np.int8)
    y = x.copy()
    y[1, 2, 140] = -1
    for first in ("msb", "lsb"):
        one, other = (reference.pack(m, layout="column", word=128, first=first) for m in (x[1], y[1]))
        assert "the first wrong matrix element is (2, 140)\n" in complaint(one, other)
        one, other = (reference.pack(m, layout="row", first=first) for m in (x, y))
        assert "the first wrong matrix element is (1, 2, 140)\n" in complaint(one, other)


def test_different_formats_are_reported():
    x = np.ones((3, 3))
    message = complaint(reference.pack(x), reference.pack(x, layout="column"))
    assert message == (
        "expected PackedBits (3, 3), row-major-32, first msb, "
        "got PackedBits (3, 3), column-major-32, first msb"
    )
    assert complaint(reference.pack(x), x).endswith("got an array")


def test_different_shapes_and_types_are_reported():
    assert complaint(np.zeros(3, np.int32), np.zeros(3, np.uint32)) == (
        "expected int32 of shape (3,), got uint32 of shape (3,)"
    )
    assert complaint(np.zeros((3, 1)), np.zeros(3)) == (
        "expected float64 of shape (3, 1), got float64 of shape (3,)"
    )


def test_comparing_empty_arrays_fails():
    assert complaint(np.zeros(0), np.zeros(0)) == "nothing was compared: both have shape (0,)"


def test_values_without_bits_are_refused():
    with pytest.raises(DtypeError, match="cannot be compared as bits"):
        assert_same_bits(["a"], ["a"])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "float64", "int64", ">u4"])
def test_every_type_is_compared(dtype):
    zeros, ones = np.zeros((2, 3), dtype), np.ones((2, 3), dtype)
    assert_same_bits(zeros, zeros.copy())
    assert "6 of 6 elements differ; the first is [0, 0]" in complaint(zeros, ones)
    assert_same_bits(zeros.T, zeros.T.copy())


def test_scalars_are_compared():
    assert_same_bits(np.uint32(5), np.uint32(5))
    assert "the first is []" in complaint(np.uint32(5), np.uint32(4))


def test_floats_are_compared_by_their_bits():
    nan = np.array([np.nan])
    assert_same_bits(nan, nan.copy())
    assert "expected 0.0 (0x0000000000000000), got -0.0 (0x8000000000000000): bit 63 differs" in complaint(
        np.array([0.0]), np.array([-0.0])
    )


def test_arrays_on_a_device_are_compared():
    host = np.arange(5, dtype=np.uint32)
    assert_same_bits(host, simwarp.Device().upload(host))
    x = reference.pack(np.ones((3, 3)))
    assert_same_bits(x, replace(x, words=simwarp.Device().upload(x.words)))


@pytest.mark.slow
@given(left=lane_words(), right=lane_words())
def test_no_difference_is_missed(left, right):
    assert_same_bits(left, left.copy())
    assume((left != right).any())
    wrong = np.flatnonzero(left != right)
    assert complaint(left, right).startswith(f"{len(wrong)} of 32 element")
    assert f"the first is [{wrong[0]}]" in complaint(left, right)
