"""torch's conv2d on ±1 with zero padding equals the bit convolution with excluded taps.

In float64 the sums are exact. Its padding is symmetric; other paddings are added to the images as zeros.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpu
import reference
from gpu.bconv import SCHEMES
from simwarp.testing.compare import assert_same_convolution
from simwarp.testing.geometries import conv_geometries
from simwarp.verify import Draw, simulator
from simwarp.verify.geometry_classes import SMALL_CLASSES

torch = pytest.importorskip("torch")


def drawn_signs(shape, seed, name):
    return (1 - 2 * (Draw(seed, name, 0).words(int(np.prod(shape))) % 2).astype(np.int8)).reshape(shape)


def by_torch(geometry, x, w):
    """The convolution by torch in NCHW and OIHW; zero padding contributes what an excluded tap does."""
    images = torch.from_numpy(np.moveaxis(x, 3, 1).astype(np.float64))
    filters = torch.from_numpy(w.transpose(3, 2, 0, 1).astype(np.float64))
    (top, bottom), (left, right) = geometry.pads
    if top == bottom and left == right:
        padding = top, left
    else:
        images, padding = torch.nn.functional.pad(images, (left, right, top, bottom)), 0
    answer = torch.nn.functional.conv2d(
        images, filters, stride=geometry.stride, padding=padding, dilation=geometry.dilation
    )
    return np.ascontiguousarray(np.moveaxis(answer.numpy(), 1, 3)).astype(np.int32)


@given(geometry=conv_geometries(*SMALL_CLASSES), seed=st.integers(0, 2**32 - 1))
def test_the_reference_agrees_with_torch(geometry, seed):
    x, w = drawn_signs(geometry.images, seed, "x"), drawn_signs(geometry.filters, seed, "w")
    expected = by_torch(geometry, x, w)
    assert_same_convolution(geometry, expected, reference.bconv2d(x, w, **geometry.options))


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(geometry=conv_geometries(*SMALL_CLASSES), seed=st.integers(0, 2**32 - 1))
def test_the_kernels_agree_with_torch(scheme, geometry, seed):
    x, w = drawn_signs(geometry.images, seed, "x"), drawn_signs(geometry.filters, seed, "w")
    got = gpu.bconv2d(x, w, **geometry.options, scheme=scheme, device=simulator())
    assert_same_convolution(geometry, by_torch(geometry, x, w), got)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@settings(max_examples=40)
@given(geometry=conv_geometries("no border", "1x1", "interior"), seed=st.integers(0, 2**32 - 1))
def test_same_padding_equals_torch_same_padding(geometry, seed):
    """Torch supports ``padding="same"`` for stride 1 only, where it equals TensorFlow's."""
    x, w = drawn_signs(geometry.images, seed, "x"), drawn_signs(geometry.filters, seed, "w")
    images = torch.from_numpy(np.moveaxis(x, 3, 1).astype(np.float64))
    filters = torch.from_numpy(w.transpose(3, 2, 0, 1).astype(np.float64))
    same = torch.nn.functional.conv2d(images, filters, padding="same", dilation=geometry.dilation)
    got = reference.bconv2d(x, w, padding="SAME", dilation=geometry.dilation)
    np.testing.assert_array_equal(np.moveaxis(same.numpy(), 1, 3).astype(np.int32), got)
