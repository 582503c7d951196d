"""Laws of every convolution, checked without an oracle: algebra, symmetry, and excluded padding."""

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from reference import (
    bconv2d,
    binarize,
    bmm,
    conv_geometry,
    excluded_taps,
    pack_tensor,
    pool_bits,
    threshold_tensor,
    to_layout,
    unpack_tensor,
)
from reference.bconv import _tap_by_tap, _word_by_word
from reference.tensors import pack_tensor_bits
from reference.types.packed import FILTER_LAYOUTS, IMAGE_LAYOUTS

CHANNELS = st.one_of(st.integers(1, 5), st.sampled_from((31, 32, 33, 63, 64, 65, 127, 129)))
PAIR = st.tuples(st.integers(0, 4), st.integers(0, 4))


class Problem(NamedTuple):
    """The arguments of bconv2d, with explicit padding."""

    x: np.ndarray
    w: np.ndarray
    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    dilation: tuple[int, int]

    def solve(self, **changed):
        """The output of the problem, optionally with some arguments replaced."""
        p = self._replace(**changed)
        return bconv2d(p.x, p.w, stride=p.stride, padding=p.padding, dilation=p.dilation)

    @property
    def geometry(self):
        """The geometry that the reference resolves from shapes and options."""
        options = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return conv_geometry(self.x.shape, self.w.shape, **options)


