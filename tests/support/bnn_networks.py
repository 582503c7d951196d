"""Networks of every kind of layer, and a check of their runs on a device against the definition."""

import math

import numpy as np

import gpu.bnn
import reference.bnn
from reference import pack, pack_tensor
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
)
from reference.types.network_values import _follow, input_value
from simwarp import Device

RNG = np.random.default_rng(21)


def signs(*shape):
    return RNG.choice(np.array([-1, 1], np.int8), shape)


def ints(low, high, *shape):
    return RNG.integers(low, high + 1, shape).astype(np.int32)


def conv(*shape, **options):
    return Conv(pack_tensor(signs(*shape), layout="HWOI"), **options)


def dense(*shape):
    return Dense(pack(signs(*shape), layout="row"))


def threshold(channels, spread=3):
    return Threshold(ints(-spread, spread, channels), RNG.random(channels) < 0.5)


def pixels(*shape):
    return Pixels(shape, ints(-3, 3, shape[-1]), ints(-300, 300, shape[-1]))


def network(given, *layers):
    """A network of layers; they end with Flatten and Dense unless the last one is Dense."""
    if not isinstance(layers[-1], Dense):
        *_, (_, _, last) = _follow(layers, input_value(given), "")
        layers = (*layers, Flatten(), dense(math.prod(last.shape), 5))
    count = layers[-1].weights.shape[1]
    return Network("small", given, layers, *RNG.standard_normal((2, count)).astype(np.float32))


def images(given, count):
    if isinstance(given, Pixels | BitPlanes):
        return RNG.integers(0, 256, (count, *given.shape), dtype=np.uint8)
    return RNG.standard_normal((count, *given.shape)).astype(np.float32)


def check(net, count, device=None, **options):
    """Every launch's values, and three runs: by launches, captured, and as the graph."""
    prepared = gpu.bnn.prepare(net, device=device or Device(), **options)
    given = images(net.input, count)
    expected = dict(reference.bnn.values(net, given))
    for path, value in prepared.values(given):
        assert value.dtype == expected[path].dtype
        np.testing.assert_array_equal(value, expected[path], err_msg=path)
    answer = reference.bnn.run(net, given)
    for _ in range(3):
        for got, wanted in zip(prepared.run(given), answer, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted)
    return prepared


SAME = ((1, 1), (1, 1))
SMALL = {
    "dense of pixels": (pixels(70), dense(70, 33)),
    "dense of pixels to bits": (pixels(70), dense(70, 33), threshold(33, 500), dense(33, 10)),
    "conv of pixels": (pixels(5, 4, 3), conv(3, 3, 3, 33, padding=SAME), threshold(33, 900)),
    "conv of pixels with a stride": (
        pixels(7, 6, 3),
        conv(3, 2, 3, 5, stride=(2, 3), padding=((2, 0), (1, 3))),
    ),
    "conv of reals": (Reals((4, 5, 2), fraction=9), conv(3, 3, 2, 9, dilation=(1, 2)), threshold(9, 900)),
    "reals": (Reals((6,), fraction=3), Affine(ints(-9, 9, 6), ints(-9, 9, 6)), threshold(6), dense(6, 3)),
    "pixels": (pixels(3, 3, 2), threshold(2, 300)),
    "signs of vectors": (Signs((45,), RNG.standard_normal(45).astype(np.float32)), dense(45, 3)),
    "signs of images": (Signs((3, 2, 34), np.zeros(34, np.float32)), conv(2, 2, 34, 3)),
    "bit planes": (BitPlanes((3, 3, 3)), conv(3, 3, 24, 8)),
    "bit planes of vectors": (BitPlanes((9,)), dense(72, 8)),
    "wide integers": (pixels(4, 4, 2), Affine(ints(200, 900, 2), ints(0, 9, 2)), conv(3, 3, 2, 4)),
    "wide integers by dense": (pixels(66), Affine(ints(200, 900, 66), ints(0, 9, 66)), dense(66, 4)),
    "clip": (pixels(3, 2, 2), Clip(0), Clip(high=90), Clip(), threshold(2, 90)),
    "flattened integers": (pixels(2, 3, 3), Flatten(), dense(18, 4)),
    "flattened bits": (Signs((3, 3, 37), np.zeros(37, np.float32)), Flatten(), Flatten(), dense(333, 4)),
    "max": (pixels(5, 6, 3), Pool("max", (3, 2), (2, 3), ((1, 2), (1, 0)))),
    "sum": (pixels(3, 3, 3), Pool("sum", (3, 3), (1, 1), ((2, 2), (0, 0)))),
    "or": (Signs((5, 5, 33), np.zeros(33, np.float32)), Pool("or", (3, 3), (2, 2), SAME)),
    "and": (BitPlanes((4, 5, 5)), Pool("and", (2, 3), (2, 1), ((0, 1), (0, 0)))),
    "pool of a convolution": (BitPlanes((5, 7, 1)), conv(1, 1, 8, 33), threshold(33), Pool("and")),
    "residual": (
        pixels(4, 4, 3),
        conv(3, 3, 3, 5, padding=SAME),
        Residual((threshold(5), conv(3, 3, 5, 5, padding=SAME))),
        Residual(
            (threshold(5), conv(3, 3, 5, 9, padding=SAME, stride=(2, 2))), (Pool("max"), PadChannels(3, 1))
        ),
        threshold(9),
    ),
    "residual of pools": (
        pixels(4, 5, 3),
        conv(3, 3, 3, 5, padding=SAME),
        Residual((threshold(5), Pool("or"), conv(1, 1, 5, 5)), (Pool("max"), Clip(-9, 9))),
    ),
    "flattened signs": (Signs((3, 2, 5), RNG.standard_normal(5).astype(np.float32)), Flatten(), dense(30, 4)),
    "residual of bits": (BitPlanes((2, 2, 1)), Residual((conv(1, 1, 8, 8),), (conv(1, 1, 8, 8),)), Clip(0)),
    "doubled": (
        pixels(
            5,
        ),
        Residual((), ()),
        Residual((Residual(()),), (Clip(-5, 5),)),
        threshold(5),
        dense(5, 2),
    ),
}


DEEP = (
    pixels(9, 8, 3),
    conv(3, 3, 3, 40, padding=SAME),
    threshold(40, 900),
    conv(3, 3, 40, 33, padding=SAME),
    threshold(33),
    Pool("or"),
    conv(2, 2, 33, 33),
    Residual((threshold(33), conv(3, 3, 33, 33, padding=SAME))),
    Residual((threshold(33), conv(3, 3, 33, 33, padding=SAME))),
    threshold(33),
    Flatten(),
    dense(33 * 9, 50),
    threshold(50),
    dense(50, 7),
)

NETWORKS = {
    "mlp": lambda: reference.bnn.mlp(width=8),
    "vgg_cifar": lambda: reference.bnn.vgg_cifar(size=8, width=4),
    "resnet14": lambda: reference.bnn.resnet14(size=8, width=4),
    "alexnet": lambda: reference.bnn.alexnet(size=64, width=16),
    "alexnet of SC'19": lambda: reference.bnn.alexnet(form="sc19", size=32, width=16),
    "lenet": reference.bnn.lenet,
    "vgg16": lambda: reference.bnn.vgg16(size=32, width=16),
    "resnet18": lambda: reference.bnn.resnet18(size=32, width=16),
    "resnet18, type B": lambda: reference.bnn.resnet18(size=32, width=16, shortcut="B"),
    "resnet18, Bi-Real": lambda: reference.bnn.resnet18(size=32, width=16, shortcut="bireal"),
}
