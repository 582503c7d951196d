"""For every shape, FSB round-trips and the BTC designs equal the reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from simwarp.listings import btc_bconv1, btc_bconv2, btc_bmm1, btc_bmm2, btc_bmm3
from simwarp.listings.btc import from_fsb, fsb_address, fsb_words, to_fsb
from simwarp.testing.geometries import conv_geometries
from simwarp.verify.geometry_classes import SMALL_CLASSES

SIDE = st.one_of(st.integers(1, 12), st.sampled_from((31, 33, 127, 128, 129, 260)))
TILE = st.one_of(st.sampled_from(((8, 128), (128, 8))), st.tuples(st.integers(1, 9), st.integers(1, 9)))
ORDER = st.sampled_from(("row", "column"))
SEED = st.integers(0, 2**32 - 1)
OPTIONS = {
    "operation": st.sampled_from(("xor", "and")),
    "first": st.sampled_from(("lsb", "msb")),
}


def signs(seed, shape):
    return np.random.default_rng(seed).choice([-1.0, 1.0], shape)


@given(st.tuples(SIDE, SIDE), TILE, ORDER, SEED)
def test_fsb_unpacking_inverts_packing(shape, tile, order, seed):
    bits = (signs(seed, shape) > 0).astype(np.uint8)
    words = to_fsb(bits, tile, order)
    np.testing.assert_array_equal(from_fsb(words, shape, tile, order), bits, strict=True)
    assert np.bitwise_count(words).sum() == bits.sum()


@given(st.tuples(SIDE, SIDE), TILE, ORDER)
def test_elements_have_distinct_addresses(shape, tile, order):
    addresses = fsb_address(*np.indices(shape), shape, tile, order).ravel()
    assert len(np.unique(addresses)) == addresses.size
    assert addresses.max() < fsb_words(shape, tile) * 32


@pytest.mark.gate
@settings(max_examples=40)
@given(st.tuples(SIDE, SIDE, SIDE), SEED, st.sampled_from((btc_bmm1, btc_bmm2, btc_bmm3)), st.data())
def test_products_equal_the_reference(sizes, seed, design, data):
    m, k, n = sizes
    a, b = signs(seed, (m % 40 + 1, k)), signs(seed + 1, (k, n % 40 + 1))
    options = {name: data.draw(choices, name) for name, choices in OPTIONS.items()}
    dots = reference.bmm(a, b)
    np.testing.assert_array_equal(design(a, b, operation=options["operation"]), dots, strict=True)
    thresholds = np.random.default_rng(seed).integers(-3, 4, dots.shape[1])
    bits = design(a, b, thresholds=thresholds, **options)
    expected = reference.pack(
        np.where(dots >= thresholds, 1.0, -1.0), layout="column", first=options["first"]
    )
    np.testing.assert_array_equal(bits.words, expected.words, strict=True)


@pytest.mark.gate
@settings(max_examples=40)
@given(conv_geometries(*SMALL_CLASSES), SEED, st.sampled_from((btc_bconv1, btc_bconv2)), st.data())
def test_convolutions_equal_the_reference(geometry, seed, bconv, data):
    x, w = signs(seed, geometry.images), signs(seed + 1, geometry.filters)
    options = {name: data.draw(choices, name) for name, choices in OPTIONS.items()}
    dots = reference.bconv2d(x, w, **geometry.options)
    np.testing.assert_array_equal(bconv(x, w, **options, **geometry.options), dots, strict=True)
    thresholds = np.random.default_rng(seed).integers(-3, 4, dots.shape[-1])
    bits = bconv(x, w, thresholds=thresholds, **options, **geometry.options)
    np.testing.assert_array_equal(reference.unpack_tensor(bits), dots >= thresholds)
