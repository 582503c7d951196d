"""The reference product equals three plain Python loops."""

import importlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

from reference import DtypeError, FormatError, NotANumberError, PackedBits, SchemeError, ShapeError, bmm, pack
from reference.bits import pack_bits
from reference.bmm import _product_numba, _product_numpy
from support.offenders import every_case

FORMATS = list(itertools.product(("row", "column"), (32, 64), ("msb", "lsb")))
SHAPES = [
    (1, 1, 1),
    (1, 65, 1),
    (3, 1, 5),
    (2, 3, 5),
    (7, 11, 13),
    (31, 32, 33),
    (33, 31, 32),
    (5, 63, 2),
    (2, 64, 3),
    (3, 65, 2),
    (17, 127, 19),
]


def reals(rows, columns, seed):
    return np.random.default_rng([rows, columns, seed]).standard_normal((rows, columns))


def product_by_hand(a, b):
    """The product of lists of ±1, as a list."""
    a = [[1 if v >= 0 else -1 for v in row] for row in a]
    b = [[1 if v >= 0 else -1 for v in row] for row in b]
    return [[sum(row[k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))] for row in a]


@pytest.fixture(params=["numpy", "numba"])
def path(request, monkeypatch):
    """Force every product onto the NumPy or the Numba path."""
    if request.param == "numba":
        monkeypatch.setattr(importlib.import_module("reference.bmm"), "_LARGE_PRODUCT", 0)


# --------------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("path")
def test_products_equal_three_plain_loops(shape):
    m, k, n = shape
    a, b = reals(m, k, 0), reals(k, n, 1)
    c = bmm(a, b)
    assert c.tolist() == product_by_hand(a.tolist(), b.tolist())
    assert c.dtype == np.int32
    assert c.flags.c_contiguous


def test_numpy_and_numba_agree():
    generator = np.random.default_rng(0)
    for m, k, n in [*SHAPES, (64, 257, 96), (3, 4099, 101)]:
        bits_a = generator.integers(0, 2, (m, k), dtype=np.uint8)
        bits_b = generator.integers(0, 2, (k, n), dtype=np.uint8)
        words_a = pack_bits(bits_a, "column", 64, "lsb").words
        words_b = pack_bits(bits_b, "row", 64, "lsb").words
        c = _product_numba(words_a, words_b, k)
        np.testing.assert_array_equal(c, _product_numpy(bits_a, bits_b), strict=True)
        assert c.flags.c_contiguous


def test_every_popcount_of_a_word_is_right():
    """Words 0, 1, 3, 7 … times zeros give all 65 values of popc."""
    ladder = np.array([[(1 << ones) - 1 for ones in range(65)]], np.uint64)
    c = _product_numba(ladder, np.zeros((1, 1), np.uint64), 64)
    assert c[:, 0].tolist() == [64 - 2 * ones for ones in range(65)]


@pytest.mark.parametrize("limit", ["_LARGE_PRODUCT", "_LARGE_OPERANDS"])
def test_the_size_selects_the_numpy_or_numba_path(monkeypatch, limit):
    module = importlib.import_module("reference.bmm")
    taken = []
    for path in ("_product_numpy", "_product_numba"):
        monkeypatch.setattr(module, path, lambda *_, path=path: taken.append(path))
    a, b = np.ones((4, 8)), np.ones((8, 4))
    monkeypatch.setattr(module, limit, {"_LARGE_PRODUCT": 4 * 8 * 4, "_LARGE_OPERANDS": (4 + 4) * 8}[limit])
    bmm(a[:, :7], b[:7])
    bmm(a, b)
    assert taken == ["_product_numpy", "_product_numba"]


@pytest.mark.parametrize(("transpose_a", "transpose_b"), [*itertools.product((False, True), repeat=2)])
@pytest.mark.usefixtures("path")
def test_transposed_operands_give_the_same_product(transpose_a, transpose_b):
    a, b = reals(5, 33, 0), reals(33, 4, 1)
    given_a, given_b = a.T.copy() if transpose_a else a, b.T.copy() if transpose_b else b
    expected = product_by_hand(a.tolist(), b.tolist())
    assert bmm(given_a, given_b, transpose_a=transpose_a, transpose_b=transpose_b).tolist() == expected
    packed_a, packed_b = pack(given_a, layout="row"), pack(given_b, layout="column", word=64)
    assert bmm(packed_a, packed_b, transpose_a=transpose_a, transpose_b=transpose_b).tolist() == expected