def signs(shape):
    """Arrays of ±1 (int8), eight elements drawn per byte; shrinks to +1."""
    size = int(np.prod(shape))

    def array(octets):
        bits = np.unpackbits(np.frombuffer(octets, np.uint8), count=size)
        return (1 - 2 * bits.astype(np.int8)).reshape(shape)

    return st.binary(min_size=-(-size // 8), max_size=-(-size // 8)).map(array)


@st.composite
def problems(draw, stride=None):
    """Images and filters of ±1, with options that give a nonempty output."""
    filter_size, dilation = (draw(st.tuples(*[st.integers(1, top)] * 2)) for top in (4, 3))
    padding = draw(st.tuples(PAIR, PAIR))
    least = [
        max(1, (taps - 1) * step + 1 - sum(pad))
        for taps, step, pad in zip(filter_size, dilation, padding, strict=True)
    ]
    height, width = (draw(st.integers(size, size + 4)) for size in least)
    channels = draw(CHANNELS)
    x = draw(signs((draw(st.integers(1, 3)), height, width, channels)))
    w = draw(signs((*filter_size, channels, draw(st.integers(1, 4)))))
    stride = stride or draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    return Problem(x, w, stride, padding, dilation)


# --------------------------------------------------------------------------------------------------
# The two ways, and the operands' formats
# --------------------------------------------------------------------------------------------------


@given(problems())
def test_numpy_and_numba_paths_agree(problem):
    bits_x, bits_w, g = binarize(problem.x), binarize(problem.w), problem.geometry
    words_x = pack_tensor_bits(bits_x, "NHWC", 64, "lsb").words
    words_w = pack_tensor_bits(bits_w, "HWIO", 64, "lsb").words
    taps = _tap_by_tap(bits_x, bits_w, g)
    np.testing.assert_array_equal(_word_by_word(words_x, words_w, g), taps, strict=True)


@st.composite
def packed(draw, layouts):
    """A tensor of ±1, in two dimensions of some words, and a format to pack it in."""
    small = st.integers(1, 3)
    wide = st.one_of(small, st.sampled_from((8, 9, 33)))
    extents = draw(st.tuples(small, small, wide, wide))
    shape = tuple(draw(st.permutations(extents)))
    layout = draw(st.sampled_from(layouts))
    word = 32 if "FSB" in layout else draw(st.sampled_from((32, 64)))
    x = draw(signs(shape))
    return x, {"layout": layout, "word": word, "first": draw(st.sampled_from(("lsb", "msb")))}


@given(packed((*IMAGE_LAYOUTS, *FILTER_LAYOUTS)))
def test_unpack_inverts_pack_and_padding_bits_are_0(example):
    x, form = example
    tensor = pack_tensor(x, **form)
    np.testing.assert_array_equal(unpack_tensor(tensor), binarize(x), strict=True)
    assert int(np.bitwise_count(tensor.words).sum()) == int((x > 0).sum())


@given(packed(("HWNC", "HWNC-FSB")))
def test_images_pack_like_filters_with_one_filter_per_image(example):
    """(N, H, W, C) packed as HWNC equals (H, W, C, N) packed as HWOI: both run along C."""
    x, form = example
    twin = form | {"layout": form["layout"].replace("HWNC", "HWOI")}
    filters = np.transpose(x, (1, 2, 3, 0))
    np.testing.assert_array_equal(pack_tensor(x, **form).words, pack_tensor(filters, **twin).words)


@given(problems(), st.sampled_from(IMAGE_LAYOUTS), st.sampled_from(FILTER_LAYOUTS))
def test_the_format_of_an_operand_does_not_matter(problem, images, filters):
    x, w = pack_tensor(problem.x, layout=images), pack_tensor(problem.w, layout=filters, first="msb")
    np.testing.assert_array_equal(problem.solve(x=x, w=w), problem.solve(), strict=True)


@given(packed(("NHWC",)), st.permutations(("NHWC", "HWNC", "NCHW")))
def test_layout_conversions_commute(example, orders):
    first, second, third = orders
    step = to_layout(to_layout(example[0], first, second), second, third)
    np.testing.assert_array_equal(step, to_layout(example[0], first, third), strict=True)
    np.testing.assert_array_equal(to_layout(step, third, first), example[0], strict=True)


# --------------------------------------------------------------------------------------------------
# Padding
# --------------------------------------------------------------------------------------------------


def framed(problem, value):
    """The image with its padding filled by one sign, to be convolved without padding."""
    x = np.pad(problem.x, ((0, 0), *problem.padding, (0, 0)), constant_values=value)
    return problem.solve(x=x, padding=((0, 0), (0, 0)))


@given(problems())
def test_an_excluded_frame_is_the_mean_of_a_plus_and_a_minus_frame(problem):
    np.testing.assert_array_equal(2 * problem.solve(), framed(problem, 1) + framed(problem, -1))


@given(problems())
def test_a_frame_around_the_image_changes_only_pixels_with_excluded_taps(problem):
    changed = (framed(problem, -1) != problem.solve()).any(axis=(0, 3))
    assert not changed[excluded_taps(problem.geometry) == 0].any()


@given(problems(stride=(1, 1)))
def test_pad_then_exclude_equals_crop(problem):
    """Output pixels whose windows lie inside the image equal the convolution without padding."""
    g = problem.geometry
    inside = [
        slice(before, max(before, out - after))
        for out, (before, after) in zip((g.out_height, g.out_width), problem.padding, strict=True)
    ]
    cropped = problem.solve()[:, inside[0], inside[1]]
    if cropped.size:
        np.testing.assert_array_equal(cropped, problem.solve(padding=((0, 0), (0, 0))))
    assert (excluded_taps(g)[tuple(inside)] == 0).all()


@given(problems())
def test_more_padding_before_moves_the_output(problem):
    """One stride of padding more moves the output by one pixel, down or right."""
    (top, bottom), (left, right) = problem.padding
    down, across = problem.stride
    moved = problem.solve(padding=((top + down, bottom), (left + across, right)))
    np.testing.assert_array_equal(moved[:, 1:, 1:], problem.solve())


@given(problems())
def test_more_padding_behind_adds_outputs(problem):
    (top, bottom), (left, right) = problem.padding
    y = problem.solve()
    more = problem.solve(padding=((top, bottom + 3), (left, right + 2)))
    np.testing.assert_array_equal(more[:, : y.shape[1], : y.shape[2]], y)


@given(problems())
def test_a_sum_is_bounded_by_its_terms_and_has_their_parity(problem):
    y, g = problem.solve(), problem.geometry
    terms = (g.channels * (g.filter_height * g.filter_width - excluded_taps(g)))[..., None]
    assert (abs(y) <= terms).all()
    assert ((y - terms) % 2 == 0).all()


@given(problems())
def test_tensors_of_ones_attain_the_bound(problem):
    y, g = problem.solve(x=abs(problem.x), w=abs(problem.w)), problem.geometry
    terms = g.channels * (g.filter_height * g.filter_width - excluded_taps(g))
    np.testing.assert_array_equal(y, np.broadcast_to(terms[..., None], y.shape))


# --------------------------------------------------------------------------------------------------
# Algebra
# --------------------------------------------------------------------------------------------------


@given(problems())
def test_complementing_one_operand_negates_and_both_changes_nothing(problem):
    x, w, y = problem.x, problem.w, problem.solve()
    np.testing.assert_array_equal(problem.solve(x=-x, w=-w), y)
    np.testing.assert_array_equal(problem.solve(x=-x), -y)
    np.testing.assert_array_equal(problem.solve(w=-w), -y)


@given(problems(), st.randoms(use_true_random=False))
def test_permuting_channels_changes_nothing(problem, random):
    order = list(range(problem.x.shape[3]))
    random.shuffle(order)
    permuted = problem.solve(x=problem.x[..., order], w=problem.w[:, :, order])
    np.testing.assert_array_equal(permuted, problem.solve())


@given(problems(), st.data())
def test_sums_over_parts_of_the_channels_add_up(problem, data):
    x, w = problem.x, problem.w
    if x.shape[3] > 1:
        at = data.draw(st.integers(1, x.shape[3] - 1))
        low, high = problem.solve(x=x[..., :at], w=w[:, :, :at]), problem.solve(x=x[..., at:], w=w[:, :, at:])
        np.testing.assert_array_equal(low + high, problem.solve())


@given(problems(), st.data())
def test_batches_and_filters_are_independent(problem, data):
    x, w, y = problem.x, problem.w, problem.solve()
    images = data.draw(st.lists(st.integers(0, x.shape[0] - 1), min_size=1, max_size=4))
    filters = data.draw(st.lists(st.integers(0, w.shape[3] - 1), min_size=1, max_size=4))
    np.testing.assert_array_equal(problem.solve(x=x[images], w=w[..., filters]), y[images][..., filters])


@given(problems(), st.data())
def test_sums_over_filter_rows_add_up(problem, data):
    """A filter split into upper and lower rows; the lower part is moved down."""
    w, columns, dilation = problem.w, problem.padding[1], problem.dilation[0]
    at = data.draw(st.integers(0, len(w) - 1)) + 1
    top, bottom = (side + (len(w) - 1) * dilation for side in problem.padding[0])
    rest = len(w) - at
    upper = problem.solve(w=w[:at], padding=((top, bottom - rest * dilation), columns))
    lower = 0 * upper
    if rest:
        lower = problem.solve(w=w[at:], padding=((top - at * dilation, bottom), columns))
    np.testing.assert_array_equal(upper + lower, problem.solve(padding=((top, bottom), columns)))


@given(problems())
def test_a_stride_skips_output_pixels(problem):
    every = problem.solve(stride=(1, 1))
    np.testing.assert_array_equal(
        every[:, :: problem.stride[0], :: problem.stride[1]], problem.solve(), strict=True
    )


@given(problems())
def test_transposed_operands_transpose_the_output(problem):
    swapped = problem.solve(
        x=problem.x.swapaxes(1, 2),
        w=problem.w.swapaxes(0, 1),
        stride=problem.stride[::-1],
        padding=problem.padding[::-1],
        dilation=problem.dilation[::-1],
    )
    np.testing.assert_array_equal(swapped.swapaxes(1, 2), problem.solve())


@given(problems(stride=(1, 1)))
def test_mirrored_operands_mirror_the_output(problem):
    """Mirrored images, filters and padding give the mirrored output."""
    padding = tuple(side[::-1] for side in problem.padding)
    mirrored = problem.solve(x=problem.x[:, ::-1, ::-1], w=problem.w[::-1, ::-1], padding=padding)
    np.testing.assert_array_equal(mirrored[:, ::-1, ::-1], problem.solve())


@given(signs((2, 3, 4, 33)), signs((1, 1, 33, 5)))
def test_a_filter_of_one_tap_is_a_matrix_product(x, w):
    y = bconv2d(x, w, padding="VALID")
    np.testing.assert_array_equal(y.reshape(-1, 5), bmm(x.reshape(-1, 33), w[0, 0]), strict=True)


@given(problems())
def test_a_filter_of_the_image_s_size_is_a_matrix_product(problem):
    x = problem.x
    w = problem.w[:1, :1] * np.roll(x[:1], 1).transpose(1, 2, 3, 0)
    y = bconv2d(x, w, padding="VALID")
    expected = bmm(x.reshape(x.shape[0], -1), w.reshape(-1, w.shape[3]))
    np.testing.assert_array_equal(y[:, 0, 0], expected, strict=True)


# --------------------------------------------------------------------------------------------------
# Thresholds and pooling
# --------------------------------------------------------------------------------------------------


@given(problems(), st.data())
def test_flipping_complements_the_bits(problem, data):
    y = problem.solve()
    limits = data.draw(npst.arrays(np.int32, y.shape[3], elements=st.integers(-9, 9)))
    plain = unpack_tensor(threshold_tensor(y, limits))
    flipped = unpack_tensor(threshold_tensor(y, limits, np.ones(y.shape[3], bool)))
    np.testing.assert_array_equal(plain, y >= limits)
    np.testing.assert_array_equal(flipped, 1 - plain)


@given(signs((2, 5, 4, 3)), st.sampled_from(("or", "and")))
def test_pooling_obeys_de_morgan(x, pool):
    other = {"or": "and", "and": "or"}[pool]
    np.testing.assert_array_equal(pool_bits(binarize(x), pool), 1 - pool_bits(binarize(-x), other))


@given(npst.arrays(np.int32, (1, 4, 6, 2), elements=st.integers(-5, 5)), st.integers(-5, 5))
def test_pooling_bits_is_pooling_integers(dots, limit):
    """Or-pooling thresholds the largest dot product of a window, and-pooling the smallest."""
    windows = dots.reshape(1, 2, 2, 3, 2, 2)
    for pool, extreme in (("or", windows.max(axis=(2, 4))), ("and", windows.min(axis=(2, 4)))):
        pooled = threshold_tensor(dots, [limit, limit], pool=pool)
        np.testing.assert_array_equal(
            pooled.words, threshold_tensor(extreme, [limit, limit]).words, strict=True
        )
