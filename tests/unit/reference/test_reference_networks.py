"""The networks: each layer's size against the tables of the papers and the published programs."""

from functools import cache, partial

import numpy as np
import pytest

from reference import SchemeError, ShapeError
from reference.bnn import (
    Affine,
    Conv,
    Dense,
    PadChannels,
    Pool,
    Residual,
    Signs,
    Threshold,
    alexnet,
    lenet,
    mlp,
    resnet14,
    resnet18,
    run,
    values,
    vgg16,
    vgg_cifar,
)
from reference.types.network_values import follow, multiply_adds

# What each Conv and Dense of the tables gives: height, filter, stride, channels; pooling shows in heights.
VGG_CIFAR = [(32, 3, 1, 128)] * 2 + [(16, 3, 1, 256)] * 2 + [(8, 3, 1, 512)] * 2 + [1024, 1024, 10]
ALEXNET_ENDS = [4096, 4096, 1000]
VGG16 = [
    *[(224, 3, 1, 64)] * 2,
    *[(112, 3, 1, 128)] * 2,
    *[(56, 3, 1, 256)] * 3,
    *[(28, 3, 1, 512)] * 3,
    *[(14, 3, 1, 512)] * 3,
    *ALEXNET_ENDS,
]


def resnet(first, *stages):
    """Two blocks of two convolutions a stage; stride 2 where the height halves."""
    rows = [first]
    for height, channels in stages:
        strided = rows[-1] is not first and height * 2 == rows[-1][0]
        rows += [(height, 3, 2 if strided else 1, channels), *[(height, 3, 1, channels)] * 3]
    return rows


RESNET18 = resnet((56, 7, 4, 64), (56, 64), (28, 128), (14, 256), (7, 512))
TABLES = {
    "mlp": (mlp, {}, [1024, 1024, 1024, 10]),
    "vgg-cifar": (vgg_cifar, {}, VGG_CIFAR),
    "resnet14, code": (
        resnet14,
        {},
        [*resnet((32, 3, 1, 128), (32, 128), (16, 256), (8, 512)), 512, 10],
    ),
    "resnet14, paper": (
        resnet14,
        {"form": "paper"},
        [*resnet((16, 3, 2, 128), (16, 128), (8, 256), (4, 512)), 512, 10],
    ),
    "alexnet, code": (
        alexnet,
        {},
        [(56, 11, 4, 64), (28, 5, 1, 192), (14, 3, 1, 384), *[(14, 3, 1, 256)] * 2, *ALEXNET_ENDS],
    ),
    "alexnet, paper": (
        alexnet,
        {"form": "paper"},
        [(56, 11, 4, 128), (28, 5, 1, 256), *[(14, 3, 1, 256)] * 3, *ALEXNET_ENDS],
    ),
    "alexnet, sc19": (
        alexnet,
        {"form": "sc19"},
        [(56, 11, 4, 128), (28, 5, 1, 256), *[(14, 3, 1, 384)] * 2, (14, 3, 1, 256), *ALEXNET_ENDS],
    ),
    "vgg16": (vgg16, {}, VGG16),
    "resnet18": (resnet18, {}, [*RESNET18, 512, 1000]),
}
WIDTH = 16
"""All sizes but those of input and output are multiples of it: networks this much narrower will do."""


def weighted(network):
    """Each layer with weights outside shortcuts, and what it gives."""
    for path, layer, given in follow(network):
        if isinstance(layer, Conv | Dense) and "shortcut" not in path:
            yield layer, given


def wide(channels, narrow):
    return channels if channels in (3, 10, 1000) else channels // narrow


@pytest.mark.parametrize("name", TABLES)
def test_layers_are_those_of_the_tables(name):
    make, options, table = TABLES[name]
    found = list(weighted(make(width=WIDTH, **options)))
    assert len(found) == len(table)
    channels = 3
    for (layer, given), row in zip(found, table, strict=True):
        if isinstance(row, int):
            assert given.shape == (wide(row, WIDTH),)
            continue
        height, window, stride, filters = row
        assert given.shape == (height, height, wide(filters, WIDTH))
        assert layer.filters.shape == (window, window, wide(channels, WIDTH), wide(filters, WIDTH))
        assert layer.stride == (stride, stride)
        assert layer.padding == ((window // 2, window // 2),) * 2
        channels = filters


def test_lenet_has_the_sizes_of_lenet_5():
    network = lenet()
    found = [(type(layer).__name__, given.shape) for _, layer, given in follow(network)]
    assert [shape for name, shape in found if name in ("Conv", "Pool", "Flatten", "Dense")] == [
        (28, 28, 6),
        (14, 14, 6),
        (10, 10, 16),
        (5, 5, 16),
        (400,),
        (120,),
        (84,),
        (10,),
    ]
    convolutions = [layer for layer in network.layers if isinstance(layer, Conv)]
    assert [layer.filters.shape for layer in convolutions] == [(5, 5, 1, 6), (5, 5, 6, 16)]
    assert [layer.padding for layer in convolutions] == [((2, 2),) * 2, ((0, 0),) * 2]
    assert isinstance(network.input, Signs)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (mlp, 784 * 1024 + 2 * 1024**2 + 1024 * 10),
        (lenet, 28**2 * 25 * 6 + 10**2 * 25 * 6 * 16 + 400 * 120 + 120 * 84 + 840),
        (
            partial(alexnet, width=64),
            56**2 * 363 + 28**2 * 75 + 14**2 * 9 * (18 + 24 + 16) + 196 * 64 + 64**2 + 64000,
        ),
        # 64 of 7×7 at stride 4; then four convolutions a stage, the first from half the channels
        (
            partial(resnet18, width=64),
            56**2 * (147 + 36) + 28**2 * 9 * (2 + 12) + 14**2 * 9 * (8 + 48) + 7**2 * 9 * (32 + 192) + 11136,
        ),
    ],
    ids=["mlp", "lenet", "alexnet", "resnet18"],
)
def test_multiply_adds_are_counted(make, expected):
    assert sum(multiply_adds(layer, given) for _, layer, given in follow(make())) == expected


