"""Models of PyTorch as networks: drawn ones, traps, and what is refused by name.

Parameters are dyadic and models run in float64, so that PyTorch does not round and answers must be equal.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from reference import ExportError, NotANumberError, RangeError, ShapeError
from reference.bnn import Affine, Clip, Conv, Dense, Flatten, PadChannels, Pool, Residual, Threshold, run
from reference.types.network_values import follow

torch = pytest.importorskip("torch", reason="simwarp.torch needs torch")
nn = torch.nn
st = importlib.import_module("simwarp.torch")


EPSILON = 1 / 16
"""Of batch normalisations; variances are so much smaller that no sum is rounded."""


def choose(rng, values, *shape):
    return torch.from_numpy(rng.choice(np.asarray(values, np.float64), shape))


def dyadic(model, seed=0):
    """The model for evaluation in float64, with parameters that no operation rounds."""
    rng = np.random.default_rng(seed)
    quarters = np.arange(-16, 17) / 4
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                size = module.num_features
                module.eps = EPSILON
                module.running_var.copy_(choose(rng, [0.25, 1, 4, 16], size) - EPSILON)
                module.running_mean.copy_(choose(rng, quarters, size))
                if module.affine:
                    module.weight.copy_(choose(rng, [-2, -1, -0.5, 0, 0.25, 1, 2], size))
                    module.bias.copy_(choose(rng, quarters, size))
            elif isinstance(module, (st.BinaryConv2d, st.BinaryLinear)):
                module.weight.copy_(choose(rng, [-1, -0.5, -0.0, 0.0, 0.5, 1], *module.weight.shape))
                if module.bias is not None:
                    module.bias.copy_(choose(rng, quarters, len(module.bias)))
    return model.double().eval()


def centred(model, images):
    """Move the means of batch normalisations to where their inputs are, so that signs vary."""

    def move(module, given):
        axes = [0, *range(2, given[0].ndim)]
        module.running_mean.add_((given[0].mean(axes) * 4).round() / 4)

    norms = [module for module in model.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    hooks = [norm.register_forward_pre_hook(move) for norm in norms]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()


def images_for(model, shape, seed=0, count=4):
    """Images in PyTorch's order; the first one has only ends of the range."""
    rng = np.random.default_rng(seed)
    first = model[0]
    if isinstance(first, st.ImagePixels):
        images = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        images[0] = 255 * rng.integers(0, 2, shape)
    else:
        images = (rng.integers(-64, 65, (count, *shape)) / 16).astype(np.float32)
        images[0] = np.where(rng.random(shape) < 0.5, -0.0, images[0])
    return images


def last_axis(images):
    return np.moveaxis(images, 1, -1)


def check(model, shape, seed=0, **options):
    """Export, and compare logits; gives the network."""
    model = dyadic(model, seed)
    images = images_for(model, shape, seed)
    centred(model, torch.from_numpy(images))
    network = st.export(model, torch.from_numpy(images), name="test", **options)
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    answer = run(network, np.ascontiguousarray(last_axis(images)))
    assert np.array_equal(answer.logits, expected)
    return network


def kinds(layers):
    return [type(layer).__name__ for layer in layers]


class Sum(nn.Module):
    """Two branches and their sum."""

    def __init__(self, body, shortcut=None, written="operator"):
        super().__init__()
        self.body, self.shortcut, self.written = body, shortcut or nn.Identity(), written

    def forward(self, x):
        a, b = self.body(x), self.shortcut(x)
        if self.written == "inplace":
            a += b
            return a
        return torch.add(a, b) if self.written == "function" else a + b


class Channels(nn.Module):
    """The shortcut of type A."""

    def __init__(self, before, after):
        super().__init__()
        self.pad = (0, 0, 0, 0, before, after)

    def forward(self, x):
        return nn.functional.pad(x, self.pad)


# --------------------------------------------------------------------------------------------------
# Drawn models
# --------------------------------------------------------------------------------------------------


