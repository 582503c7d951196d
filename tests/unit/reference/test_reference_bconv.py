"""The reference convolution equals plain Python loops, SciPy and PyTorch."""

import importlib
import itertools

import numpy as np
import pytest

from reference import (
    ConvGeometry,
    DtypeError,
    FormatError,
    NotANumberError,
    PackedTensor,
    SchemeError,
    ShapeError,
    bconv2d,
    binarize,
    conv_geometry,
    excluded_taps,
    pack_tensor,
)
from reference.types.packed import FILTER_LAYOUTS, IMAGE_LAYOUTS
from support.offenders import every_case

# (x, w, stride, padding, dilation), one or more of every kind of geometry.
GEOMETRIES = [
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, "SAME", 1),
    ((1, 4, 4, 1), (3, 3, 1, 1), 1, "SAME", 1),
    ((2, 5, 6, 3), (3, 3, 3, 4), 1, "VALID", 1),
    ((3, 5, 4, 2), (3, 2, 2, 5), (2, 1), "SAME", 1),
    ((1, 2, 3, 5), (5, 7, 5, 2), 1, "SAME", 1),  # a window larger than the image
    ((1, 7, 9, 2), (2, 1, 2, 3), (3, 4), "SAME", 1),  # a stride larger than the filter
    ((2, 3, 4, 7), (1, 1, 7, 3), 2, "VALID", 1),  # 1×1
    ((1, 4, 3, 2), (3, 3, 2, 2), 1, ((0, 2), (1, 0)), 1),  # asymmetric
    ((1, 2, 2, 2), (2, 3, 2, 2), 1, ((5, 4), (3, 6)), 1),  # pixels with no tap on the image
    ((1, 4, 4, 3), (3, 3, 3, 2), 1, "SAME", 3),  # every window crosses the image border
    ((1, 2, 2, 1), (2, 2, 1, 2), 1, ((2, 2), (2, 2)), 5),  # a dilation that skips the image
    ((1, 6, 7, 2), (2, 4, 2, 1), (2, 3), ((1, 0), (2, 5)), (3, 2)),
    ((1, 3, 3, 67), (3, 3, 67, 3), 1, "SAME", 1),
    ((5, 3, 3, 64), (2, 2, 64, 2), (1, 2), "SAME", 1),
    ((1, 2, 2, 130), (3, 3, 130, 2), 1, "SAME", 1),
]


def reals(shape, seed):
    return np.random.default_rng([*shape, seed]).standard_normal(shape)


def two(option):
    return option if isinstance(option, tuple) else (option, option)


def pads_by_rule(size, window, stride, padding):
    """Output size and padding by TensorFlow's formulas, with the remainder of size / stride."""
    if padding == "SAME":
        out = (size + stride - 1) // stride
        total = max(window - (size % stride or stride), 0)
        return out, total // 2
    before, after = (0, 0) if padding == "VALID" else padding
    return len(range(0, size + before + after - window + 1, stride)), before


def axes_by_rule(x_shape, w_shape, stride, padding, dilation):
    sides = (padding, padding) if isinstance(padding, str) else padding
    for axis in (0, 1):
        window = (w_shape[axis] - 1) * two(dilation)[axis] + 1
        yield pads_by_rule(x_shape[1 + axis], window, two(stride)[axis], sides[axis])


def by_hand(x, w, stride, padding, dilation):
    """The sum over taps inside the image, and the number of excluded taps, in Python integers."""
    (out_height, top), (out_width, left) = axes_by_rule(x.shape, w.shape, stride, padding, dilation)
    (sh, sw), (dh, dw) = two(stride), two(dilation)
    signs_x, signs_w = (np.where(a >= 0, 1, -1).tolist() for a in (x, w))
    height, width = x.shape[1:3]
    y = np.zeros((x.shape[0], out_height, out_width, w.shape[3]), object)
    outside = np.zeros((out_height, out_width), object)
    for p, q, r, s in itertools.product(*map(range, (out_height, out_width, *w.shape[:2]))):
        i, j = p * sh - top + r * dh, q * sw - left + s * dw
        if i not in range(height) or j not in range(width):
            outside[p, q] += 1
            continue
        for n, o, c in itertools.product(*map(range, (x.shape[0], w.shape[3], x.shape[3]))):
            y[n, p, q, o] += signs_x[n][i][j][c] * signs_w[r][s][c][o]
    return y, outside


