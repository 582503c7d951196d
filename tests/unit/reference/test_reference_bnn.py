"""Binarized networks: the definition against loops over Python's integers, and networks that are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from reference import DtypeError, NotANumberError, RangeError, ShapeError, pack, pack_tensor
from reference.bnn import (
    Affine,
    BitPlanes,
    Clip,
    Conv,
    Dense,
    Flatten,
    Network,
    PadChannels,
    Pixels,
    Pool,
    Reals,
    Residual,
    Signs,
    Threshold,
    run,
    values,
)
from reference.types.network_values import follow

RNG = np.random.default_rng(20)


def signs(*shape):
    return RNG.choice(np.array([-1, 1], np.int8), shape)


def ints(low, high, *shape):
    return RNG.integers(low, high + 1, shape).astype(np.int32)


def conv(signs, **options):
    return Conv(pack_tensor(signs, layout="HWOI"), **options)


def dense(signs):
    return Dense(pack(signs, layout="row"))


def threshold(channels, spread=3):
    return Threshold(ints(-spread, spread, channels), RNG.random(channels) < 0.5)


def pixels(*shape):
    return Pixels(shape, ints(-3, 3, shape[-1]), ints(-300, 300, shape[-1]))


def network(given, *layers, classes=None):
    last = classes or layers[-1].weights.shape[1]
    return Network("small", given, layers, *RNG.standard_normal((2, last)).astype(np.float32))


def number(x):
    return 2 * int(x) - 1 if x.dtype == np.uint8 else int(x)


def conv_by_hand(x, w, stride, padding, dilation):
    """The sum over the taps inside the image, in Python's integers."""
    (height, width, _), (r, s, _, o) = x.shape, w.shape
    size = [
        (n + sum(pad) - (taps - 1) * d - 1) // step + 1
        for n, pad, taps, d, step in zip((height, width), padding, (r, s), dilation, stride, strict=True)
    ]
    y = np.zeros((*size, o), np.int64)
    for p, q, k in np.ndindex(y.shape):
        for i, j, c in np.ndindex(w.shape[:3]):
            h = p * stride[0] - padding[0][0] + i * dilation[0]
            v = q * stride[1] - padding[1][0] + j * dilation[1]
            if 0 <= h < height and 0 <= v < width:
                y[p, q, k] += number(x[h, v, c]) * int(w[i, j, c, k])
    return y


def pool_by_hand(x, pool):
    (height, width, channels), (top, bottom), (left, right) = x.shape, *pool.padding
    rows = (height + top + bottom - pool.window[0]) // pool.stride[0] + 1
    columns = (width + left + right - pool.window[1]) // pool.stride[1] + 1
    y = np.zeros((rows, columns, channels), np.int64)
    joined = {"or": max, "and": min, "max": max, "sum": sum}[pool.kind]
    for p, q, c in np.ndindex(y.shape):
        rows_of = range(p * pool.stride[0] - top, p * pool.stride[0] - top + pool.window[0])
        columns_of = range(q * pool.stride[1] - left, q * pool.stride[1] - left + pool.window[1])
        y[p, q, c] = joined(
            int(x[h, v, c]) for h in rows_of for v in columns_of if 0 <= h < height and 0 <= v < width
        )
    return y


def given(network, images, path):
    return dict(values(network, images))[path]


GEOMETRIES = [
    {},
    {"stride": (2, 1), "padding": ((1, 0), (2, 1))},
    {"dilation": (1, 2), "padding": ((0, 1), (1, 1)), "stride": (1, 3)},
]


