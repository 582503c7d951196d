"""For every matrix, packing is lossless and the product obeys algebra."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from reference import binarize, bmm, pack, unpack
from reference.bits import pack_bits
from reference.bmm import _product_numba, _product_numpy

DTYPES = st.one_of(npst.floating_dtypes(sizes=(16, 32, 64), endianness="?"), st.just(np.dtype(np.int8)))
FORMATS = st.fixed_dictionaries(
    {
        "layout": st.sampled_from(("row", "column")),
        "word": st.sampled_from((32, 64, 128)),
        "first": st.sampled_from(("msb", "lsb")),
    }
)
SIDE = st.one_of(st.integers(1, 8), st.sampled_from((31, 32, 33, 63, 64, 65)))


@st.composite
def matrices(draw, rows=SIDE, columns=SIDE):
    """Real matrices of every accepted type, byte order and memory order, without NaN."""
    dtype = draw(DTYPES)
    elements = {"allow_nan": False} if dtype.kind == "f" else {"min_value": -128, "max_value": 127}
    x = draw(npst.arrays(dtype, (draw(rows), draw(columns)), elements=elements))
    return np.asfortranarray(x) if draw(st.booleans()) else x


@st.composite
def operands(draw):
    """Two matrices of matching shapes (M, K) and (K, N)."""
    k = st.just(draw(SIDE))
    return draw(matrices(columns=k)), draw(matrices(rows=k))


@given(matrices())
def test_binarize_is_the_comparison_of_python_numbers(x):
    assert binarize(x).tolist() == [[int(v >= 0) for v in row] for row in x.tolist()]


@given(matrices(), FORMATS)
def test_unpack_inverts_pack(x, form):
    packed = pack(x, **form)
    np.testing.assert_array_equal(unpack(packed), binarize(x), strict=True)
    assert int(np.bitwise_count(packed.words).sum()) == int(binarize(x).sum())  # padded bits are 0


@given(matrices(), FORMATS)
def test_packing_the_transpose_in_the_other_layout_gives_the_same_words(x, form):
    other = form | {"layout": "row" if form["layout"] == "column" else "column"}
    np.testing.assert_array_equal(pack(x, **form).words, pack(x.T, **other).words, strict=True)


@given(operands())
@pytest.mark.gate
def test_the_product_is_the_sum_of_products(pair):
    a, b = ([[1 if v >= 0 else -1 for v in row] for row in x.tolist()] for x in pair)
    expected = [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a
    ]
    assert bmm(*pair).tolist() == expected


@pytest.mark.slow
@given(operands())
def test_numpy_and_numba_paths_agree(pair):
    bits_a, bits_b = binarize(pair[0]), binarize(pair[1])
    words_a = pack_bits(bits_a, "column", 64, "lsb").words
    words_b = pack_bits(bits_b, "row", 64, "lsb").words
    looped = _product_numba(words_a, words_b, bits_a.shape[1])
    np.testing.assert_array_equal(looped, _product_numpy(bits_a, bits_b), strict=True)


@pytest.mark.slow
@given(operands(), FORMATS, FORMATS)
def test_the_format_of_an_operand_does_not_matter(pair, form_a, form_b):
    a, b = pair
    np.testing.assert_array_equal(bmm(pack(a, **form_a), pack(b, **form_b)), bmm(a, b), strict=True)


@pytest.mark.slow
@given(operands())
def test_transposing_both_swaps_them(pair):
    a, b = pair
    np.testing.assert_array_equal(bmm(b, a, transpose_a=True, transpose_b=True), bmm(a, b).T)


@given(operands())
def test_complementing_an_operand_negates(pair):
    a, b = pair
    complement = np.where(binarize(a) == 1, np.int8(-1), np.int8(1))
    np.testing.assert_array_equal(bmm(complement, b), -bmm(a, b))


@pytest.mark.slow
@given(operands(), st.data())
def test_products_over_parts_of_k_add_up(pair, data):
    a, b = pair
    if a.shape[1] > 1:
        at = data.draw(st.integers(1, a.shape[1] - 1))
        np.testing.assert_array_equal(bmm(a[:, :at], b[:at]) + bmm(a[:, at:], b[at:]), bmm(a, b))


@pytest.mark.slow
@given(operands())
def test_a_product_is_bounded_by_k_and_has_its_parity(pair):
    a, b = pair
    k = a.shape[1]
    c = bmm(a, b)
    assert (abs(c) <= k).all()
    assert ((c - k) % 2 == 0).all()