@pytest.mark.parametrize("format_a", FORMATS, ids=str)
def test_packed_operands_of_every_format_give_the_same_product(format_a):
    a, b = reals(6, 67, 0), reals(67, 9, 1)
    expected = bmm(a, b)
    packed_a = pack(a, **dict(zip(("layout", "word", "first"), format_a, strict=True)))
    np.testing.assert_array_equal(bmm(packed_a, b), expected, strict=True)
    for layout, word, first in FORMATS:
        packed_b = pack(b, layout=layout, word=word, first=first)
        np.testing.assert_array_equal(bmm(packed_a, packed_b), expected, strict=True)


@every_case("dtype_a", ["<f8", ">f8", "<f4", ">f4", "<f2", ">f2", "i1"])
@every_case("dtype_b", [">f8", "<f4", "<f2", "i1"])
def test_operands_may_have_different_element_types(dtype_a, dtype_b):
    a, b = (8 * reals(3, 35, 0)).astype(dtype_a), (8 * reals(35, 2, 1)).astype(dtype_b)
    assert bmm(a, b).tolist() == product_by_hand(a.tolist(), b.tolist())


def test_memory_order_does_not_matter():
    a, b = reals(9, 34, 0), reals(34, 6, 1)
    expected = bmm(a, b)
    c = bmm(np.asfortranarray(a), np.repeat(b, 2, axis=0)[::2])
    np.testing.assert_array_equal(c, expected, strict=True)
    assert c.flags.c_contiguous


def test_zeros_subnormals_and_infinities_have_their_sign():
    a = np.array([[0.0, -0.0, 5e-324, -5e-324, np.inf, -np.inf]])
    assert bmm(a, np.ones((6, 1))).tolist() == [[2]]
    assert bmm(a, a, transpose_b=True).tolist() == [[6]]


def test_nested_lists_are_accepted_as_matrices():
    assert bmm([[1.0, -1.0]], [[-1.0], [1.0]]).tolist() == [[-2]]


# --------------------------------------------------------------------------------------------------
# Relations
# --------------------------------------------------------------------------------------------------


def test_transposing_both_swaps_them():
    a, b = reals(10, 41, 0), reals(41, 12, 1)
    np.testing.assert_array_equal(bmm(b, a, transpose_a=True, transpose_b=True), bmm(a, b).T)


def test_complementing_an_operand_negates():
    a, b = reals(10, 41, 0), reals(41, 12, 1)
    np.testing.assert_array_equal(bmm(-a, b), -bmm(a, b))
    np.testing.assert_array_equal(bmm(-a, -b), bmm(a, b))


def test_products_over_parts_of_k_add_up():
    a, b = reals(10, 130, 0), reals(130, 12, 1)
    for at in (1, 31, 64, 65, 129):
        np.testing.assert_array_equal(bmm(a[:, :at], b[:at]) + bmm(a[:, at:], b[at:]), bmm(a, b))


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "transposes", "sides"),
    [
        ((2, 3), (4, 5), (False, False), r"columns of a \(3\).*rows of b \(4\)"),
        ((2, 3), (3, 5), (True, False), r"rows of a \(2\).*rows of b \(3\)"),
        ((2, 3), (3, 5), (False, True), r"columns of a \(3\).*columns of b \(5\)"),
        ((2, 3), (3, 5), (True, True), r"rows of a \(2\).*columns of b \(5\)"),
    ],
)
def test_mismatched_shapes_are_refused(shape_a, shape_b, transposes, sides):
    transpose_a, transpose_b = transposes
    a, b = np.ones(shape_a), np.ones(shape_b)
    for left, right in itertools.product((a, pack(a)), (b, pack(b))):
        with pytest.raises(ShapeError, match=sides) as caught:
            bmm(left, right, transpose_a=transpose_a, transpose_b=transpose_b)
        for part in (shape_a, shape_b, f"transpose_a={transpose_a}", f"transpose_b={transpose_b}"):
            assert str(part) in str(caught.value)


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [((0, 3), (3, 2)), ((2, 0), (0, 2)), ((2, 3), (3, 0)), ((3,), (3, 2)), ((1, 1, 2, 3), (3, 2))],
)
def test_operands_that_are_not_matrices_are_refused(shape_a, shape_b):
    with pytest.raises(ShapeError, match="two dimensions of a matrix"):
        bmm(np.ones(shape_a), np.ones(shape_b))