@pytest.mark.gate
def test_vgg16_has_the_multiply_adds_that_everyone_counts():
    counted = sum(multiply_adds(layer, given) for _, layer, given in follow(vgg16()))
    assert counted == 15_346_630_656 + 123_633_664


SMALL = {
    "mlp": partial(mlp, width=8),
    "vgg-cifar": partial(vgg_cifar, size=16, width=8),
    "alexnet, code": partial(alexnet, size=32, width=8),
    "alexnet, paper": partial(alexnet, size=32, width=8, form="paper"),
    "alexnet, sc19": partial(alexnet, size=32, width=8, form="sc19"),
    "lenet": lenet,
    "vgg16": partial(vgg16, size=32, width=16),
    **{f"resnet14, {s}": partial(resnet14, size=16, width=8, shortcut=s) for s in ("A", "B", "bireal", None)},
    "resnet14, paper": partial(resnet14, size=16, width=8, form="paper"),
    **{
        f"resnet18, {s}": partial(resnet18, size=32, width=16, shortcut=s) for s in ("A", "B", "bireal", None)
    },
}


@cache
def small(name):
    """A network of few channels."""
    return SMALL[name]()


@pytest.mark.at_most(3)
@pytest.mark.parametrize("name", SMALL)
def test_no_layer_has_equal_bits(name):
    network = small(name)
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (4, *network.input.shape), dtype=np.uint8)
    for path, value in values(network, images):
        if value.dtype == np.uint8:
            assert 0.05 < value.mean() < 0.98, path
    assert (run(network, images).sums.std(axis=0) > 0).mean() > 0.5


@pytest.mark.parametrize("name", SMALL)
def test_batch_normalisations_have_either_sign(name):
    flips = [layer.flip for _, layer, _ in follow(small(name)) if isinstance(layer, Threshold)]
    assert 0.3 < np.concatenate(flips).mean() < 0.7


def shortcuts(network):
    return [
        tuple(type(inner) for inner in layer.shortcut)
        for layer in network.layers
        if isinstance(layer, Residual)
    ]


def test_shortcuts_are_as_named():
    assert shortcuts(small("resnet14, A")) == [(), (), (Pool, PadChannels), (), (Pool, PadChannels), ()]
    assert shortcuts(small("resnet14, B")) == [(), (), (Threshold, Conv), (), (Threshold, Conv), ()]
    ways = shortcuts(small("resnet18, bireal"))
    assert len(ways) == 16
    assert [i for i, way in enumerate(ways) if way] == [4, 8, 12]
    assert ways[4] == (Pool, Threshold, Conv, Affine)
    assert shortcuts(small("resnet18, None")) == []
    for pool in (small("resnet14, A").layers[3].shortcut[0], small("resnet18, bireal").layers[6].shortcut[0]):
        assert pool.window == pool.stride == (2, 2)
    assert small("resnet14, A").layers[3].shortcut[0].kind == "max"


def test_inputs_are_bits_for_the_mlp_and_centred_bytes_else():
    assert isinstance(mlp(width=64).input, Signs)
    given = vgg_cifar(size=8, width=64).input
    assert (given.scale.tolist(), given.offset.tolist()) == ([1] * 3, [-128] * 3)


def test_seeds_give_networks():
    images = np.zeros((1, 28, 28, 1), np.uint8)
    first, again, other = (run(mlp(width=8, seed=seed), images).sums for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("make", [lambda: alexnet(size=48), lambda: resnet14(size=0), lambda: mlp(width=3)])
def test_sizes_that_do_not_divide_are_refused(make):
    with pytest.raises(ShapeError, match="give"):
        make()


def test_other_forms_and_shortcuts_are_refused():
    with pytest.raises(SchemeError, match="choose 'code' or 'paper' or 'sc19'"):
        alexnet(form="sc20", size=32)
    with pytest.raises(SchemeError, match=r"choose 'code' or 'paper'$"):
        resnet14(form="sc19", size=32)
    with pytest.raises(SchemeError, match="choose 'A' or 'B' or 'bireal' or None"):
        resnet18(shortcut="C", size=32)