@pytest.fixture(params=["taps", "words"])
def path(request, monkeypatch):
    """Force every problem onto the NumPy or the Numba path."""
    limit = 0 if request.param == "words" else 1 << 60
    monkeypatch.setattr(importlib.import_module("reference.bconv"), "_LARGE_SUM", limit)


# --------------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "w", "stride", "padding", "dilation"), GEOMETRIES)
@pytest.mark.usefixtures("path")
def test_convolutions_equal_a_loop_over_taps(x, w, stride, padding, dilation):
    images, filters = reals(x, 0), reals(w, 1)
    expected, outside = by_hand(images, filters, stride, padding, dilation)
    y = bconv2d(images, filters, stride=stride, padding=padding, dilation=dilation)
    assert y.tolist() == expected.tolist()
    assert y.shape == expected.shape
    assert y.dtype == np.int32
    assert y.flags.c_contiguous
    geometry = conv_geometry(x, w, stride=stride, padding=padding, dilation=dilation)
    excluded = excluded_taps(geometry)
    assert excluded.tolist() == outside.tolist()
    assert excluded.shape == outside.shape


@pytest.mark.usefixtures("path")
def test_ones_count_the_taps_that_are_not_excluded():
    for x, w, stride, padding, dilation in GEOMETRIES:
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        y = bconv2d(np.ones(x), -np.ones(w), **options)
        inside = w[0] * w[1] - excluded_taps(conv_geometry(x, w, **options))
        np.testing.assert_array_equal(y, np.broadcast_to(-x[3] * inside[..., None], y.shape))


@pytest.mark.usefixtures("path")
def test_a_pixel_with_all_taps_outside_is_0():
    y = bconv2d(np.ones((1, 1, 1, 3)), np.ones((1, 1, 3, 1)), padding=((2, 1), (0, 3)))
    assert y[0, :, :, 0].tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]]


def test_both_paths_agree_on_long_sums():
    """More channels than 8 or 16 bits count, in one product and across taps."""
    module = importlib.import_module("reference.bconv")
    for channels in (255, 65_537, 70_001):
        x, w = reals((1, 2, 2, channels), 0), reals((2, 2, channels, 2), 1)
        geometry = conv_geometry(x.shape, w.shape)
        words = [
            module.pack_tensor_bits(binarize(a), layout, 64, "lsb").words
            for a, layout in ((x, "NHWC"), (w, "HWIO"))
        ]
        taps = module._tap_by_tap(binarize(x), binarize(w), geometry)
        np.testing.assert_array_equal(module._word_by_word(*words, geometry), taps, strict=True)
        extreme = bconv2d(np.ones_like(x), -np.ones_like(w))
        assert extreme[0, :, :, 0].tolist() == [[-4 * channels, -2 * channels], [-2 * channels, -channels]]


def test_every_popcount_of_a_word_is_right():
    module = importlib.import_module("reference.bconv")
    ladder = np.array([(1 << ones) - 1 for ones in range(65)], np.uint64).reshape(1, 5, 13, 1)
    geometry = conv_geometry((1, 5, 13, 64), (1, 1, 64, 1))
    y = module._word_by_word(ladder, np.zeros((1, 1, 1, 1), np.uint64), geometry)
    assert y.ravel().tolist() == [64 - 2 * ones for ones in range(65)]


@pytest.mark.parametrize(
    ("limit", "value"),
    [("_LARGE_SUM", 4 * 4 * 9 * 8 * 2), ("_LARGE_TENSORS", 16 * 8 + 9 * 8 * 2 + 16 * 2), ("_MANY_TAPS", 9)],
)
def test_the_size_selects_the_numpy_or_numba_path(monkeypatch, limit, value):
    module = importlib.import_module("reference.bconv")
    taken = []
    for path in ("_tap_by_tap", "_word_by_word"):
        monkeypatch.setattr(module, path, lambda *_, path=path: taken.append(path))
    x, w = np.ones((1, 4, 4, 8)), np.ones((3, 3, 8, 2))
    for above in (1, 0):
        monkeypatch.setattr(module, limit, value + above)
        bconv2d(x, w)
    assert taken == ["_tap_by_tap", "_word_by_word"]