@pytest.mark.parametrize("options", GEOMETRIES)
@pytest.mark.parametrize("kind", ["bits", "integers"])
def test_a_convolution_is_the_sum_over_taps_inside_the_image(kind, options):
    w = signs(3, 2, 4, 5)
    before = (threshold(4, 200),) if kind == "bits" else ()
    size = conv_by_hand(np.zeros((5, 6, 4), np.int32), w, **{**DEFAULTS, **options}).size
    net = network(pixels(5, 6, 4), *before, conv(w, **options), Flatten(), dense(signs(size, 2)))
    images = RNG.integers(0, 256, (2, 5, 6, 4)).astype(np.uint8)
    found = given(net, images, f"{len(before)}")
    x = given(net, images, "0" if before else "input")
    for image, result in zip(x, found, strict=True):
        np.testing.assert_array_equal(result, conv_by_hand(image, w, **{**DEFAULTS, **options}))


DEFAULTS = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


@pytest.mark.parametrize("kind", ["or", "and", "max", "sum"])
@pytest.mark.parametrize(
    "options", [{}, {"window": (3, 2), "stride": (2, 1), "padding": ((1, 1), (0, 1))}, {"window": (5, 7)}]
)
def test_a_pool_joins_the_pixels_of_each_window(kind, options):
    pool = Pool(kind, **options)
    before = (threshold(3, 200),) if kind in ("or", "and") else ()
    size = pool_by_hand(np.zeros((5, 7, 3), np.int32), pool).size
    net = network(pixels(5, 7, 3), *before, pool, Flatten(), dense(signs(size, 2)))
    images = RNG.integers(0, 256, (2, 5, 7, 3)).astype(np.uint8)
    for image, result in zip(
        given(net, images, "0" if before else "input"), given(net, images, f"{len(before)}"), strict=True
    ):
        np.testing.assert_array_equal(result, pool_by_hand(image, pool))


