"""The bit convolution on bit tensor cores against the reference: any geometry, every simulated chip."""

import itertools

import numpy as np
import pytest

import reference
import simwarp
from gpu.bconv import bconv2d
from gpu.bconv import btc as tensor
from gpu.bconv.btc import Borders, addends_of, tile_of
from gpu.bconv.convolution import Launch
from gpu.bconv.geometry import conv_shape
from gpu.bconv.prepared import placed
from gpu.bconv.schemes import SCHEMES
from reference.errors import ShapeError
from reference.types import PackedTensor
from simwarp.device import DeviceArray

ARCHS = [(7, 5), (8, 0), (9, 0)]
SCHEME_NAMES = ["btc1", "btc2"]
EVERYWHERE = list(itertools.product(SCHEME_NAMES, ARCHS))

# images (N, H, W, C), filters (R, S, O), options
GEOMETRIES = {
    "interior": ((2, 6, 7, 128), (3, 3, 33), {"padding": "VALID"}),
    "window larger than the image": ((1, 3, 2, 40), (5, 7, 9), {}),
    "stride larger than the filter": ((3, 9, 8, 130), (2, 2, 8), {"stride": (4, 3)}),
    "1x1": ((9, 1, 1, 65), (1, 1, 1), {}),
    "asymmetric padding": ((2, 5, 4, 31), (3, 2, 40), {"padding": ((2, 0), (0, 3))}),
    "padding beyond the filter": ((1, 3, 3, 32), (2, 3, 7), {"padding": ((4, 5), (6, 3))}),
    "dilation that skips the image": ((2, 4, 3, 33), (3, 3, 10), {"dilation": (5, 4)}),
    "prime and tiny channels": ((2, 5, 5, 3), (3, 3, 5), {}),
    "odd batch": ((13, 4, 3, 257), (3, 1, 17), {"stride": (1, 2)}),
    "all border": ((1, 2, 2, 129), (3, 3, 65), {}),
    "no border": ((1, 8, 8, 64), (3, 3, 16), {"padding": "VALID", "stride": 2}),
}


def signs(shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), shape)


def operands(geometry):
    images, (height, width, filters), options = GEOMETRIES[geometry]
    return signs(images), signs((height, width, images[3], filters), 1), options


def rule(filters, dot_length):
    """Thresholds near the dot products, and every kind of flip."""
    random = np.random.default_rng(2)
    spread = 1 + int(dot_length**0.5)
    return random.integers(-spread, spread, filters), random.integers(0, 2, filters) == 1


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("btc1-cc0-interior")
@pytest.mark.singly  # the sums under bits are those of all pairs, below
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("scheme", "cc"), EVERYWHERE)
def test_dot_products_equal_the_reference(geometry, scheme, cc):
    x, w, options = operands(geometry)
    y = bconv2d(x, w, **options, scheme=scheme, device=simwarp.Device(cc))
    np.testing.assert_array_equal(y, reference.bconv2d(x, w, **options))


@pytest.mark.at_most(2)
@pytest.mark.slow_cases("btc2-cc3-window larger than the image")
@pytest.mark.pairwise
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("scheme", "cc"), EVERYWHERE)
def test_bits_and_pooled_bits_equal_the_reference(geometry, scheme, cc):
    x, w, options = operands(geometry)
    dots = reference.bconv2d(x, w, **options)
    thresholds, flip = rule(w.shape[3], w[..., 0].size)
    for pool in (None, "or", "and") if min(dots.shape[1:3]) > 1 else (None,):
        y = bconv2d(
            *(x, w),
            **options,
            scheme=scheme,
            thresholds=thresholds,
            flip=flip,
            pool=pool,
            device=simwarp.Device(cc),
        )
        expected = reference.threshold_tensor(dots, thresholds, flip, pool=pool)
        assert (y.shape, y.layout, y.word, y.first) == (expected.shape, "NHWC", 32, "lsb")
        np.testing.assert_array_equal(y.words, expected.words)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases("131-btc1-128", "131-btc1-64", "131-btc2-128", "131-btc2-64", "130-btc2-128")
