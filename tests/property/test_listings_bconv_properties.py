"""For every geometry, listing 6 equals the reference and obeys the laws of a convolution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from simwarp.listings import bconv32, bconv64
from simwarp.listings.conv_operands import layer

SCHEMES = st.sampled_from(((bconv32, 32), (bconv64, 64)))
SIDE = st.integers(1, 4)
STEP = st.integers(1, 4)
CHANNELS = st.one_of(st.integers(1, 4), st.sampled_from((31, 32, 33, 64, 65)))
FILTERS = st.one_of(st.integers(1, 3), st.sampled_from((32, 33)))
PAD = st.integers(0, 3)


def signs(seed, shape):
    """A tensor of random -1 and +1, drawn by a seed so that shrinking ignores its values."""
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), shape)


@st.composite
def convolutions(draw, paddings=("SAME", "VALID", "explicit")):
    """Draw x, w and options; padding is explicit where VALID would give an empty output."""
    height, width, rows, columns = (draw(SIDE) for _ in range(4))
    channels, seed = draw(CHANNELS), draw(st.integers(0, 2**32 - 1))
    x = signs(seed, (draw(st.integers(1, 2)), height, width, channels))
    w = signs(seed + 1, (rows, columns, channels, draw(FILTERS)))
    stride, dilation = draw(st.tuples(STEP, STEP)), draw(st.tuples(STEP, STEP))
    padding = draw(st.sampled_from(paddings))
    if padding != "SAME":
        short = [
            max((taps - 1) * step + 1 - size, 0)
            for size, taps, step in ((height, rows, dilation[0]), (width, columns, dilation[1]))
        ]
        if padding == "explicit" or any(short):
            extra = [draw(st.tuples(PAD, PAD)) for _ in short]
            padding = tuple(
                (before, after + missing) for (before, after), missing in zip(extra, short, strict=True)
            )
    return x, w, {"stride": stride, "dilation": dilation, "padding": padding}


@pytest.mark.gate
@settings(max_examples=60)
@given(convolutions(), SCHEMES)
def test_the_convolution_equals_the_reference(case, scheme):
    x, w, options = case
    np.testing.assert_array_equal(scheme[0](x, w, **options), reference.bconv2d(x, w, **options), strict=True)


@settings(max_examples=60)
@given(convolutions(), st.data())
def test_output_sizes_equal_the_reference(case, data):
    x, w, options = case
    larger = data.draw(st.integers(1, 1000)), data.draw(st.integers(1, 1000))
    shape = (x.shape[0], x.shape[1] + larger[0], x.shape[2] + larger[1], x.shape[3])
    p, g = layer(shape, w.shape, **options), reference.conv_geometry(shape, w.shape, **options)
    assert (p.out_height, p.out_width, p.pad_h, p.pad_w) == (g.out_height, g.out_width, g.pad_top, g.pad_left)


@pytest.mark.slow
@settings(max_examples=30)
@given(convolutions(), SCHEMES, st.sampled_from(("msb", "lsb")))
def test_packed_and_real_inputs_give_the_same_output(case, scheme, first):
    x, w, options = case
    bconv, word = scheme
    packed_x = reference.pack_tensor(x, layout="NHWC", word=word, first=first)
    packed_w = reference.pack_tensor(w, layout="HWIO", word=word, first=first)
    np.testing.assert_array_equal(bconv(packed_x, packed_w, **options), bconv(x, w, **options), strict=True)


@pytest.mark.slow
@settings(max_examples=30)
@given(convolutions(), SCHEMES, st.data())
def test_output_bits_are_the_thresholded_sums(case, scheme, data):
    x, w, options = case
    filters, seed = w.shape[3], data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    limits, flip = rng.integers(-5, 6, filters), rng.integers(0, 2, filters) > 0
    bits = reference.unpack_tensor(scheme[0](x, w, thresholds=limits, flip=flip, **options))
    np.testing.assert_array_equal(bits, (reference.bconv2d(x, w, **options) >= limits) ^ flip)


@pytest.mark.slow
@settings(max_examples=20)
@given(convolutions(paddings=("explicit",)), SCHEMES, st.integers(0, 2), st.integers(0, 2))
def test_more_padding_only_adds_border_pixels(case, scheme, rows, columns):
    """One stride of padding above adds a row on top; one on the left adds a column."""
    x, w, options = case
    bconv, _ = scheme
    (vertical, horizontal), ((top, bottom), (left, right)) = options["stride"], options["padding"]
    more = ((top + rows * vertical, bottom), (left + columns * horizontal, right))
    y = bconv(x, w, **{**options, "padding": more})
    np.testing.assert_array_equal(y[:, rows:, columns:], bconv(x, w, **options), strict=True)


@pytest.mark.slow
@settings(max_examples=20)
@given(convolutions(), SCHEMES)
def test_complementing_one_operand_negates_and_both_changes_nothing(case, scheme):
    x, w, options = case
    bconv, _ = scheme
    y = bconv(x, w, **options)
    np.testing.assert_array_equal(bconv(-x, -w, **options), y, strict=True)
    np.testing.assert_array_equal(bconv(-x, w, **options), -y, strict=True)


@pytest.mark.slow
@settings(max_examples=20)
@given(convolutions(), SCHEMES, st.data())
def test_sums_over_parts_of_the_channels_add_up(case, scheme, data):
    x, w, options = case
    bconv, _ = scheme
    at = data.draw(st.integers(0, x.shape[3]))
    parts = [(x[..., c], w[:, :, c]) for c in (slice(at), slice(at, None)) if x[..., c].size]
    total = sum(bconv(a, b, **options) for a, b in parts)
    np.testing.assert_array_equal(bconv(x, w, **options), total)


@pytest.mark.slow
@settings(max_examples=20)
@given(convolutions(), SCHEMES)
def test_the_transposed_image_gives_the_transposed_output(case, scheme):
    """Swapping height and width in all arguments transposes the output."""
    x, w, options = case
    bconv, _ = scheme
    turned = {name: v if isinstance(v, str) else v[::-1] for name, v in options.items()}
    y = bconv(x.transpose(0, 2, 1, 3), w.transpose(1, 0, 2, 3), **turned)
    np.testing.assert_array_equal(y.transpose(0, 2, 1, 3), bconv(x, w, **options), strict=True)