def test_inputs_become_bits_and_integers():
    images = np.array([[0, 7, 255], [128, 1, 2]], np.uint8)
    scale, offset = np.array([1, -2, 3], np.int32), np.array([-5, 0, 9], np.int32)
    net = network(Pixels((3,), scale, offset), dense(signs(3, 2)))
    np.testing.assert_array_equal(given(net, images, "input"), [[-5, -14, 774], [123, -2, 15]])
    net = network(BitPlanes((3,)), dense(signs(24, 2)))
    shown = [[f"{x:08b}" for x in row] for row in images]
    assert ["".join(map(str, row)) for row in given(net, images, "input")] == ["".join(row) for row in shown]
    floats = np.array([[0.25, -0.75, 1.0], [-0.0, 2.5, 0.99]], np.float32)
    net = network(Reals((3,), fraction=1), dense(signs(3, 2)))
    np.testing.assert_array_equal(given(net, floats, "input"), [[0, -2, 2], [0, 5, 2]])
    net = network(Signs((3,), np.array([0.25, 0, 1], np.float32)), dense(signs(3, 2)))
    np.testing.assert_array_equal(given(net, floats, "input"), [[1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(given(net, images, "input"), [[0, 1, 1], [1, 1, 1]])


def test_a_whole_network_in_pythons_integers():
    w = signs(3, 3, 2, 4), signs(3, 3, 4, 4), signs(16, 3)
    flip, limits = np.array([True, False, False, True]), ints(-30, 30, 4)
    net = network(
        Pixels((4, 4, 2), np.array([2, 1], np.int32), np.array([-128, -64], np.int32)),
        conv(w[0], padding=((1, 1), (1, 1))),
        Clip(-2000, None),
        Residual(
            (
                Threshold(limits, flip),
                conv(w[1], padding=((1, 1), (1, 1)), stride=(2, 2)),
                Affine(*ints(-9, 9, 2, 4)),
            ),
            (Pool("max"), PadChannels(0, 0)),
        ),
        Threshold(ints(-30, 30, 4), flip),
        Flatten(),
        dense(w[2]),
    )
    image = RNG.integers(0, 256, (4, 4, 2)).astype(np.uint8)
    x = image * np.array([2, 1]) - np.array([128, 64])
    x = np.maximum(conv_by_hand(x, w[0], (1, 1), ((1, 1), (1, 1)), (1, 1)), -2000)
    bits = ((x >= limits) ^ flip).astype(np.uint8)
    body = conv_by_hand(bits, w[1], (2, 2), ((1, 1), (1, 1)), (1, 1))
    affine = net.layers[2].body[2]
    stream = body * affine.scale + affine.offset + pool_by_hand(x, Pool("max"))
    last = (stream >= net.layers[3].thresholds) ^ flip
    sums = (2 * last.reshape(-1).astype(int) - 1) @ w[2].astype(int)
    found = run(net, image[None])
    np.testing.assert_array_equal(found.sums[0], sums)
    logits = (sums.astype(np.float32) * net.scale).astype(np.float32) + net.offset
    np.testing.assert_array_equal(found.logits[0], logits)
    assert found.classes[0] == list(logits).index(max(logits))


def test_followed_shapes_and_ranges_hold_for_what_is_computed():
    net = network(
        pixels(6, 5, 3),
        conv(signs(3, 3, 3, 8), padding=((1, 1), (1, 1))),
        Residual((threshold(8, 300), conv(signs(1, 1, 8, 8))), ()),
        Residual(
            (threshold(8), Pool("or", (2, 2), (2, 2)), conv(signs(1, 1, 8, 12)), Clip(-3, 5)),
            (Pool("sum"), PadChannels(1, 3), Affine(*ints(-5, 5, 2, 12))),
        ),
        Pool("sum", (3, 2), (1, 1)),
        Flatten(),
        dense(signs(12, 4)),
    )
    images = RNG.integers(0, 256, (7, 6, 5, 3)).astype(np.uint8)
    found = dict(values(net, images))
    followed = {path: value for path, _, value in follow(net)}
    assert [*followed] == [path for path in found if path != "input"]
    for path, value in followed.items():
        assert found[path].shape == (7, *value.shape), path
        assert (found[path].dtype == np.uint8) == (value.kind == "bits"), path
        if value.kind == "integers":
            assert value.low <= found[path].min(), path
            assert found[path].max() <= value.high, path


def test_many_images_go_through_in_parts(monkeypatch):
    net = network(
        pixels(
            4,
        ),
        dense(signs(4, 3)),
    )
    images = RNG.integers(0, 256, (9, 4)).astype(np.uint8)
    whole = run(net, images).sums
    monkeypatch.setattr("reference.bnn.inference._IMAGES_AT_ONCE", 8)
    np.testing.assert_array_equal(run(net, images).sums, whole)


PAD = ((2**20 - 5, 0), (2**20 - 5, 0))
REFUSED = {
    "no layers": (lambda: network(pixels(4), classes=2), ShapeError, "has no layers"),
    "bits at the end": (
        lambda: network(pixels(4), threshold(4), classes=4),
        ShapeError,
        "the last layer gives bits",
    ),
    "channels": (
        lambda: network(pixels(4, 4, 3), conv(signs(3, 3, 2, 4)), classes=1),
        ShapeError,
        r"layer 0 \(Conv\), given integers \(4, 4, 3\): it takes 2 input channels, and the layer before "
        "has 3",
    ),
    "window": (
        lambda: network(pixels(4, 4, 3), conv(signs(5, 3, 3, 4)), classes=1),
        ShapeError,
        "a window of",
    ),
    "threshold of bits": (
        lambda: network(pixels(4), threshold(4), threshold(4), classes=1),
        ShapeError,
        r"layer 1 \(Threshold\), given bits \(4,\): integers of any shape are needed",
    ),
    "residual of bits": (
        lambda: network(pixels(4), Residual((threshold(4),)), classes=1),
        ShapeError,
        "both must give integers of one shape",
    ),
    "inside a residual": (
        lambda: network(pixels(4), Residual((threshold(4), dense(signs(3, 4)))), classes=1),
        ShapeError,
        r"layer 0\.body\.1 \(Dense\)",
    ),
    "beyond int32": (
        lambda: network(pixels(4), Affine(ints(2**30, 2**30, 4), ints(0, 0, 4)), dense(signs(4, 1))),
        RangeError,
        r"layer 0 \(Affine\).*beyond int32",
    ),
    "beyond int16": (
        lambda: network(Pixels((4,), ints(999, 999, 4), ints(0, 0, 4)), dense(signs(4, 1))),
        RangeError,
        "beyond int16",
    ),
    "thresholds of floats": (
        lambda: network(pixels(4), Threshold(np.zeros(4), np.zeros(4, bool)), classes=1),
        DtypeError,
        "thresholds is of float64: give an array of int32",
    ),
    "max of bits": (
        lambda: network(pixels(4, 4, 3), threshold(3), Pool("max"), classes=1),
        ShapeError,
        "layer 1 .*integers",
    ),
    "a window without a pixel": (
        lambda: network(pixels(4, 4, 3), Pool("max", (2, 2), (2, 2), ((2, 0), (0, 0))), classes=1),
        ShapeError,
        "a window without a pixel",
    ),
    "a padded image of 2**31 pixels": (
        lambda: network(pixels(4, 4, 3), Pool("max", (2**20, 2**20), (1, 1), PAD), classes=1),
        ShapeError,
        "an image has less than",
    ),
    "a dilation beyond int32": (
        lambda: network(pixels(4, 4, 3), conv(signs(1, 1, 3, 4), dilation=(2**31, 1)), classes=1),
        ShapeError,
        "dilation is .*below",
    ),
    "scale": (
        lambda: replace(network(pixels(4), dense(signs(4, 2))), scale=np.zeros(3, np.float32)),
        ShapeError,
        r"scale has shape \(3,\)",
    ),
    "classes": (
        lambda: replace(network(pixels(4), dense(signs(4, 2))), classes=("one",)),
        ShapeError,
        "1 names of classes and 2 sums",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_network_that_does_not_fit_is_refused_with_the_layer(case):
    build, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        build()


IMAGES = {
    "shape": (np.zeros((2, 5), np.uint8), ShapeError, r"the network takes \(N, 4\)"),
    "no images": (np.zeros((0, 4), np.uint8), ShapeError, "the network takes"),
    "dtype": (np.zeros((2, 4)), DtypeError, "Pixels takes uint8"),
}


@pytest.mark.parametrize("case", IMAGES)
def test_images_that_do_not_fit_are_refused(case):
    images, error, text = IMAGES[case]
    with pytest.raises(error, match=text):
        run(network(pixels(4), dense(signs(4, 2))), images)


@pytest.mark.parametrize("x", [math.nan, math.inf])
def test_an_image_without_numbers_is_refused(x):
    net = network(Reals((2,)), dense(signs(2, 2)))
    with pytest.raises(NotANumberError, match=r"images\[0, 1\]"):
        run(net, np.array([[0, x]], np.float32))


def test_a_float_beyond_the_inputs_integers_is_refused():
    net = network(Reals((2,), fraction=8), dense(signs(2, 2)))
    with pytest.raises(RangeError, match=r"images\[1, 0\] is 128\.0"):
        run(net, np.array([[127.9, 0], [128.0, 0]], np.float32))


def test_layers_take_one_number_for_both_axes_and_all_sides():
    for found, expected in (
        (conv(signs(3, 3, 1, 1), stride=2, padding=1, dilation=2), ((2, 2), ((1, 1), (1, 1)), (2, 2))),
        (conv(signs(3, 3, 1, 1), padding=(1, 0)), ((1, 1), ((1, 1), (0, 0)), (1, 1))),
    ):
        assert (found.stride, found.padding, found.dilation) == expected
    pool = Pool("max", 3, 2, 1)
    assert (pool.window, pool.stride, pool.padding) == ((3, 3), (2, 2), ((1, 1), (1, 1)))
    with pytest.raises(ShapeError, match="padding is 'same': give an int"):
        network(pixels(4, 4, 3), Pool("max", padding="same"), classes=1)