def test_a_k_beyond_int32_is_refused():
    row = np.broadcast_to(np.int8(1), (1, 2**31))  # one byte, broadcast: no array of that size is allocated
    with pytest.raises(ShapeError, match="2147483648 exceeds 2147483647"):
        bmm(row, row, transpose_b=True)
    with pytest.raises(ShapeError, match="2147483648 exceeds 2147483647"):
        bmm(PackedBits(np.zeros((1, 1), np.uint32), (1, 2**31), "row"), row.T)


def test_bad_elements_name_the_operand():
    good = np.ones((2, 2))
    with pytest.raises(DtypeError, match=r"^b \(ndarray\) has elements of int32"):
        bmm(good, good.astype(np.int32))
    with pytest.raises(DtypeError, match=r"^a \(list\) has elements of int64"):
        bmm([[1, -1]], good)
    with pytest.raises(NotANumberError, match=r"b\[1, 0\] is NaN"):
        bmm(good, [[1.0, 1.0], [np.nan, 1.0]])


def test_malformed_packed_operands_are_refused():
    packed = pack(np.ones((2, 2)))
    with pytest.raises(FormatError, match="the words of the packed matrix are"):
        bmm(packed, replace(packed, words=np.zeros((2, 2), np.uint32)))
    with pytest.raises(SchemeError, match="layout='tile'"):
        bmm(replace(packed, layout="tile"), packed)


# --------------------------------------------------------------------------------------------------
# Products of bits
# --------------------------------------------------------------------------------------------------


def common_by_hand(a, b):
    """How many elements of a row and a column are both not 0, as a list."""
    return [[sum(row[k] != 0 != b[k][j] for k in range(len(b))) for j in range(len(b[0]))] for row in a]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("path")
def test_products_of_bits_equal_three_plain_loops(shape):
    m, k, n = shape
    a, b = (np.where(x > 0.5, x, 0) for x in (reals(m, k, 0), -reals(k, n, 1)))
    common = bmm(a, b, kind="and")
    assert common.tolist() == common_by_hand(a.tolist(), b.tolist())
    assert common.dtype == np.int32
    some = bmm(a.T, b.T, kind="or", transpose_a=True, transpose_b=True)
    assert some.tolist() == (common > 0).tolist()
    assert some.dtype == np.bool_


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "float16", "float32", "float64"])
def test_bits_have_any_dtype_and_a_stack_of_them_is_multiplied(dtype):
    bits = np.random.default_rng(0).integers(0, 2, (2, 5, 70))
    assert np.array_equal(bmm(bits.astype(dtype), bits[0].T.astype(dtype), kind="and"), bits @ bits[0].T)


def test_words_have_the_bits_that_they_hold():
    bits = np.random.default_rng(0).integers(0, 2, (5, 70))
    for layout, word, first in FORMATS:
        packed = pack(2.0 * bits - 1, layout=layout, word=word, first=first)
        assert np.array_equal(bmm(packed, packed, kind="and", transpose_b=True), bits @ bits.T)


def test_minus_zero_and_subnormal_numbers_as_bits():
    assert bmm([[-0.0, 5e-324, -np.inf]], np.ones((3, 1)), kind="and").tolist() == [[2]]


def test_what_is_no_bit_is_refused():
    with pytest.raises(NotANumberError, match=r"a\[0, 1\] is NaN .* neither 0 nor 1"):
        bmm([[1.0, np.nan]], np.ones((2, 1)), kind="and")
    with pytest.raises(DtypeError, match=r"a .* int64"):
        bmm(np.ones((1, 2), np.int64), np.ones((2, 1)), kind="or")
    with pytest.raises(DtypeError, match="has the signs they stand for"):
        bmm([[True]], [[True]])
    with pytest.raises(SchemeError, match=r"kind='xor'\nthis kind of product is unknown\nchoose 'xnor' "):
        bmm([[1.0]], [[1.0]], kind="xor")
