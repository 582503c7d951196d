"""Operators of PyTorch: what they say of their answers without a GPU, to torch's compiler and to users."""

from __future__ import annotations

import importlib
import sys

import pytest

from reference.errors import MissingExtraError


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "gpu.operators", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'simwarp\[torch\]'"):
        importlib.import_module("gpu.operators")


@pytest.fixture
def fake():
    """Torch, and its tensors without contents, which know shape, strides and device."""
    torch = pytest.importorskip("torch")
    importlib.import_module("gpu.operators")
    with torch._subclasses.FakeTensorMode():
        yield torch


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_the_fake_product_has_the_shape_of_the_true_one(fake, turned):
    a = fake.empty((40, 7) if turned[0] else (7, 40), device="cuda", dtype=fake.float16)
    b = fake.empty((9, 40) if turned[1] else (40, 9), device="cuda")
    c = fake.ops.simwarp.bmm(a, b, *turned)
    assert (tuple(c.shape), c.dtype, c.device.type) == ((7, 9), fake.int32, "cuda")
    with pytest.raises(RuntimeError, match="simwarp::bmm: K is 7 in a and 40 in b"):
        fake.ops.simwarp.bmm(a, b, not turned[0], turned[1])


@pytest.mark.parametrize(("of_a", "of_b"), [((3,), ()), ((), (3,)), ((3,), (3,))])
def test_the_fake_product_of_stacks_has_their_axis(fake, of_a, of_b):
    a, b = fake.empty((*of_a, 7, 40), device="cuda"), fake.empty((*of_b, 9, 40), device="cuda")
    assert tuple(fake.ops.simwarp.bmm(a, b, transpose_b=True).shape) == (3, 7, 9)


@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
def test_the_fake_convolution_has_the_shape_of_torchs(fake, stride, padding, dilation):
    x, w = fake.empty(2, 16, 9, 8, device="cuda"), fake.empty(5, 16, 3, 2, device="cuda")
    y = fake.ops.simwarp.bconv2d(x, w, stride, padding, dilation)
    assert y.shape == fake.nn.functional.conv2d(x, w, None, stride, padding, dilation).shape
    assert (y.dtype, y.device.type) == (fake.int32, "cuda")
    assert y.is_contiguous(memory_format=fake.channels_last)
    with pytest.raises(RuntimeError, match="x has 16 channels, w 5"):
        fake.ops.simwarp.bconv2d(x, w.transpose(0, 1))