@pytest.mark.parametrize("tile", tensor.TILES)
@pytest.mark.parametrize("scheme", SCHEME_NAMES)
@pytest.mark.parametrize("filters", [131, 130])
def test_tiles_of_every_size_with_ragged_edges_equal_the_reference(monkeypatch, tile, scheme, filters):
    monkeypatch.setattr(tensor, "tile_of", lambda shape: tile)
    x, w = signs((3, 7, 7, 160)), signs((3, 3, 160, filters), 1)
    dots = reference.bconv2d(x, w, stride=(1, 2))
    y = bconv2d(x, w, stride=(1, 2), scheme=scheme, device=simwarp.Device())
    np.testing.assert_array_equal(y, dots)
    thresholds, flip = rule(filters, 9 * 160)
    for pool in (None, "and"):
        given = {"thresholds": thresholds, "flip": flip, "pool": pool}
        bits = bconv2d(x, w, stride=(1, 2), scheme=scheme, **given, device=simwarp.Device())
        np.testing.assert_array_equal(
            bits.words, reference.threshold_tensor(dots, thresholds, flip, pool=pool).words
        )


@pytest.mark.parametrize("k", [*range(8), *(pytest.param(k, marks=pytest.mark.gate) for k in range(8, 24))])
def test_random_geometries_equal_the_reference(k):
    random = np.random.default_rng(k)
    while True:
        batch, height, width, window_height, window_width = map(int, random.integers(1, 7, 5))
        channels, filters = int(random.integers(1, 140)), int(random.integers(1, 40))
        options = {
            "stride": tuple(map(int, random.integers(1, 4, 2))),
            "dilation": tuple(map(int, random.integers(1, 4, 2))),
            "padding": ("SAME", "VALID", tuple(map(tuple, random.integers(0, 6, (2, 2)).tolist())))[k % 3],
        }
        x = signs((batch, height, width, channels), k)
        w = signs((window_height, window_width, channels, filters), k + 1)
        try:
            expected = reference.bconv2d(x, w, **options)
        except ShapeError:  # the window does not fit
            continue
        break
    scheme, cc = EVERYWHERE[k % len(EVERYWHERE)]
    y = bconv2d(x, w, **options, scheme=scheme, device=simwarp.Device(cc))
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("scheme", SCHEME_NAMES)
@pytest.mark.parametrize("output", ["int", "bits"])
def test_a_second_launch_gives_the_same_result(scheme, output):
    """The result does not depend on the previous contents of the output, zero or not."""
    device, chosen = simwarp.Device(), SCHEMES[scheme]
    x, w, thresholds = signs((2, 4, 5, 40)), signs((3, 3, 40, 35), 1), np.zeros(35, np.int32)
    shape = conv_shape(x.shape, w.shape)
    images = placed(upload(device, x, "NHWC"), "x", chosen, device)
    filters = placed(upload(device, w, "HWOI"), "w", chosen, device)
    dots = reference.bconv2d(x, w)
    expected = dots if output == "int" else reference.threshold_tensor(dots, thresholds).words
    y = device.upload(np.full_like(expected, expected.dtype.type(-1) if output == "int" else 0xFFFFFFFF))
    rule = (device.upload(thresholds), device.upload(np.zeros(35, np.uint8))) if output == "bits" else ()
    launch = Launch(chosen, shape, "none", output, (9, 0), 1)
    for _ in range(2):
        launch(device, images, filters, y, rule)
        np.testing.assert_array_equal(y.download(), expected)


def upload(device, signs_of, layout):
    packed = reference.pack_tensor(signs_of, layout=layout)
    return PackedTensor(device.upload(packed.words), packed.shape, packed.layout)


@pytest.mark.parametrize("layouts", [("NHWC", "HWOI"), ("HWNC-FSB", "HWOI"), ("HWNC-FSB", "HWOI-FSB")])
def test_packed_operands_in_tiles_or_words_equal_the_reference(layouts):
    x, w, device = signs((9, 3, 4, 150)), signs((2, 3, 150, 12), 1), simwarp.Device()
    y = bconv2d(*(upload(device, *each) for each in zip((x, w), layouts, strict=True)), scheme="btc2")
    np.testing.assert_array_equal(y.download(), reference.bconv2d(x, w))


@pytest.mark.parametrize(("scheme", "layout"), [("btc1", "NHWC"), ("btc2", "HWNC-FSB")])
def test_words_may_have_any_alignment(scheme, layout):
    """Words aligned to 16 bytes are used in place; others are copied first."""
    x, device = signs((2, 3, 4, 128)), simwarp.Device()
    packed = reference.pack_tensor(x, layout=layout)
    longer = device.upload(np.concatenate([np.zeros(1, np.uint32), packed.words.ravel()]))
    words = Shifted(longer, packed.words.shape)
    units = SCHEMES[scheme].arranged(PackedTensor(words, x.shape, layout), device)
    assert words.pointer % 16 == 4
    assert units.pointer % 16 == 0
    np.testing.assert_array_equal(units.download().reshape(packed.words.shape), packed.words)


