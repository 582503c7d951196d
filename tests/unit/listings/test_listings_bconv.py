"""Listing 6 equals plain Python loops for every class of geometry, and refuses unsuitable operands."""

import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest

import reference
from reference.errors import DtypeError, FormatError, NotANumberError, SchemeError, ShapeError
from reference.types import PackedBits, PackedTensor
from simwarp import faults
from simwarp.listings import Conv2d_32bit, Conv2d_64bit, bconv32, bconv64
from simwarp.listings.conv_operands import conv_operands, layer
from simwarp.warp import GlobalArray, launch
from support.offenders import every_case

SCHEMES = {bconv32: 32, bconv64: 64}
KERNELS = {Conv2d_32bit: 32, Conv2d_64bit: 64}

GEOMETRIES = {
    "interior": ((1, 4, 5, 3), (3, 2, 3, 2), {"padding": "VALID"}),
    "same": ((1, 4, 3, 5), (3, 3, 5, 2), {}),
    "one by one": ((1, 3, 2, 7), (1, 1, 7, 3), {}),
    "window larger than the image": ((1, 2, 3, 2), (5, 4, 2, 2), {}),
    "stride larger than the filter": ((1, 7, 5, 2), (2, 1, 2, 2), {"stride": (3, 2)}),
    "stride leaves a remainder": ((1, 6, 7, 2), (3, 3, 2, 1), {"stride": (4, 2)}),
    "asymmetric padding": ((1, 3, 4, 2), (2, 3, 2, 2), {"padding": ((2, 0), (0, 1))}),
    "asymmetric padding, turned": ((1, 3, 4, 2), (2, 3, 2, 2), {"padding": ((0, 1), (2, 0))}),
    "padding beyond the filter": ((1, 2, 2, 3), (2, 2, 3, 1), {"padding": ((3, 2), (2, 4))}),
    "dilation": ((1, 6, 5, 2), (2, 3, 2, 2), {"dilation": (3, 2), "stride": 2}),
    "dilation skips the image": ((1, 3, 3, 2), (3, 3, 2, 1), {"dilation": (4, 5)}),
    "channels of three words": ((1, 2, 2, 131), (2, 2, 131, 2), {}),
    "out_channels of three words": ((1, 2, 1, 3), (2, 1, 3, 131), {}),
    "odd batch": ((3, 3, 2, 5), (2, 2, 5, 2), {"stride": 2}),
    "all border": ((1, 2, 2, 5), (3, 3, 5, 2), {}),
    "a pixel": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
}


def reals(shape, seed=0):
    return np.random.default_rng([*shape, seed]).standard_normal(shape)


def operands(name):
    x, w, options = GEOMETRIES[name]
    return reals(x, 1), reals(w, 2), options


def both(value):
    return value if isinstance(value, tuple) else (value, value)


def sides_by_hand(size, taps, stride, dilation, padding, axis):
    """Output size and padding before, by the definition of SAME: windows that cover the input."""
    window = 1 + dilation * (taps - 1)
    if padding == "SAME":
        starts = range(0, size, stride)
        return len(starts), max(starts[-1] + window - size, 0) // 2
    before, after = (0, 0) if padding == "VALID" else padding[axis]
    return len(range(0, before + size + after - window + 1, stride)), before


def convolution_by_hand(x, w, stride=1, padding="SAME", dilation=1):
    """The convolution by its definition in Python, and the number of excluded taps of each pixel."""
    (batch, height, width, channels), (rows, columns, _, filters) = x.shape, w.shape
    (sh, sw), (dh, dw) = both(stride), both(dilation)
    out_height, top = sides_by_hand(height, rows, sh, dh, padding, 0)
    out_width, left = sides_by_hand(width, columns, sw, dw, padding, 1)
    x, w = (np.where(array >= 0, 1, -1).tolist() for array in (x, w))
    y = np.zeros((batch, out_height, out_width, filters), int).tolist()
    outside = np.zeros((out_height, out_width), int).tolist()
    for n, p, q in itertools.product(range(batch), range(out_height), range(out_width)):
        for r, s in itertools.product(range(rows), range(columns)):
            i, j = p * sh - top + r * dh, q * sw - left + s * dw
            if i not in range(height) or j not in range(width):
                outside[p][q] += n == 0
                continue
            for o in range(filters):
                y[n][p][q][o] += sum(x[n][i][j][c] * w[r][s][c][o] for c in range(channels))
    return y, outside


