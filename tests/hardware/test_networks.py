"""The networks of the papers in full size, on a GPU: every image, in several batches, both ways."""

import time
from functools import partial

import numpy as np
import pytest

import gpu
import gpu.bnn
from gpu.cuda import driver as cuda_driver
from reference import pack
from reference.bnn import (
    Dense,
    Network,
    Signs,
    alexnet,
    lenet,
    mlp,
    resnet14,
    resnet18,
    run,
    run_ensemble,
    vgg16,
    vgg_cifar,
)
from reference.errors import CaptureError, DtypeError, NotANumberError, SchemeError, ShapeError

pytestmark = pytest.mark.gpu

IMAGES = 64
NETWORKS = [mlp, lenet, vgg_cifar, resnet14, alexnet, partial(alexnet, form="sc19"), resnet18, vgg16]
BATCHES = {"one": [40], "eight": range(8), "thirteen": range(40, 53), "many": np.arange(256) % IMAGES}


@pytest.fixture(scope="module")
def device():
    return gpu.CudaDevice()


@pytest.fixture(scope="module", params=NETWORKS)
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


# ---- tensors of torch


@pytest.mark.parametrize("way", ["layers", "whole"])
def test_tensors_that_rotate_have_answers_that_no_other_run_overwrites(device, answered, way):
    torch = pytest.importorskip("torch")
    network, images, expected = answered
    prepared = gpu.bnn.prepare(network, way=way, device=device)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            kept = []
            for first in range(0, 48, 8):
                batch = torch.zeros((8, *network.input.shape), dtype=torch.uint8, device="cuda")
                torch.cuda._sleep(1_000_000)
                batch.copy_(torch.from_numpy(images[first : first + 8]))
                kept.append((slice(first, first + 8), prepared.run(batch)))
                del batch
            stream.synchronize()
            for which, answer in kept:
                for got, wanted in zip(answer, expected, strict=True):
                    np.testing.assert_array_equal(got.download(), wanted[which])


def test_a_number_that_is_not_finite_in_a_tensor_is_named(device):
    torch = pytest.importorskip("torch")
    weights, logits = pack(np.ones((3, 2)), layout="row"), (np.ones(2, np.float32), np.zeros(2, np.float32))
    signs = Signs((3,), np.zeros(3, np.float32))
    prepared = gpu.bnn.prepare(Network("small", signs, (Dense(weights),), *logits), device=device)
    for _ in range(4):  # launch by launch, captured, and recorded
        bad = torch.ones(5, 3, device="cuda")
        bad[4, 1] = float("nan")
        prepared.run(bad)
        with pytest.raises(NotANumberError, match=r"images\[4, 1\]"):
            device.synchronize()
        assert prepared.run(torch.ones(5, 3, device="cuda")).sums.download().tolist() == [[3, 3]] * 5


def test_tensors_that_a_network_does_not_take_are_refused(device, small):
    torch = pytest.importorskip("torch")
    network, prepared = small
    images = torch.zeros((2, *network.input.shape), dtype=torch.uint8, device="cuda")
    with pytest.raises(SchemeError, match="images on the device"):
        prepared.run(images, pieces=2)
    with pytest.raises(DtypeError, match="uint8"):
        prepared.run(images.int())
    with pytest.raises(ShapeError, match="images have shape"):
        prepared.run(images[:, 1:].contiguous())
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        images.add_(1)
        with pytest.raises(CaptureError, match="capture of torch's"):
            prepared.run(images)


# ---- images of the host, in pieces


@pytest.fixture(scope="module")
def small(device):
    """A network that takes little time beside its copies."""
    network = mlp(seed=3)
    return network, gpu.bnn.prepare(network, device=device)


def images_in(memory, device, shape, seed):
    """Random images in page-locked memory of ours, of PyCUDA or of torch, or in ordinary memory."""
    images = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    if memory == "torch":
        torch = pytest.importorskip("torch")
        return torch.from_numpy(images).pin_memory().numpy()
    if memory == "pageable":
        return images
    pinned = device.pinned(shape, np.uint8)
    if memory == "PyCUDA":
        pinned = pytest.importorskip("pycuda.driver").pagelocked_empty(shape, np.uint8)
    pinned[...] = images
    return pinned


