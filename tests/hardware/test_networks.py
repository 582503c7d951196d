"""The six networks of the papers in full size, on a GPU: every image, in several batches, both ways."""

import numpy as np
import pytest

import gpu
import gpu.bnn
from reference.bnn import alexnet, mlp, resnet14, resnet18, run, vgg16, vgg_cifar

pytestmark = pytest.mark.gpu

IMAGES = 64
BATCHES = {"one": [40], "eight": range(8), "thirteen": range(40, 53), "many": np.arange(256) % IMAGES}


@pytest.fixture(scope="module")
def device():
    return gpu.CudaDevice()


@pytest.fixture(scope="module", params=[mlp, vgg_cifar, resnet14, alexnet, resnet18, vgg16])
def answered(request):
    """A network, its images, and their answer."""
    network = request.param(seed=7)
    images = np.random.default_rng(11).integers(0, 256, (IMAGES, *network.input.shape), dtype=np.uint8)
    return network, images, run(network, images)


@pytest.mark.parametrize("way", ["layers", "whole"])
def test_every_image_has_the_answer_of_the_definition(device, answered, way):
    network, images, expected = answered
    prepared = gpu.bnn.prepare(network, way=way, device=device)
    for which in map(list, BATCHES.values()):
        for _ in range(3):  # launch by launch, captured, and as a graph
            answer = prepared.run(images[which])
            for got, wanted in zip(answer, expected, strict=True):
                np.testing.assert_array_equal(got, wanted[which])