class Drawn:
    """A model drawn layer by layer; it knows the shape (C, H, W) so far."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.shape = (int(rng.integers(1, 5)), int(rng.integers(5, 12)), int(rng.integers(5, 12)))
        self.given = self.shape
        channels = self.shape[0]
        starts = [
            lambda: st.ImagePixels(
                rng.integers(1, 3, channels), rng.integers(-150, -100, channels), fraction=3
            ),
            lambda: st.ImageReals(int(rng.integers(0, 4))),
            lambda: st.ImageSigns(rng.integers(-8, 8, channels) / 4),
        ]
        self.parts = [starts[rng.integers(3)]()]
        for _ in range(rng.integers(1, 4)):
            self.conv_block() if rng.random() < 0.6 else self.residual()
        self.tail()
        self.model = nn.Sequential(*self.parts)

    def chance(self, p):
        return self.rng.random() < p

    def add(self, *modules):
        for module in modules:
            self.parts.append(module)
            if hasattr(module, "kernel_size") or isinstance(module, Sum):
                # shapes by a trial
                x = torch.zeros(1, *self.shape)
                self.shape = tuple(module.eval()(x).shape[1:])

    def function(self, channels):
        """None, or a chain of monotone functions."""
        choices = [
            [],
            [nn.BatchNorm2d(channels)],
            [nn.BatchNorm2d(channels), nn.Hardtanh()],
            [nn.ReLU(), nn.BatchNorm2d(channels)],
            [nn.BatchNorm2d(channels), nn.ReLU(), nn.BatchNorm2d(channels)],
            [nn.Hardtanh(-2.5, 7.25), nn.BatchNorm2d(channels, affine=False), nn.Dropout(0.3)],
            [nn.ReLU6(), nn.BatchNorm2d(channels)],
        ]
        return choices[self.rng.integers(len(choices))]

    def pool(self):
        if min(self.shape[1:]) < 4:
            return []
        if self.chance(0.7):
            size = int(self.rng.integers(2, 4))
            return [
                nn.MaxPool2d(
                    size,
                    int(self.rng.integers(1, 4)),
                    int(self.rng.integers(0, 2)),
                    ceil_mode=self.chance(0.5),
                )
            ]
        return [nn.AvgPool2d(2, int(self.rng.integers(1, 3)))]

    def conv(self, channels=None, keep=False):
        rng = self.rng
        size, dilation = (
            (int(rng.choice([1, 3])), 1) if keep else (int(rng.integers(1, 4)), int(rng.integers(1, 3)))
        )
        while (size - 1) * dilation + 1 > min(self.shape[1:]):
            size, dilation = 1, 1
        value = int(rng.choice([0, 0, -1, 1])) if isinstance(self.parts[-1], st.Sign) else 0
        return st.BinaryConv2d(
            self.shape[0],
            channels or int(rng.integers(1, 40)),
            size,
            1 if keep else int(rng.integers(1, 5)),
            size // 2 if keep else int(rng.integers(0, 3)),
            dilation,
            bias=self.chance(0.3),
            padding_value=value,
        )

    def conv_block(self):
        self.add(self.conv())
        sign, pool = [st.Sign()], self.pool()
        function = self.function(self.shape[0])
        if self.chance(0.15):
            sign = []
        if any(isinstance(part, nn.AvgPool2d) for part in pool):
            self.add(*pool, *function, *sign)
            return
        order = self.rng.integers(3)
        self.add(
            *[(*pool, *function, *sign), (*function, *pool, *function[:0], *sign), (*function, *sign, *pool)][
                order
            ]
        )

    def residual(self):
        if isinstance(self.parts[-1], (st.ImageSigns, nn.MaxPool2d)) or len(self.parts) == 1:
            self.add(self.conv())
        channels = self.shape[0]
        body = [st.Sign(), self.conv(channels, keep=True), *self.function(channels)]
        shortcut = None
        if self.chance(0.3):
            shortcut = nn.Sequential(st.Sign(), st.BinaryConv2d(channels, channels, 1))
        elif self.chance(0.5):
            body[1] = st.BinaryConv2d(channels, channels + 3, 3, padding=1)
            body[2:] = []
            shortcut = Channels(1, 2)
        written = ["operator", "inplace", "function"][self.rng.integers(3)]
        self.add(Sum(nn.Sequential(*body), shortcut, written))
        if self.chance(0.7):
            self.add(*self.function(self.shape[0]), st.Sign())

    def tail(self):
        channels, height, width = self.shape
        if self.chance(0.3) and height % 2 == 0 == width % 2 and height * width in (4, 16, 64):
            self.parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
            features = channels
        else:
            self.parts += [nn.Flatten()]
            features = channels * height * width
        if self.chance(0.4):
            middle = int(self.rng.integers(1, 70))
            self.parts += [
                st.BinaryLinear(features, middle, bias=self.chance(0.5)),
                nn.BatchNorm1d(middle),
                st.Sign(),
            ]
            features = middle
        self.parts += [st.BinaryLinear(features, 7)]
        if self.chance(0.7):
            self.parts += [nn.BatchNorm1d(7)]


@pytest.mark.parametrize("group", range(28))
def test_drawn_models_have_equal_logits(group):
    """280 models, of which few have integers beyond int32."""
    torch.set_num_threads(1)
    large = 0
    for seed in range(10 * group, 10 * group + 10):
        drawn = Drawn(seed)
        try:
            check(drawn.model, drawn.given, seed)
        except Exception as error:
            if not isinstance(error, (ExportError, RangeError)) or "beyond int32" not in str(error):
                raise AssertionError(f"seed {seed}: {drawn.model}") from error
            large += 1
    assert large <= 2


def test_drawn_models_have_every_kind_of_layer():
    seen, pools, varied = set(), set(), 0
    for seed in range(120):
        drawn = Drawn(seed)
        model = dyadic(drawn.model, seed)
        images = torch.from_numpy(images_for(model, drawn.given, seed))
        centred(model, images)
        try:
            network = st.export(model, images, name="test")
        except (ExportError, RangeError):
            continue
        for _, layer, _ in follow(network):
            seen.add(type(layer))
            pools |= {layer.kind} if isinstance(layer, Pool) else set()
        with torch.no_grad():
            varied += bool((model(images).std(0) > 0).any())
    assert seen == {Affine, Clip, Conv, Dense, Flatten, PadChannels, Pool, Residual, Threshold}
    assert pools == {"or", "max", "sum"}
    assert varied >= 80


# --------------------------------------------------------------------------------------------------
# Traps
# --------------------------------------------------------------------------------------------------


def normalisation(gamma, beta, mean, variance=4.0, axes=2):
    """A batch normalisation with these parameters."""
    layer = (nn.BatchNorm2d if axes == 2 else nn.BatchNorm1d)(len(gamma), eps=EPSILON)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(gamma))
        layer.bias.copy_(torch.tensor(beta))
        layer.running_mean.copy_(torch.tensor(mean))
        layer.running_var.fill_(variance - EPSILON)
    return layer


def as_it_is(model, shape, **options):
    """Export a model whose parameters are set already, and compare logits."""
    model = model.double().eval()
    images = images_for(model, shape)
    network = st.export(model, torch.from_numpy(images), name="test", **options)
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    answer = run(network, np.ascontiguousarray(last_axis(images)))
    assert np.array_equal(answer.logits, expected)
    assert np.ptp(answer.logits) > 0
    return network


def vectors(*between, features=6):
    return nn.Sequential(
        st.ImagePixels(offset=-128),
        st.BinaryLinear(9, features),
        *between,
        st.Sign(),
        st.BinaryLinear(features, 5),
    )


def test_a_negative_gamma_flips():
    network = as_it_is(vectors(normalisation([-2.0] * 3 + [1.0] * 3, [0.5] * 6, [7.0] * 6, axes=1)), (9,))
    assert network.layers[1].flip.tolist() == [True] * 3 + [False] * 3
    assert network.layers[1].thresholds.tolist() == [8] * 3 + [6] * 3


def test_a_gamma_of_zero_is_a_constant():
    network = as_it_is(
        vectors(normalisation([0.0, 0.0, 0.0, 1, 1, 1], [0.5, -0.5, -0.0, 0, 0, 0], [7.0] * 6, axes=1)), (9,)
    )
    assert network.layers[1].thresholds[:3].tolist() == [-(2**31)] * 3
    assert network.layers[1].flip[:3].tolist() == [False, True, False]


def test_minus_zero_is_at_least_zero():
    model = nn.Sequential(st.ImageSigns(0.0), st.BinaryLinear(4, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[-0.0] * 4, [-1.0] * 4]))
    images = np.full((1, 4), -0.0, np.float32)
    network = st.export(model, torch.from_numpy(images), name="zeros")
    assert run(network, images).sums.tolist() == [[4, -4]]
    assert model(torch.from_numpy(images)).tolist() == [[4, -4]]


@pytest.mark.parametrize("value", [0, -1, 1])
def test_padding_values_are_told_apart(value):
    def padded(value):
        torch.manual_seed(0)
        return nn.Sequential(
            st.ImagePixels(offset=-128),
            st.BinaryConv2d(2, 5, 1),
            normalisation([1.0, -1.0, 0.0, 0.0, 2.0], [0.5, 0.5, 0.5, -0.5, -3], [7.0] * 5),
            st.Sign(),
            nn.MaxPool2d(2),
            st.BinaryConv2d(5, 4, 3, padding=(1, 2), stride=2, padding_value=value),
            nn.Flatten(),
        )

    network = as_it_is(nn.Sequential(*padded(value), st.BinaryLinear(24, 3)), (2, 6, 7))
    assert (
        kinds(network.layers[1:4]) == [["Threshold", "Pool", "Conv"], ["Affine", "Clip", "Pool"]][value != 0]
    )
    images = torch.from_numpy(images_for(padded(0), (2, 6, 7)))
    zeros, others = (padded(v).eval()(images) for v in (0, value))
    assert (value == 0) == torch.equal(zeros, others)


def test_padding_with_ones_of_bits_of_and():
    """The maximum of decreasing functions is the AND of their bits, whose padding is a 0 or a 1 too."""
    model = nn.Sequential(
        st.ImagePixels(offset=-128),
        st.BinaryConv2d(2, 5, 1),
        nn.MaxPool2d(2),
        normalisation([-1.0] * 5, [0.5] * 5, [7.0] * 5),
        st.Sign(),
        st.BinaryConv2d(5, 4, 3, padding=1, padding_value=-1),
        nn.Flatten(),
        st.BinaryLinear(36, 3),
    )
    as_it_is(model, (2, 6, 7))
    model[5] = st.BinaryConv2d(5, 4, 3, padding=1)
    assert as_it_is(model, (2, 6, 7)).layers[2].kind == "and"


@pytest.mark.parametrize("way", ["Flatten", "flatten", "view", "reshape", "torch.flatten"])
def test_flatten_has_the_order_of_channels_first(way):
    class Model(nn.Sequential):
        def forward(self, x):
            x = self[1](self[0](x))
            if way == "Flatten":
                x = self[5](x)
            elif way == "flatten":
                x = x.flatten(1)
            elif way == "view":
                x = x.view(x.size(0), -1)
            elif way == "reshape":
                x = x.reshape(-1, x.shape[1] * x.shape[2] * x.shape[3])
            else:
                x = torch.flatten(x, start_dim=1)
            return self[4](self[3](self[2](x)))

    check(
        Model(
            st.ImagePixels(),
            st.BinaryConv2d(2, 3, 2),
            nn.BatchNorm1d(3 * 3 * 5),
            st.Sign(),
            st.BinaryLinear(45, 4),
            nn.Flatten(),
        ),
        (2, 4, 6),
    )


@pytest.mark.parametrize("size", [5, 6, 7, 8])
@pytest.mark.parametrize(("window", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (2, 3, 1), (3, 3, 0)])
@pytest.mark.parametrize("ceil", [False, True])
def test_pools_of_odd_images_and_ceil_mode(size, window, stride, pad, ceil):
    pool = nn.MaxPool2d(window, stride, pad, ceil_mode=ceil)
    model = nn.Sequential(
        st.ImagePixels(), st.BinaryConv2d(1, 3, 1), pool, nn.BatchNorm2d(3), st.Sign(), nn.Flatten()
    )
    features = model(torch.zeros(1, 1, size, size + 1, dtype=torch.uint8)).shape[1]
    check(nn.Sequential(*model, st.BinaryLinear(features, 4)), (1, size, size + 1))


def test_an_average_with_one_divisor():
    model = nn.Sequential(
        st.ImagePixels(),
        st.BinaryConv2d(1, 3, 1),
        nn.BatchNorm2d(3),
        nn.AvgPool2d(2, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(3, divisor_override=8),
        nn.Flatten(),
        st.BinaryLinear(3, 4),
    )
    check(model, (1, 4, 4))
    for wrong in (
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2, padding=1, count_include_pad=False),
    ):
        with pytest.raises(ExportError, match=r"^2 \(AvgPool2d\): windows at the edge have a smaller"):
            check(nn.Sequential(*model[:2], wrong, nn.Flatten(), st.BinaryLinear(27, 4)), (1, 5, 5))


@pytest.mark.parametrize("channels", [1, 31, 33, 65])
def test_channels_that_do_not_fill_a_word(channels):
    check(
        nn.Sequential(
            st.ImageReals(2),
            st.BinaryConv2d(1, channels, 2),
            st.Sign(),
            st.BinaryConv2d(channels, channels, 3, padding=1),
            st.Sign(),
            nn.Flatten(),
            st.BinaryLinear(12 * channels, 3),
        ),
        (1, 4, 5),
    )


def test_a_stride_beyond_the_kernel():
    check(
        nn.Sequential(
            st.ImageReals(2), st.BinaryConv2d(2, 3, 2, stride=(3, 4)), nn.Flatten(), st.BinaryLinear(27, 3)
        ),
        (2, 8, 10),
    )


def test_a_bias_joins_the_threshold():
    model = vectors()
    model[1] = st.BinaryLinear(9, 6, bias=True)
    network = check(model, (9,))
    assert (
        network.layers[1].thresholds.tolist() == np.ceil(-model[1].bias.detach().numpy()).astype(int).tolist()
    )


def test_dilation_and_padding_same():
    convolution = st.BinaryConv2d(2, 3, (2, 3), padding="same", dilation=(2, 1))
    network = check(
        nn.Sequential(st.ImageReals(2), convolution, nn.Flatten(), st.BinaryLinear(90, 3)), (2, 5, 6)
    )
    assert network.layers[0].padding == ((1, 1), (1, 1))
    assert network.layers[0].dilation == (2, 1)


def test_groups_of_other_convolutions_are_refused():
    with pytest.raises(
        ExportError, match=r"^1 \(Conv2d\): its weights are not ±1: use simwarp\.torch\.BinaryConv2d"
    ):
        check(nn.Sequential(st.ImageReals(2), nn.Conv2d(2, 4, 3, groups=2)), (2, 5, 6))


@pytest.mark.parametrize("value", [0, -1, 1])
def test_groups_of_binary_convolutions(value):
    model = nn.Sequential(
        st.ImageReals(2),
        st.BinaryConv2d(4, 6, 3, padding=1, groups=2),
        st.Sign(),
        st.BinaryConv2d(6, 12, (2, 3), padding=1, groups=6, padding_value=value),
        nn.Flatten(),
        st.BinaryLinear(12 * 6 * 6, 3),
    )
    network = check(model, (4, 5, 6))
    assert [layer.groups for layer in network.layers if isinstance(layer, Conv)] == [2, 6]


# --------------------------------------------------------------------------------------------------
# Shortcuts and fixed point
# --------------------------------------------------------------------------------------------------


def test_the_shortcut_of_type_a_is_a_maximum_and_channels_of_zeros():
    body = nn.Sequential(
        normalisation([1.0] * 4, [0.5] * 4, [3.0] * 4), st.Sign(), st.BinaryConv2d(4, 8, 3, 2, 1)
    )
    block = Sum(body, nn.Sequential(nn.MaxPool2d(2), Channels(1, 3)))
    model = nn.Sequential(
        st.ImagePixels(offset=-128),
        st.BinaryConv2d(1, 4, 1),
        block,
        st.Sign(),
        nn.Flatten(),
        st.BinaryLinear(72, 3),
    )
    network = as_it_is(model, (1, 6, 6))
    residual = network.layers[1]
    assert kinds(residual.body) == ["Threshold", "Conv"]
    assert kinds(residual.shortcut) == ["Pool", "PadChannels"]


class Bireal(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.sign, self.conv = st.Sign("polynomial"), st.BinaryConv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.norm(self.conv(self.sign(x))) + x


def bireal():
    torch.manual_seed(3)
    model = nn.Sequential(
        st.ImagePixels.normalised(0.5, 0.25, fraction=6),
        st.BinaryConv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        Bireal(8),
        Bireal(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        st.BinaryLinear(8, 10),
    )
    with torch.no_grad():
        for _ in range(20):
            model(torch.randint(0, 256, (16, 3, 6, 6), dtype=torch.uint8))
    return model.double().eval()


def test_a_normalised_stream_needs_fixed_point():
    images = torch.randint(0, 256, (8, 3, 6, 6), dtype=torch.uint8)
    with pytest.raises(ExportError, match=r"(?s)^3 \(add\): .*square root.*give fixed_point=16") as caught:
        st.export(bireal(), images, name="bireal")
    assert caught.value.path == "3"
    network = st.export(bireal(), images, name="bireal", fixed_point=16, about="Mine.")
    assert "\nValues that flow on are multiples of 2**-16, rounded by up to 0." in f"\n{network.about}"
    error = float(network.about.split()[-4])
    assert 0 < error < 1
    with torch.no_grad():
        expected = bireal()(images).numpy()
    found = run(network, last_axis(images.numpy())).logits
    assert np.median(np.abs(found - expected)) < 0.01 < np.ptp(expected)
    with pytest.raises(ExportError, match="with 30 binary digits"):
        st.export(bireal(), images, name="bireal", fixed_point=30)


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------


def calling(function):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    return nn.Sequential(st.ImageReals(2), nn.Sequential(Model()), nn.Flatten(), st.BinaryLinear(2, 2))


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


REFUSED = {
    "linear": (nn.Linear(2, 2), "1.0 (Linear): its weights are not ±1: use simwarp.torch.BinaryLinear"),
    "prelu": (nn.PReLU(), "1.0 (PReLU): networks of ±1 do not have it\nuse AdaptiveAvgPool2d, "),
    "layer norm": (nn.LayerNorm(2), "1.0 (LayerNorm): its scale depends on the image: use BatchNorm1d"),
    "running mean": (
        nn.BatchNorm1d(2, track_running_stats=False),
        "1.0 (BatchNorm1d): it has no running mean and variance",
    ),
    "size": (nn.BatchNorm1d(3), "1.0 (BatchNorm1d): it is for 3 channels of 2 axes, and is given (2,)"),
    "pool of vectors": (nn.MaxPool2d(2), "1.0 (MaxPool2d): it is given vectors of 2: images are needed"),
    "two inputs": (st.ImageReals(2), "1.0 (ImageReals): this module must read the images themselves"),
    "features": (st.BinaryLinear(3, 2), "1.0 (BinaryLinear): layer 0 (Dense)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_module_is_refused_by_name(name):
    module, message = REFUSED[name]
    model = nn.Sequential(st.ImageReals(2), nn.Sequential(module), st.BinaryLinear(2, 2))
    with pytest.raises((ExportError, ShapeError)) as caught:
        st.export(model, torch.zeros(1, 2), name="wrong")
    assert str(caught.value).startswith(message)
    assert getattr(caught.value, "path", "1.0") == "1.0"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (torch.sign, "1.0 (sign): torch.sign(0) is 0, which is not a bit\nuse simwarp.torch.Sign"),
        (lambda x: x.sign(), "1.0 (sign): torch.sign(0) is 0"),
        (torch.sigmoid, "1.0 (sigmoid): networks of ±1 do not have this function"),
        (lambda x: x + 1, "1.0 (add): a sum with something other than a tensor of the model"),
        (lambda x: nn.functional.pad(x, (1, 1)), "1.0 (pad): only channels of zeros may be padded"),
        (lambda x: x.flatten(1, out_dim="F"), "1.0 (flatten): Flatten.__init__() got"),
        (lambda x: x.view(2, -1), "1.0 (view): the shape of a view is not (N, -1)"),
    ],
)
def test_a_function_is_refused_by_name(function, message):
    with pytest.raises(ExportError) as caught:
        st.export(calling(function), torch.zeros(1, 2), name="wrong")
    assert str(caught.value).startswith(message)
    assert caught.value.path == "1.0"


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([st.BinaryLinear(4, 2)], "0 (BinaryLinear): the layer reads the images directly\nbegin the model"),
        ([st.ImageReals(2), Branching(), st.BinaryLinear(4, 2)], "Sequential.forward cannot be traced"),
        ([st.ImageReals(2), st.BinaryLinear(4, 2), st.Sign()], "the model (output): the model gives signs"),
        ([st.ImageSigns(), st.BinaryLinear(5, 2)], "1 (BinaryLinear): layer 0 (Dense)"),
        (
            [st.ImageSigns([1.0, 2.0]), st.BinaryLinear(4, 2)],
            "0 (ImageSigns): it has numbers for 2 channels, and the images have 4",
        ),
        (
            [st.ImageSigns(), nn.BatchNorm1d(4), st.BinaryLinear(4, 2)],
            "1 (BatchNorm1d): the image's signs are used",
        ),
    ],
)
def test_a_model_is_refused(layers, message):
    with pytest.raises((ExportError, ShapeError)) as caught:
        st.export(nn.Sequential(*layers).eval(), torch.zeros(1, 4), name="wrong")
    assert str(caught.value).startswith(message)


def test_other_refusals():
    pixels = st.ImagePixels()
    model = nn.Sequential(pixels, st.BinaryConv2d(1, 2, 3, padding=1, padding_value=-1), nn.Flatten())
    with pytest.raises(ExportError, match=r"^1 \(BinaryConv2d\): padding with -1 of a tensor that is not ±1"):
        st.export(model, torch.zeros(1, 1, 4, 4), name="wrong")
    with pytest.raises(ExportError, match=r"^the model \(output\): the model gives \(4, 4, 2\)"):
        st.export(nn.Sequential(pixels, st.BinaryConv2d(1, 2, 1)), torch.zeros(1, 1, 4, 4), name="wrong")
    with pytest.raises(ExportError, match=r"example has shape \(1, 4, 4\)"):
        st.export(nn.Sequential(pixels), torch.zeros(1, 4, 4), name="wrong")
    pool = nn.Sequential(pixels, nn.AdaptiveAvgPool2d(3), nn.Flatten(), st.BinaryLinear(9, 2))
    with pytest.raises(ExportError, match=r"^1 \(AdaptiveAvgPool2d\): \(4, 4\) pixels become \(3, 3\)"):
        st.export(pool, torch.zeros(1, 1, 4, 4), name="wrong")
    dilated = nn.Sequential(pixels, nn.MaxPool2d(2, dilation=2))
    with pytest.raises(ExportError, match=r"^1 \(MaxPool2d\): dilation and return_indices"):
        st.export(dilated, torch.zeros(1, 1, 4, 4), name="wrong")


def test_functions_are_what_their_modules_are():
    f = nn.functional

    class Model(nn.Sequential):
        def forward(self, x):
            x = f.hardtanh(self[2](f.max_pool2d(self[1](self[0](x)), 2, stride=2, ceil_mode=True)), -3.5, 2.0)
            x = f.dropout(f.relu(input=self[4](self[3](x))), 0.5, training=self.training)
            x = f.avg_pool2d(f.relu6(x.clamp(max=9)), 2, 1)
            return self[5](torch.flatten(f.adaptive_avg_pool2d(torch.relu(x).clamp(0.5, 7), 1), 1))

    layers = [
        st.ImagePixels(offset=-128),
        st.BinaryConv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        st.Sign(),
        st.BinaryConv2d(4, 5, 2, bias=True),
        st.BinaryLinear(5, 3),
    ]
    network = check(Model(*layers), (2, 11, 11))
    first = ["Conv", "Pool", "Threshold", "Conv", "Affine", "Clip", "Clip", "Clip", "Pool"]
    assert kinds(network.layers)[:9] == first
    assert network.layers[1].padding == ((0, 1), (0, 1))


def test_weights_that_are_not_numbers_are_refused_by_name():
    model = vectors()
    with torch.no_grad():
        model[3].weight[0, 0] = float("nan")
    with pytest.raises(NotANumberError, match=r"^3 \(BinaryLinear\): "):
        st.export(model, torch.zeros(1, 9), name="wrong")