def words_by_hand(bits, word):
    """Words of ``word`` elements of the last axis, the first in the most significant bit."""
    lines = bits.reshape(-1, bits.shape[-1])
    steps = range(0, bits.shape[-1], word)
    texts = [["".join(map(str, line[s : s + word])).ljust(word, "0") for s in steps] for line in lines]
    return np.array([[int(text, 2) for text in line] for line in texts], f"u{word // 8}").reshape(
        *bits.shape[:-1], len(steps)
    )


def line_of(kernel, text):
    source, first = inspect.getsourcelines(kernel)
    return first + next(i for i, line in enumerate(source) if text in line)


# --------------------------------------------------------------------------------------------------
# Dot products
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("bconv", SCHEMES)
def test_convolutions_equal_a_loop_over_taps(bconv, name):
    x, w, options = operands(name)
    expected, _ = convolution_by_hand(x, w, **options)
    y = bconv(x, w, **options)
    assert y.tolist() == expected
    np.testing.assert_array_equal(y, reference.bconv2d(x, w, **options), strict=True)


def test_the_test_geometries_match_their_names():
    """The stated kinds of windows occur: without, with some, and with only excluded taps."""
    taps = {name: np.prod(w[:2]) for name, (_, w, _) in GEOMETRIES.items()}
    outside = {
        name: np.array(convolution_by_hand(*operands(name)[:2], **operands(name)[2])[1]) for name in taps
    }
    for name in ("interior", "one by one", "a pixel"):
        assert not outside[name].any()
    for name in ("window larger than the image", "all border", "dilation skips the image"):
        assert outside[name].all()
    assert (outside["padding beyond the filter"] == taps["padding beyond the filter"]).any()
    assert outside["asymmetric padding"][0].all()
    assert not outside["asymmetric padding, turned"][0].all()


@pytest.mark.parametrize("bconv", SCHEMES)
@pytest.mark.parametrize("channels", [1, 31, 32, 33, 63, 64, 65, 97])
def test_any_number_of_channels_is_convolved(bconv, channels):
    """Channels in and out end before, at and after a word; one of four taps is excluded."""
    x, w = reals((1, 2, 1, channels), 1), reals((2, 1, channels, channels), 2)
    options = {"padding": ((1, 1), (0, 0))}
    assert bconv(x, w, **options).tolist() == convolution_by_hand(x, w, **options)[0]


@pytest.mark.parametrize("bconv", SCHEMES)
def test_padding_taps_are_excluded_from_the_sum(bconv):
    """With all products +1 or all -1, a pixel counts the taps inside the image."""
    ones = np.ones((1, 3, 4, 5), np.int8), np.ones((3, 3, 5, 2), np.int8)
    inside = np.multiply.outer([2, 3, 2], [2, 3, 3, 2])
    for sign_x, sign_w in itertools.product((1, -1), repeat=2):
        y = bconv(ones[0] * np.int8(sign_x), ones[1] * np.int8(sign_w))
        for o in (0, 1):
            np.testing.assert_array_equal(y[0, :, :, o], 5 * inside * sign_x * sign_w)


@pytest.mark.parametrize("bconv", SCHEMES)
def test_a_pixel_of_padding_alone_is_zero(bconv):
    x, w = reals((1, 2, 2, 40), 1), reals((1, 1, 40, 3), 2)
    y = bconv(x, w, padding=((1, 0), (0, 2)))
    assert not y[0, 0].any()
    assert not y[0, :, 2:].any()
    assert y[0, 1:, :2].any()
    bits = bconv(x, w, padding=((1, 0), (0, 2)), thresholds=[0, 1, 0], flip=[False, False, True])
    assert reference.unpack_tensor(bits)[0, 0].tolist() == [[1, 0, 0]] * 4


def test_the_filter_is_not_flipped():
    """One +1 in x and one in w contribute at the position of a cross-correlation."""
    x, w = -np.ones((1, 4, 4, 1)), -np.ones((2, 3, 1, 1))
    x[0, 2, 2], w[0, 2] = 1, 1
    for bconv in SCHEMES:
        y = bconv(x, w, padding="VALID")[0, :, :, 0]
        assert y.argmax() == 2 * y.shape[1] + 0  # p + 0 == 2, q + 2 == 2
        assert y.max() == 6