@pytest.mark.parametrize("dtype_x", ["<f8", ">f8", "<f4", "<f2", ">f2", "i1"])
@pytest.mark.parametrize("dtype_w", [">f8", "<f4", "<f2", "i1"])
def test_operands_may_have_different_element_types(dtype_x, dtype_w):
    x, w = (8 * reals((1, 3, 4, 5), 0)).astype(dtype_x), (8 * reals((2, 3, 5, 2), 1)).astype(dtype_w)
    assert bconv2d(x, w).tolist() == by_hand(x, w, 1, "SAME", 1)[0].tolist()


def test_zeros_subnormals_and_infinities_have_their_sign():
    x = np.array([0.0, -0.0, 5e-324, -5e-324, np.inf, -np.inf]).reshape(1, 1, 1, 6)
    assert bconv2d(x, np.ones((1, 1, 6, 1))).tolist() == [[[[2]]]]


def test_memory_order_does_not_matter():
    x, w = reals((2, 4, 5, 6), 0), reals((3, 3, 6, 7), 1)
    y = bconv2d(np.asfortranarray(x), np.repeat(w, 2, axis=2)[:, :, ::2])
    np.testing.assert_array_equal(y, bconv2d(x, w), strict=True)


def test_nested_lists_are_accepted_as_tensors():
    assert bconv2d([[[[1.0, -1.0]]]], [[[[-1.0], [1.0]]]]).tolist() == [[[[-2]]]]


@pytest.mark.parametrize("first", ["lsb", "msb"])
@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.usefixtures("path")
def test_packed_operands_of_every_format_give_the_same_result(word, first):
    x, w = reals((9, 3, 4, 35), 0), reals((2, 3, 35, 10), 1)
    expected = bconv2d(x, w)
    for images, filters in itertools.product((*IMAGE_LAYOUTS, None), (*FILTER_LAYOUTS, None)):
        operands = [
            a
            if layout is None
            else pack_tensor(a, layout=layout, word=32 if "FSB" in layout else word, first=first)
            for a, layout in ((x, images), (w, filters))
        ]
        np.testing.assert_array_equal(bconv2d(*operands), expected, strict=True)


# --------------------------------------------------------------------------------------------------
# Geometry
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "taps", "stride", "out", "pad"),
    [
        (224, 7, 4, 56, 1),  # not 7 // 2 = 3
        (224, 11, 4, 56, 3),  # not 5
        (56, 3, 2, 28, 0),  # not 1: the one row is below
        (55, 3, 2, 28, 1),
        (28, 3, 1, 28, 1),
        (28, 4, 1, 28, 1),
        (5, 2, 1, 5, 0),
        (10, 1, 3, 4, 0),
        (7, 3, 9, 1, 0),
    ],
)
def test_same_padding_equals_tensorflow(size, taps, stride, out, pad):
    g = conv_geometry((1, size, 3, 1), (taps, 1, 1, 1), stride=(stride, 1))
    assert (g.out_height, g.pad_top) == (out, pad)
    g = conv_geometry((1, 3, size, 1), (1, taps, 1, 1), stride=(1, stride))
    assert (g.out_width, g.pad_left) == (out, pad)


def test_small_geometries_follow_the_rules_of_tensorflow():
    """Sizes to 7, filters to 4, strides to 4 and dilations to 3, for SAME and VALID."""
    ranges = (range(1, 8), range(1, 5), range(1, 5), range(1, 4), ("SAME", "VALID"))
    for size, taps, stride, dilation, padding in itertools.product(*ranges):
        window = (taps - 1) * dilation + 1
        if padding == "VALID" and window > size:
            continue
        options = {"stride": (1, stride), "dilation": (1, dilation), "padding": padding}
        g = conv_geometry((1, 1, size, 1), (1, taps, 1, 1), **options)
        assert (g.out_width, g.pad_left) == pads_by_rule(size, window, stride, padding)
        for s in range(taps):
            assert g.columns(s).tolist() == [
                q * stride - g.pad_left + s * dilation for q in range(g.out_width)
            ]


