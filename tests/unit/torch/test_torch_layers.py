"""Layers of simwarp.torch: their values beside `reference`'s, their gradients, and what they refuse."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

from reference import DtypeError, MissingExtraError, RangeError, SchemeError, ShapeError, bconv2d, bmm
from reference.bnn import Pixels, Reals, Signs
from reference.bnn.images import first_value

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("package", ["simwarp.torch", "gpu.outofcore.in_torch"])
def test_without_torch_the_extra_is_named(package, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'simwarp\[torch\]'") as caught:
        importlib.import_module(package)
    assert caught.value.name == "torch"


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="simwarp.torch needs torch")


@pytest.fixture(scope="module")
def layers(torch):
    return importlib.import_module("simwarp.torch")


def test_a_sign_of_zeros_is_one(torch, layers):
    x = torch.tensor([-1.0, -0.0, 0.0, 1e-40, -1e-40])
    assert layers.Sign()(x).tolist() == [-1, 1, 1, 1, -1]
    assert layers.Sign()(x.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [("identity", [3, 3, 3, 3]), ("clip", [0, 3, 3, 0]), ("polynomial", [0, 3, 4.5, 0])],
)
def test_gradients_of_the_sign(torch, layers, gradient, expected):
    x = torch.tensor([-1.5, -0.5, 0.25, 2.0], requires_grad=True)
    (3 * layers.Sign(gradient)(x)).sum().backward()
    assert x.grad.tolist() == expected


@pytest.mark.parametrize("padding_value", [0, -1, 1])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"), [(1, 1, 1), ((2, 1), (0, 2), (1, 2)), (1, "same", 1)]
)
def test_a_binary_convolution_is_that_of_the_reference(
    torch, layers, stride, padding, dilation, padding_value
):
    layer = layers.BinaryConv2d(5, 7, (3, 2), stride, padding, dilation, padding_value=padding_value)
    x = RNG.choice([-1.0, 1.0], (2, 5, 6, 8)).astype(np.float32)
    y = layer(torch.from_numpy(x)).detach().numpy().transpose(0, 2, 3, 1)
    left, right, top, bottom = layer.sides
    sides = ((top, bottom), (left, right))
    images = x.transpose(0, 2, 3, 1)
    if padding_value:
        images = np.pad(images, ((0, 0), *sides, (0, 0)), constant_values=padding_value)
        sides = ((0, 0), (0, 0))
    w = layer.weight.detach().numpy().transpose(2, 3, 1, 0)
    pair = {k: v if isinstance(v, tuple) else (v, v) for k, v in (("s", stride), ("d", dilation))}
    expected = bconv2d(images, w, stride=pair["s"], padding=sides, dilation=pair["d"])
    assert np.array_equal(y, expected)


def test_a_binary_product_is_that_of_the_reference_and_has_a_gradient(torch, layers):
    layer = layers.BinaryLinear(9, 4, bias=True)
    torch.nn.init.constant_(layer.bias, 0.5)
    x = RNG.choice([-1.0, 1.0], (3, 9)).astype(np.float32)
    y = layer(torch.from_numpy(x))
    expected = bmm(x, layer.weight.detach().numpy().T) + layer.bias.detach().numpy()
    assert np.array_equal(y.detach().numpy(), expected)
    y.sum().backward()
    assert np.array_equal(layer.weight.grad.numpy(), np.tile(x.sum(0), (4, 1)))


def test_latent_weights_are_clipped(torch, layers):
    layer = torch.nn.Sequential(layers.BinaryLinear(2, 1), torch.nn.Linear(1, 1))
    for parameter in layer.parameters():
        torch.nn.init.constant_(parameter, -3.0)
    layers.clip_latent_weights(layer)
    assert layer[0].weight.tolist() == [[-1, -1]]
    assert layer[1].weight.tolist() == [[-3]]


def test_pixels_are_those_of_the_reference(torch, layers):
    layer = layers.ImagePixels([3, -2], [-100, 7], fraction=5)
    x = RNG.integers(0, 256, (2, 4, 4, 2), dtype=np.uint8)
    pixels = Pixels((4, 4, 2), layer.scale.numpy(), layer.offset.numpy())
    y = layer(torch.from_numpy(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    assert np.array_equal(y.numpy() * 32, first_value(pixels, x))
    assert layer.double()(torch.from_numpy(x).permute(0, 3, 1, 2)).dtype == torch.float64


def test_reals_and_signs_are_those_of_the_reference(torch, layers):
    x = np.array([[0.25, 0.75, -0.25, -0.5, 1.26]], np.float32)
    y = layers.ImageReals(1)(torch.from_numpy(x))
    assert np.array_equal(y.numpy() * 2, first_value(Reals((5,), 1), x))
    thresholds = np.array([0.25, 1, -0.5, 0, 1.26], np.float32)
    bits = first_value(Signs((5,), thresholds), x)
    assert np.array_equal(layers.ImageSigns(thresholds)(torch.from_numpy(x)).numpy(), 2.0 * bits - 1)


def test_normalised_pixels(torch, layers):
    layer = layers.ImagePixels.normalised([0.485, 0.456], [0.229, 0.224], fraction=9)
    assert layer.scale.tolist() == [9, 9]
    assert layer.offset.tolist() == [-1084, -1042]


def test_what_layers_refuse(torch, layers):
    with pytest.raises(SchemeError, match="'clip' or 'identity' or 'polynomial'"):
        layers.Sign("tanh")
    with pytest.raises(DtypeError, match=r"int64: begin the model with"):
        layers.Sign()(torch.tensor([1]))
    for channels, filters, groups in ((4, 6, 4), (3, 4, 2), (4, 4, 0), (4, 4, 2.0)):
        with pytest.raises(
            SchemeError, match=rf"groups is {groups}, with {channels} channels and {filters} filters"
        ):
            layers.BinaryConv2d(channels, filters, 3, groups=groups)
    with pytest.raises(SchemeError, match="padding_value is 2"):
        layers.BinaryConv2d(4, 4, 3, padding_value=2)
    with pytest.raises(RangeError, match=r"-40000 … 25280: beyond int16"):
        layers.ImagePixels(256, -40000)
    with pytest.raises(DtypeError, match="not an integer"):
        layers.ImagePixels(0.5)
    with pytest.raises(ShapeError, match=r"\(1, 2\)"):
        layers.ImagePixels([[1, 2]])
    with pytest.raises(DtypeError, match=r"torch\.float32, and ImagePixels takes torch\.uint8"):
        layers.ImagePixels()(torch.zeros(1, 2))
    with pytest.raises(SchemeError, match="fraction is 16"):
        layers.ImageReals(16)
    with pytest.raises(DtypeError, match="use ImagePixels for bytes"):
        layers.ImageReals()(torch.zeros(1, 2, dtype=torch.uint8))


def trained(torch, layer, x):
    """What a layer gives, and its gradients for whole numbers from above."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape) % 7 - 3)
    return y.detach(), x.grad, layer.weight.grad.clone()


