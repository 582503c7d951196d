"""Sums of integers times ±1 on integer tensor cores: every way of gpu/bnn/dots.cu, against the definition."""

import numpy as np
import pytest

import gpu.bnn
import gpu.bnn.dots
import gpu.bnn.layers
import reference.bnn
from gpu.bconv.geometry import conv_shape
from gpu.bnn.dots import order_of, pieces_of, planes_of, tiles_of
from gpu.bnn.launches import Dots
from gpu.bnn.site import Site
from reference import pack, pack_tensor
from reference.bnn import Affine, Conv, Dense, Flatten, Network, Pixels, Reals, Threshold
from reference.types.network_values import Value, _follow, after, input_value
from simwarp import Device

RNG = np.random.default_rng(33)
ENDS = {  # scale and offset of bytes, and the planes that hold what comes of them
    "u8": (1, 0, (1, True)),
    "u8 and one": (1, 1, (2, False)),
    "s8": (1, -128, (1, False)),
    "s8 and one": (1, -129, (2, False)),
    "s8 turned": (-1, 127, (1, False)),
    "s16": (257, -(2**15), (2, False)),
}


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same networks and images, whatever ran before it."""
    global RNG
    RNG = np.random.default_rng(33)


@pytest.fixture
def without_regions(monkeypatch):
    """Windows lie by themselves in shared memory."""
    monkeypatch.setattr(gpu.bnn.dots, "_SHARED", 0)


@pytest.fixture
def large_tiles(monkeypatch):
    """Tiles as of large batches."""
    monkeypatch.setattr(gpu.bnn.dots, "_ENOUGH_TILES", 0)


def signs(*shape):
    return RNG.choice(np.array([-1, 1], np.int8), shape)


def conv(*shape, **options):
    return Conv(pack_tensor(signs(*shape), layout="HWOI"), **options)


def threshold(channels, spread):
    limits = RNG.integers(-spread, spread + 1, channels).astype(np.int32)
    ends = np.array([-(2**31), 2**31 - 1], np.int32)
    limits[: channels // 4 * 2 : 4] = RNG.choice(ends, len(limits[: channels // 4 * 2 : 4]))
    return Threshold(limits, RNG.random(channels) < 0.5)


def pixels(shape, scale=1, offset=-128):
    return Pixels(shape, *(np.full(shape[-1], number, np.int32) for number in (scale, offset)))


def sums(given, layer, rule=None, count=2, device=None):
    """What the kernel and the definition give for one layer of images, with both ends of their range."""
    layers = (layer, *((rule,) if rule else ()))
    shape = (count, *given.shape)
    images = RNG.integers(0, 256, shape, np.uint8) if isinstance(given, Pixels) else RNG.normal(0, 9, shape)
    images = images.astype(np.uint8 if isinstance(given, Pixels) else np.float32)
    images.flat[:2] = 0, 255 if isinstance(given, Pixels) else 30
    network, value = closed(given, layers), input_value(given)
    device = device or Device()
    site = Site(device, {}, {}, device.upload(np.zeros(1, np.int32)))
    gives = after(layer, value)
    gives = after(rule, gives) if rule else gives
    dots = Dots(site, layer, value, (gives,), layers[1:], given)
    got = gpu.bnn.layers.on_host(*dots(device.upload(images)))
    np.testing.assert_array_equal(got, dict(reference.bnn.values(network, images))[str(len(layers) - 1)])


def closed(given, layers):
    """A network of layers, with a dense one of two classes at its end."""
    *_, (_, _, value) = _follow(layers, input_value(given), "")
    size = int(np.prod(value.shape))
    ends = (Flatten(), Dense(pack(signs(size, 2), layout="row")))
    return Network("one layer", given, (*layers, *ends), np.ones(2, np.float32), np.zeros(2, np.float32))


GEOMETRIES = {
    "alexnet": ((30, 27, 3), (11, 11, 3, 64), {"stride": (4, 4), "padding": ((5, 5), (5, 5))}),
    "vgg": ((9, 19, 3), (3, 3, 3, 65), {"padding": ((1, 1), (1, 1))}),
    "resnet": ((20, 21, 3), (7, 7, 3, 31), {"stride": (4, 4), "padding": ((3, 3), (3, 3))}),
    "one pixel": ((1, 1, 1), (1, 1, 1, 1), {}),
    "one channel": ((8, 8, 1), (5, 3, 1, 8), {"padding": ((2, 2), (0, 3))}),
    "odd stride": ((11, 9, 2), (2, 4, 2, 33), {"stride": (3, 5), "padding": ((0, 1), (4, 0))}),
    "dilation": ((12, 13, 3), (3, 3, 3, 9), {"dilation": (2, 3), "padding": ((2, 2), (3, 3))}),
    "many channels": ((5, 6, 17), (3, 3, 17, 40), {"stride": (1, 2), "padding": ((1, 1), (1, 1))}),
    "channels in banks": ((4, 9, 32), (1, 3, 32, 16), {"dilation": (1, 2)}),
    "a filter larger than the image": ((2, 3, 4), (5, 7, 4, 5), {"padding": ((2, 2), (3, 3))}),
    "far apart": ((70, 70, 2), (2, 2, 2, 3), {"dilation": (60, 50), "stride": (9, 8)}),
}


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("bits", [False, True], ids=["sums", "bits"])
def test_geometries_in_regions(name, bits):
    given, filters, options = GEOMETRIES[name]
    sums(pixels(given), conv(*filters, **options), threshold(filters[3], 900) if bits else None)


@pytest.mark.at_most(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries_in_windows(name, without_regions):
    given, filters, options = GEOMETRIES[name]
    sums(pixels(given), conv(*filters, **options), threshold(filters[3], 900))


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries_in_large_tiles(name, large_tiles):
    given, filters, options = GEOMETRIES[name]
    sums(pixels(given), conv(*filters, **options), threshold(filters[3], 900))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("passes", [1, 2, 4])
def test_tiles_of_several_passes(passes, monkeypatch, large_tiles):
    monkeypatch.setattr(gpu.bnn.dots, "_FORMS", ((2, passes),))
    sums(pixels((20, 33, 3)), conv(3, 3, 3, 40, padding=((1, 1), (1, 1))), threshold(40, 900), 3)


@pytest.mark.slow
def test_large_tiles_of_windows(without_regions, large_tiles):
    sums(pixels((9, 9, 3)), conv(3, 3, 3, 40), threshold(40, 900), 3)


def test_blocks_take_several_tiles():
    device = Device(multiprocessors=1)
    sums(pixels((40, 41, 3)), conv(3, 3, 3, 70), threshold(70, 900), 3, device)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("scale", [1, 100], ids=["one plane", "two planes"])
def test_every_generation(cc, scale):
    given = pixels((6, 7, 3), scale, -128 * scale)
    sums(given, conv(3, 3, 3, 40), threshold(40, 900 * scale), device=Device(cc))


@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("regions", [True, False], ids=["regions", "windows"])
def test_ends_of_planes(name, regions, monkeypatch):
    scale, offset, planes = ENDS[name]
    if not regions:
        monkeypatch.setattr(gpu.bnn.dots, "_SHARED", 0)
    given = pixels((5, 5, 3), scale, offset)
    assert planes_of(input_value(given)) == planes
    sums(given, conv(2, 2, 3, 9))


@pytest.mark.at_most(1)
@pytest.mark.parametrize("regions", [True, False], ids=["regions", "windows"])
def test_sums_of_all_32_bits(regions, monkeypatch):
    if not regions:
        monkeypatch.setattr(gpu.bnn.dots, "_SHARED", 0)
    scale = np.array([2**21 - 1, -(2**21), 2**20 + 77], np.int32)
    layers = Affine(scale, np.array([5, -6, 7], np.int32)), conv(2, 1, 3, 9)
    images = RNG.integers(0, 256, (2, 4, 5, 3), np.uint8)
    images[0, 0, 0] = 0, 255, 0
    network = closed(pixels((4, 5, 3)), (*layers, threshold(9, 2**28)))
    got = dict(gpu.bnn.prepare(network, device=Device()).values(images))
    for path, value in got.items():
        np.testing.assert_array_equal(value, dict(reference.bnn.values(network, images))[path])


@pytest.mark.at_most(3)
@pytest.mark.parametrize("regions", [True, False], ids=["regions", "windows"])
@pytest.mark.parametrize("outputs", [8, 33, 72])
def test_sums_leave_beside_their_bits(outputs, regions, monkeypatch):
    if not regions:
        monkeypatch.setattr(gpu.bnn.dots, "_SHARED", 0)
    given, layer, rule = pixels((6, 7, 3)), conv(3, 3, 3, outputs), threshold(outputs, 900)
    device, value = Device(), input_value(given)
    site = Site(device, {}, {}, device.upload(np.zeros(1, np.int32)))
    numbers = after(layer, value)
    dots = Dots(site, layer, value, (numbers, after(rule, numbers)), (rule,), given)
    images = RNG.integers(0, 256, (2, 6, 7, 3), np.uint8)
    expected = dict(reference.bnn.values(closed(given, (layer, rule)), images))
    for path, got in zip(("0", "1"), dots(device.upload(images)), strict=True):
        np.testing.assert_array_equal(gpu.bnn.layers.on_host(got), expected[path])


@pytest.mark.at_most(3)
@pytest.mark.parametrize("regions", [True, False], ids=["regions", "windows"])
@pytest.mark.parametrize("outputs", [8, 33, 72])
def test_integers_of_16_bits_in_and_out(outputs, regions, monkeypatch):
    if not regions:
        monkeypatch.setattr(gpu.bnn.dots, "_SHARED", 0)
    device, layer = Device(), conv(3, 3, 5, outputs)
    given, gives = Value("integers", (6, 7, 5), -300, 300), Value("integers", (4, 5, outputs), -13500, 13500)
    site = Site(device, {}, {}, device.upload(np.zeros(1, np.int32)))
    x = RNG.integers(-300, 301, (2, 6, 7, 5)).astype(np.int16)
    (got,) = Dots(site, layer, given, (gives,), (), None)(device.upload(x))
    filters = 2 * reference.unpack_tensor(layer.filters).astype(int) - 1
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(int), (3, 3), (1, 2))
    assert got.dtype == np.int16
    np.testing.assert_array_equal(got.download(), np.einsum("npqcrs,rsco->npqo", windows, filters))


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("features", [1, 15, 257, 530])
@pytest.mark.parametrize("bits", [False, True], ids=["sums", "bits"])
def test_dense_layers(features, bits):
    layer = Dense(pack(signs(features, 70), layout="row"))
    sums(pixels((features,), 3, -400), layer, threshold(70, 900) if bits else None, 67)


@pytest.mark.slow
def test_dense_layers_of_large_tiles(large_tiles):
    sums(pixels((300,)), Dense(pack(signs(300, 40), layout="row")), threshold(40, 900), 130)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("shape", [(5, 7, 3), (40,)])
def test_reals(shape):
    layer = conv(2, 3, 3, 20) if len(shape) == 3 else Dense(pack(signs(40, 20), layout="row"))
    sums(Reals(shape, fraction=9), layer, threshold(20, 9000), 3)


@pytest.mark.parametrize("shape", [(5, 7, 3), (8, 8, 3)], ids=["bytes", "words"])
def test_images_of_bytes_and_of_words(shape):
    layer = conv(3, 3, 3, 9, padding=((1, 1), (1, 1)))
    sums(pixels(shape), layer, threshold(9, 900), 3)


def test_the_order_of_k_and_tiles_of_the_papers_layers():
    """What shared memory holds of a tile; 11 lines of 33 numbers are 99 groups of four."""
    alexnet = conv_shape((512, 224, 224, 3), (11, 11, 3, 64), stride=4, padding=((5, 5), (5, 5)))
    order = order_of(alexnet, 1)
    assert (order.steps, order.pixel_bytes) == (25, 3)
    assert sorted(order.numbers[order.numbers >= 0]) == list(range(363))
    tiles = tiles_of(alexnet, order, 1, 132)
    assert {"REGION", "ALIGNED", "ROW_TILES=2", "PASSES=4"} <= set(tiles.defines)
    assert tiles.shared <= 48 * 1024
    few = conv_shape((1, 224, 224, 3), (11, 11, 3, 64), stride=4, padding=((5, 5), (5, 5)))
    assert tiles_of(few, order, 1, 132).grid == (49, 1, 1)
    wide = conv_shape((2, 9, 9, 600), (3, 3, 600, 8))
    assert order_of(wide, 1).pixel_bytes == 0


def test_filters_of_lanes():
    """A lane's piece is four tiles of filters, each with four numbers of k."""
    bits = RNG.integers(0, 2, (20, 40), np.uint8)
    shape = conv_shape((1, 1, 1, 20), (1, 1, 20, 40), padding="VALID")
    pieces = pieces_of(2 * bits.astype(np.int8) - 1, order_of(shape, 1))
    pieces = pieces.reshape(1, 2, 2, 32, 4, 4)  # block, step, word, lane
    assert (
        pieces[0, 0, 0, 4 * 2 + 1, 3, 2] == 2 * int(bits[4 + 2, 8 + 2 * 3]) - 1
    )  # filter 8 (2 // 2) + 2 * 3 + 2 % 2
    assert pieces[0, 1, 1, 0, 0, 3] == 2 * int(bits[19, 32]) - 1
    assert (pieces[0, 1, :, 1:4] == 0).all()