@pytest.mark.parametrize(
    ("size", "taps", "stride", "out", "before"),
    [
        (224, 7, 4, 56, 1),
        (224, 11, 4, 56, 3),
        (56, 3, 2, 28, 0),
        (7, 2, 1, 7, 0),
        (5, 1, 3, 2, 0),
        (1, 9, 1, 1, 4),
    ],
)
def test_same_padding_equals_tensorflow(size, taps, stride, out, before):
    """In the first three layers filter / 2 would be wrong; the fourth has odd total padding."""
    p = layer((1, size, 9, 1), (taps, 1, 1, 1), (stride, 1), "SAME", 1)
    assert (p.out_height, p.pad_h) == (out, before)
    p = layer((1, 9, size, 1), (1, taps, 1, 1), (1, stride), "SAME", 1)
    assert (p.out_width, p.pad_w) == (out, before)


def test_same_and_valid_padding_are_right_for_every_small_size():
    for size, taps, stride, dilation in itertools.product(range(1, 9), range(1, 5), range(1, 5), range(1, 4)):
        for padding in ("SAME", "VALID"):
            expected = sides_by_hand(size, taps, stride, dilation, padding, 0)
            if expected[0] == 0:
                with pytest.raises(ShapeError, match="height 0"):
                    layer((1, size, 1, 1), (taps, 1, 1, 1), stride, padding, dilation)
                continue
            p = layer((1, size, 50, 1), (taps, 1, 1, 1), stride, padding, dilation)
            assert (p.out_height, p.pad_h) == expected


def test_every_element_type_is_convolved_by_sign():
    x, w = (reals((1, 3, 3, 4), 1) * 50), (reals((2, 2, 4, 2), 2) * 50)
    for dtype in ("f8", "f4", "f2", "i1", ">f8", ">f2"):
        a, b = x.astype(dtype), w.astype(dtype)
        expected = convolution_by_hand(a, b)[0]
        assert bconv32(a, b).tolist() == bconv64(a, b).tolist() == expected
        strided = np.repeat(a, 2, axis=1)[:, ::2]
        assert bconv32(strided, np.asfortranarray(b)).tolist() == expected
    tiny = np.nextafter(0, 1)  # would be 0 as float32, and its opposite -0.0, which counts as positive
    assert bconv32([[[[-tiny, -0.0]]]], [[[[1.0], [1.0]]]]).tolist() == [[[[0]]]]


# --------------------------------------------------------------------------------------------------
# Bits in, bits out
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(15)
@pytest.mark.parametrize(("bconv", "word"), SCHEMES.items())
@pytest.mark.parametrize("name", GEOMETRIES)
def test_packed_operands_give_the_same_convolution(bconv, word, name):
    x, w, options = operands(name)
    expected = convolution_by_hand(x, w, **options)[0]
    msb, lsb = (
        (
            reference.pack_tensor(x, layout="NHWC", word=word, first=first),
            reference.pack_tensor(w, layout="HWIO", word=word, first=first),
        )
        for first in ("msb", "lsb")
    )
    for a, b in (msb, lsb, (msb[0], w), (x, msb[1])):
        assert bconv(a, b, **options).tolist() == expected


@pytest.mark.at_most(8)
@pytest.mark.parametrize(("bconv", "word"), SCHEMES.items())
@pytest.mark.parametrize("filters", [1, 31, 32, 33, 64, 65, 97])
def test_thresholds_give_packed_bits(bconv, word, filters):
    x, w = reals((2, 2, 3, 5), 1), reals((2, 2, 5, filters), 2)
    rng = np.random.default_rng(filters)
    limits, flip = rng.integers(-6, 7, filters), rng.integers(0, 2, filters) > 0
    limits[0], limits[-1] = -(2**31), 2**31 - 1
    dots = np.array(convolution_by_hand(x, w)[0])
    for flips in (None, flip):
        bits = ((dots >= limits) ^ (False if flips is None else flips)).astype(int)
        packed = bconv(x, w, thresholds=limits, flip=flips)
        assert (packed.shape, packed.layout, packed.word, packed.first) == (dots.shape, "NHWC", word, "msb")
        np.testing.assert_array_equal(packed.words, words_by_hand(bits, word), strict=True)