@pytest.mark.parametrize("padding_value", [0, -1, 1])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 1, 1, 1), ((2, 1), (0, 2), (1, 2), 3), (1, "same", 1, 1), (3, 0, 1, 2)],
)
def test_a_convolution_of_bits_trains_as_one_of_floats(
    torch, layers, stride, padding, dilation, groups, padding_value
):
    torch.manual_seed(1)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layer = layers.BinaryConv2d(
        6, 12, (2, 3), bias=True, padding_value=padding_value, products="bits", **options
    )
    x = layers.Sign()(torch.randn(3, 6, 7, 8))
    bits = trained(torch, layer, x)
    layer.products = "floats"
    for found, expected in zip(bits, trained(torch, layer, x), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)
    assert bits[1].abs().sum() > 0


@pytest.mark.parametrize("shape", [(5, 70), (2, 3, 70)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_product_of_bits_trains_as_one_of_floats(torch, layers, shape, dtype):
    torch.manual_seed(2)
    layer = layers.BinaryLinear(70, 9, bias=True, products="bits").to(getattr(torch, dtype))
    x = layers.Sign()(torch.randn(shape)).to(getattr(torch, dtype))
    bits = trained(torch, layer, x)
    layer.products = "floats"
    for found, expected in zip(bits, trained(torch, layer, x), strict=True):
        torch.testing.assert_close(found, expected)


def test_layers_of_bits_refuse_what_is_not_plus_or_minus_one(torch, layers):
    layer = layers.BinaryLinear(4, 2, products="bits")
    with pytest.raises(RangeError, match="input of a layer of bits is not ±1\nput Sign before it"):
        layer(torch.tensor([[1.0, -1.0, 0.5, 1.0]]))
    with pytest.raises(RangeError, match="not ±1"):
        layer(torch.tensor([[1.0, -1.0, float("nan"), 1.0]]))
    with pytest.raises(DtypeError, match=r"floats ±1, not torch\.int8"):
        layer(torch.ones(1, 4, dtype=torch.int8))
    with pytest.raises(SchemeError, match="products='bytes'"):
        layers.BinaryConv2d(1, 1, 1, products="bytes")
    assert repr(layer).endswith("products='bits')")