def test_conv_geometry_holds_sizes_and_options():
    g = conv_geometry((2, 9, 8, 5), (3, 4, 5, 6), stride=(2, 3), padding=((4, 1), (2, 0)), dilation=(1, 2))
    assert g == ConvGeometry(
        *(2, 9, 8, 5),
        *(3, 4, 6),
        *((9 + 5 - 3) // 2 + 1, (8 + 2 - 7) // 3 + 1),
        *(4, 2),
        *(2, 3),
        *(1, 2),
    )


def test_options_may_be_numpy_integers_and_lists():
    x, w = np.ones((1, 5, 5, 1)), np.ones((2, 2, 1, 1))
    expected = bconv2d(x, w, stride=(2, 1), padding=((1, 0), (2, 3)), dilation=(3, 3))
    y = bconv2d(x, w, stride=np.array([2, 1]), padding=[[1, 0], [2, 3]], dilation=np.int8(3))
    np.testing.assert_array_equal(y, expected, strict=True)


@pytest.mark.usefixtures("path")
def test_an_unused_stride_or_dilation_may_be_any_number():
    x, w = reals((1, 3, 4, 5), 0), reals((3, 4, 5, 2), 1)
    y = bconv2d(x, w, stride=10**30, padding="VALID")
    np.testing.assert_array_equal(y, bconv2d(x, w, padding="VALID"), strict=True)
    y = bconv2d(x, w[:1, :1], dilation=10**30, padding="VALID")
    np.testing.assert_array_equal(y, bconv2d(x, w[:1, :1], padding="VALID"), strict=True)


# --------------------------------------------------------------------------------------------------
# External oracles: zero padding of real numbers contributes 0
# --------------------------------------------------------------------------------------------------


@pytest.mark.at_most(4)
@pytest.mark.parametrize(("x", "w", "stride", "padding", "dilation"), GEOMETRIES)
@pytest.mark.usefixtures("path")
def test_convolutions_equal_torch(x, w, stride, padding, dilation):
    torch = pytest.importorskip("torch")
    images, filters = reals(x, 2), reals(w, 3)
    y = bconv2d(images, filters, stride=stride, padding=padding, dilation=dilation)
    signs = [torch.from_numpy(np.where(a >= 0, 1.0, -1.0)) for a in (images, filters)]
    nchw, oihw = signs[0].permute(0, 3, 1, 2), signs[1].permute(3, 2, 0, 1)
    (out_height, top), (out_width, left) = axes_by_rule(x, w, stride, padding, dilation)
    bottom = (out_height - 1) * two(stride)[0] + (w[0] - 1) * two(dilation)[0] + 1 - x[1] - top
    right = (out_width - 1) * two(stride)[1] + (w[1] - 1) * two(dilation)[1] + 1 - x[2] - left
    padded = torch.nn.functional.pad(
        nchw, (left, right, top, bottom)
    )  # negative: rows that no window reaches
    theirs = torch.nn.functional.conv2d(padded, oihw, stride=stride, dilation=dilation)
    np.testing.assert_array_equal(y, theirs.permute(0, 2, 3, 1).numpy())


@pytest.mark.at_most(3)
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
def test_same_padding_equals_torch_at_stride_1(taps, dilation):
    torch = pytest.importorskip("torch")
    x, w = reals((2, 5, 6, 3), 4), reals((taps, 3, 3, 2), 5)
    nhwc, hwio = (torch.from_numpy(np.where(a >= 0, 1.0, -1.0)) for a in (x, w))
    nchw, oihw = nhwc.permute(0, 3, 1, 2), hwio.permute(3, 2, 0, 1)
    theirs = torch.nn.functional.conv2d(nchw, oihw, padding="same", dilation=dilation)
    y = bconv2d(x, w, dilation=dilation)
    np.testing.assert_array_equal(y, theirs.permute(0, 2, 3, 1).numpy())


@pytest.mark.slow_cases("taps-image0-window0-valid-VALID")
@pytest.mark.parametrize(("mode", "padding"), [("valid", "VALID"), ("full", None)])
@pytest.mark.parametrize(("image", "window"), [((5, 6), (3, 3)), ((4, 4), (2, 4)), ((3, 7), (1, 1))])
@pytest.mark.usefixtures("path")
def test_convolutions_equal_scipy(mode, padding, image, window):
    signal = pytest.importorskip("scipy.signal")
    x, w = reals((2, *image, 3), 6), reals((*window, 3, 2), 7)
    pads = padding or tuple((size - 1, size - 1) for size in window)
    y = bconv2d(x, w, padding=pads)
    signs_x, signs_w = (np.where(a >= 0, 1, -1) for a in (x, w))
    for n, o in np.ndindex(2, 2):
        theirs = sum(signal.correlate2d(signs_x[n, ..., c], signs_w[..., c, o], mode) for c in range(3))
        np.testing.assert_array_equal(y[n, ..., o], theirs)


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------

X, W = np.ones((1, 4, 5, 3)), np.ones((3, 3, 3, 2))


def spread(*shape):
    """An array of many elements that share one byte of memory."""
    return np.broadcast_to(np.int8(1), shape)


@every_case(
    ("error", "operands", "options", "message"),
    [
        (ShapeError, (X[..., :2], W), {}, r"channels of x \(2\) must be the input channels of w \(3\)"),
        (ShapeError, (X[0], W), {}, r"x has shape \(4, 5, 3\)\nit must have four dimensions \(N, H, W, C\)"),
        (ShapeError, (X, W[0]), {}, r"w has shape \(3, 3, 2\)\nit must have four dimensions \(R, S, C, O\)"),
        (ShapeError, (X[:0], W), {}, r"x has shape \(0, 4, 5, 3\)"),
        (ShapeError, (X[..., :0], W[:, :, :0]), {}, r"x has shape \(1, 4, 5, 0\)"),
        (ShapeError, (X, W[..., :0]), {}, r"w has shape \(3, 3, 3, 0\)"),
        (ShapeError, (X, W), {"stride": 0}, "stride=0 has an entry below 1"),
        (ShapeError, (X, W), {"stride": (1, -1)}, r"stride=\(1, -1\) has an entry below 1"),
        (ShapeError, (X, W), {"stride": (1, 1, 1)}, r"stride=\(1, 1, 1\) is neither an int nor two"),
        (ShapeError, (X, W), {"stride": (1,)}, r"stride=\(1,\) is neither"),
        (ShapeError, (X, W), {"stride": 1.0}, r"stride=1\.0 is neither"),
        (ShapeError, (X, W), {"stride": "11"}, "stride='11' is neither"),
        (ShapeError, (X, W), {"stride": None}, "stride=None is neither"),
        (ShapeError, (X, W), {"dilation": 0}, "dilation=0 has an entry below 1"),
        (ShapeError, (X, W), {"dilation": (2, 0)}, r"dilation=\(2, 0\) has an entry below 1"),
        (ShapeError, (X, W), {"dilation": [1, 2, 3]}, r"dilation=\[1, 2, 3\] is neither"),
        (ShapeError, (X, W), {"padding": ((0, -1), (0, 0))}, r"padding=.* has a negative entry"),
        (ShapeError, (X, W), {"padding": 1.5}, "padding=1.5 is neither"),
        (ShapeError, (X, W), {"padding": -1}, "padding=-1 has a negative entry"),
        (ShapeError, (X, W), {"padding": (1, -1)}, r"padding=\(1, -1\) has a negative entry"),
        (ShapeError, (X, W), {"padding": (1, 1, 1, 1)}, r"padding=\(1, 1, 1, 1\) is neither"),
        (ShapeError, (X, W), {"padding": (1, (1, 1))}, "is neither an int nor two ints nor two pairs"),
        (ShapeError, (X, W), {"padding": ((1, 1),)}, r"padding=\(\(1, 1\),\) is neither"),
        (ShapeError, (X, W), {"padding": ((1, 1), (1, 1, 1))}, "is neither"),
        (ShapeError, (X, W), {"padding": ((1, 1), (1, 0.5))}, "is neither"),
        (ShapeError, (X, W), {"padding": None}, "padding=None is neither"),
        (ShapeError, (X[:, :2], W), {"padding": "VALID"}, "the output's height would be 0: padding='VALID'"),
        (ShapeError, (X, W), {"padding": "VALID", "dilation": (1, 3)}, "the output's width would be 0"),
        (
            ShapeError,
            (X, W),
            {"padding": ((0, 0), (0, 0)), "dilation": 9, "stride": 7},
            "output's height would be 0",
        ),
        (
            ShapeError,
            (spread(2, 2**15, 2**15, 1), spread(1, 1, 1, 1)),
            {},
            r"\nx would have 2147483648 elements",
        ),
        (ShapeError, (spread(1, 1, 1, 1), spread(1, 1, 1, 2**31)), {}, r"\nw would have 2147483648 elements"),
        (
            ShapeError,
            (spread(1, 1, 1, 1), spread(2**15, 2**15, 1, 2)),
            {},
            r"\nw would have 2147483648 elements",
        ),
        (
            ShapeError,
            (spread(2**16, 1, 1, 1), spread(1, 1, 1, 2**15)),
            {},
            r"\ny would have 2147483648 elements",
        ),
        (
            ShapeError,
            (X, W),
            {"padding": ((2**31, 0), (0, 0))},
            r"padded image's height would be 2147483648 \+ 4",
        ),
        (ShapeError, (X, W), {"dilation": 2**40}, "padded image's height would be"),
        (SchemeError, (X, W), {"padding": "full"}, "no padding='full'\n.*\nchoose 'SAME', 'VALID', an int"),
        (SchemeError, (X, W), {"padding": ""}, "no padding=''"),
        (ShapeError, (X, W), {"groups": 3}, "do not fit in 3 groups\neach group has"),
        (SchemeError, (X, W), {"groups": 0}, "groups=0\n.*\ngive an int of 1 or more"),
        (SchemeError, (X, W), {"groups": True}, "groups=True\n"),
        (SchemeError, (X, W), {"groups": None}, "groups=None\n"),
        (FormatError, (pack_tensor(W, layout="HWOI"), W), {}, "x is packed with layout='HWOI'\n.*'NHWC' or"),
        (FormatError, (X, pack_tensor(X, layout="HWNC")), {}, "w is packed with layout='HWNC'\n.*'HWOI' or"),
        (
            FormatError,
            (PackedTensor(np.zeros((1, 4, 5, 2), np.uint32), (1, 4, 5, 3), "NHWC"), W),
            {},
            r"words of x are <u4 \(1, 4, 5, 2\)\nshape=\(1, 4, 5, 3\) .* needs <u4 \(1, 4, 5, 1\)",
        ),
        (
            FormatError,
            (X, PackedTensor(np.zeros((3, 3, 2, 1), np.uint32), None, "HWOI")),
            {},
            "w has shape=None",
        ),
        (
            ShapeError,
            (X, PackedTensor(np.zeros((3, 3, 2, 1), np.uint32), (3, 3, 0, 2), "HWOI")),
            {},
            r"w has shape \(3, 3, 0, 2\)",
        ),
        (SchemeError, (PackedTensor(np.zeros(1), (1, 1, 1, 1), "NCHW"), W), {}, "no layout='NCHW'"),
    ],
)
def test_unsuitable_operands_and_options_are_refused(error, operands, options, message):
    with pytest.raises(error, match=message) as caught:
        bconv2d(*operands, **options)
    assert len(str(caught.value).splitlines()) == 3


def test_sums_beyond_int32_are_refused():
    """Checked by the geometry alone, without a tensor of that size."""
    assert conv_geometry((1, 1, 1, 2**31 - 1), (1, 1, 2**31 - 1, 1)).channels == 2**31 - 1
    with pytest.raises(ShapeError, match=r"x would have 2147483648 elements"):
        conv_geometry((1, 1, 1, 2**31), (1, 1, 2**31, 1))
    with pytest.raises(ShapeError, match=r"w would have 4294967296 elements"):
        conv_geometry((1, 1, 1, 2**30), (2, 2, 2**30, 1))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool, np.complex64, object])
def test_other_element_types_are_refused(dtype):
    with pytest.raises(DtypeError, match=r"x .*accepted are float64"):
        bconv2d(X.astype(dtype), W)
    with pytest.raises(DtypeError, match=r"w .*accepted are float64"):
        bconv2d(X, W.astype(dtype))


def test_nan_is_named_by_operand_and_index():
    x, w = X.copy(), W.copy()
    x[0, 2, 1, 1] = w[1, 0, 2, 1] = np.nan
    with pytest.raises(NotANumberError, match=r"x\[0, 2, 1, 1\] is NaN"):
        bconv2d(x, W)
    with pytest.raises(NotANumberError, match=r"w\[1, 0, 2, 1\] is NaN"):
        bconv2d(X, w)
