"""Layers on integers on the simulator: each kind of chain, both widths, and any number of channels."""

import numpy as np
import pytest

import gpu.bnn
import reference.bnn
from gpu.bnn.plan import steps_of, values_of
from reference import pack, pack_tensor
from reference.bnn import (
    Affine,
    Clip,
    Conv,
    Dense,
    Flatten,
    Network,
    PadChannels,
    Pool,
    Reals,
    Residual,
    Threshold,
)
from reference.types.network_values import after, input_value
from simwarp import Device

RNG = np.random.default_rng(5)  # drawn anew for each test
LOWEST, HIGHEST = -(2**15), 2**15 - 1
CHANNELS = (1, 31, 33, 40, 64, 127)


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same networks and images, whatever ran before it."""
    global RNG
    RNG = np.random.default_rng(5)


def ints(low, high, count):
    return RNG.integers(low, high + 1, count).astype(np.int32)


def affine(channels, scale, offset):
    return Affine(ints(-scale, scale, channels), ints(-offset, offset, channels))


def threshold(channels, spread):
    return Threshold(ints(-spread, spread, channels), RNG.random(channels) < 0.5)


def conv(channels, outputs, stride=1):
    filters = RNG.choice([-1.0, 1.0], (1, 1, channels, outputs))
    return Conv(pack_tensor(filters, layout="HWOI"), (stride, stride))


def network(shape, *layers):
    """Layers on integers of all of int16."""
    given, layers = Reals(shape, fraction=0), (*layers, Flatten())
    value = input_value(given)
    for layer in layers:
        value = after(layer, value)
    count = value.shape[0]
    if value.kind == "bits":
        layers, count = (*layers, Dense(pack(RNG.choice([-1.0, 1.0], (count, 3)), layout="row"))), 3
    return Network("chain", given, layers, *np.ones((2, count), np.float32))


def check(net, images, scheme="bconv32"):
    """Compare what each launch gives, and the answer; returns the dtypes between layers."""
    device = Device()
    prepared = gpu.bnn.prepare(net, schemes={"Conv": scheme, "Dense": "bmm32"}, device=device)
    expected = dict(reference.bnn.values(net, images))
    for path, value in prepared.values(images):
        np.testing.assert_array_equal(value, expected[path], err_msg=path, strict=True)
    for got, wanted in zip(prepared.run(images), reference.bnn.run(net, images), strict=True):
        np.testing.assert_array_equal(got, wanted, strict=True)
    return {path: getattr(value, "dtype", None) for path, value in prepared._way.made(device.upload(images))}


def images_of(*shape):
    images = RNG.integers(-4000, 4001, shape)
    images.flat[:: RNG.integers(5, 9)] = RNG.choice([LOWEST, HIGHEST])
    return images.astype(np.float32)


SKEWED = Pool("sum", (3, 2), (2, 1), ((1, 2), (1, 0)))
CHAINS = {
    "numbers": lambda c, most: (affine(c, 3, 99), Clip(-most, 2 * most)),
    "numbers to bits": lambda c, most: (affine(c, 3, 99), Clip(high=most), threshold(c, most)),
    "windows": lambda c, most: (SKEWED, Clip(-most)),
    "windows to bits": lambda c, most: (Pool("max"), affine(c, 2, 9), threshold(c, most)),
    "zeros": lambda c, most: (PadChannels(3, 2),),
    "windows among zeros": lambda c, most: (Pool("max"), PadChannels(8, 16), threshold(c + 24, most)),
    "sums": lambda c, most: (Residual((affine(c, 2, 9), Clip(-most, most))),),
    "sums to bits": lambda c, most: (Residual((threshold(c, most), conv(c, c))), threshold(c, 2 * most)),
    "sums and bits": lambda c, most: (
        Residual((), (affine(c, 2, 9),)),
        Residual((threshold(c, 2 * most), conv(c, c))),
    ),
    "sums of windows": lambda c, most: (
        Residual((threshold(c, most), conv(c, c + 24, 2)), (Pool("max"), PadChannels(16, 8))),
        threshold(c + 24, most),
    ),
    "vectors": lambda c, most: (Flatten(), Clip(-most), threshold(24 * c, most)),
}


@pytest.mark.at_most(1)
@pytest.mark.pairwise
@pytest.mark.gate_cases("*-31-*", "*-64-*")
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("bits", [16, 32])
def test_a_chain_gives_what_the_definition_gives(name, channels, bits):
    most = 3000 if bits == 16 else 3000 * 2000
    first = Clip(-3000, 3000) if bits == 16 else Affine(*np.full((2, channels), [[2000], [0]], np.int32))
    net = network((4, 6, channels), first, *CHAINS[name](channels, most))
    dtypes = check(net, images_of(2, 4, 6, channels))
    assert dtypes["input"] == np.int16
    if "0" in dtypes:
        assert dtypes["0"] == f"int{bits}"


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("channels", [32, 33])
def test_sums_of_warpgroups_have_16_bits(channels):
    net = network(
        (3, 3, channels),
        Residual((threshold(channels, 900), conv(channels, channels))),
        threshold(channels, 9),
    )
    dtypes = check(net, images_of(1, 3, 3, channels), scheme="wgmma")
    assert dtypes["0.body.1"] == np.int16


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("offset", "bits"), [(0, 16), (1, 32), (-1, 32)])
def test_16_bits_are_used_up_to_their_ends(offset, bits):
    """Numbers of 16 bits are given, added and stored; a range that is larger by one has 32."""
    one, none = np.ones(9, np.int32), np.zeros(9, np.int32)
    images = RNG.choice(np.array([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST], np.float32), (3, 1, 2, 9))
    images[0] = [[LOWEST], [HIGHEST]]
    halves = Residual((Clip(0),), (Clip(high=0),))
    dtypes = check(network((1, 2, 9), Affine(one, none + offset), halves), images)
    assert (dtypes["0"], dtypes["1"]) == (f"int{bits}", f"int{bits}")


def names(net):
    """The layers of each step but the input's."""
    return [[type(layer).__name__ for layer in step.layers] for step in steps_of(net, values_of(net))][1:]


