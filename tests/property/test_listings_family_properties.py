"""For every matrix, the BSTC family equals the reference, and unpacking inverts packing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import reference
from simwarp.listings import (
    bmm,
    bmm32,
    bmm64,
    bmms32,
    bmms64,
    pack32_column,
    pack32_row,
    pack64_column,
    pack64_row,
    product_of,
    unpack32,
    unpack64,
)

SIDE = st.one_of(st.integers(1, 6), st.sampled_from((31, 32, 33, 63, 64, 65)))
LAYOUT = st.sampled_from(("row", "column"))
APPROACH = st.sampled_from(("row-by-row", "row-by-column", "column-by-row", "column-by-column"))
PACK = {
    ("column", 32): pack32_column,
    ("row", 32): pack32_row,
    ("column", 64): pack64_column,
    ("row", 64): pack64_row,
}
UNPACK = {32: unpack32, 64: unpack64}
SCHEME = st.sampled_from(((bmm32, 32), (bmm64, 64), (bmms32, 32), (bmms64, 64)))


@st.composite
def matrices(draw, rows=SIDE, columns=SIDE):
    """Matrices of int8 signs, zeros included."""
    return draw(npst.arrays(np.int8, (draw(rows), draw(columns)), elements=st.integers(-1, 1)))


@st.composite
def operands(draw):
    k = st.just(draw(SIDE))
    return draw(matrices(columns=k)), draw(matrices(rows=k))


@pytest.mark.slow
@settings(max_examples=60)
@given(matrices(), st.sampled_from(tuple(PACK)))
def test_packing_equals_the_reference_and_unpacking_inverts_it(x, form):
    layout, word = form
    packed = PACK[form](x)
    expected = reference.pack(x, layout=layout, word=word).words
    np.testing.assert_array_equal(packed.words, expected, strict=True)
    np.testing.assert_array_equal(UNPACK[word](packed), np.where(x >= 0, 1, -1))


@pytest.mark.slow
@settings(max_examples=60)
@given(operands(), APPROACH, LAYOUT, LAYOUT)
def test_every_combination_equals_the_reference_product(pair, approach, layout_a, layout_b):
    transpose_a, transpose_b = product_of(approach, layout_a, layout_b)
    a, b = pair[0].T if transpose_a else pair[0], pair[1].T if transpose_b else pair[1]
    packed = reference.pack(a, layout=layout_a), reference.pack(b, layout=layout_b)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    c = bmm(*packed, approach=approach, **options)
    np.testing.assert_array_equal(c, reference.bmm(a, b, **options), strict=True)


@pytest.mark.slow
@settings(max_examples=80)
@given(operands(), SCHEME, st.booleans(), st.booleans())
def test_every_scheme_equals_the_reference_product(pair, scheme, transpose_a, transpose_b):
    product, word = scheme
    a, b = pair[0].T if transpose_a else pair[0], pair[1].T if transpose_b else pair[1]
    packed_a = reference.pack(a, layout="row" if transpose_a else "column", word=word)
    packed_b = reference.pack(b, layout="column" if transpose_b else "row", word=word)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    c = product(packed_a, packed_b, **options)
    np.testing.assert_array_equal(c, reference.bmm(a, b, **options), strict=True)


@pytest.mark.gate
@settings(max_examples=80)
@given(operands(), SCHEME, st.data())
def test_every_scheme_thresholds_like_the_reference(pair, scheme, data):
    """Each threshold equals a dot product of its column, or is next to one."""
    product, word = scheme
    dots = reference.bmm(*pair)
    m, n = dots.shape
    rows = data.draw(npst.arrays(np.int32, n, elements=st.integers(0, m - 1)))
    beside = data.draw(npst.arrays(np.int32, n, elements=st.integers(-1, 1)))
    thresholds = dots[rows, np.arange(n)] + beside
    flip = data.draw(st.none() | npst.arrays(np.bool_, n))
    packed_a = reference.pack(pair[0], layout="column", word=word)
    packed_b = reference.pack(pair[1], layout="row", word=word)
    bits = product(packed_a, packed_b, thresholds=thresholds, flip=flip)
    expected = reference.threshold(dots, thresholds, flip, word=word)
    np.testing.assert_array_equal(bits.words, expected.words, strict=True)
    assert (bits.shape, bits.layout, bits.word, bits.first) == ((m, n), "column", word, "msb")