@pytest.mark.parametrize(("bconv", "word"), SCHEMES.items())
def test_output_bits_feed_the_next_layer(bconv, word):
    x, w, v = reals((1, 4, 4, 5), 1), reals((3, 3, 5, 37), 2), reals((2, 2, 37, 3), 3)
    limits = np.arange(37) - 18
    hidden = np.where(np.array(convolution_by_hand(x, w)[0]) >= limits, 1, -1)
    expected = convolution_by_hand(hidden, v, stride=2)[0]
    filters = reference.pack_tensor(v, layout="HWIO", word=word, first="msb")
    for second in (v, filters):
        assert bconv(bconv(x, w, thresholds=limits), second, stride=2).tolist() == expected


@pytest.mark.parametrize("word", SCHEMES.values())
def test_the_packed_filter_has_the_layout_of_the_paper(word):
    """``bitfilter[(r*filter_width+s)*ins*out_channels + c*out_channels + i]``, with the reference's words."""
    w = reals((2, 3, 70, 5))
    ready = conv_operands(np.ones((1, 3, 3, 70)), w, 1, "SAME", 1, word)
    flat, ins = ready.bitfilter.numpy().reshape(-1), -(-70 // word)
    bits = words_by_hand((w >= 0).astype(int).transpose(0, 1, 3, 2), word)
    for r, s, c, i in itertools.product(range(2), range(3), range(ins), range(5)):
        assert flat[(r * 3 + s) * ins * 5 + c * 5 + i] == bits[r, s, i, c]
    packed = reference.pack_tensor(w, layout="HWIO", word=word, first="msb")
    np.testing.assert_array_equal(ready.bitfilter.numpy(), packed.words, strict=True)


# --------------------------------------------------------------------------------------------------
# Behaviour without the host's checks
# --------------------------------------------------------------------------------------------------


def run(kernel, word, p, x, w, like):
    """Launch a kernel on operands of the sizes ``like``, with possibly wrong size arguments."""
    ready = conv_operands(x, w, 1, "SAME", 1, word)
    output = GlobalArray("output", (1, like.out_height, like.out_width, like.out_channels), np.int32)
    shared = {"Csub": (np.uint32, like.out_channels)}
    launch(
        kernel, (like.out_width, like.out_height), 32, ready.input, ready.bitfilter, output, p, shared=shared
    )
    return output.numpy()


@pytest.mark.parametrize(("kernel", "word"), KERNELS.items())
def test_wrong_sizes_are_out_of_bounds(kernel, word):
    """A too large image, one pixel or one output channel more: array, lane and line are named."""
    x, w = reals((1, 3, 3, 33), 1), reals((1, 1, 33, 40), 2)
    p = conv_operands(x, w, 1, "SAME", 1, word).p
    np.testing.assert_array_equal(run(kernel, word, p, x, w, p), bconv32(x, w))
    packed = reference.pack_tensor(x, layout="NHWC", word=word, first="msb")
    for sizes_given, images, array, text in (
        (p._replace(in_height=4, pad_h=-1), packed, "input", "warp.load(input"),
        (p._replace(in_height=4, pad_h=-1), x, "input", "r0 = rotated("),
        (p._replace(filter_height=2), x, "bitfilter", "warp.load(bitfilter"),
        (p._replace(out_channels=41), x, "Csub", "warp.store(Csub"),
    ):
        with pytest.raises(faults.OutOfBounds) as caught:
            run(kernel, word, sizes_given, images, w, p)
        assert caught.value.allocation == array
        assert caught.value.place.line == line_of(kernel, text)


@pytest.mark.parametrize(("kernel", "word"), KERNELS.items())
def test_a_padded_channel_is_not_counted(kernel, word):
    """With in_channels rounded up to words, as ``in_channels >> 5`` requires, every sum is wrong."""
    x, w = reals((1, 2, 2, 33), 1), reals((1, 1, 33, 2), 2)
    p = conv_operands(x, w, 1, "SAME", 1, word).p
    packed = reference.pack_tensor(x, layout="NHWC", word=word, first="msb")
    rounded = run(kernel, word, p._replace(in_channels=64), packed, w, p)
    np.testing.assert_array_equal(rounded - bconv32(x, w), 64 - 33)


@pytest.mark.parametrize(("kernel", "word"), KERNELS.items())
def test_one_channel_more_than_a_word_takes_another_step(kernel, word):
    """With one channel more than a word, a kernel reads another word and leaves the image."""
    x, w = reals((1, 1, 1, word), 1), reals((1, 1, word, 1), 2)
    p = conv_operands(x, w, 1, "SAME", 1, word).p
    with pytest.raises(faults.OutOfBounds) as caught:
        run(kernel, word, p._replace(in_channels=word + 1), x, w, p)
    assert (caught.value.allocation, caught.value.offset, caught.value.place.lane) == ("input", 8 * word, 0)


# --------------------------------------------------------------------------------------------------
# Refusals
# --------------------------------------------------------------------------------------------------

X, W = np.ones((1, 4, 5, 3)), np.ones((2, 3, 3, 2))


def three_lines(caught):
    return len(str(caught.value).splitlines()) == 3


@every_case("bconv", SCHEMES)
@every_case(
    ("options", "error", "message"),
    [
        ({"stride": 0}, ShapeError, "stride is 0"),
        ({"stride": (1, 0)}, ShapeError, r"stride is \(1, 0\)"),
        ({"stride": (1, 1, 1)}, ShapeError, "stride .*\n.*length"),
        ({"stride": ()}, ShapeError, "stride .*\n.*length"),
        ({"stride": 1.0}, DtypeError, "stride is 1.0"),
        ({"stride": True}, DtypeError, "stride is True"),
        ({"stride": None}, DtypeError, "stride is None"),
        ({"stride": 2**31}, ShapeError, "stride is 2147483648"),
        ({"dilation": 0}, ShapeError, "dilation is 0"),
        ({"dilation": (1, -1)}, ShapeError, "dilation is"),
        ({"dilation": [[1, 1]]}, ShapeError, "dilation .*\n.*length"),
        ({"dilation": 2**70}, DtypeError, "dilation is"),
        ({"padding": "FULL"}, SchemeError, "padding is 'FULL'"),
        ({"padding": 1.5}, DtypeError, "padding is 1.5"),
        ({"padding": -1}, ShapeError, "padding is -1\n.*at least 0"),
        ({"padding": (1, 1, 1)}, ShapeError, r"padding is \(1, 1, 1\)"),
        ({"padding": ((1, 1), (1,))}, ShapeError, "padding .*\n.*length"),
        ({"padding": None}, DtypeError, "padding is None"),
        ({"padding": ((0, 0), (0, -1))}, ShapeError, "padding .*\n.*at least 0"),
        ({"padding": ((0, 0), (0, 1.0))}, DtypeError, "padding is"),
        ({"padding": ((2**31 - 1, 1), (0, 0)), "stride": 2**30}, ShapeError, "padding has height 2147483652"),
        ({"padding": "VALID", "dilation": (4, 1)}, ShapeError, "height 0: the window is 5, x with padding 4"),
        ({"padding": "VALID", "dilation": (1, 3)}, ShapeError, "width 0: the window is 7, x with padding 5"),
        ({"padding": ((0, 0), (1, 0)), "dilation": (1, 3)}, ShapeError, "width 0"),
        ({"padding": ((2**20, 0), (2**20, 0))}, ShapeError, "the output has shape"),
    ],
)
def test_bad_options_are_refused(bconv, options, error, message):
    with pytest.raises(error, match=message) as caught:
        bconv(X, W, **options)
    assert three_lines(caught)


@pytest.mark.parametrize("bconv", SCHEMES)
def test_bad_operands_are_refused(bconv):
    nan = W.copy()
    nan[1, 0, 2, 1] = np.nan
    wide = np.broadcast_to(np.int8(1), (2**16, 2**15, 1, 1))
    for x, w, error, message in (
        (X, np.ones((2, 3, 4, 2)), ShapeError, "x .* has 3 channels, and w .* is for 4"),
        (X[0], W, ShapeError, r"x has shape \(4, 5, 3\)"),
        (X, W[..., 0], ShapeError, r"w has shape \(2, 3, 3\)"),
        (np.ones((0, 4, 5, 3)), W, ShapeError, "x has shape"),
        (X, np.ones((2, 0, 3, 2)), ShapeError, "w has shape"),
        (X, [[1.0], [1.0, 2.0]], ShapeError, "w is not an array"),
        (wide, np.ones((1, 1, 1, 1)), ShapeError, "x has shape .* 2147483648 elements"),
        (np.ones((1, 1, 1, 1)), wide, ShapeError, "w has shape .* 2147483648 elements"),
        (X.astype(int), W, DtypeError, "x has elements of int64"),
        (X, W > 0, DtypeError, "w has elements of bool"),
        (
            PackedBits(np.zeros((1, 1), np.uint32), (1, 1), "row"),
            W,
            DtypeError,
            "PackedBits of .* is used as an array",
        ),
        (X, nan, NotANumberError, r"w\[1, 0, 2, 1\] is NaN"),
        (np.where(X > 0, np.nan, X), nan, NotANumberError, r"x\[0, 0, 0, 0\] is NaN"),
    ):
        with pytest.raises(error, match=message) as caught:
            bconv(x, w)
        assert three_lines(caught)


@pytest.mark.parametrize("bconv", SCHEMES)
def test_unsuitable_thresholds_are_refused(bconv):
    for options, error, message in (
        ({"thresholds": [0]}, ShapeError, "thresholds has shape"),
        ({"thresholds": [0, 0], "flip": [True]}, ShapeError, "flip has shape"),
        ({"thresholds": [0.0, 0.0]}, DtypeError, "thresholds has elements of float64"),
        ({"thresholds": [0, 2**31]}, DtypeError, "beyond int32"),
        ({"thresholds": [0, 0], "flip": [0, 1]}, DtypeError, "flip has elements"),
        ({"flip": [True, False]}, SchemeError, "flip is given without thresholds"),
    ):
        with pytest.raises(error, match=message):
            bconv(X, W, **options)


@pytest.mark.parametrize(("bconv", "word"), SCHEMES.items())
def test_unsuitable_packed_operands_are_refused(bconv, word):
    x = reference.pack_tensor(X, layout="NHWC", word=word, first="msb")
    w = reference.pack_tensor(W, layout="HWIO", word=word, first="msb")
    lsb = reference.pack_tensor(W, layout="HWIO", word=word, first="lsb")
    other = reference.pack_tensor(X, layout="NHWC", word=96 - word, first="msb")
    unsigned = x.words.dtype.type
    for bad_x, bad_w, error, message in (
        (reference.pack_tensor(X, layout="HWNC", word=word, first="msb"), w, FormatError, "layout='HWNC'"),
        (x, reference.pack_tensor(W, layout="HWOI", word=word, first="msb"), FormatError, "w .*'HWOI'"),
        (w, x, FormatError, "x is packed layout='HWIO'"),
        (other, w, FormatError, f"word={96 - word}"),
        (x, lsb, FormatError, "x has first='msb' and w has first='lsb'"),
        (X, lsb, FormatError, "x has first='msb' and w has first='lsb'"),
        (replace(x, first="lsb", words=x.words * unsigned(0)), W, FormatError, "x has first='lsb' and w"),
        (replace(x, first="middle"), w, FormatError, "first='middle'"),
        (replace(x, shape=(1, 4, 5, 40 + word)), w, FormatError, r"x has words .* \(1, 4, 5, 1\)"),
        (x, replace(w, words=w.words.astype(np.int64)), FormatError, "w has words int64"),
        (replace(x, words=x.words.tolist()), w, FormatError, "not a NumPy array"),
        (replace(x, words=x.words | unsigned(1)), w, FormatError, "x has bits past its 3 channels"),
        (x, replace(w, words=w.words | unsigned(1)), FormatError, "w has bits past its 3 channels"),
        (x, replace(lsb, words=lsb.words | unsigned(8)), FormatError, "w has bits past its 3 channels"),
        (replace(x, shape=(1, 4, 5, 0)), w, ShapeError, r"x has shape \(1, 4, 5, 0\)"),
        (x, replace(w, shape=(2, 3, 3)), ShapeError, r"w has shape \(2, 3, 3\)"),
        (replace(x, shape=(2**31, 4, 5, 3)), w, ShapeError, "indices are 32-bit"),
        (x, reference.pack_tensor(np.ones((1, 1, 4, 1)), layout="HWIO", word=word), ShapeError, "is for 4"),
    ):
        with pytest.raises(error, match=message) as caught:
            bconv(bad_x, bad_w)
        assert three_lines(caught)


def test_nonzero_padding_bits_of_every_tap_are_refused():
    """In the last word of any tap and output channel."""
    w = reference.pack_tensor(np.ones((2, 2, 40, 2)), layout="HWIO", first="msb")
    words = w.words.copy()
    words[0, 1, 1, 0] |= np.uint32(1)
    with pytest.raises(FormatError, match="w has bits past its 40 channels"):
        bconv32(np.ones((1, 2, 2, 40)), PackedTensor(words, w.shape, "HWIO", 32, "msb"))