def test_layers_on_integers_are_joined_in_the_order_of_a_launch():
    shape = (4, 4, 8)
    after_all = (Pool("sum"), PadChannels(1, 0), affine(9, 2, 2), Clip(0), threshold(9, 9))
    assert names(network(shape, *after_all))[0] == ["Pool", "PadChannels", "Affine", "Clip", "Threshold"]
    assert names(network(shape, Clip(0), affine(8, 2, 2), Pool("max")))[:3] == [
        ["Clip"],
        ["Affine"],
        ["Pool"],
    ]


def test_a_residual_takes_its_ways_along():
    body, shortcut = (threshold(8, 9), conv(8, 12, 2), affine(12, 3, 3)), (Pool("max"), PadChannels(2, 2))
    net = network((4, 4, 8), Clip(0), Residual(body, shortcut), threshold(12, 9))
    assert names(net)[:3] == [
        ["Clip", "Threshold"],
        ["Conv"],
        ["Pool", "PadChannels", "Affine", "Residual", "Threshold"],
    ]
    exchanged = network((4, 4, 8), Residual(shortcut, body))
    assert [each for each in names(exchanged) if "Residual" in each] == [["Residual"]]


def test_what_others_need_is_stored_before_they_read_it():
    ways = (Clip(0), affine(8, 1, 1)), (threshold(8, 9), conv(8, 8))
    net = network((2, 3, 8), affine(8, 2, 5), Residual(*ways))
    assert names(net)[0] == ["Affine", "Threshold"]
    check(net, images_of(2, 2, 3, 8))


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("rows", [1, 600])
def test_blocks_go_down_the_rows(rows):
    """More rows than a multiprocessor's blocks have threads for."""
    device, images = Device(multiprocessors=1), images_of(1, rows, 1, 33)
    net = network((rows, 1, 33), affine(33, 2, 9), threshold(33, 5000))
    answer = gpu.bnn.run(net, images, schemes={"Dense": "bmm32"}, device=device)
    np.testing.assert_array_equal(answer.sums, reference.bnn.run(net, images).sums)
