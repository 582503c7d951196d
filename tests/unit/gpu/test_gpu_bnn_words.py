"""Networks on words of 64 bits (SBNN-64), and words of 32 and 64 side by side, on the simulator."""

import numpy as np
import pytest

import gpu.bnn
import reference.bnn
from gpu.bnn.weights import matrix_along_k
from reference import SchemeError, pack, pack_tensor
from reference.bnn import Conv, Dense, Flatten, Network, Pool, Signs, Threshold
from simwarp import Device

RNG = np.random.default_rng(64)
SBNN_64 = {"Conv": "bconv64", "Dense": "bmm64"}
FINE = {"Conv": "bconv64", "Dense": "bmms64"}


def signs(*shape):
    return RNG.choice(np.array([-1, 1], np.int8), shape)


def threshold(channels):
    limits = RNG.integers(-3, 4, channels).astype(np.int32)
    return Threshold(limits, RNG.random(channels) < 0.5)


def network(*widths, size=3):
    """Two convolutions with a pool between, then three dense layers; ``widths`` of bits, in order."""
    first, second, third, hidden, classes = widths
    layers = [
        Conv(pack_tensor(signs(3, 3, first, second), layout="HWOI"), padding=((1, 1), (1, 1))),
        threshold(second),
        Pool("or", (2, 2), (1, 1)),
        Conv(pack_tensor(signs(1, 1, second, third), layout="HWOI")),
        threshold(third),
        Flatten(),
        Dense(pack(signs((size - 1) ** 2 * third, hidden), layout="row")),
        threshold(hidden),
        Dense(pack(signs(hidden, hidden), layout="row")),
        threshold(hidden),
        Dense(pack(signs(hidden, classes), layout="row")),
    ]
    given = Signs((size, size, first), np.zeros(first, np.float32))
    return Network("small", given, tuple(layers), *RNG.standard_normal((2, classes)).astype(np.float32))


NETWORKS = {
    "whole words": (64, 128, 64, 64, 5),
    "words in part": (33, 70, 31, 97, 9),
    "narrow": (1, 5, 3, 2, 2),
}


@pytest.fixture
def launches(monkeypatch):
    """The names of launched kernels."""
    names = []
    launch = Device.launch

    def recorded(self, plan, arrays):
        names.append(plan.name)
        launch(self, plan, arrays)

    monkeypatch.setattr(Device, "launch", recorded)
    return names


def check(net, schemes, device=None):
    """Every launch's values, and three runs: by launches, captured, and as the graph."""
    given = RNG.standard_normal((2, *net.input.shape)).astype(np.float32)
    prepared = gpu.bnn.prepare(net, schemes=schemes, device=device or Device())
    expected = dict(reference.bnn.values(net, given))
    for path, value in prepared.values(given):
        np.testing.assert_array_equal(value, expected[path], err_msg=path)
    answer = reference.bnn.run(net, given)
    for _ in range(3):
        for got, wanted in zip(prepared.run(given), answer, strict=True):
            np.testing.assert_array_equal(got, wanted)
    return prepared, given


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("cc", [(7, 5), (9, 0)])
@pytest.mark.parametrize("schemes", [SBNN_64, FINE], ids=["SBNN-64", "SBNN-64-Fine"])
def test_networks_on_words_of_64_bits_give_what_the_definition_gives(name, cc, schemes):
    check(network(*NETWORKS[name]), schemes, Device(cc))


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "schemes",
    [
        {"0": "bconv64", "3": "btc1", "6": "bmm64", "8": "bmms32", "10": "bmms64"},
        {"0": "bconv32", "3": "bconv64", "6": "btc1", "8": "bmm64", "10": "auto"},
        {"0": "auto", "3": "bconv64", "6": "bmms64", "8": "bmm64", "10": "mma"},
    ],
    ids=["64 first", "32 first", "auto first"],
)
def test_words_of_32_and_64_are_mixed(name, schemes):
    check(network(*NETWORKS[name]), schemes)


@pytest.mark.slow
def test_words_are_converted_where_they_change_alone(launches):
    prepared, given = check(network(*NETWORKS["whole words"]), FINE)
    launches.clear()
    prepared.run(given[:1])
    # pixels of whole words stay where they are; flattened bits become words of 64, which products hand on
    assert launches.count("to_words") == 1
    assert [name for name in launches if name in ("bconv64", "bmms64")] == ["bconv64"] * 2 + ["bmms64"] * 3


@pytest.mark.slow
def test_a_product_on_words_of_32_gets_them(launches):
    prepared, given = check(network(*NETWORKS["narrow"]), {**FINE, "8": "bmm32"})
    launches.clear()
    prepared.run(given[:1])
    # of both convolutions' images, before the first product, after it, and before the last one
    assert launches.count("to_words") == 5


@pytest.mark.slow
def test_long_products_take_their_fallback_on_words_of_64(launches):
    k = 2**16
    net = Network(
        "long",
        Signs((k,), np.zeros(k, np.float32)),
        (Dense(pack(signs(k, 1), layout="row")),),
        *np.ones((2, 1), np.float32),
    )
    given = np.ones((1, k), np.float32)
    got = gpu.bnn.run(net, given, schemes=SBNN_64, device=Device())
    np.testing.assert_array_equal(got.sums, reference.bnn.run(net, given).sums)
    assert launches[-2:] == ["bmms64", "answer"]


def test_weights_become_words_of_64_bits():
    matrix = signs(70, 5)
    expected = pack(matrix, layout="row", word=64, first="lsb")
    for word, first in ((32, "lsb"), (64, "msb"), (64, "lsb"), (128, "msb")):
        got = matrix_along_k(pack(matrix, layout="row", word=word, first=first), 64)
        np.testing.assert_array_equal(got.words, expected.words)
        assert (got.word, got.first, got.words.dtype) == (64, "lsb", np.uint64)


@pytest.mark.parametrize(
    ("schemes", "message"),
    [
        ({"6": "wgmma"}, r"^layer 6 \(Dense\): scheme='wgmma' on sm_75\n"),
        ({"8": "mma"}, r"^layer 8 \(Dense\): scheme='mma' on sm_75\n.*\nchoose btc2"),
        ({"3": "wgmma"}, r"^layer 3 \(Conv\): scheme='wgmma' on sm_75\n.*\nchoose btc1"),
        ({"10": "bconv64"}, "^scheme of layer 10='bconv64'\n"),
    ],
)
def test_schemes_that_a_chip_lacks_are_refused_by_the_layer(schemes, message):
    with pytest.raises(SchemeError, match=message):
        gpu.bnn.prepare(network(*NETWORKS["narrow"]), schemes=schemes, device=Device((7, 5)))