@pytest.mark.parametrize("memory", ["ours", "PyCUDA", "torch", "pageable"])
def test_pieces_from_every_memory_have_the_answer_of_the_definition(device, small, memory):
    network, prepared = small
    for seed, pieces in enumerate((7, 7, 7, 64, 1)):
        images = images_in(memory, device, (1000, *network.input.shape), seed)
        assert device.is_pinned(images) == (memory != "pageable")
        answer = prepared.run(images, pieces=pieces)
        images[...] = 0  # nothing reads it any more
        again = images_in("pageable", device, images.shape, seed)
        for got, wanted in zip(answer, run(network, again), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_stream_of_page_locked_batches_keeps_its_order(device, small):
    network, prepared = small
    shapes = [(count, *network.input.shape) for count in (300, 7, 300, 1, 300, 300, 90)]
    batches = [images_in("ours", device, shape, seed) for seed, shape in enumerate(shapes)]
    answers = list(prepared.stream(batches))
    for answer, batch in zip(answers, batches, strict=True):
        for got, wanted in zip(answer, run(network, batch), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_copies_overlap_launches(device):
    """Images on their way in pieces take less time than their copy and their launches one after the other."""
    prepared = gpu.bnn.prepare(resnet18(), device=device)
    images = images_in("ours", device, (512, 224, 224, 3), 0)
    there = device.upload(images)

    def seconds(work):
        found = []
        for _ in range(6):
            device.synchronize()
            start = time.perf_counter()
            work()
            device.synchronize()
            found.append(time.perf_counter() - start)
        return sorted(found)[1]

    alone = seconds(lambda: there.upload(images)) + seconds(lambda: prepared.run(there))
    assert seconds(lambda: prepared.run(images, pieces=4)) < alone


def test_an_exception_between_pieces_leaves_the_device_usable(device, small):
    network, prepared = small

    def interrupted():
        for seed in range(5):
            yield images_in("ours", device, (200, *network.input.shape), seed)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(prepared.stream(interrupted()))
    images = images_in("ours", device, (200, *network.input.shape), 9)
    np.testing.assert_array_equal(prepared.run(images).classes, run(network, images).classes)


# ---- several devices


def devices_here():
    """All CUDA devices, at least one."""
    gpu.CudaDevice()
    return [gpu.CudaDevice(i) for i in range(cuda_driver.load().Device.count())]


def test_all_gpus_share_a_batch_in_threads_of_their_own(device, small):
    network, _ = small
    split = gpu.bnn.prepare_split(network, devices_here())
    for seed in range(4):
        images = images_in("ours", device, (513, *network.input.shape), seed)
        for got, wanted in zip(split.run(images, pieces=3), run(network, images), strict=True):
            np.testing.assert_array_equal(got, wanted)
    device.upload(np.zeros(3)).download()  # in this thread


def test_an_ensemble_on_all_gpus_has_the_sum_of_the_definition(device):
    networks = [mlp(seed=seed) for seed in range(3)]
    ensemble = gpu.bnn.prepare_ensemble(networks, devices=devices_here())
    for seed in range(4):
        images = images_in("ours", device, (100, *networks[0].input.shape), seed)
        for got, wanted in zip(ensemble.run(images), run_ensemble(networks, images), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_layers_of_bits_train_as_layers_of_floats(dtype):
    torch = pytest.importorskip("torch")
    from simwarp.torch import BinaryConv2d, BinaryLinear, Sign

    torch.manual_seed(3)
    model = torch.nn.Sequential(
        BinaryConv2d(40, 24, 3, stride=2, padding=(1, 2), groups=2, products="bits"),
        torch.nn.BatchNorm2d(24),
        Sign("identity"),
        torch.nn.Flatten(),
        BinaryLinear(24 * 5 * 6, 10, products="bits"),
    )
    model = model.cuda().to(getattr(torch, dtype))
    x = Sign()(torch.randn(6, 40, 9, 9, device="cuda")).to(getattr(torch, dtype))
    found = []
    for products in ("bits", "floats"):
        model[0].products = model[4].products = products
        given = x.clone().requires_grad_()
        first, logits = model[0](given), model(given)
        model.zero_grad()
        logits.float().square().sum().backward()
        found.append(
            [first.detach(), logits.detach(), given.grad, model[0].weight.grad, model[4].weight.grad]
        )
    assert torch.equal(found[0][0], found[1][0])  # sums of whole numbers
    for bits, floats in zip(*found, strict=True):
        torch.testing.assert_close(bits, floats, rtol=2e-2, atol=2e-2 * float(floats.abs().max()))