class Shifted(DeviceArray):
    """A device array without its first word."""

    def __init__(self, array, shape):
        super().__init__(array.device, array._owner, shape, array.dtype)

    @property
    def pointer(self):
        return super().pointer + 4


@pytest.mark.parametrize(("shape", "layout"), [((9, 2, 3, 130), "NHWC"), ((2, 3, 130, 9), "HWOI")])
def test_device_tiles_equal_figure_14(shape, layout):
    device, x = simwarp.Device(), signs(shape)
    tiles = tensor.to_fsb(upload(device, x, layout), device)
    expected = reference.pack_tensor(x, layout=tiles.layout)
    assert tiles.layout == {"NHWC": "HWNC-FSB", "HWOI": "HWOI-FSB"}[layout]
    np.testing.assert_array_equal(tiles.words.download(), expected.words)
    assert tensor.to_fsb(tiles, device) is tiles


def test_more_tiles_than_the_kernel_counts_are_refused():
    class Huge:
        shape = (1, 2**15, 2**15, 1)

    with pytest.raises(ShapeError, match=r"btc2 can count 536870912\nchoose scheme='btc1'"):
        tensor.to_fsb(PackedTensor(Huge(), (1, 2**15, 2**15, 1), "NHWC"), simwarp.Device())


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_interior_windows_have_no_excluded_taps(geometry):
    images, (height, width, filters), options = GEOMETRIES[geometry]
    shape = conv_shape(images, (height, width, images[3], filters), **options)
    borders = tensor.Borders.of(shape)
    ones = np.ones((1, *images[1:3], 1))
    counted = reference.bconv2d(ones, np.ones((height, width, 1, 1)), **options)[0, :, :, 0]
    whole = np.zeros_like(counted, bool)
    whole[borders.top : borders.bottom, borders.left : borders.right] = True
    if borders.top < borders.bottom and borders.left < borders.right:
        np.testing.assert_array_equal(whole, counted == height * width)
    else:
        assert (counted < height * width).all()


def test_large_problems_get_large_tiles():
    assert [tensor.tile_of(conv_shape((16, 64, 64, 64), (3, 3, 64, o))) for o in (128, 64, 32)] == [
        128,
        64,
        32,
    ]
    assert tensor.tile_of(conv_shape((1, 16, 16, 64), (3, 3, 64, 128))) == 32


def test_tile_size_and_border_depend_on_the_geometry():
    small, large = (conv_shape(x, (3, 3, 128, 128)) for x in ((1, 8, 8, 128), (16, 64, 64, 128)))
    assert (tile_of(small), tile_of(large)) == (32, 128)
    wide = conv_shape((16, 64, 64, 128), (3, 3, 128, 256))
    assert SCHEMES["btc1"].launch(wide, "none") == ((1024, 1, 1), (256, 1, 1))
    assert SCHEMES["btc2"].defines(small) == {"SCHEME": "btc2", "FSB": "", "TILE": 32}
    assert Borders.of(large) == Borders(top=1, bottom=63, left=1, right=63)
    assert Borders.of(large).rows(large) == 9
    assert Borders.of(conv_shape((1, 2, 9, 1), (5, 3, 1, 1), stride=2)) == Borders(1, 1, 1, 4)


def test_border_addends_count_the_excluded_taps():
    """100 of 128 channels are ones; at the border some of the 3 x 3 taps are excluded."""
    shape, words = conv_shape((1, 4, 4, 128), (3, 3, 128, 1)), np.full((3, 3, 1, 4), 0x01FFFFFF, np.uint32)
    expected = {
        (9, 0): [[-288, -432, -288], [-432, -648, -432], [-288, -432, -288]],
        (8, 0): [[1512, 1368, 1512], [1368, 1152, 1368], [1512, 1368, 1512]],
    }
    for cc, numbers in expected.items():
        device = simwarp.Device(cc)
        addends = addends_of(device.upload(words), shape, device, lines_of_tile=1)
        assert addends.download()[:, 0].reshape(3, 3).tolist() == numbers
